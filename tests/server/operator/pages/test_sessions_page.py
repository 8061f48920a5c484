"""What the form of the Sessions page offers, and what older sessions' pages show."""

import asyncio
from pathlib import Path

import httpx
import pytest

from supervisor.core.actions import Exec
from supervisor.server.operator.pages import sessions_page
from supervisor.server.operator.pages.sessions_page import ENDED_ROWS, PRESSED_TWICE_S, folders_like
from tests.fakes.parts import FakeParts


def test_folders_are_offered_as_they_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("src/shop", "src/shelf", "src/.hidden", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "src/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "src/file").write_text("")
    assert folders_like("~/src/") == ["~/src/shelf", "~/src/shop"]
    assert folders_like(f"{tmp_path}/src/sh") == [f"{tmp_path}/src/shelf", f"{tmp_path}/src/shop"]
    assert folders_like("~/src/.") == ["~/src/.hidden"]
    assert folders_like("~/src/link") == []
    for nothing in (
        "",
        "src",
        "src/",
        "~",
        "~nobody/x",
        "/nowhere/at/all/",
        "/\0/",
        "/etc/shadow/",
    ):
        assert folders_like(nothing) == [], nothing


def test_a_large_folder_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_page, "MOST_ENTRIES", 7)
    for number in range(30):
        (tmp_path / f"{number}").mkdir()
    assert len(folders_like(f"{tmp_path}/")) == 7
    monkeypatch.setattr(sessions_page, "MOST_ENTRIES", 5000)
    assert len(folders_like(f"{tmp_path}/")) == sessions_page.MOST_FOLDERS


async def test_older_sessions_have_pages_of_their_own(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    for number in range(ENDED_ROWS + 3):
        parts.clock.advance(1)
        ended_at = parts.clock.now()
        parts.sessions.add(f"ended-{number}", name=f"Number {number}.", ended_at=ended_at)
    first = (await browser.get("/sessions")).text
    assert "Number 22." in first
    assert "Number 2." not in first
    assert f'href="/sessions?skip={ENDED_ROWS}#ended"' in first
    last = (await browser.get(f"/sessions?skip={ENDED_ROWS}")).text
    assert "Number 2." in last
    assert "Number 3." not in last
    assert 'href="/sessions?skip=0#ended"' in last
    assert "skip=40" not in last


async def test_a_card_says_what_its_session_does_and_waits_for(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    asked = parts.gate.ask(Exec(command="make <b>all</b>"), session_id="one")
    page = (await browser.get("/parts/running")).text
    assert "$ make &lt;b&gt;all&lt;/b&gt;" in page
    assert "waits for you" in page
    assert f'href="/?session={asked.session_id}"' in page
    assert "nothing asked yet" in page  # the other one


async def test_a_folder_of_our_own_is_on_no_page(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    parts.sessions.add(
        "reader",
        "/data/reviews/clones/0f/trees/3",
        kind="review",
        name="acme/shop#1 · Review, round 2",
        command=("gatehouse-review", "--base", "x", "--pull"),
    )
    for path in ("/sessions", "/sessions/reader", "/parts/running", "/api/sessions"):
        text = (await (cli if "/api/" in path else browser).get(path)).text
        assert "acme/shop#1 · Review, round 2" in text, path
        assert "/data/reviews" not in text, path


async def test_a_new_demo_removes_the_projects_of_ended_ones(
    browser: httpx.AsyncClient, parts: FakeParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    begun = []
    for _ in range(3):
        # A double press is one.
        answer, again = await asyncio.gather(browser.post("/demo"), browser.post("/demo"))
        assert again.headers["HX-Redirect"] == answer.headers["HX-Redirect"]
        parts.clock.advance(PRESSED_TWICE_S)
        begun.append(answer.headers["HX-Redirect"].removeprefix("/sessions/"))
        if len(begun) == 1:
            parts.sessions.change(begun[0], ended_at=parts.clock.now())
    projects = [Path(parts.sessions.get(one).workspace) for one in begun]
    assert [(one / ".git").is_dir() for one in projects] == [False, True, True]
    assert {one.parent for one in projects[1:]} == set(parts.settings.demos_dir.iterdir())
    assert parts.settings.demos_dir.is_relative_to(tmp_path / "cache")
