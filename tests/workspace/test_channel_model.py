"""Everything that can happen to a workspace, in random order, over the real thing: real files,
gate, database and journal.

Both sides edit; the person answers in every way there is, takes back what was done, and edits in
the middle of an effect; the supervisor ends, or is killed (a real process, kill -9 before a random
system call) and starts anew. `model_world` says what must hold after each step, and at the end both
sides meet once everything is approved.

Each in both modes: over a plain copy, and over an overlay. The loops aren't running: each look
is a step of its own, so a script is the same each time and shrinks.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.core.files.changes import names_of
from supervisor.core.files.undo_steps import ANY_MODE, Selection
from supervisor.errors import GatehouseError
from supervisor.records.audit_check import verify
from supervisor.sandbox.overlay_mount import make_removable, mount_overlay
from supervisor.workspace.trees.trees import COPY
from tests.examples import examples
from tests.fakes.gated import answer_all
from tests.fakes.own_process import KILLED, heard
from tests.workspace.conftest import SESSION, Desk
from tests.workspace.model_steps import (
    FIRST,
    QUIET,
    ROUGH,
    Answer,
    Api,
    Crash,
    Look,
    Race,
    Restart,
    Script,
    Step,
    System,
    TakeBack,
)
from tests.workspace.model_tree import LINES, Change, Op, difference, do, read_tree
from tests.workspace.model_world import World, all_of

SHARED_MEMORY = Path("/dev/shm")
ROUNDS = 12


# --- one life of the supervisor ------------------------------------------------------------------


class Life:
    """From one start of the supervisor to its end. `tell` is given the world after each step."""

    def __init__(self, desk: Desk, world: World, at: "Points") -> None:
        self.desk = desk
        self.world = world
        self.points = at

    @property
    def sides(self) -> Any:
        return self.desk.channel._now.sides

    async def begin(self, meanwhile: Change | None) -> None:
        """Open and recover. `meanwhile`: what the person did while nobody ran."""
        async with self.desk.channel._turn:
            opened = await self.desk.channel._open()
        opened.sides.fill_digests(opened.sides.without_digest())
        self.desk.gate.answers.offer_ready()
        await self.settle(meanwhile)
        self.world.note_folders(self.desk.host, self.desk.copy)

    async def step(self, step: Step) -> None:
        """One step of the script, and what must hold after it."""
        if isinstance(step, Op):
            self.edit(step)
        elif isinstance(step, Race):
            self.points.race, self.points.text = step, self.world.text()
            await self.act(step.during)
            self.points.race = None
            await self.settle(self.points.meanwhile)
            self.points.meanwhile = None
        elif isinstance(step, Look | Answer | Api | TakeBack):
            await self.act(step)
            await self.settle()
        self.world.note_folders(self.desk.host, self.desk.copy)

    async def act(self, step: System) -> None:
        before = {one.id for one in self.desk.requests() if one.answer == "approved"}
        match step:
            case Look():
                await self.look(step.where)
            case Answer():
                await self.answer(step)
            case Api():
                await self.ask(step)
            case TakeBack():
                await self.take_back(step)
        if not isinstance(step, Answer):
            now = {one.id for one in self.desk.requests() if one.answer == "approved"}
            assert now <= before, "approved by nobody"
        for request in self.desk.requests():
            if status(request) in ("allowed", "approved"):
                await self.desk.settled(request)

    def edit(self, op: Op) -> None:
        world, desk = self.world, self.desk
        if op.who == "person":
            do(desk.host, op, world.text())
            world.person_did(desk.host)
        else:
            do(desk.copy, op, world.text())
            world.note_copy(desk.copy)

    async def look(self, where: str) -> None:
        opened = self.desk.channel._now
        async with self.desk.channel._turn:
            if where == "host":
                await opened.incoming.run(None)
            else:
                await opened.comparison.run(None)
                opened.incoming.copy_changed(None)

    async def settle(self, meanwhile: Change | None = None) -> None:
        """What was allowed or approved is carried out, and what came of it is held against what
        may."""
        for request in self.desk.requests():
            if request.answer == "approved":
                self.world.approved.add(request.id)
            if status(request) in ("allowed", "approved"):
                await self.desk.settled(request)
        if meanwhile:
            self.world.note(meanwhile)
        try:
            self.world.check(self.desk.gate, self.sides, meanwhile)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{all_of(self.desk.requests())}") from error
        self.world.note_copy(self.desk.copy)

    async def answer(self, step: Answer) -> None:
        pending = sorted(self.desk.pending().values(), key=lambda one: change(one).path)
        if not pending:
            return
        request = pending[step.number % len(pending)]
        with contextlib.suppress(
            GatehouseError
        ):  # no merge, no hunks, or out of date: nothing was answered
            await self._answer(step, request, [one.id for one in pending])

    async def _answer(self, step: Answer, request: Request, ids: list[str]) -> None:
        channel, gate = self.desk.channel, self.desk.gate
        match step.how:
            case "approve" | "deny":
                said: Literal["approved", "denied"] = (
                    "approved" if step.how == "approve" else "denied"
                )
                gate.resolve(request.id, said, by="model", shown_fingerprint=request.fingerprint)
            case "approve-all" | "deny-all":
                answer_all(
                    gate, ids, "approved" if step.how == "approve-all" else "denied", by="model"
                )
            case "merge":
                card = await channel.conflict_card(request)
                await channel.apply_merge(
                    request.id, card.merged or "", by="model", fingerprint=request.fingerprint
                )
            case "give":
                await channel.give_host(request.id, by="model", fingerprint=request.fingerprint)
            case _:
                diff = (await channel.card(request)).diff
                hunks = [
                    one.id
                    for number, one in enumerate(diff.hunks if diff else ())
                    if step.number >> number & 1
                ]
                rest: Literal["drop", "pending"] = "drop" if step.how == "part-drop" else "pending"
                await channel.answer_part(
                    request.id, hunks, rest, by="model", fingerprint=request.fingerprint
                )

    async def ask(self, step: Api) -> None:
        channel, text = self.desk.channel, self.world.text()
        with contextlib.suppress(GatehouseError):
            match step.kind:
                case "write":
                    await channel.write(step.path, f"agent wrote {text}\n".encode(), "because")
                case "edit":
                    await channel.edit(
                        step.path,
                        f"line {step.number}\n",
                        f"agent edited {text}\n",
                        False,
                        "because",
                    )
                case "delete":
                    await channel.delete(step.path, "because")
                case "move":
                    await channel.move(step.path, step.other, "because")

    async def take_back(self, step: TakeBack) -> None:
        history, world = self.sides.history, self.world
        if not history.done:
            return
        if step.what == "all":
            selection, after = Selection(), 0
        elif step.what == "one":
            selection, after = (
                Selection(ids=(history.done[step.number % len(history.done)].request,)),
                None,
            )
        else:
            after = max(0, world.place - 1 - step.number % world.place)
            selection = Selection(after=after)
        world.undos += 1
        try:
            async with self.desk.channel.undoing() as undo:
                plan = await undo.plan(selection, merge=step.merge)
                await undo.carry_out(selection, token=plan.token, by="model", merge=step.merge)
        except GatehouseError:
            return
        if self.points.meanwhile is None and after is not None:
            self.check_restored(plan, after)

    def check_restored(self, plan: Any, after: int) -> None:
        """Undo gives back bytes and modes of each path that the person left alone since."""
        now = read_tree(self.desk.host)
        kept = {file.name for file in plan.files if file.doing in ("stays", "merged")}
        for name, entry in self.world.restored(after):
            if name in kept:
                continue
            found = now.get(name)
            if entry is None or entry.mode == ANY_MODE:
                assert (found is None) == (entry is None), (name, entry, found)
                assert found is None or found.kind == "dir", (name, entry, found)
            else:
                assert found == entry, f"`{name}` is {found} again, not {entry}"

    async def end(self) -> None:
        """Everything is approved until nothing more is asked: then both sides hold the same, but
        for what was refused."""
        for number in range(ROUNDS):
            before = (read_tree(self.desk.host), read_tree(self.desk.copy))
            for where in ("host", "copy", "host"):
                await self.look(where)
                await self.settle()
            ids = [one.id for one in self.desk.pending().values()]
            # Together, and the next time each for itself: where one can't be done, the others wait
            # for it no longer.
            for some in [ids] if number % 2 == 0 else [[one] for one in ids]:
                answer_all(self.desk.gate, some, "approved", by="model")
                await self.settle()
            if not ids and before == (read_tree(self.desk.host), read_tree(self.desk.copy)):
                break
        else:
            raise AssertionError(f"it never rests: {all_of(self.desk.requests()[-6:])}")
        self.check_met()

    def check_met(self) -> None:
        host, copy = read_tree(self.desk.host), read_tree(self.desk.copy)
        told = self.told()
        for name, mine in copy.items() | {(name, None) for name in host.keys() - copy.keys()}:
            theirs = host.get(name)
            if (
                theirs == mine
                or any(is_related(name, one) for one in told)
                or is_special(mine)
                or is_special(theirs)
            ):
                continue
            if (
                name in self.world.made
                and theirs is not None
                and mine is not None
                and theirs.kind == mine.kind == "dir"
            ):
                continue
            if theirs is not None and mine is not None and theirs[::2] == mine[::2]:
                assert (theirs.mode ^ mine.mode) & 0o777 == 0, (name, theirs, mine)
                continue
            raise AssertionError(f"nobody was told of `{name}`: host {theirs}, copy {mine}")

    def told(self) -> set[str]:
        """The paths about which a no, a failure or an undo is on record."""
        found = set(self.desk.refusals())
        for request in self.desk.requests():
            if status(request) == "denied" or (request.outcome and not request.outcome["ok"]):
                found.update(names_of(change(request)))
        for undo in self.sides.history.undos:
            found |= {one.name for one in self.sides.history.effects() if one.request == undo}
        found |= set(self.desk.channel._now.incoming._problems)
        return found


def is_related(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def is_special(entry: Any) -> bool:
    return entry is not None and entry.kind == "special"


def change(request: Request) -> FileChange:
    assert isinstance(request.action, FileChange)
    return request.action


# --- what happens in the middle of a step --------------------------------------------------------


class Points:
    """Steps of an effect, and system calls: where a race or the end comes."""

    def __init__(self, host: Path) -> None:
        self.host = host
        self.kill_in: int | None = None
        self.race: Race | None = None
        self.text = ""
        self.meanwhile: Change | None = None
        self._passed = 0

    def at(self, step: str) -> None:
        """Called by the product's fault points, in a thread."""
        self.tick()
        race = self.race
        if race is None:
            self._passed = 0
            return
        self._passed += 1
        if self._passed > race.point:
            self.race = None
            before = read_tree(self.host)
            do(self.host, race.op, self.text)
            self.meanwhile = difference(before, read_tree(self.host))

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by Python before most system calls (sys.addaudithook)."""
        if event.startswith(("os.", "open", "ctypes.call")):
            self.tick()

    def tick(self) -> None:
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.kill_in = None  # os.kill is a system call, too
                os.kill(os.getpid(), signal.SIGKILL)


class Place(NamedTuple):
    """Where one script is played, and how the copy is made."""

    folder: Path
    is_overlay: bool

    @property
    def host(self) -> Path:
        return self.folder / "host"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def session(self) -> Path:
        return self.data / "sessions" / SESSION


type Tell = Callable[[tuple[World, int]], object]


async def live(
    tell: Tell, place: Place, script: Sequence[Step], world: World, start: int, meanwhile: Change
) -> int:
    """Carry out the script from a step on until the supervisor ends; where to go on. A crash
    ends this very process."""
    points = Points(place.host)
    desk = Desk(place.data, place.host, is_overlay=place.is_overlay)
    desk.new_channel(points.at)
    try:
        async with desk.running(start=False, copy=start == 0):
            life = Life(desk, world, points)
            if start == 0:
                world.host = read_tree(desk.host, world.contents)
                world.note_copy(desk.copy)
            await life.begin(meanwhile)
            for number in range(start, len(script)):
                step = script[number]
                if isinstance(step, Restart):
                    return number + 1
                if isinstance(step, Crash):
                    world.undos += isinstance(step.during, TakeBack)
                    tell((world, number + 1))
                    sys.addaudithook(points.hook)
                    points.kill_in = step.point
                    await life.act(step.during)
                    points.kill_in = 0
                    points.tick()
                await life.step(step)
            await life.end()
    finally:
        desk.close()
    return len(script) + 1


def play(script: Sequence[Step], mode: str) -> None:
    """The whole script, life after life, in folders of its own."""
    fast = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="gatehouse-model-", dir=fast) as folder:
        place = Place(Path(folder), mode == "overlay")
        for name, permissions in FIRST.items():
            path = place.host / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"line {number}\n" for number in range(LINES)))
            path.chmod(permissions)
        world, at = World(), 0
        meanwhile: Change = {}
        while at <= len(script):
            end = next(
                (
                    number
                    for number in range(at, len(script))
                    if isinstance(script[number], Crash | Restart)
                ),
                None,
            )
            crash = script[end] if end is not None else None
            if not isinstance(crash, Crash):
                at = asyncio.run(live(lambda told: None, place, script, world, at, meanwhile))
                meanwhile = {}
            else:
                world, at = live_and_die(place, script, world, at, meanwhile)
                meanwhile = go_on_without(place, world, crash.meanwhile)
        verify(place.data / "audit.log")
        make_removable(place.session)


def live_and_die(
    place: Place, script: Sequence[Step], world: World, start: int, meanwhile: Change
) -> tuple[World, int]:
    """One life in a process of its own, which ends by kill -9; the world as it was told last,
    and where to go on."""
    code, told = heard(live, place, script, world, start, meanwhile)
    assert code == KILLED
    (last,) = told
    assert isinstance(last, tuple)
    return last


def go_on_without(place: Place, world: World, ops: Sequence[Op]) -> Change:
    """Nothing is torn; then both sides go on. What the person changed."""
    before = read_tree(place.host)
    for name, entry in difference(world.host, before).items():
        if entry is not None and entry.kind == "file":
            assert entry.token in world.contents or is_snapshot(place, entry.token), (
                f"`{name}` is torn: {entry}"
            )
    for op in ops:
        if op.who == "person":
            do(place.host, op, world.text())
        else:
            in_copy(place, op, world.text())
    return difference(before, read_tree(place.host, world.contents))


def in_copy(place: Place, op: Op, text: str) -> None:
    """What the agent did last, which nobody saw any more. An overlay is mounted for it, as it
    was a moment before."""
    if not place.is_overlay:
        do(place.session / COPY, op, text)
        return
    mounted = asyncio.run(mount_overlay(place.host, place.session))
    try:
        do(Path(f"/proc/self/fd/{mounted.merged_fd}"), op, text)
    finally:
        mounted.close()


def is_snapshot(place: Place, digest: str) -> bool:
    return any(place.session.rglob(f"*{digest[-60:]}*"))


# --- the tests -----------------------------------------------------------------------------------

# Of the machine at its busiest; a search that fails goes on to find the shortest script that does.
LIMIT_S = examples(600)
MODES = pytest.mark.parametrize("mode", ["copy", "overlay"])


@MODES
@pytest.mark.timeout(LIMIT_S)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=QUIET)
def test_nothing_happens_that_nobody_approved(mode: str, script: Script) -> None:
    play(script, mode)


@pytest.mark.many
@MODES
@pytest.mark.timeout(LIMIT_S)
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=ROUGH)
def test_over_kills_and_restarts(mode: str, script: Script) -> None:
    play(script, mode)
