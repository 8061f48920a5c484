"""What a person is told elsewhere: one line, in which an agent's text has no power."""

import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.waiting_lines import (
    MOST_OF_TITLE,
    NAMES,
    Kind,
    Line,
    TellTarget,
    WaitingRequest,
    call,
    line,
    retry_s,
    targets,
    theirs,
)
from supervisor.errors import UserError
from tests.tables import each_row

PAGE = "http://127.0.0.1:3700"
ONE = WaitingRequest("abc", "shop", "wants to push", "git push origin main")
KINDS: tuple[Kind, ...] = ("desktop", "ntfy", "slack", "discord", "webhook")


def one_line(kind: Kind, one: WaitingRequest = ONE) -> Line:
    return line(kind, one, ["a"], PAGE)


@each_row(
    "text, wanted",
    [
        ("", ()),
        (" , ", ()),
        ("desktop", (TellTarget("desktop"),)),
        (
            "desktop, ntfy=https://ntfy.example.org/topic?a=b",
            (TellTarget("desktop"), TellTarget("ntfy", "https://ntfy.example.org/topic?a=b")),
        ),
        ("webhook=http://127.0.0.1:8080/x", (TellTarget("webhook", "http://127.0.0.1:8080/x"),)),
    ],
)
def test_targets_are_kinds_and_addresses(text: str, wanted: tuple[TellTarget, ...]) -> None:
    assert targets(text, "GATEHOUSE_TELL") == wanted


@each_row(
    "text, why",
    [
        ("pager=https://example.org/SECRET", "number 1 is of no known kind"),
        ("https://example.org/SECRET", "number 1 is of no known kind"),
        ("desktop,slack", "number 2 has no address"),
        ("slack=example.org/SECRET", "number 1 has no address"),
        ("slack=file:///SECRET", "number 1 has no address"),
        ("slack=https:///SECRET", "number 1 has no address"),
        ("slack=https://example.org:99999/SECRET", "number 1 has no address"),
        ("slack=https://[::SECRET", "number 1 has no address"),
        ("desktop=https://example.org/SECRET", "the desktop has none"),
    ],
)
def test_a_wrong_target_is_told_without_its_address(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as raised:
        targets(text, "GATEHOUSE_TELL")
    assert "SECRET" not in str(raised.value)


def test_one_request_is_told_with_its_card() -> None:
    assert one_line("ntfy") == Line(
        "shop wants to push: git push origin main", f"{PAGE}/requests/abc", 1, 1
    )
    assert one_line("slack").text == "`shop` wants to push: `git push origin main`"
    assert one_line("desktop").text == "shop wants to push: git push origin main"


def test_many_are_one_line() -> None:
    found = line("ntfy", ONE, ["a", "b", "a", "b", "a", "b", "a"], PAGE)
    assert found == Line("7 requests wait in 2 sessions", f"{PAGE}/", 7, 2)
    assert line("discord", ONE, ["a", "a"], PAGE).text == "2 requests wait in `shop`"


def test_no_content_of_a_file_is_told_and_a_long_text_is_cut() -> None:
    assert theirs("ntfy", "cat > a.txt <<E\nCONTENT\nE", 90) == "cat > a.txt <<E…"
    assert theirs("ntfy", "x" * 500, 9) == "x" * 9 + "…"
    assert theirs("ntfy", "x" * 9, 9) == "x" * 9
    assert theirs("slack", " \n ", 9) == "`…`"


HOSTILE = "<!here> @channel @everyone <@1> [a](http://b) `x` *b* & \x1b[31m\u202e\r\nSECOND"


@each_row("kind", KINDS)
def test_what_an_agent_writes_has_no_power(kind: Kind) -> None:
    told = one_line(kind, ONE._replace(session=HOSTILE, title=HOSTILE))
    assert told.text.isprintable()
    assert "SECOND" not in told.text
    if kind in ("slack", "discord", "desktop"):
        assert not set("<>&@") & set(told.text)
    if kind in ("slack", "discord"):
        assert told.text.count("`") == 4, "each of the two texts is code, and nothing ends it"


@given(kind=st.sampled_from(KINDS), text=st.text())
def test_any_text_is_one_short_line_without_syntax(kind: Kind, text: str) -> None:
    told = theirs(kind, text, MOST_OF_TITLE)
    inside = told[1:-1] if kind in ("slack", "discord") else told
    assert len(inside) <= MOST_OF_TITLE + 1
    assert not any(unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cs") for one in told)
    if kind not in ("ntfy", "webhook"):
        assert not set("<>&@`") & set(inside)


def test_each_target_gets_what_it_understands() -> None:
    headers, body = call("ntfy", one_line("ntfy"))
    assert headers == {"Title": "Gatehouse", "Click": f"{PAGE}/requests/abc"}
    assert body == b"shop wants to push: git push origin main"
    assert call("ntfy", Line("a test", "", 0, 0)) == ({"Title": "Gatehouse"}, b"a test")
    slack = msgspec.json.decode(call("slack", one_line("slack"))[1])
    assert slack == {
        "text": f"`shop` wants to push: `git push origin main` {PAGE}/requests/abc",
        "unfurl_links": False,
        "unfurl_media": False,
    }
    discord = msgspec.json.decode(call("discord", one_line("discord"))[1])
    assert discord["content"] == slack["text"]
    assert discord["allowed_mentions"] == {"parse": []}
    headers, body = call("webhook", one_line("webhook"))
    assert headers == {"Content-Type": "application/json"}
    assert msgspec.json.decode(body) == {
        "text": "shop wants to push: git push origin main",
        "address": f"{PAGE}/requests/abc",
        "requests": 1,
        "sessions": 1,
    }


def test_an_id_can_not_lead_elsewhere() -> None:
    assert one_line("ntfy", ONE._replace(id="../a?b")).address == f"{PAGE}/requests/..%2Fa%3Fb"


def test_retries_slow_down_to_a_quarter_of_an_hour() -> None:
    assert [retry_s(count) for count in (1, 2, 3, 8, 9, 10**9)] == [5, 10, 20, 640, 900, 900]


def test_every_kind_has_a_name() -> None:
    assert set(NAMES) == set(KINDS)
