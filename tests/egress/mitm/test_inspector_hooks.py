"""Every hook of ours is made to raise by `test_failures`, and none that mitmproxy has is
overlooked: what raises in one lets the request through by default."""

import mitmproxy.proxy.layers.quic  # noqa: F401 (its hooks are known once it is imported)
from mitmproxy.hooks import all_hooks

from supervisor.egress.mitm.guard import Guard
from supervisor.egress.mitm.tls import GuardedTls
from tests.egress.loop.test_failures import AFTER, BEFORE, INSIDE

OF_EGRESS = {"add_log", "configure", "done", "load", "running", "update"}
# Ours, or those of what is never let through, or after the verdict: as they were looked at, one by
# one.
LOOKED_AT = {
    "body": {"piece"},
    "client": {"connected", "disconnected"},
    "dns": {"error", "request", "response"},
    "http": {"connect", "connect_error", "connect_upstream", "connected"},
    "quic": {"start_client", "start_server"},
    "server": {"connect", "connect_error", "connected", "disconnected"},
    "socks5": {"auth"},
    "tcp": {"end", "error", "message", "start"},
    "tls": {
        *(
            "clienthello",
            "start_client",
            "start_server",
            "established_client",
            "established_server",
        ),
        *("failed_client", "failed_server"),
    },
    "udp": {"end", "error", "message", "start"},
    "websocket": {"end", "message", "start"},
}
OF_HTTP = {"error", "next_layer", "request", "requestheaders", "response", "responseheaders"}


def test_every_hook_of_ours_is_made_to_raise() -> None:
    """A new one belongs in one of the lists of `test_failures`."""
    parts = ",".join((*BEFORE, *INSIDE, *AFTER)).split(",")
    tried = {(owner, name) for owner, _, name in (part.partition(".") for part in parts)}
    hooks = {
        (owner.__name__, name)
        for owner in (Guard, GuardedTls)
        for name in all_hooks
        if name in vars(owner)
    }
    # That one only keeps mitmproxy's own from answering.
    assert hooks - tried == {("GuardedTls", "request")}


def test_no_hook_of_mitmproxys_is_new() -> None:
    """With a newer mitmproxy: does it come before something is let through? Then it is ours to
    have."""
    known = {f"{kind}_{name}" for kind, names in LOOKED_AT.items() for name in names}
    assert set(all_hooks) == known | OF_EGRESS | OF_HTTP
