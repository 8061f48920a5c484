"""Quarantines on the disk: the manifest, the bytes that a reference names, and the limits."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from supervisor.core.quarantine.quarantine import MOST_AT_ONCE, MOST_CALLS
from supervisor.core.quarantine.quarantine_answers import read_answer
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import UserError
from supervisor.workspace import quarantines
from supervisor.workspace.quarantines import CallResult, NoRoomError, Quarantines
from tests.fakes.clock import FakeClock


class Record:
    """The audit log, as far as it is used; `flushed` counts the lines that are on the disk."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.flushed = 0

    def record(self, event: str, **fields: Any) -> None:
        assert event == "security_event"
        self.events.append(fields)

    def flush(self) -> None:
        self.flushed = len(self.events)


class World:
    """A copy, one session over it, and what is on record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock, self.audit = FakeClock(), Record()
        self.all = Quarantines(self.clock, self.audit, Redactor())

    async def open(self) -> tuple[str, ...]:
        self.all.open("s1", self.folder)
        return await self.all.look("s1")

    async def call(self, tool: str, **args: Any) -> CallResult:
        return await self.all.call("s1", tool, args)

    async def reference(self, path: str) -> str:
        listed = (await self.call("Glob", pattern=path)).text.splitlines()
        (found,) = [one for one in listed if one.startswith(f"typed://{quote(path)}?")]
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = tmp_path / "copy"
    (folder / "src").mkdir(parents=True)
    (folder / "src/a b.py").write_text("one = 1\ntwo = 2\n")
    (folder / "README.md").write_text("# demo\n")
    (folder / "bytes").write_bytes(b"\0\1")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("[core]\n")
    (tmp_path / "secret").write_text("never seen")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "way").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return World(folder)


async def test_the_manifest_has_plain_files_alone(world: World) -> None:
    (note,) = await world.open()
    assert note.startswith("in quarantine: 3 files can be read")
    listed = (await world.call("Glob")).text.splitlines()
    assert [one.partition("?")[0] for one in listed] == [
        *("typed://README.md", "typed://bytes", "typed://src/a%20b.py"),
    ]


async def test_a_file_is_read_by_reference(world: World) -> None:
    await world.open()
    reference = await world.reference("src/a b.py")
    found = await world.call("Read", reference=reference)
    assert found == CallResult(True, "1\tone = 1\n2\ttwo = 2\n3\t")
    part = await world.call("Read", reference=reference, first_line=2, last_line=2)
    assert part.text == "2\ttwo = 2"
    binary = await world.call("Read", reference=await world.reference("bytes"))
    assert "is binary" in binary.text
    assert world.audit.events == []


async def test_grep_answers_with_references(world: World) -> None:
    await world.open()
    found = await world.call("Grep", pattern="TWO|demo", ignore_case=True)
    first, one, second, two = found.text.splitlines()
    assert first.startswith("typed://README.md?")
    assert one == "1: # demo"
    assert second == await world.reference("src/a b.py")
    assert two == "2: two = 2"
    assert (await world.call("Grep", pattern="two", glob="*.md")).text == "nothing was found"


@pytest.mark.parametrize("pattern", ["(", "(?P<x>a)(?P<x>b)"])
async def test_a_pattern_that_is_none_is_said(world: World, pattern: str) -> None:
    await world.open()
    found = await world.call("Grep", pattern=pattern)
    assert not found.allowed
    assert world.audit.events[-1]["kind"] == "bad_arguments"


async def test_a_pattern_that_never_ends_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.folder / "long").write_text("a" * 5_000)
    await world.open()
    monkeypatch.setattr(quarantines, "SEARCH_S", 0.5)
    found = await world.call("Grep", pattern="(a*)*(a*)*b$")
    assert "takes too long" in found.text


def rewritten(path: Path) -> None:
    path.write_text("one = 1\ntwo = 3\n")


def longer(path: Path) -> None:
    path.write_text("one = 1\ntwo = 2\nmore\n")


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parents[2] / "secret")


def linked_on_the_way(path: Path) -> None:
    path.parent.rename(path.parents[2] / "elsewhere")
    path.parent.symlink_to(path.parents[2] / "elsewhere")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [rewritten, longer, linked, linked_on_the_way, piped, os.unlink])
async def test_what_changed_after_the_reference_is_refused(
    world: World, change: Callable[[Path], None]
) -> None:
    await world.open()
    reference = await world.reference("src/a b.py")
    change(world.folder / "src/a b.py")
    found = await world.call("Read", reference=reference)
    assert not found.allowed
    assert "never seen" not in found.text
    assert world.audit.events[-1]["kind"] == "changed_file"
    assert "two" not in (await world.call("Grep", pattern="two")).text


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../secret", "link", "way/secret", ".git/config", "src/a b.py"]
)
async def test_a_path_is_no_reference(world: World, name: str) -> None:
    await world.open()
    for spelled in (name, f"typed://{name}", f"file://{name}"):
        found = await world.call("Read", reference=spelled)
        assert not found.allowed
    assert {one["kind"] for one in world.audit.events} == {"bad_reference"}


async def test_what_is_denied_is_on_the_disk_before_the_answer(world: World) -> None:
    await world.open()
    found = await world.call("Bash", command="id")
    assert (found.allowed, found.risk) == (False, "critical")
    (event,) = world.audit.events
    assert (event["session"], event["kind"], event["tool"]) == ("s1", "denied_tool", "Bash")
    assert world.audit.flushed == 1


async def test_another_sessions_reference_and_an_old_one_are_refused(world: World) -> None:
    await world.open()
    reference = await world.reference("README.md")
    world.all.open("s2", world.folder)
    await world.all.look("s2")
    other = await world.all.call("s2", "Read", {"reference": reference})
    assert "another session's" in other.text
    world.clock.advance(301)
    assert "quarantine is over" in (await world.call("Read", reference=reference)).text
    assert [one["kind"] for one in world.audit.events] == ["bad_reference", "expired"]


async def test_a_hundred_calls_a_minute_and_one_line_on_record(world: World) -> None:
    await world.open()
    for _ in range(MOST_CALLS):
        assert (await world.call("Glob")).allowed
    for _ in range(5):
        assert not (await world.call("Glob")).allowed
    assert [one["kind"] for one in world.audit.events] == ["rate_limited"]
    world.clock.advance(61)
    assert (await world.call("Glob")).allowed


async def test_five_at_once_and_the_sixth_waits(world: World) -> None:
    for number in range(MOST_AT_ONCE):
        world.all.check_room()
        world.all.open(f"q{number}", world.folder)
    with pytest.raises(NoRoomError):
        world.all.check_room()
    assert world.audit.events[-1]["kind"] == "too_many_sessions"
    waiting = asyncio.ensure_future(world.all.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    world.all.close("q3")
    await asyncio.wait_for(waiting, 5)
    world.all.check_room()


async def test_the_key_is_overwritten_at_the_end(world: World) -> None:
    await world.open()
    key = world.all._held["s1"].key
    assert len(set(key)) > 8
    world.all.close("s1")
    world.all.close("s1")
    assert key == bytes(32)
    assert not (await world.call("Glob")).allowed
    with pytest.raises(UserError, match="over"):
        await world.all.answered("s1", read_answer(ANSWER))


ANSWER = json.dumps(
    {
        "verdict": "approve",
        "summary": "ghp_0123456789abcdefghijABCDEFGHIJ012345 <!-- x -->",
        "findings": [
            {"path": path, "line": 2, "severity": "low", "title": "t", "body": "b", "quote": said}
            for path, said in (("src/a b.py", "two = 2"), ("src/a b.py", "one"), ("link", ""))
        ],
    }
)


async def test_what_of_an_answer_does_not_stand_is_on_record(world: World) -> None:
    await world.open()
    found = await world.all.answered("s1", read_answer(ANSWER))
    assert [one.quote for one in found.findings] == ["two = 2"]
    assert found.dropped == {"path": 1, "quote": 1}
    assert "ghp_" not in found.summary
    assert "<!--" not in found.summary
    assert [one["kind"] for one in world.audit.events] == ["dropped_answers", "defused_text"]
    world.all.refused_answer("s1", "it isn't JSON")
    assert world.audit.events[-1] == {"session": "s1", "kind": "bad_answer", "why": "it isn't JSON"}


async def test_long_answers_are_cut_and_that_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(250):
        (world.folder / f"f{number:03}.txt").write_text("word " * 100 + "\n")
    (world.folder / "big").write_text("x\n" * 40_000)
    await world.open()
    listed = (await world.call("Glob", pattern="*.txt")).text.splitlines()
    assert listed[-1] == "[cut: 50 more; give a narrower pattern]"
    assert "[cut: " in (await world.call("Grep", pattern="word")).text.splitlines()[-1]
    assert "[cut: " in (await world.call("Read", reference=await world.reference("big"))).text
    monkeypatch.setattr(quarantines, "MOST_SEARCHED_BYTES", 10)
    assert "[cut: " in (await world.call("Grep", pattern="never")).text
    monkeypatch.setattr(quarantines, "MOST_FILES", 3)
    (note,) = await world.open()
    assert "are no plain files, or too long" in note
