"""Security events, as a page and as JSON."""

import httpx

from tests.fakes.parts import FakeParts


async def test_security_events_are_shown_alone_and_in_pages(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    assert "There is none." in (await browser.get("/security")).text
    for number in range(101):
        parts.audit.record(
            "security_event",
            session="one",
            kind="denied_tool",
            tool=f"<b>{number}",
            risk="critical",
            why='a "security_event" denied',
        )
        parts.audit.record("all_resumed", by='"event":"security_event"')
    page = (await browser.get("/security")).text
    assert "&lt;b&gt;100" in page
    assert "<b>100" not in page
    assert "critical risk" in page
    assert 'href="/sessions/one"' in page
    found = (await cli.get("/api/security", params={"limit": 2})).json()
    assert [one["tool"] for one in found] == ["<b>100", "<b>99"]
    older = (await cli.get("/api/security", params={"before": found[1]["seq"]})).json()
    assert older[0]["tool"] == "<b>98"
    assert "Older events" in page


async def test_a_sessions_page_says_what_of_its_answer_was_dropped(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    answer = {"verdict": "comment", "summary": "All.", "findings": [], "is_answer": True}
    parts.sessions.add("q", kind="quarantine", review=answer | {"dropped": {"quote": 2}})
    page = (await browser.get("/sessions/q")).text
    assert "dropped: 2 whose quote isn&#39;t at its line" in page
    parts.sessions.change("q", review=answer | {"dropped": "odd"})
    assert "dropped" not in (await browser.get("/sessions/q")).text
