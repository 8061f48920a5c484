"""The status line of a refusal: for most clients all that their user sees of a refused CONNECT.
It must never be more than a line."""

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.egress.loop.refusals import MOST_PHRASE_CHARS, RefusalBody, as_http, phrase

TOKEN = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("denied by network(evil.example)", "denied by network(evil.example)"),
        ("", "Forbidden"),
        (" \r\n\t ", "Forbidden"),
        ("no\r\nX-Evil: yes\r\n\r\nbody", "no X-Evil: yes body"),
        ("gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n", "gr?n"),
        ("a\x1b[31mred\x00", "a\\u{1b}[31mred\\u{0}"),
        ("txt.\N{RIGHT-TO-LEFT OVERRIDE}exe", "txt.\\u{202e}exe"),
        (f"no host is `{TOKEN}.example`", "no host is `[redacted].example`"),
        ("w" * 1000, "w" * (MOST_PHRASE_CHARS - 3) + "..."),
    ],
)
def test_the_reason_is_said_in_one_short_line(why: str, said: str) -> None:
    assert phrase(RefusalBody(why=why)) == said


def test_a_token_at_the_cut_is_hidden_before_it() -> None:
    """Half of it would no longer look like one."""
    assert "ghp_" not in phrase(RefusalBody(why="w" * (MOST_PHRASE_CHARS - 10) + " " + TOKEN))


@given(why=st.text(max_size=400), status=st.sampled_from([403, 408, 502]))
@example(why="\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", status=403)
@example(why="\x85\u2028next", status=403)
def test_whatever_the_reason_a_client_reads_one_response(why: str, status: int) -> None:
    refusal = RefusalBody(why=why)
    assert len(phrase(refusal, status)) <= MOST_PHRASE_CHARS
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "origin.test")]))
    client.send(h11.EndOfMessage())
    client.receive_data(as_http(refusal, status))
    client.receive_data(b"")
    response, body, end, closed = (client.next_event() for _ in range(4))
    assert isinstance(response, h11.Response)
    assert (response.status_code, response.reason) == (status, phrase(refusal, status).encode())
    assert {name for name, _ in response.headers} == {
        b"content-type",
        b"content-length",
        b"cache-control",
        b"connection",
    }
    assert isinstance(body, h11.Data)
    assert isinstance(end, h11.EndOfMessage)
    assert isinstance(closed, h11.ConnectionClosed)
