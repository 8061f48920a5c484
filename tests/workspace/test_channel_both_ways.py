"""Random edits on both sides, looks in any order, answers of every kind: what must hold after each
step, and at the end.

The loops aren't running: each look is a step of its own, so an example is the same each time and
shrinks.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Request, status
from supervisor.core.files.changes import names_of
from supervisor.errors import GatehouseError
from tests.examples import examples
from tests.workspace.conftest import Desk

LINES = 12
# The first is allowed by a rule, for the others somebody is asked; `d` may be a file or a folder.
PATHS = ("free/a.txt", "b.txt", "d/c.txt", "d")
type Content = str | None


class Edit(NamedTuple):
    """Somebody changes one line of a file, makes it with that, or removes it (None); `d` becomes
    a file by it."""

    who: Literal["person", "agent"]
    path: str
    line: int | None


class Move(NamedTuple):
    """The agent gives a file another name, where nothing is."""

    path: str
    to: str


class Look(NamedTuple):
    where: Literal["host", "copy"]


class Answer(NamedTuple):
    how: Literal["approve", "deny", "merge", "give"]
    which: int


STEPS = st.one_of(
    st.builds(Edit, st.sampled_from(["person", "agent"]), st.sampled_from(PATHS),
    st.one_of(st.none(), st.integers(0, LINES - 1))),
    st.builds(Move, st.sampled_from(PATHS), st.sampled_from(PATHS)),
    st.builds(Look, st.sampled_from(["host", "copy"])),
    st.builds(Answer, st.sampled_from(["approve", "deny", "merge", "give"]), st.integers(0, 3)),
)  # fmt: skip


class World:
    """Both folders, and what a content's fate may be."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.number = 0
        self.touched_by_agent: set[str] = set()
        self.host = self.read(desk.host)
        self.person_wrote: dict[str, Content] = {}
        self.agent_wrote: dict[str, Content] = {}
        self.checked: set[str] = set()
        self.moved: dict[str, Content] = {}
        self.seen_in_copy: set[tuple[str, Content]] = set()
        self.note_copy()

    def read(self, side: Path) -> dict[str, Content]:
        return {
            path: (side / path).read_text() if (side / path).is_file() else None for path in PATHS
        }

    def note_copy(self) -> None:
        self.seen_in_copy |= set(self.read(self.desk.copy).items())

    # -- steps ------------------------------------------------------------------------------------

    def edit(self, step: Edit) -> None:
        side = self.desk.host if step.who == "person" else self.desk.copy
        path = side / step.path
        if step.who == "agent":
            self.touched_by_agent |= related(step.path)
        if step.line is None:
            self.remove(path)
        else:
            if path.is_dir():
                shutil.rmtree(path)
            if path.parent.is_file():
                path.parent.unlink()
            path.parent.mkdir(exist_ok=True)
            lines = (
                path.read_text().splitlines()
                if path.is_file()
                else [f"line {n}" for n in range(LINES)]
            )
            self.number += 1
            lines[step.line] = f"{step.who} {self.number}"
            path.write_text("\n".join(lines) + "\n")
        now = self.read(side)
        wrote = self.person_wrote if step.who == "person" else self.agent_wrote
        wrote |= {name: now[name] for name in related(step.path)}
        if step.who == "person":
            self.host = now

    def move(self, step: Move) -> None:
        path, to = self.desk.copy / step.path, self.desk.copy / step.to
        if not path.is_file() or to.exists() or path in to.parents or to.parent.is_file():
            return
        self.touched_by_agent |= related(step.path) | related(step.to)
        to.parent.mkdir(exist_ok=True)
        path.rename(to)
        now = self.read(self.desk.copy)
        self.agent_wrote |= {name: now[name] for name in related(step.path) | related(step.to)}

    def remove(self, path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        elif path.parent.is_dir():
            path.unlink(missing_ok=True)

    async def look(self, step: Look) -> None:
        opened = self.desk.channel._now
        before = self.read(self.desk.copy)
        async with self.desk.channel._turn:
            if step.where == "host":
                await opened.incoming.run(None)
            else:
                await opened.comparison.run(None)
                opened.incoming.copy_changed(None)
        if step.where == "host":
            self.check_copy(before)
        await self.settle()

    async def answer(self, step: Answer) -> None:
        pending = sorted(self.desk.pending().values(), key=lambda one: change(one).path)
        if not pending:
            return
        request = pending[step.which % len(pending)]
        channel = self.desk.channel
        try:
            match step.how:
                case "approve":
                    self.desk.approve(request)
                case "deny":
                    self.desk.deny(request)
                case "merge" if "conflict" in change(request).hazards:
                    card = await channel.conflict_card(request)
                    await channel.apply_merge(
                        request.id, card.merged or "", by="tester", fingerprint=request.fingerprint
                    )
                    self.agent_wrote.pop(card.path, None)
                case "give" if "conflict" in change(request).hazards:
                    await channel.give_host(
                        request.id, by="tester", fingerprint=request.fingerprint
                    )
                    self.agent_wrote.pop(change(request).path, None)
                case _:
                    return
        except GatehouseError:
            return  # no merge, or the card is out of date: nothing was answered
        await self.settle()

    async def settle(self) -> None:
        """What was allowed or approved is carried out, and what came of it is held against what
        may."""
        for request in self.desk.requests():
            if status(request) in ("allowed", "approved"):
                await self.desk.settled(request)
        self.check_host()
        self.note_copy()

    # -- what must hold ---------------------------------------------------------------------------

    def check_host(self) -> None:
        """The host changed by effects only, each of which was about what was there; and what the
        person had written there was replaced only with an answer, or after it had been in the
        agent's copy."""
        done = [
            one
            for one in self.desk.requests()
            if one.outcome and one.outcome["ok"] and one.id not in self.checked
        ]
        self.checked |= {one.id for one in done}
        for effect in sorted(done, key=lambda one: one.settled_at or 0):
            action = change(effect)
            before = self.host[action.path]
            if action.to is not None:
                self.moved[effect.id] = before if before is not None else self.host[action.to]
                if before is None:
                    continue  # the person had done the same
                assert self.host[action.to] is None
                self.host[action.to] = before
            if before == self.content_after(effect):
                continue  # the person had done the same: nothing was left to do
            assert action.before in (
                (None, "dir") if before is None else (content_hash(before.encode()),)
            )
            if (
                before is not None
                and before == self.person_wrote.get(action.path)
                and effect.answer != "approved"
            ):
                assert (action.path, before) in self.seen_in_copy, (action.path, before)
            self.host[action.path] = self.content_after(effect)
        assert self.read(self.desk.host) == self.host

    def content_after(self, request: Request) -> Content:
        after = change(request).after
        if after is None or after == "dir" or change(request).to is not None:
            return None
        data = self.desk.channel._now.sides.blobs.read(after, 1 << 20)
        assert data is not None
        return data.decode()

    def check_copy(self, before: dict[str, Content]) -> None:
        """What the agent wrote and the host never had is not replaced by a look at the host."""
        now = self.read(self.desk.copy)
        done = [one for one in self.desk.requests() if one.outcome and one.outcome["ok"]]
        on_host = {self.content_after(one) for one in done} | set(self.moved.values())
        for path, content in self.agent_wrote.items():
            if content is not None and before[path] == content and content not in on_host:
                assert now[path] == content, path

    def check_end(self) -> None:
        host, copy = self.read(self.desk.host), self.read(self.desk.copy)
        on_record = {
            name
            for one in self.desk.requests()
            if status(one) in ("pending", "denied")
            for name in names_of(change(one))
        }
        for path in PATHS:
            if path not in self.touched_by_agent:
                assert copy[path] == host[path], path
            elif copy[path] != host[path]:
                assert on_record & related(path) or self.failed(path), (
                    path,
                    host[path],
                    copy[path],
                )

    def failed(self, path: str) -> bool:
        """Whether it was tried and the host said no (a folder with something in it, say): that
        is on record, too."""
        tried = [one for one in self.desk.requests() if one.outcome and not one.outcome["ok"]]
        return any(name in related(path) for one in tried for name in names_of(change(one)))


def change(request: Request) -> FileChange:
    assert isinstance(request.action, FileChange)
    return request.action


def related(path: str) -> set[str]:
    """The path and those above and below it: their fates hang together."""
    return {
        name
        for name in PATHS
        if f"{name}/".startswith(f"{path}/") or f"{path}/".startswith(f"{name}/")
    }


async def live(place: Path, steps: list[Edit | Move | Look | Answer]) -> None:
    host = place / "host"
    for path in PATHS[:3]:
        (host / path).parent.mkdir(parents=True, exist_ok=True)
        (host / path).write_text("".join(f"line {n}\n" for n in range(LINES)))
    desk = Desk(place / "data", host)
    try:
        async with desk.running(start=False):
            async with desk.channel._turn:
                opened = await desk.channel._open()
            opened.sides.fill_digests(opened.sides.without_digest())
            world = World(desk)
            for step in [
                *steps,
                Look("copy"),
                Look("host"),
                Look("copy"),
                Look("host"),
                Look("copy"),
            ]:
                match step:
                    case Edit():
                        world.edit(step)
                    case Move():
                        world.move(step)
                    case Look():
                        await world.look(step)
                    case Answer():
                        await world.answer(step)
            world.check_end()
    finally:
        desk.close()


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=14))
def test_nothing_of_anybodys_is_lost(steps: list[Edit | Move | Look | Answer]) -> None:
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(live(Path(place), steps))
