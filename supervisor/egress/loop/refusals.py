"""The refusal that a client reads: 403 with the verdict's reason and rule.

The audit record has the same reason and rule (law 5). Tunnels and mitmproxy both answer with it. It
decides nothing.
"""

import http

import msgspec

from supervisor.core.network.egress_wire import TELL_OPERATOR, Answer
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.display import visible

# Longest part of the reason in the status line; clients print it in the middle of their own line.
MOST_PHRASE_CHARS = 160
_CUT = "..."
# Reasons often quote the agent. Secrets that only egress knows are in none of them.
_redactor = Redactor()


class RefusalBody(msgspec.Struct, frozen=True, kw_only=True):
    """The response body of a refusal."""

    error: str = "refused"
    why: str = "no verdict was given"
    remedy: str = ""
    rule: str | None = None
    request_id: str | None = None


# Git LFS clients ask for files here: its "Batch API".
_LFS_BATCH = "/objects/batch"
# Sent while the supervisor is too slow with reports: traffic wouldn't be recorded in time.
BUSY = Answer(
    question_id=0,
    decision="deny",
    why="the supervisor does not keep up, so nothing new is let through until it does",
    remedy="try again in a moment",
)
# For unreadable input: shown to the client and recorded.
UNREADABLE = "this is not a request that can be read"
BROKEN = RefusalBody(
    why="egress failed while it looked at this",
    remedy=TELL_OPERATOR,
)
# Raised by the dialler, since mitmproxy passes only its text on.
NOT_DIALLED = RefusalBody(
    why="nothing was allowed to be dialled here",
    remedy=TELL_OPERATOR,
)


# Fatal alerts `access_denied` and `internal_error`: RFC 8446 6.2.
_ACCESS_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"
_NOT_REACHED = b"\x15\x03\x03\x00\x02\x02\x50"


class RefusedConnectionError(Exception):
    """A connection can't go on. `said` is sent to the client, by default the refusal as HTTP with
    this status. `said_in_tls` is for a client that waits for the answer to its first TLS message.
    """

    def __init__(
        self, refusal: RefusalBody, status: int = 403, *, said: bytes | None = None
    ) -> None:
        super().__init__()
        self.refusal = refusal
        self.said = as_http(refusal, status) if said is None else said
        in_tls = _ACCESS_DENIED if status == http.HTTPStatus.FORBIDDEN else _NOT_REACHED
        self.said_in_tls = in_tls if said is None else said


def of_answer(answer: Answer) -> RefusalBody:
    """Return the refusal for an answer that isn't an allow."""
    error = (
        "busy"
        if answer is BUSY
        else "not answered in time"
        if answer.decision == "ask_timeout"
        else "denied"
    )
    return RefusalBody(
        error=error,
        why=answer.why,
        remedy=answer.remedy,
        rule=answer.rule,
        request_id=answer.request_id,
    )


def status_of(refusal: RefusalBody) -> int:
    """Return a refusal's status: temporary refusals and origin failures have their own."""
    return {"busy": 503, "unreachable": 502}.get(refusal.error, 403)


def as_http(refusal: RefusalBody, status: int = 403) -> bytes:
    """Return the whole response, which is the connection's last."""
    body = msgspec.json.encode(refusal)
    head = (
        f"HTTP/1.1 {status} {phrase(refusal, status)}\r\nContent-Type:"
        f" application/json\r\nContent-Length: {len(body)}\r\nCache-Control:"
        " no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def phrase(refusal: RefusalBody, status: int = 403) -> str:
    """Return the reason phrase (RFC 9112 4): the why, since most clients show only the status line
    of a refused CONNECT.

    INVARIANT: it is one line of printable ASCII. Otherwise a reason could end the head and begin
    another.
    """
    shown = visible(_redactor.text(" ".join(refusal.why.split())), one_line=True)
    said = "".join(char if " " <= char <= "~" else "?" for char in shown)
    if len(said) > MOST_PHRASE_CHARS:
        said = said[: MOST_PHRASE_CHARS - len(_CUT)] + _CUT
    return said or http.HTTPStatus(status).phrase


def of_contradiction(why: str) -> RefusalBody:
    """Return the refusal of a request that contradicts itself."""
    return RefusalBody(
        why=why, remedy="no rule can allow this; send a request that says one thing only"
    )


def of_credential(why: str) -> RefusalBody:
    """Return the refusal of a misplaced placeholder or another key."""
    return RefusalBody(
        why=why,
        remedy=(
            "send the placeholder in its own header to its own host only, or ask the operator to"
            " bind its credential otherwise"
        ),
    )


def of_push() -> RefusalBody:
    """Return the refusal of a push of git's by a credential of the person's: no rule of git's and
    no card would show what it moves."""
    return RefusalBody(
        why="this is a push, which doesn't go out as a mere request with a credential",
        remedy=(
            "push to a remote that the workspace has, by the address that it has there; the person"
            " can add one"
        ),
    )


def of_echo(why: str, path: str) -> RefusalBody:
    """Return the refusal of an answer that echoes a credential."""
    remedy = "the operator can see on record which request it was"
    if path.partition("?")[0].endswith(_LFS_BATCH):
        remedy = (
            "this server of Git LFS repeats the key that it is sent, so its files can't be fetched"
            " here; `GIT_LFS_SKIP_SMUDGE=1 git clone` leaves them out"
        )
    return RefusalBody(why=why, remedy=remedy)
