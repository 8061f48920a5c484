"""Which paths of a workspace are Gatehouse's own: its policy, its code, its pages.

A workspace may hold them: `gatehouse run --policy ./policy.yaml --workspace .`, or Gatehouse
supervising work on itself. A rule that allows files there would let the agent write its own
rules, so the gate always asks for these. Pure but for resolving links when a session begins. It
must never make anything looser: it only names paths that are asked about.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from supervisor.core.actions import FileChange
from supervisor.core.text.paths import canonical, fold


def own_paths(workspace: Path, own_files: Iterable[Path]) -> frozenset[str]:
    """Those of the files and folders that lie in the workspace, relative to it, in folded spelling.

    A path that leads through links counts in each spelling: whoever replaces a link on the way
    replaces the file.
    """
    root = _real(workspace)
    found = set()
    for path in own_files:
        absolute = Path(os.path.normpath(path.absolute()))
        for above in (absolute, *absolute.parents):
            inside = _real(above) / absolute.relative_to(above)
            if inside.is_relative_to(root):
                found.add(fold(inside.relative_to(root).as_posix()))
    return frozenset(found)


def touches(action: FileChange, own: frozenset[str]) -> bool:
    """Return whether the change is of an own path, of something below one, or of a folder above
    one. `ValueError` for what is no path."""
    named = [canonical(action.path, action.path_b64).folded]
    if action.to is not None:
        named.append(canonical(action.to, action.to_b64).folded)
    return any(_overlap(one, mine) for one in named for mine in own)


def _overlap(path: str, mine: str) -> bool:
    return mine == "." or path == mine or path.startswith(f"{mine}/") or mine.startswith(f"{path}/")


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path
