"""What a session's programs are told while another program runs for them, and whose card goes."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from supervisor.core.approvals import status
from supervisor.core.secrets.redact import Redactor
from supervisor.server.agent import programs
from supervisor.server.agent.programs import (
    LONGEST_LINE,
    MOST_PRINTED,
    SEARCHED_AT_ONCE,
    PrintedLines,
)
from supervisor.server.app import build_agent_app, build_programs_app
from tests.fakes.parts import SECRET, FakeParts
from tests.server.conftest import client_of


def told(*blocks: bytes) -> list[str]:
    """What is told of these blocks of standard output, each taken after the one before is told."""
    printed = PrintedLines(Redactor([SECRET]))

    def each() -> Iterator[str]:
        for block in blocks:
            printed.take(0, block)
            yield from (line["out"] for line in printed.lines())
        yield from (line["out"] for line in printed.lines(is_end=True))

    return list(each())


def test_little_is_searched_for_secrets_at_once() -> None:
    hostile = b"password=" * (MOST_PRINTED // 9)
    for block in (hostile, hostile.replace(b"=", b"\n")):
        assert max(map(len, told(block))) <= SEARCHED_AT_ONCE + 2 * LONGEST_LINE
    plain = b"added 1 package\n" * (MOST_PRINTED // 16)
    assert "".join(told(plain)).encode() == plain


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
@pytest.mark.parametrize(("word", "count"), [("x", 9000), ("x ", 4500), ("y ", 4092)])
def test_a_secret_that_is_cut_in_a_long_line_is_not_told(word: str, count: int, cut: int) -> None:
    first, last = SECRET[:cut], SECRET[cut:]
    text = "".join(told(f"{word * count}{first}".encode(), f"{last}\nafter\n".encode()))
    assert text.endswith("\nafter\n")
    for part in (first, last):
        assert len(part) < 4 or part not in text
    whole = told(f"{'x' * 8180}{SECRET}{'x' * 20_000}\nafter".encode())
    assert "hunter2" not in "".join(whole)
    assert "".join(whole).endswith("\nafter")


def test_what_a_program_prints_for_terminals_is_told_as_it_is_seen() -> None:
    assert told(b"\x1b[1;31mred\x1b[0m\r\n 10%\r100%\n") == ["red\n100%\n"]
    split = f"{SECRET[:3]}\x1b[0m{SECRET[3:]}\n".encode()
    assert told(split) == ["[redacted]\n"]


async def test_no_answer_holds_an_escape_sequence(running: FakeParts) -> None:
    async with client_of(build_programs_app(running, "one", "http://127.0.0.1:1")) as door:
        asks = door.post("/v1/git", json={"command": "git push origin a"})
        program = asyncio.create_task(asks)
        while not (found := running.queue.pending("one")):
            await asyncio.sleep(0.01)
        running.gate.answers.close("gone \x1b]0;title\x07", found[0].id)
        last = json.loads((await program).text.splitlines()[-1])
        assert last["why"] == "gone \\u{1b}]0;title\\u{7}"


async def test_a_card_that_the_agent_waits_for_stays_when_its_program_leaves(
    running: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GONE_S", 0.01)
    page = "http://127.0.0.1:1"

    async def withdrawn(request_id: str) -> None:
        name = f"withdraw-{request_id}"
        (task,) = [one for one in asyncio.all_tasks() if one.get_name() == name]
        await task

    async with (
        client_of(build_programs_app(running, "one", page)) as door,
        client_of(build_agent_app(running, "one"), authorization="Bearer token-of-one") as agent,
    ):
        for is_awaited in (True, False):
            body = {"command": f"git push origin branch-{is_awaited}"}
            program = asyncio.create_task(door.post("/v1/git", json=body))
            while not (found := running.queue.pending("one")):
                await asyncio.sleep(0.01)
            path = f"/v1/requests/{found[0].id}?wait=60"
            while not running.queue.is_awaited(found[0].id):
                await asyncio.sleep(0.01)
            waits = asyncio.create_task(agent.get(path)) if is_awaited else None
            await asyncio.sleep(0)
            program.cancel()
            await asyncio.gather(program, return_exceptions=True)
            await withdrawn(found[0].id)
            now = running.queue.get(found[0].id)
            assert status(now) == ("pending" if is_awaited else "expired")
            if waits is not None:
                running.gate.answers.close("over", now.id)
                assert (await waits).json()["status"] == "expired"
