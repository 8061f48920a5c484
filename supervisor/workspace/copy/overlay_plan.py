"""List what an overlay must hide from the agent: all that a copy leaves out.

`contents` names what belongs; this names what doesn't, which is far less: git lists both in the
same walk, and only where there is a `.gatehouseignore` is each name asked about. It is separate
from `overlay`, which hides it. INVARIANT: whatever a copy would leave out is in `hidden`.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from supervisor.workspace.copy import git_copy
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.git_files import Listed, listed
from supervisor.workspace.disk.left_out import NAMES
from supervisor.workspace.trees.own_ignores import FILE_NAME, OwnIgnores


class Plan(msgspec.Struct):
    """Plan of an overlay. Paths are relative to the workspace. `files` is how many a copy would
    have; `hidden` what the agent must not see; `apart` what git ignores and the agent gets all the
    same, as its own; `left_out` what is hidden though git tracks it; `repositories` the folders
    (`""`: the workspace itself, else with a slash) that have a `.git`."""

    files: int = 0
    hidden: list[str] = []
    apart: list[str] = []
    left_out: list[str] = []
    repositories: list[str] = []


class Overview:
    """Overview of one host folder."""

    def __init__(self, host: Root, *, include_ignored: bool) -> None:
        self._workspace = host.path
        self._own = OwnIgnores(host)
        self._include_ignored = include_ignored
        self._says_something = os.path.lexists(host.path / FILE_NAME)
        self.plan = Plan()

    async def of(self, prefix: str) -> None:
        """Add a folder, and the repositories in it. OSError where it can't be read."""
        folder = self._workspace / prefix
        if await asyncio.to_thread(os.path.lexists, folder / ".git"):
            self.plan.repositories.append(prefix)
        git = await git_copy.find(folder, [])
        top = await git_copy.around(folder) if git is None and not prefix else None
        found = await listed(folder, top) if git is not None or top is not None else None
        if found is None:
            nested = await asyncio.to_thread(self._walk, prefix, by_default=True)
        else:
            nested = await self._by_git(prefix, found)
        for name in nested:
            if name not in self.plan.hidden and await asyncio.to_thread(
                os.path.lexists, self._workspace / name / ".git"
            ):
                await self.of(f"{name.rstrip('/')}/")

    async def _by_git(self, prefix: str, found: Listed) -> list[str]:
        """Read git's lists of a repository; return the folders that may be other repositories."""
        self.plan.files += found.files
        self._says_something = self._says_something or found.holds(FILE_NAME)
        if self._says_something:
            await asyncio.to_thread(self._leave_out, [prefix + name for name in found.names()])
        return [prefix + name for name in found.nested] + await asyncio.to_thread(
            self._ignored, [prefix + name for name in found.ignored]
        )

    def _leave_out(self, names: Iterable[str]) -> None:
        """Hide the listed paths that `.gatehouseignore` names: whole folders where it names
        those."""
        hidden: dict[str, None] = {}
        for name in names:
            if self._own.verdict(name) is True:
                parts = name.rstrip("/").split("/")
                above = ("/".join(parts[:number]) for number in range(1, len(parts)))
                hidden[
                    next((one for one in above if self._own.verdict(f"{one}/") is True), name)
                ] = None
                self.plan.left_out.append(name)
        self.plan.hidden += hidden

    def _ignored(self, names: Iterable[str]) -> list[str]:
        """Hide ignored paths; add the repositories among those that come all the same."""
        nested: list[str] = []
        for name in names:
            verdict = self._own.verdict(name) if self._says_something else None
            if verdict is True or (verdict is None and not self._include_ignored):
                self.plan.hidden.append(name)
                continue
            if verdict is None:
                self.plan.apart.append(name)
            if os.path.lexists(self._workspace / name / ".git"):
                nested.append(name)
            elif name.endswith("/"):
                nested += self._walk(name)
        return nested

    def _walk(self, start: str, *, by_default: bool = False) -> list[str]:
        """Walk a folder outside git: count its files, hide named ones; return the repositories
        below it. `by_default`: treat `left_out` folders as ignored."""
        nested: list[str] = []
        waiting = [start]
        while waiting:
            prefix = waiting.pop()
            with contextlib.suppress(OSError), os.scandir(self._workspace / prefix) as listing:
                entries = list(listing)
                self._says_something = self._says_something or any(
                    entry.name == FILE_NAME for entry in entries
                )
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    name = f"{prefix}{entry.name}/" if is_folder else prefix + entry.name
                    if entry.name == ".git":
                        continue
                    verdict = self._own.verdict(name) if self._says_something else None
                    if verdict is None and by_default and is_folder and entry.name in NAMES:
                        nested += self._ignored([name])
                    elif verdict is True:
                        self.plan.hidden.append(name)
                    elif not is_folder:
                        self.plan.files += 1
                    elif os.path.lexists(f"{entry.path}/.git"):
                        nested.append(name)
                    else:
                        waiting.append(name)
        return nested


async def look_over(host: Root, exclude: Iterable[Path], *, include_ignored: bool) -> Plan:
    """Return which files a copy of the folder would have, and what it would leave out."""
    overview = Overview(host, include_ignored=include_ignored)
    for folder in exclude:
        with contextlib.suppress(ValueError):
            overview.plan.hidden.append(str(folder.resolve().relative_to(host.path)))
    await overview.of("")
    return overview.plan
