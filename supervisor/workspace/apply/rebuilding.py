"""Rebuild an action from what is about to be done, to compare with what was granted.

It must never copy into it, unchecked, what takes effect from the request.
"""

from typing import Literal

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import Seen, is_wider, name_fields


def rebuilt(
    action: FileChange,
    name: str,
    host: Seen | None,
    *,
    after: str | None,
    mode: int | None = None,
    link_target: str | None = None,
) -> FileChange:
    """Rebuild the action from what is about to be done. INVARIANT: nothing in it that takes effect
    comes unchecked from the request (law 2): the state before comes from the host now, the content
    from the bytes that will be written."""
    shown, encoded = name_fields(name)
    hazards = action.hazards
    was_executable = host is not None and host.kind == "file" and host.mode & 0o111
    writes = action.operation in ("write", "edit", "chmod", "swap") and after != "dir"
    if writes and (mode or 0) & 0o111 and not was_executable and "new-executable" not in hazards:
        hazards = (*hazards, "new-executable")
    kind: Literal["file", "dir"] = "dir" if after == "dir" else "file"
    if mode is not None and "wider" not in hazards and is_wider(kind, mode, host):
        hazards = (*hazards, "wider")
    if link_target is not None and "symlink" not in hazards:
        hazards = (*hazards, "symlink")
    return FileChange(
        operation=action.operation,
        path=shown,
        path_b64=encoded,
        before=host.token if host else None,
        after=after,
        mode=mode,
        link_target=link_target,
        hazards=hazards,
        steps=(
            action.steps if action.operation == "swap" else ()
        ),  # each is looked at when it is done
        folders=action.folders,  # and each of these when it is made
        # no others: looked at in `check`, and when the name is given
        repositories=action.repositories,
    )
