"""What supervisor and egress say to each other: every message survives the way, only messages
do, no secret is printed."""

import msgspec
import pytest

from supervisor.core.actions import Network
from supervisor.core.network import egress_wire as wire

ASKED = Network(operation="connect", host="api.example.com", port=443, sni="api.example.com")
KEY = wire.Credential(
    placeholder="gh-placeholder-1",
    secret="s3cr3t-value",
    header="Authorization",
    hosts=("api.example.com",),
)
TO_EGRESS: tuple[wire.ToEgress, ...] = (
    wire.Configure(ca_directory="/ca", upstream_ca_bundle="/ca.pem", hold_s=30.0,
    names={"a.example": ("192.0.2.1",)}),
    wire.OpenListener(session_id="s1", listener_id=2),
    wire.CloseListener(session_id="s1", listener_id=2),
    wire.CloseSession(session_id="s1"),
    wire.CloseConnection(session_id="s1", connection_id="s1/7", why="allowed no longer"),
    wire.CloseConnection(session_id="s1", connection_id="s1/7", why="allowed no longer",
    question_id=9),
    wire.PutCredentials(session_id="s1", credentials=(KEY,)),
    wire.ForbidEndpoints(endpoints=(("127.0.0.1", 3700),)),
    wire.Answer(question_id=7, decision="allow", why="allowed", rule="network(api.example.com)",
    private_ok=True),
)  # fmt: skip
FROM_EGRESS: tuple[wire.FromEgress, ...] = (
    wire.Ready(),
    wire.Question(
        question_id=7, session_id="s1", connection_id="c1", action=ASKED, in_tunnel=True, after=6
    ),
    wire.Abandoned(question_id=7),
    wire.Settled(question_id=7, outcome="done", detail={"status": 200, "error": None}),
    wire.Outcomes(
        settled=(wire.Settled(question_id=7, outcome="failed", detail={"error": "reset"}),)
    ),
    wire.EgressRefused(session_id="s1", action=ASKED, why="TLS names another host"),
)


@pytest.mark.parametrize("message", TO_EGRESS, ids=lambda message: type(message).__name__)
def test_what_the_supervisor_says_arrives_as_it_was_said(message: wire.ToEgress) -> None:
    assert wire.decode_to_egress(wire.encode(message)) == message


@pytest.mark.parametrize("message", FROM_EGRESS, ids=lambda message: type(message).__name__)
def test_what_egress_says_arrives_as_it_was_said(message: wire.FromEgress) -> None:
    assert wire.decode_from_egress(wire.encode(message)) == message


def test_egress_can_not_speak_as_the_supervisor() -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode_from_egress(wire.encode(TO_EGRESS[-1]))
    with pytest.raises(msgspec.DecodeError):
        wire.decode_to_egress(wire.encode(FROM_EGRESS[1]))


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"type": "answer"}),
        msgspec.msgpack.encode({"type": "answer", "question_id": 1, "decision": "perhaps"}),
        msgspec.msgpack.encode({"type": "close_session", "session_id": "s1", "and": "more"}),
        wire.encode(wire.Ready()) + b"x",
    ],
)
def test_what_is_no_message_is_an_error_and_never_half_a_message(packet: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode_to_egress(packet)


def test_a_message_that_no_packet_holds_is_refused_without_its_content() -> None:
    secret = "s3cr3t" * 30_000
    with pytest.raises(ValueError, match=r"a message of \d+ bytes is longer than 131072") as caught:
        wire.encode(wire.Answer(question_id=1, decision="deny", why=secret))
    assert "s3cr3t" not in str(caught.value)


def test_a_credential_is_printed_without_its_secret() -> None:
    message = wire.PutCredentials(session_id="s1", credentials=(KEY,))
    assert "s3cr3t" not in f"{KEY!r} {KEY} {message!r}"
    assert "api.example.com" in repr(KEY)
