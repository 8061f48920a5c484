"""Read the scripts that a command names, from the private copy.

Their content is part of what a person approves. It follows links as a shell would, but only inside
the copy, and never waits for a fifo.
"""

import errno
import os
import posixpath
from collections.abc import Iterable

from supervisor.core.actions import WORKSPACE, ShownScript, content_hash
from supervisor.core.files.changes import name_fields
from supervisor.core.shell.exec_operands import Operand, looks_like_script
from supervisor.errors import GatehouseError
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.scan import read_file

_MOST_BYTES = 16 << 20
_MOST_LINKS = 16
_IS_LINK = (errno.ELOOP, errno.ENOTDIR)


def scripts_in(copy: Root, wanted: Iterable[Operand]) -> tuple[ShownScript, ...]:
    """Return the operands that are scripts, each with its hash, in the order of their paths."""
    found = {}
    for path, is_run in wanted:
        data = _read(copy, path)
        if data is not None and (is_run or looks_like_script(path, data[:2])):
            found[path] = content_hash(data)
    return tuple(ShownScript(path=name_fields(path)[0], hash=found[path]) for path in sorted(found))


def _read(copy: Root, path: str) -> bytes | None:
    """Read a file, through links. Return None where there is none inside the copy."""
    for _ in range(_MOST_LINKS):
        try:
            return read_file(copy, path, _MOST_BYTES, cut=True)
        except OSError as error:
            target = _through_link(copy, path) if error.errno in _IS_LINK else None
            if target is None:
                return None
            path = target
        except GatehouseError:
            return None
    return None


def _through_link(copy: Root, path: str) -> str | None:
    """Return the path behind the first link on the way, or None where there is none or it leads
    out."""
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        try:
            with copy.parent("/".join(parts[:depth])) as (folder, leaf):
                target = os.readlink(leaf, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.EINVAL:  # no link
                continue
            return None
        except GatehouseError:
            return None
        there = posixpath.join(WORKSPACE, *parts[: depth - 1], target, *parts[depth:])
        found = posixpath.normpath(there)
        return found.removeprefix(f"{WORKSPACE}/") if found.startswith(f"{WORKSPACE}/") else None
    return None
