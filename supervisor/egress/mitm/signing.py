"""When to sign an AWS request anew: at its head, or once its body is complete.

The head is enough where it names everything that is signed. `sigv4` makes the signature, `secrets`
decides which host may have it. This module decides only when, and what a client reads where signing
isn't possible. INVARIANT: a request signed with a placeholder's key is signed anew, or isn't sent.
"""

from typing import NamedTuple

from mitmproxy import http

from supervisor.egress.admission.egress_sessions import ClientConnection
from supervisor.egress.loop.refusals import RefusalBody
from supervisor.egress.mitm.held_bodies import HeldBodies
from supervisor.egress.protocols import sigv4

_KEY = "gatehouse_signs"
_IN_PIECES = RefusalBody(
    why=f"the body is signed piece by piece (`{sigv4.HASH}`), which can't be done anew",
    remedy="have the client sign it as a whole or not at all, as AWS's own libraries do over https",
)
_UNREADABLE = RefusalBody(
    why="what is signed of this request can't be told from it, so that it can't be signed anew",
    remedy=(
        "sign it with Signature Version 4, its date in `x-amz-date`, `host` among the headers that"
        " are signed"
    ),
)


class _Wanted(NamedTuple):
    keys: str

    def __repr__(self) -> str:
        return "_Wanted()"


class Signer:
    """One per process."""

    def __init__(self, held_bodies: HeldBodies) -> None:
        self._held_bodies = held_bodies

    def wanted(self, flow: http.HTTPFlow, keys: str) -> None:
        """Have the request signed with these keys."""
        flow.metadata[_KEY] = _Wanted(keys)

    def at_head(self, flow: http.HTTPFlow, connection: ClientConnection) -> RefusalBody | None:
        """Sign the head in its final form, or have the body held. Return why the request must not
        be sent."""
        if _KEY not in flow.metadata:
            return None
        if sigv4.HASH in flow.request.headers:
            return _sign(flow, None)
        self._held_bodies.hold(flow, connection)
        return None

    def at_end(self, flow: http.HTTPFlow) -> RefusalBody | None:
        """Sign a complete request that wasn't signed yet. Return why it must not be sent."""
        return _sign(flow, flow.request.raw_content or b"") if _KEY in flow.metadata else None


def _sign(flow: http.HTTPFlow, body: bytes | None) -> RefusalBody | None:
    keys = sigv4.parse_keys(flow.metadata.pop(_KEY).keys)
    request = flow.request
    headers = {
        name.decode("latin-1").lower(): value.decode("latin-1")
        for name, value in request.headers.fields
    }
    headers.setdefault("host", request.host_header or "")
    if sigv4.is_in_pieces(headers):
        return _IN_PIECES
    signed = sigv4.parse(headers.get("authorization", ""))
    if keys is None or signed is None:
        return _UNREADABLE
    made = sigv4.resign(
        signed, keys, request.method, request.data.path.decode("latin-1"), headers, body
    )
    if made is None:
        return _UNREADABLE
    for name, value in made.items():
        request.headers[name] = value
    return None
