"""Explain why TLS failed on a connection, and name the rule for a tunnel. Pure.

It decides nothing.
"""

import re

from supervisor.egress.loop.refusals import NOT_DIALLED, RefusalBody
from supervisor.egress.protocols.checks import DEFAULT_PORTS

# mitmproxy's wording for the alerts `unknown_ca`, `bad_certificate` and `certificate_unknown`, and
# for a client that hangs up.
_UNTRUSTED, _HUNG_UP = "does not trust", "disconnected during the handshake"
# An origin's alerts in OpenSSL's wording. Often only a hang-up is seen. It comes within the
# handshake if the origin just closes, and after it with TLS 1.3, where the client finishes before
# its certificate is checked.
_WANTS_CERTIFICATE = ("certificate required", "alert bad certificate", "alert handshake failure")
_CLOSED = ("connection closed", "server closed connection")
_MOST_SHOWN = 200
# mitmproxy uses this text for both sides' resets.
_OF_EITHER = "stream reset by client"
# Where mitmproxy quotes an origin, or shows its HTTP/2 event (`<ConnectionTerminated ...>`, in
# hexadecimal). INVARIANT: a quote is never repeated, since it may be the credential that the origin
# was sent.
_QUOTED = re.compile(r"<|(?:bytearray\(|\bb)?['\"]|\\")


def tunnel_rule(host: str, port: int) -> str:
    """Return the rule change that would keep the connection from being inspected."""
    shown = f"[{host}]" if ":" in host else host
    rule = shown if port in DEFAULT_PORTS.values() else f"{shown}:{port}"
    return (
        f"`network({rule})` passes it on unread, where no rule with a method or path, no credential"
        " and no metering is about this host"
    )


def of_client(error: str, host: str, port: int) -> RefusalBody:
    """Explain why the client broke off its handshake with us."""
    if _UNTRUSTED in error:
        why = (
            f"the client does not take Gatehouse's certificate for `{host}`: it trusts certificates"
            " of its own choice (pinning)"
        )
    elif _HUNG_UP in error:
        why = (
            f"the client ended TLS with `{host}` after it saw Gatehouse's certificate: it may trust"
            " certificates of its own choice (pinning)"
        )
    else:
        why = f"TLS of the client for `{host}` can't be looked into"
    return RefusalBody(why=why, remedy=f"a rule for the host alone, {tunnel_rule(host, port)}")


def of_origin(error: str, host: str, port: int, *, has_begun: bool = False) -> RefusalBody:
    """Explain a failure of the origin, or of TLS with it. With `has_begun` it broke off its
    response, otherwise it gave none."""
    if NOT_DIALLED.why in error:  # that was us, and not the origin
        return NOT_DIALLED
    remedy = f"a rule for the host alone, {tunnel_rule(host, port)}"
    said = (
        _QUOTED.split(error, maxsplit=1)[0]
        .replace(_OF_EITHER, "stream reset")
        .rstrip(": ")[:_MOST_SHOWN]
    )
    if has_begun:
        why, remedy = f"`{host}` port {port} broke off its response: {said}", "try again"
    elif error.startswith("Certificate verify failed"):
        why = (
            f"the certificate of `{host}` can't be trusted:"
            f" {error.partition(': ')[2][:_MOST_SHOWN]}"
        )
        remedy = (
            f"the operator can name its authority in GATEHOUSE_UPSTREAM_CA; {remedy}, for the"
            " client to judge it"
        )
    elif any(alert in error for alert in _WANTS_CERTIFICATE):
        why = (
            f"`{host}` refused TLS: it may want a certificate of the client, which can't be shown"
            " while it is looked into"
        )
    elif "TLS" in error or "OpenSSL" in error:
        why = f"TLS with `{host}` failed"
    elif error in _CLOSED:
        why = (
            f"`{host}` hung up without a response: it may want a certificate of the client, which"
            " can't be shown while it is looked into"
        )
    else:
        why, remedy = (
            f"`{host}` port {port} gave no response: {said}",
            "check host and port, or try again",
        )
    return RefusalBody(error="unreachable", why=why, remedy=remedy)
