"""Laws of undo, on real folders: whatever was applied in whatever order, taking it back gives
exactly the tree of that moment."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import link_token
from supervisor.core.files.undo_steps import Selection
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.disk.scan import look
from supervisor.workspace.trees.journal import write_baseline
from supervisor.workspace.trees.trees import Sides
from supervisor.workspace.undo.undo import Undo
from tests.workspace.conftest import Desk, make_repository
from tests.workspace.undo.test_undo import Tree, tree

NAMES = ("a", "b", "d", "d/x", "d/y", "d/e", "d/e/z", "n/m/o")
CONTENTS = (b"", b"one\n", b"two\n", bytes(range(256)) * 40)
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(CONTENTS), st.sampled_from([0o644, 0o600, 0o755])),
    st.tuples(st.just("chmod"), st.just(b""), st.sampled_from([0o644, 0o700])),
    st.tuples(st.just("symlink"), st.sampled_from([b"a", b"../out", b"d/x"]), st.just(0)),
    st.tuples(st.just("mkdir"), st.just(b""), st.sampled_from([0o755, 0o700])),
    st.tuples(st.just("delete"), st.just(b""), st.just(0)),
)
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), OPERATIONS), max_size=14)


@pytest.fixture(scope="module")
def gate_desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One real gate and audit log for all examples."""
    folder = tmp_path_factory.mktemp("laws")
    desk = Desk(folder / "data", make_repository(folder / "host", {"x": "x"}))
    yield desk
    desk.close()


class Place:
    """A host folder with something in it, and a session that changes it."""

    def __init__(self, folder: Path, desk: Desk) -> None:
        self.host = folder / "host"
        (self.host / "d/e").mkdir(parents=True)
        (self.host / "d").chmod(0o750)
        (self.host / "a").write_bytes(b"mine\n")
        (self.host / "a").chmod(0o4755)
        (self.host / "d/e/z").write_bytes(os.urandom(6000))
        (self.host / "d/x").symlink_to("e/z")
        for name in ("a", "d/e/z", "d/x"):
            os.utime(self.host / name, ns=(1, 1_400_000_000_000_000_123), follow_symlinks=False)
        self.session = folder / "session"
        (self.session / "merged").mkdir(parents=True)
        write_baseline(self.session, {})
        self.desk = desk
        self.open()

    def open(self) -> None:
        self.sides = Sides(self.host, self.session, ())
        self.undo = Undo(self.sides, self.desk.gate, "laws", self.session)

    def apply(self, number: int, name: str, operation: str, content: bytes, mode: int) -> None:
        """What can't be done is left out, as the host refuses it."""
        applier = Applier(self.sides.host, self.sides.blobs, self.sides.history)
        try:
            host = look(self.sides.host, name)
        except (OSError, GatehouseError):
            return
        if operation == "chmod":
            if host is None or host.kind == "symlink":
                return
            if host.kind == "file":
                content = (self.host / name).read_bytes()
        if host is not None and host.kind == "dir" and operation in ("write", "symlink", "mkdir"):
            return
        after = {
            "delete": None, "mkdir": "dir", "symlink": link_token(os.fsdecode(content))
        }.get(operation,
        "dir" if host and host.kind == "dir" else self.sides.blobs.keep(content))  # fmt: skip
        action = FileChange(
            operation=operation,  # type: ignore[arg-type]
            path=name,
            before=host.token if host else None,
            after=after,
            mode=mode if operation in ("write", "chmod", "mkdir") else None,
            link_target=os.fsdecode(content) if operation == "symlink" else None,
        )
        request = f"request-{number}"
        try:
            applied = applier.apply(action, request, lambda rebuilt: None)
        except GatehouseError:
            return
        self.sides.agreed(name, applied.known, request)
        if operation == "delete":
            for folder in applier.prune(name, lambda folder: not folder.startswith("d"), request):
                self.sides.agreed(folder, None, request)

    def take_back(self, selection: Selection) -> None:
        async def work() -> None:
            plan = await self.undo.plan(selection)
            assert not plan.problems, plan.problems
            if plan.effective:
                await self.undo.carry_out(selection, token=plan.token, by="laws")

        if self.sides.history.done:
            asyncio.run(work())

    def place(self) -> int:
        history = self.sides.history
        return history.forgotten.number + len(history.done)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS, point=st.integers(0, 14), restart=st.booleans())
def test_any_moment_comes_back_exactly(
    gate_desk: Desk, steps: list[tuple[str, tuple[str, bytes, int]]], point: int, restart: bool
) -> None:
    with tempfile.TemporaryDirectory(prefix="gatehouse-laws-") as folder:
        place = Place(Path(folder), gate_desk)
        moments: list[tuple[int, Tree]] = [(0, tree(place.host))]
        for number, (name, (operation, content, mode)) in enumerate(steps):
            place.apply(number, name, operation, content, mode)
            moments.append((place.place(), tree(place.host)))
        if restart:
            place.sides.close()
            place.open()
        last = tree(place.host)
        at, wanted = moments[min(point, len(steps))]
        before_undo = place.place()
        if before_undo > at:
            place.take_back(Selection(after=at))
            assert tree(place.host) == wanted
            if place.place() > before_undo:
                place.take_back(Selection(after=before_undo))
                assert tree(place.host) == last
        place.take_back(Selection())
        assert tree(place.host) == moments[0][1]
        assert not list(place.host.rglob(".gatehouse-*"))
        place.sides.close()
