"""Inputs of an install plan: the project's manifest and lock, from the private copy.

It only reads: by programs of the system, in a sandbox without a network (`InstallSandbox.read`).
`core.packages.plan_inputs` decides which parts of the files a plan may see.
"""

import asyncio
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from supervisor.channels.install_sandbox import MOST_FILES, InstallSandbox
from supervisor.core.actions import Packages
from supervisor.core.packages import plan_inputs
from supervisor.core.packages.go_sources import go_heads
from supervisor.core.packages.install_recipes import lock_paths, recipe_of, said
from supervisor.core.packages.lock_files import Locks, locks_in
from supervisor.core.packages.package_commands import (
    ENVIRONMENTS,
    environment_at_home,
    environments,
)
from supervisor.core.packages.plan_inputs import HERE_ALONE, SOURCES, PlanInputs
from supervisor.sandbox.base import MERGED

# Files of requirements that name others.
MOST_ROUNDS = 8
# Of a folder further down isn't known what those above it decide.
MOST_FOLDERS = 16
_NUMBER = re.compile(r"[0-9]{1,3}\Z")


class Project(NamedTuple):
    """`inputs` are what a plan is made of, `root` the folder of the manifest and `before` what the
    person's own lock file names. `environment` is the Python environment that it changes, by its
    absolute path, and `python` that one's version; empty where there is none."""

    inputs: PlanInputs
    root: str = ""
    before: Locks = {}
    python: str = ""
    environment: str = ""


class ProjectFiles:
    """Reads projects out of private copies."""

    def __init__(self, sandbox: InstallSandbox) -> None:
        self._sandbox = sandbox

    async def project(self, session_id: str, action: Packages) -> Project:
        """Return what an install is planned from. `ValueError` where that can't be read."""
        recipe = recipe_of(action)
        assert recipe is not None
        if recipe.is_report:
            return await self._python(session_id, action)
        names = SOURCES.get(action.manager, ())
        if not names:
            return Project(PlanInputs())
        folders = _folders(action.cwd)
        # npm takes a folder for a project's that has either.
        marks = (names[0], "node_modules") if action.manager == "npm" else names[:1]
        wanted = {f"{one}{name}" for one in folders for name in (*names, *marks)}
        there = await self._sandbox.read(session_id, wanted)
        has_mark = (any(f"{one}{name}" in there for name in marks) for one in folders)
        at = next((at for at, found in enumerate(has_mark) if found), 0)
        files = _texts({path: there[path] for path in there if not path.endswith(marks[1:])})
        inputs = await asyncio.to_thread(_inputs, action.manager, files, folders, at)
        root = folders[at]
        if (action.manager, action.operation) == ("go", "mod tidy"):
            heads = await self._go_heads(session_id, root)
            inputs = inputs._replace(files=heads | inputs.files)
        return Project(inputs, root, await self._own_locks(session_id, root, recipe.lock))

    async def locks(self, session_id: str, root: str, lock: str) -> Locks:
        """Return what the copy's lock file names now. `ValueError` where it can't be read."""
        paths = [f"{root}{one}" for one in lock_paths(lock)]
        files = await self._read(session_id, paths)
        text = "\n".join(files.get(path, "") for path in paths)
        return await asyncio.to_thread(locks_in, lock, text)

    async def packages_in(self, session_id: str, environment: str) -> set[tuple[str, str]]:
        """Return names and versions of what a Python environment of the copy says it holds."""
        found = await self._sandbox.read(session_id, (), installed=(environment,))
        return plan_inputs.held(_metadata(found, environment))

    async def _go_heads(self, session_id: str, root: str) -> dict[str, str]:
        """Return what go reads of a module's sources. `ValueError` where they are too many."""
        found = await self._sandbox.read(session_id, (), sources=root)
        if len(found) >= MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} sources of go aren't read")
        texts = {path.removeprefix(root): text or "" for path, text in found.items()}
        return await asyncio.to_thread(go_heads, texts)

    async def _own_locks(self, session_id: str, root: str, lock: str) -> Locks:
        """Return what the person's own lock file names: no agent writes there."""
        paths = [f"{root}{one}" for one in lock_paths(lock)]
        files = await self._sandbox.read(session_id, paths, is_own=True)
        text = "\n".join(files.get(path) or "" for path in paths)
        try:
            return await asyncio.to_thread(locks_in, lock, text)
        except ValueError:
            return {}

    async def _read(self, session_id: str, paths: Iterable[str]) -> dict[str, str]:
        return _texts(await self._sandbox.read(session_id, paths))

    async def _python(self, session_id: str, action: Packages) -> Project:
        folder = _folders(action.cwd)[0]
        # Of one in the home nothing is read: it is taken for empty.
        at_home = environment_at_home(action)
        named = () if at_home else environments(action)
        places = [posixpath.normpath(f"{folder}{one}") for one in named]
        if any(place.startswith(("..", "/")) for place in places):
            raise ValueError("its environment lies outside of the workspace")
        marks = [f"{place}/{mark}" for place in places for mark in ("pyvenv.cfg", "bin/python")]
        found = await self._sandbox.read(session_id, marks, installed=places)
        environment = next(
            (one for one in places if {f"{one}/pyvenv.cfg", f"{one}/bin/python"} & found.keys()), ""
        )
        if named and not environment and set(named) != set(ENVIRONMENTS):
            raise ValueError(f"there is no Python environment in `{named[0]}`")
        python = _version(found.get(f"{environment}/pyvenv.cfg") or "")
        files: dict[str, str | None] = {}
        for _ in range(MOST_ROUNDS):
            inputs, missing = plan_inputs.requirements(action, said(action).names, files)
            if not missing:
                break
            read = await self._sandbox.read(session_id, (f"{folder}{one}" for one in missing))
            files |= {one: read.get(f"{folder}{one}") for one in missing}
        else:
            raise ValueError("its files of requirements name too many others")
        there = _metadata(found, environment) if environment else []
        written = inputs.files | plan_inputs.installed(there)
        absolute = f"{MERGED}/{environment}" if environment else at_home
        return Project(inputs._replace(files=written), folder, {}, python, absolute)


def _metadata(files: Mapping[str, str | None], environment: str) -> list[str | None]:
    return [text for path, text in files.items() if path.startswith(f"{environment}/lib/")]


def _texts(files: Mapping[str, str | None]) -> dict[str, str]:
    for path, text in files.items():
        if text is None:
            raise ValueError(f"`{plan_inputs.shown(path)}` is no file of text")
    return {path: text for path, text in files.items() if text is not None}


def _inputs(manager: str, files: Mapping[str, str], folders: list[str], at: int) -> PlanInputs:
    """Return what is planned of the project in one of these folders, the nearest first. What those
    above it decide is named: it isn't taken over."""
    manifest, lock, *configs = SOURCES[manager]
    root, *above = folders[at:]
    found = {name: files[f"{root}{name}"] for name in (manifest, lock) if f"{root}{name}" in files}
    hidden = []
    for name in configs:
        # Most hold for all folders below, the nearest above all; cargo puts them together.
        places = (root,) if name in HERE_ALONE else folders
        held = [f"{one}{name}" for one in places if f"{one}{name}" in files]
        if held:
            found[name] = files[held[0]]
        hidden += held[1:]
    inputs = plan_inputs.inputs(manager, found)
    outer = [
        path
        for one in above
        if (path := f"{one}{manifest}") in files and plan_inputs.has_members(manager, files[path])
    ]
    more = [f"what `{path}` changes" for path in hidden]
    more += [f"what the workspace of `{path}` needs" for path in outer]
    unknown = (*inputs.unknown, *map(plan_inputs.shown, more))
    return inputs._replace(unknown=unknown, runs=inputs.runs or bool(hidden))


def _folders(cwd: str) -> list[str]:
    """Return a folder and those above it, the nearest first, each as the start of a path.
    `ValueError` where it is deeper than projects are."""
    parts = [one for one in cwd.split("/") if one not in ("", ".")]
    count = len(parts)
    found = ["".join(f"{one}/" for one in parts[:at]) for at in range(count, -1, -1)]
    if len(found) > MOST_FOLDERS:
        raise ValueError(f"a folder more than {MOST_FOLDERS - 1} levels down isn't read")
    return found


def _version(config: str) -> str:
    """Return the version of an environment's Python, as its `pyvenv.cfg` says."""
    for line in config[: 64 * 1024].splitlines():
        key, _, value = line.partition("=")
        numbers = value.strip().split(".")[:2]
        if key.strip() in ("version", "version_info") and all(map(_NUMBER.match, numbers)):
            return ".".join(numbers)
    return ""
