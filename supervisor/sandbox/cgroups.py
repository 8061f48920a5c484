"""One control group per sandbox, where this machine allows it.

The kernel then counts exactly and at once. It is an additional layer, not the boundary: many
machines delegate no group to an ordinary user, so the watchdog (`limits.py`) never depends on it.
Version 2 (one tree) and version 1 (a tree per controller, and the hybrid of both) are used alike.
It must never move a process that isn't the sandbox's. Nor may it change a group that it didn't
make, except to switch controllers on for its children.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from supervisor.core.text.numbers import whole_number

ROOT = Path("/sys/fs/cgroup")
PREFIX = "gatehouse-"
# The controllers of version 1 that we use, by the kernel's name.
_OURS_V1 = {"cpuacct": "cpu", "memory": "memory", "pids": "pids", "freezer": "freezer"}


class Cgroup:
    """The groups of one sandbox: one directory (v2) or one per controller (v1)."""

    def __init__(self, directories: dict[str, Path], version: int) -> None:
        self._directories = directories
        self._version = version

    @classmethod
    def make(cls, name: str, *, memory_bytes: int, processes: int) -> "Cgroup | None":
        """Return a new group with these bounds, or None where this machine provides no controller.
        A half-made group is removed."""
        for version, parents in ((2, _parent_v2()), (1, _parents_v1())):
            group = cls({}, version)
            for controller, parent in parents.items():
                group._add(
                    controller, parent / f"{PREFIX}{os.getpid()}-{name}", memory_bytes, processes
                )
            if group._directories:
                return group
        return None

    @staticmethod
    def sweep() -> None:
        """Remove the empty groups of supervisors that were killed. A group's name begins with
        its maker's pid."""
        for parent in {*_parent_v2().values(), *_parents_v1().values()}:
            for directory in parent.glob(f"{PREFIX}*"):
                maker = directory.name.removeprefix(PREFIX).partition("-")[0]
                if whole_number(maker) is not None and not Path("/proc", maker).exists():
                    _write_freezer(directory, is_frozen=False)
                    with contextlib.suppress(OSError):  # it isn't empty
                        directory.rmdir()

    @property
    def layers(self) -> tuple[str, ...]:
        """Return what it bounds or counts, in the words of `limits_in_force`."""
        names = sorted(self._directories.keys() - {"freezer"})
        return tuple(f"cgroup-v{self._version}:{name}" for name in names)

    def bounds(self, controller: str) -> bool:
        """Return whether the kernel itself bounds this (`memory`, `pids`) or counts it (`cpu`)."""
        return controller in self._directories

    def add(self, pids: Sequence[int]) -> None:
        """Put processes in; their children follow. Raise OSError."""
        for directory in set(self._directories.values()):
            for pid in pids:
                (directory / "cgroup.procs").write_text(str(pid))

    def freeze(self, *, is_frozen: bool) -> bool:
        """Stop all processes in it, or let them continue. Return whether this group can."""
        directory = self._directories.get("freezer")
        if self._version == 2:
            directory = next(iter(self._directories.values()), None)
        return directory is not None and _write_freezer(directory, is_frozen=is_frozen)

    def cpu_s(self) -> float | None:
        """Return the CPU seconds of everything that ever ran in it, or None where they aren't
        counted."""
        directory = self._directories.get("cpu")
        if directory is None:
            return None
        if self._version == 1:
            return _number(directory / "cpuacct.usage") / 1e9
        return _field(directory / "cpu.stat", "usage_usec") / 1e6

    def memory_bytes(self) -> int | None:
        """Return the memory charged to it, without the file cache that the kernel can drop."""
        directory = self._directories.get("memory")
        if directory is None:
            return None
        names = ("memory.current", "inactive_file", "active_file")
        if self._version == 1:
            names = ("memory.usage_in_bytes", "total_inactive_file", "total_active_file")
        cache = sum(_field(directory / "memory.stat", name) for name in names[1:])
        return max(0, _number(directory / names[0]) - cache)

    def out_of_memory(self) -> bool:
        """Return whether the kernel has killed something in it for using too much memory."""
        directory = self._directories.get("memory")
        events = "memory.oom_control" if self._version == 1 else "memory.events"
        return directory is not None and _field(directory / events, "oom_kill") > 0

    def remove(self) -> bool:
        """Remove it. Return False while a process is still in it."""
        for controller, directory in list(self._directories.items()):
            with contextlib.suppress(OSError):
                directory.rmdir()
            if not directory.exists():
                del self._directories[controller]
        return not self._directories

    def _add(self, controller: str, directory: Path, memory_bytes: int, processes: int) -> None:
        """Make and bound one directory. A controller that refuses is left out."""
        existed = directory in self._directories.values()
        try:
            if not existed:
                directory.mkdir(mode=0o755)
            for file, value in self._bounds(controller, memory_bytes, processes):
                (directory / file).write_text(value)
            self._directories[controller] = directory
        except OSError:
            if not existed:
                with contextlib.suppress(OSError):
                    directory.rmdir()

    def _bounds(self, controller: str, memory_bytes: int, processes: int) -> list[tuple[str, str]]:
        if controller == "pids":
            return [("pids.max", str(processes))]
        if controller == "memory" and self._version == 1:
            return [("memory.limit_in_bytes", str(memory_bytes))]
        if controller == "memory":
            return [("memory.max", str(memory_bytes)), ("memory.oom.group", "1")]
        return []


def _own_paths() -> dict[str, str]:
    """Return `controllers -> path` of this process (cgroups(7), /proc/pid/cgroup). The v2 tree
    names no controllers: ""."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return {name: path for _, name, path in (line.split(":", 2) for line in lines)}


def _parent_v2() -> dict[str, Path]:
    """Return our own group in the v2 tree, for each controller that its children can have."""
    path = _own_paths().get("")
    roots = [root for root in (ROOT, ROOT / "unified") if (root / "cgroup.controllers").exists()]
    if path is None or not roots:
        return {}
    parent = Path(os.path.normpath(f"{roots[0]}/{path}"))
    if not os.access(parent, os.W_OK):
        return {}
    with contextlib.suppress(OSError):
        # Refused (EBUSY) for the group that we are in ourselves, except the root: then the enabled
        # controllers have to do.
        (parent / "cgroup.subtree_control").write_text("+memory +pids")
    enabled = _words(parent / "cgroup.subtree_control")
    found = {name: parent for name in ("memory", "pids") if name in enabled}
    # cpu.stat counts in every v2 group, controller or not.
    return found | {"cpu": parent} if found else {}


def _parents_v1() -> dict[str, Path]:
    """Return our own group in each v1 tree that we may write to."""
    found: dict[str, Path] = {}
    for names, path in _own_paths().items():
        for name in names.split(","):
            ours = _OURS_V1.get(name)
            parent = Path(os.path.normpath(f"{ROOT}/{name}/{path}"))
            if ours is not None and parent.is_dir() and os.access(parent, os.W_OK):
                found[ours] = parent
    return found


def _write_freezer(directory: Path, *, is_frozen: bool) -> bool:
    """Freeze or thaw a group (cgroup-v2.rst, cgroup.freeze; freezer-subsystem.rst)."""
    words = {"cgroup.freeze": "01", "freezer.state": ("THAWED", "FROZEN")}
    for file, states in words.items():
        with contextlib.suppress(OSError):
            if (directory / file).exists():
                (directory / file).write_text(states[is_frozen])
                return True
    return False


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _field(path: Path, name: str) -> int:
    """Return the value of `name value` in a flat keyed file (cgroup-v2.rst); 0 where there is
    none."""
    words = _words(path)
    return int(words[words.index(name) + 1]) if name in words else 0
