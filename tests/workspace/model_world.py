"""What the host must hold, worked out beside the product: the person's own edits, and what was
approved or allowed, in order.

After each step every difference of the host is held against the record. What changed must be an
effect of a request that a person approved or a rule allowed, or of an undo that was asked for;
each must have found what it was about; and what it replaced must be kept, byte for byte. What
somebody does between two steps of an effect (or while the supervisor is dead) may fall anywhere
among these effects.
"""

import contextlib
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Request, status
from supervisor.core.files.changes import name_of, names_of
from supervisor.core.files.swaps import single_changes
from supervisor.core.files.undo_steps import ANY_MODE, HeldContent
from supervisor.gate.gate import Gate
from supervisor.workspace.trees.journal import Intent, decode_name
from supervisor.workspace.trees.trees import Sides
from tests.workspace.model_tree import (
    Change,
    Entry,
    Tree,
    changed,
    difference,
    leftovers,
    read_tree,
)

RULED = "free/"


class World(msgspec.Struct):
    """Both sides as they were when somebody looked last. Plain values: it outlives the process
    that it was made in."""

    host: Tree = {}
    contents: dict[str, bytes] = {}
    texts: int = 0
    # What the person wrote and no effect has replaced since; what the agent's copy has ever held.
    by_person: dict[str, Entry] = {}
    in_copy: set[tuple[str, Entry]] = set()
    # How far the history was checked, and what its effects found: path -> (place, what was there
    # before).
    place: int = 0
    before: dict[str, list[tuple[int, Entry | None]]] = {}
    touched: dict[str, int] = {}
    approved: set[str] = set()
    undos: int = 0
    # Each side's folders by their inodes, and those that anybody ever made anew: their permissions
    # are their maker's umask's.
    folders: dict[str, dict[str, int]] = {}
    made: set[str] = set()

    def text(self) -> str:
        """One that was never written before."""
        self.texts += 1
        return f"text {self.texts}"

    # -- what somebody did ------------------------------------------------------------------------

    def person_did(self, host: Path) -> Change:
        """The person changed the host between two steps: that is how it must be now."""
        now = read_tree(host, self.contents)
        change = difference(self.host, now)
        self.note(change)
        self.host = now
        return change

    def note(self, change: Change) -> None:
        """These are the person's from now on."""
        for name, entry in change.items():
            self.touched[name] = self.place
            if entry is None:
                self.by_person.pop(name, None)
            else:
                self.by_person[name] = entry

    def note_copy(self, copy: Path) -> None:
        """What the agent has seen of the host can't be news to it."""
        self.in_copy |= set(read_tree(copy, self.contents).items())

    def note_folders(self, host: Path, copy: Path) -> None:
        """Which folders aren't the same any more."""
        for side, root in (("host", host), ("copy", copy)):
            now = dict(_inodes(root))
            before = self.folders.setdefault(side, now)
            self.made |= {
                name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
            }
            self.folders[side] = now

    # -- what must hold ---------------------------------------------------------------------------

    def check(self, gate: Gate, sides: Sides, meanwhile: Change | None = None) -> None:
        """The host holds what the record says, and what the person did `meanwhile`, and nothing
        else."""
        now = read_tree(sides.host.path, self.contents)
        history = sides.history
        assert not leftovers(sides.host.path), leftovers(sides.host.path)
        assert not history.open_batch
        assert not history.open_undo
        number = history.forgotten.number + len(history.done)
        assert number >= self.place, "history went away"
        effects = history.done[len(history.done) - (number - self.place) :]
        for intent in effects:
            self._check_effect(gate, sides, intent)
        self._explain(now, effects, meanwhile)
        self._log(effects, meanwhile)
        self.place = number
        self.host = now

    def _explain(self, now: Tree, effects: Sequence[Intent], meanwhile: Change | None) -> None:
        """INVARIANT of the product: host == what it was + the person's edits + these effects, in
        some order of the two."""
        problems: list[str] = []
        for at in range(len(effects) + 1) if meanwhile else [0]:
            try:
                found = self._simulated(effects, meanwhile or {}, at, now)
            except AssertionError as problem:
                problems.append(f"with the person at {at}: {problem}")
                continue
            for name, entry in found.items():
                if entry.mode == ANY_MODE and is_folder(now.get(name)):
                    found[name] = now[name]  # whatever the umask made of it
            left = {
                name: entry
                for name, entry in difference(found, now).items()
                if not self._is_way(name, entry, now)
            }
            if not left:
                return
            problems.append(
                f"with the person at {at}, not explained: {left}, expected"
                f" {[found.get(n) for n in left]}"
            )
        raise AssertionError(
            "\n".join(
                [*problems, f"effects: {[_told(one) for one in effects]}", f"did: {meanwhile}"]
            )
        )

    def _is_way(self, name: str, entry: Entry | None, now: Tree) -> bool:
        """An empty folder on the way to a file whose effect failed then."""
        return (
            entry is not None
            and entry.kind == "dir"
            and not any(one.startswith(f"{name}/") for one in now if now[one].kind != "dir")
        )

    def _simulated(self, effects: Sequence[Intent], meanwhile: Change, at: int, now: Tree) -> Tree:
        tree = dict(self.host)
        for number, intent in enumerate(effects):
            if number == at:
                tree = changed(tree, meanwhile)
            name = decode_name(intent.name)
            for folder in map(decode_name, intent.folders):
                assert tree.get(folder) is None, f"`{folder}` was made where {tree[folder]} was"
                tree[folder] = Entry("dir", ANY_MODE, "")
            parent = name.rpartition("/")[0]
            assert not parent or tree.get(parent, Entry("", 0, "")).kind == "dir", (
                f"`{name}` is in no folder"
            )
            assert same(tree.get(name), intent.before), (
                f"`{name}` held {tree.get(name)}, not {intent.before}"
            )
            if intent.after is None:
                assert not any(one.startswith(f"{name}/") for one in tree), (
                    f"`{name}` went with what was in it"
                )
                tree.pop(name, None)
            else:
                tree[name] = entry_of(intent.after)
        return tree if at < len(effects) else changed(tree, meanwhile)

    def _check_effect(self, gate: Gate, sides: Sides, intent: Intent) -> None:
        """Somebody or a rule said yes to exactly this, and what was there before can be had
        again."""
        name, before = decode_name(intent.name), intent.before
        self._check_kept(sides, intent)
        if intent.request in sides.history.undos:
            assert self.undos, "an undo that nobody asked for"
            return
        request = gate.queue.get(intent.request)
        action = request.action
        assert isinstance(action, FileChange)
        assert status(request) == "used", (name, request)
        if request.decision == "allow":
            assert name.startswith(RULED), (name, request)
            if action.operation != "edit":  # one that fits keeps all else that is in the file
                self._check_unasked(name, before)
        else:
            assert request.answer == "approved", (name, request)
            assert request.id in self.approved, (name, request)
        if name not in names_of(action):
            assert intent.after is None, (name, request)
            assert name_of(action).startswith(f"{name}/"), (name, request)
        elif action.to is None:
            # Of a swap each path is a step of its own.
            (step,) = (one for one in single_changes(action) if name_of(one) == name)
            assert token_of(intent.after) == step.after, (name, request)
            assert token_of(before) == step.before, (name, request)

    def _check_kept(self, sides: Sides, intent: Intent) -> None:
        before = intent.before
        if before is not None and before.kind == "file":
            data = sides.history.kept.read(before.digest or "", 1 << 30)
            assert data is not None, f"what `{decode_name(intent.name)}` held is not kept"
            assert content_hash(data) == before.digest

    def _check_unasked(self, name: str, before: HeldContent | None) -> None:
        """What the person wrote is replaced without an answer only where the agent had seen it."""
        mine = self.by_person.get(name)
        if mine is not None and same(mine, before) and mine.kind != "dir":
            assert any(name == one and entry.token == mine.token for one, entry in self.in_copy), (
                name,
                mine,
            )

    def _log(self, effects: Sequence[Intent], meanwhile: Change | None) -> None:
        at = self.place
        for at, intent in enumerate(effects, self.place + 1):
            name = decode_name(intent.name)
            for folder in map(decode_name, intent.folders):
                self.before.setdefault(folder, []).append((at, None))
            found = None if intent.before is None else entry_of(intent.before)
            self.before.setdefault(name, []).append((at, found))
            self.by_person.pop(name, None)
        for name in meanwhile or {}:
            self.touched[name] = at

    def restored(self, after: int) -> Iterator[tuple[str, Entry | None]]:
        """What each path that effects after a place changed held at that place, where nobody
        else touched it since."""
        for name, log in self.before.items():
            later = [found for at, found in log if at > after]
            if later and self.touched.get(name, -1) <= after:
                yield name, later[0]


def same(entry: Entry | None, held: HeldContent | None) -> bool:
    """Whether a path held this by bytes, link target and mode. A folder made on the way has any
    mode."""
    if entry is None or held is None:
        return entry is None and held is None
    if held.kind in ("fifo", "socket", "device"):
        return entry.kind == "special"
    return entry.kind == held.kind and (
        (entry.kind == "symlink" and entry.token == held.link_target)
        or (
            entry.kind == "dir"
            and (ANY_MODE in (entry.mode, held.mode) or entry.mode == stat.S_IMODE(held.mode))
        )
        or (entry.token == held.digest and entry.mode == stat.S_IMODE(held.mode))
    )


def entry_of(held: HeldContent) -> Entry:
    """The same as an entry."""
    if held.kind == "symlink":
        return Entry("symlink", 0o777, held.link_target)
    return Entry(
        held.kind,
        held.mode if held.mode == ANY_MODE else stat.S_IMODE(held.mode),
        held.digest or "",
    )


def _inodes(root: Path) -> Iterator[tuple[str, int]]:
    """All folders below one, but for those that an overlay lists and doesn't know any more
    (ESTALE): the person moved them."""
    for place, names, _ in root.walk():
        for path in (place / name for name in names):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    yield str(path.relative_to(root)), path.stat().st_ino


def is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "dir"


def token_of(held: HeldContent | None) -> str | None:
    """How an action names it."""
    return None if held is None else held.token


def _told(intent: Intent) -> tuple[object, ...]:
    return (
        decode_name(intent.name),
        intent.operation,
        intent.before,
        intent.after,
        intent.request[-6:],
    )


def all_of(requests: Sequence[Request]) -> list[tuple[object, ...]]:
    """Requests in short, for a failure's message."""
    return [(one.id[-6:], one.action, status(one), one.outcome) for one in requests]
