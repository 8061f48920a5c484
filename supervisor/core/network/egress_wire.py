"""Messages between the supervisor and egress: content, not transport.

Both ends import this module and nothing else of each other. A message is one packet of a Unix
SOCK_SEQPACKET pair that egress inherits: the kernel keeps packets whole and in order, so no framing
can get out of step, and the descriptor of a listening socket arrives with exactly the message about
it. The end of the stream means that the other side is gone: egress then refuses everything and
exits; the supervisor starts a new one.

The secrets of credentials travel here and nowhere else: never in arguments, the environment, a log
line or an exception.
"""

from typing import Literal

import msgspec

from supervisor.core.actions import Network
from supervisor.core.models.model_calls import ModelCall
from supervisor.core.models.usage import Usage

# Larger than any message that keeps to the limits of `egress.checks`; below the kernel's default
# send buffer (208 KiB).
MAX_MESSAGE_BYTES = 128 * 1024

# The remedy for an agent that can do nothing about it.
TELL_OPERATOR = "tell the operator: the cause is on the terminal that runs Gatehouse"

Decision = Literal["allow", "deny", "ask_timeout"]
Outcome = Literal["done", "failed"]
# Kind of a session's socket. `proxy`: clients name their host. `door`: connections of clients that
# know no proxy are redirected to it. `names`: it answers queries of names, and tells the name
# behind each address at the door. `host`: every connection goes to one port of this machine.
Listener = Literal["proxy", "door", "names", "host"]


class _Message(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True
):
    """A message; its type travels as `type`."""


class Credential(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret that a session may use without holding it.

    It applies to a request to one of `hosts` (`host` means port 443, else `host:port`; `*.host`
    every name below it) by `scheme` whose `header` holds `placeholder`, bare or after `Bearer `.
    Egress replaces the placeholder by `secret`; with `basic` also as the password of Basic
    credentials. `methods` and `paths` (globs), if given, restrict it further. With `signs` the
    secret is `ACCESS:SECRET[:TOKEN]` of AWS: a request signed with the placeholder as its access
    key is signed again. The placeholder anywhere else is refused. At its hosts, another key is
    refused too: in `header`, in one of `other_headers` (`name`, or `name: part` if only values with
    that part are keys) and in the query under one of `query_names`.
    """

    placeholder: str
    secret: str
    header: str
    hosts: tuple[str, ...]
    scheme: Literal["https", "http"] = "https"
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    basic: bool = False
    signs: bool = False
    other_headers: tuple[str, ...] = ()
    query_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # INVARIANT: printing a message never prints a secret.
        return f"Credential(header={self.header!r}, hosts={self.hosts!r})"


# -- supervisor to egress -------------------------------------------------------------------------


class Configure(_Message, frozen=True, kw_only=True, tag="configure"):
    """The first message. Paths are absolute. `names` is a table that replaces DNS; its answers are
    checked like DNS's.

    `model_hosts` serve models, in addition to the known ones. `start` is how often egress ran
    before.
    """

    ca_directory: str
    upstream_ca_bundle: str
    hold_s: float
    names: dict[str, tuple[str, ...]] | None = None
    model_hosts: tuple[str, ...] = ()
    start: int = 0


class OpenListener(_Message, frozen=True, kw_only=True, tag="open_listener"):
    """Serve the socket that comes with this message: its connections belong to this session."""

    session_id: str
    listener_id: int = 0
    kind: Listener = "proxy"
    port: int = 0


class CloseListener(_Message, frozen=True, kw_only=True, tag="close_listener"):
    """Stop serving one of a session's listening sockets; its connections go on."""

    session_id: str
    listener_id: int


class CloseSession(_Message, frozen=True, kw_only=True, tag="close_session"):
    """Stop serving a session and end its connections."""

    session_id: str


class CloseConnection(_Message, frozen=True, kw_only=True, tag="close_connection"):
    """End one connection of a session, because its permission has ended. `why` is its outcome on
    record.

    With `question_id`, only what this question allowed ends: a request of HTTP/1 together with its
    connection, or a stream of HTTP/2 alone. If it is over already, nothing ends; if it hasn't
    begun, nothing of it is sent.
    """

    session_id: str
    connection_id: str
    why: str
    question_id: int | None = None


class PutCredentials(_Message, frozen=True, kw_only=True, tag="put_credentials"):
    """All credentials of a session; replaces the earlier ones."""

    session_id: str
    credentials: tuple[Credential, ...]


class KeepBodies(_Message, frozen=True, kw_only=True, tag="keep_bodies"):
    """Start or stop sending the beginnings of a session's request and response bodies. Off at
    first."""

    session_id: str
    is_on: bool


class ForbidEndpoints(_Message, frozen=True, kw_only=True, tag="forbid_endpoints"):
    """All of Gatehouse's own listeners: never dialled, whatever a rule says."""

    endpoints: tuple[tuple[str, int], ...]


class RulesChanged(_Message, frozen=True, kw_only=True, tag="rules_changed"):
    """The rules changed: an earlier verdict is no longer likely to be given again."""


class Answer(_Message, frozen=True, kw_only=True, tag="answer"):
    """The verdict on a question. `private_ok`: a rule names these addresses, so they may be dialled
    although they are private.

    `settle`: a `Settled` is expected. `look_inside`: a connection is decrypted and each of its
    requests judged; otherwise egress passes TLS on unread. `lasts`: only rules allowed it, without
    a limit of uses or time, so an equal question will probably be allowed too. `granted`: how much
    of the drawn amount the session has now. `over_budget`: it was denied because of a budget.
    """

    question_id: int
    decision: Decision
    why: str = ""
    remedy: str = ""
    rule: str | None = None
    request_id: str | None = None
    private_ok: bool = False
    settle: bool = False
    look_inside: bool = True
    lasts: bool = False
    granted: int = 0
    over_budget: bool = False


type ToEgress = (
    Configure
    | OpenListener
    | CloseListener
    | CloseSession
    | CloseConnection
    | PutCredentials
    | KeepBodies
    | ForbidEndpoints
    | RulesChanged
    | Answer
)


# -- egress to supervisor -------------------------------------------------------------------------


class Ready(_Message, frozen=True, kw_only=True, tag="ready"):
    """Egress is configured and serves from now on."""


class Question(_Message, frozen=True, kw_only=True, tag="question"):
    """May this session do this? Answered by exactly one `Answer`, unless it is abandoned first.

    `connection_id` names the client's connection; `in_tunnel` marks a request inside a CONNECT of
    the same connection. A name is looked up only after it was allowed (a look-up is a message to
    its owner), so an action without `resolved` is asked first. It is then asked once more with the
    addresses, and `after` is the question that was allowed; if the addresses are known already,
    both are asked at once. `headers` are for the person to see, without values that authenticate.
    `is_upgrade`: once allowed, the connection continues as a WebSocket, in which nothing more is
    asked.
    """

    question_id: int
    session_id: str
    connection_id: str
    action: Network
    in_tunnel: bool = False
    is_upgrade: bool = False
    after: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Abandoned(_Message, frozen=True, kw_only=True, tag="abandoned"):
    """The client went away while the question was open: nobody waits for the answer any more."""

    question_id: int


class Settled(_Message, frozen=True, kw_only=True, tag="settled"):
    """Outcome of an allowed question. `detail`: status, bytes up and down, duration_s, error.

    `headers` are the response's, for the person to see like those of a question: never on record.
    """

    question_id: int
    outcome: Outcome
    detail: dict[str, str | int | float | None]
    headers: tuple[tuple[str, str], ...] = ()


class Outcomes(_Message, frozen=True, kw_only=True, tag="outcomes"):
    """Outcomes of several questions, in the order of their ends. One packet, so that the supervisor
    wakes once."""

    settled: tuple[Settled, ...]


class Moving(_Message, frozen=True, kw_only=True, tag="moving"):
    """Bytes sent and received so far by questions that aren't settled yet: id, out, in. Nothing
    depends on it."""

    moved: tuple[tuple[int, int, int], ...]


class EgressRefused(_Message, frozen=True, kw_only=True, tag="refused"):
    """Egress refused something itself, before any rule: a contradiction in the request, or an
    address that is never dialled.

    `count`: the number of similar refusals since the last such message, including this newest one.
    """

    session_id: str
    action: Network
    why: str
    count: int = 1


class Reserve(_Message, frozen=True, kw_only=True, tag="reserve"):
    """May this session make this model call, whose request was allowed as the question `of`?
    Answered like a question, by its id; `Spent` follows an allow."""

    question_id: int
    session_id: str
    host: str
    call: ModelCall
    of: int


class Spent(_Message, frozen=True, kw_only=True, tag="spent"):
    """Usage of a reserved call. `usage` None: its end wasn't seen."""

    question_id: int
    usage: Usage | None


class Draw(_Message, frozen=True, kw_only=True, tag="draw"):
    """May this session send so much more: requests (a connection that is passed on unread counts as
    one), or bytes? Answered like a question, by its id."""

    question_id: int
    session_id: str
    kind: Literal["requests", "bytes_out"]
    wanted: int


class Used(_Message, frozen=True, kw_only=True, tag="used"):
    """Traffic that a session sent since the last such message, and the unused part of its drawn
    amount that it returns. `is_last`: it sends no more, and has returned all the rest."""

    session_id: str
    requests: int = 0
    bytes_out: int = 0
    requests_back: int = 0
    bytes_out_back: int = 0
    is_last: bool = False


class Body(_Message, frozen=True, kw_only=True, tag="body"):
    """The beginning of an inspected body, decoded, without the secrets that egress knows; the whole
    body had `whole_bytes`. Sent before its `Settled`."""

    question_id: int
    of: Literal["request", "response"]
    media_type: str
    data: bytes
    whole_bytes: int


type FromEgress = (
    Ready
    | Question
    | Abandoned
    | Settled
    | Outcomes
    | Moving
    | EgressRefused
    | Reserve
    | Spent
    | Draw
    | Used
    | Body
)

_encoder = msgspec.msgpack.Encoder()
_to_egress: msgspec.msgpack.Decoder[ToEgress] = msgspec.msgpack.Decoder(ToEgress)
_from_egress: msgspec.msgpack.Decoder[FromEgress] = msgspec.msgpack.Decoder(FromEgress)


def encode(message: ToEgress | FromEgress) -> bytes:
    """Return one packet. Raise `ValueError` if the message is too long for a packet; the error
    shows no content."""
    packet = _encoder.encode(message)
    if len(packet) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(packet)} bytes is longer than {MAX_MESSAGE_BYTES}")
    return packet


def decode_to_egress(packet: bytes | memoryview) -> ToEgress:
    """Decode the supervisor's message. Raise `msgspec.DecodeError` if it isn't one."""
    return _to_egress.decode(packet)


def decode_from_egress(packet: bytes | memoryview) -> FromEgress:
    """Decode egress's message. Raise `msgspec.DecodeError` if it isn't one."""
    return _from_egress.decode(packet)
