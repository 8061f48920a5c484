"""Choose how the private copy is made: files copied, or an overlay.

It decides for `auto`, and reports its choice. Where an overlay can't be mounted, `auto` copies and
`overlay` is an error.
"""

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from supervisor.errors import SandboxError
from supervisor.sandbox.overlay_mount import OverlayMount
from supervisor.settings import CopyMode
from supervisor.workspace.copy import git_copy
from supervisor.workspace.copy.overlay import make_overlay
from supervisor.workspace.copy.snapshot import OnProgress, make_copy
from supervisor.workspace.trees.trees import COPY

# Stays with a session whose copy another session takes over: its output, its review, its pushes,
# the remotes that its workspace had.
STAYS = frozenset({"output.log", "review.json", "review.md", "git", "gitconfig"})
# From this many files on, `auto` uses an overlay: fewer are copied about as fast as one is mounted.
MANY_FILES = 5000
IS_OVERLAY = (
    "the private copy is an overlay over the workspace: what you change there may show in it at"
    " once"
)

IS_PART = (
    "the folder is a part of a repository: what that ignores is left out, and git doesn't work in"
    " the private copy"
)


class PrivateCopy(NamedTuple):
    """A finished private copy. `mount` is None for copied files; `notes` are lines for the
    person."""

    mount: OverlayMount | None
    notes: tuple[str, ...]


async def make_private_copy(
    workspace: Path,
    folder: Path,
    mode: CopyMode,
    *,
    exclude: Sequence[Path] = (),
    include_ignored: bool = False,
    on_progress: OnProgress | None = None,
) -> PrivateCopy:
    """Make the private copy in the session's folder. Raise SandboxError where an overlay was asked
    for and isn't possible, otherwise as `make_copy`."""
    top = await git_copy.around(workspace)
    notes: tuple[str, ...] = () if top is None else (f"{IS_PART} (`{top}`)",)
    if mode != "copy":
        try:
            at_least = MANY_FILES if mode == "auto" else 0
            made = await make_overlay(
                workspace,
                folder,
                exclude=exclude,
                include_ignored=include_ignored,
                at_least=at_least,
            )
            if made is not None:
                return PrivateCopy(made.mount, (IS_OVERLAY, *notes, *made.notes))
        except SandboxError as error:
            if mode == "overlay":
                raise
            notes += (f"the private copy is a copy: {error.message}",)
    report = await make_copy(
        workspace,
        folder / COPY,
        exclude=exclude,
        include_ignored=include_ignored,
        on_progress=on_progress,
    )
    notes += report.notes
    if report.skipped_count:
        path, why = report.skipped[0]
        notes += (
            f"{report.skipped_count} paths are not in the private copy, `{path}` among them: {why}",
        )
    return PrivateCopy(None, notes)


def move_copy(folder: Path, target: Path) -> None:
    """Move a copy, with its history, from the folder of an ended session to another's. Only who may
    write in a folder can move it, and an agent may have closed its own."""
    for entry in sorted(folder.iterdir()):
        if entry.name not in STAYS:
            mode = entry.lstat().st_mode
            if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
                entry.chmod(stat.S_IMODE(mode) | 0o700)
            entry.rename(target / entry.name)
