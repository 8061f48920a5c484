"""A folder as the model-based test sees it, and what somebody does in one: real files, nothing of
the product's.

An operation that can't be done (nothing is there, a folder is in the way) does nothing, so that
any script is one.
"""

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Literal, NamedTuple

from supervisor.core.actions import content_hash

LINES = 12
MODES = (0o644, 0o600, 0o755, 0o444, 0o4755, 0o640)
FOLDER_MODES = (0o755, 0o700, 0o775)
TARGETS = ("b", "../outside", "d/c", "/nonexistent/target", "nowhere")
CONTENTS = (b"", b"same\n", b"\0binary\xff" * 400, b"no newline", b"\r\nmixed\n" * 3)
OLD_NS = 1_000_000_000_000_000_001

type Kind = Literal[
    "line",
    "whole",
    "append",
    "save",
    "delete",
    "move",
    "swap",
    "turn",
    "chmod",
    "link",
    "hard",
    "mkdir",
    "copy",
    "sly",
    "fifo",
]


class Entry(NamedTuple):
    """What is at a path: `token` is the content's hash, or a link's target."""

    kind: str
    mode: int
    token: str


type Tree = dict[str, Entry]
# What changed: path -> what is there now (None: nothing).
type Change = dict[str, Entry | None]


class Op(NamedTuple):
    """What somebody does to a path; `other` is a second one, `number` chooses among lines,
    contents, modes or targets."""

    who: Literal["person", "agent"]
    kind: Kind
    path: str
    other: str
    number: int


def read_tree(root: Path, contents: dict[str, bytes] | None = None) -> Tree:
    """Everything below a folder but Gatehouse's temporary files; new contents by their hash."""
    found: Tree = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with contextlib.ExitStack() as opened:
            # Where somebody looked for it before, an overlay lists what is new on the host, but
            # doesn't find it yet (ENOENT, ESTALE). What stays so is a difference at the end.
            with contextlib.suppress(OSError):
                listing = opened.enter_context(os.scandir(root / folder))
            for one in listing:
                name = f"{folder}/{one.name}" if folder else one.name
                with contextlib.suppress(OSError):
                    found[name] = _entry(one, contents)
                    if found[name].kind == "dir":
                        waiting.append(name)
    return {
        name: entry
        for name, entry in found.items()
        if not name.rpartition("/")[2].startswith(".gatehouse-")
    }


def _entry(one: "os.DirEntry[str]", contents: dict[str, bytes] | None) -> Entry:
    status = one.stat(follow_symlinks=False)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry("symlink", 0o777, str(Path(one.path).readlink()))
    if stat.S_ISDIR(status.st_mode):
        return Entry("dir", mode, "")
    if not stat.S_ISREG(status.st_mode):
        return Entry("special", mode, "")
    data = Path(one.path).read_bytes()
    digest = content_hash(data)
    if contents is not None:
        contents[digest] = data
    return Entry("file", mode, digest)


def difference(before: Tree, after: Tree) -> Change:
    """What must be done to `before` to have `after`."""
    return {
        name: after.get(name)
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }


def changed(tree: Tree, change: Change) -> Tree:
    """`difference` the other way round."""
    return {name: entry for name, entry in (tree | change).items() if entry is not None}


def leftovers(root: Path) -> list[str]:
    """Temporary files of Gatehouse's that nobody cleaned up."""
    found = [name for _, folders, files in os.walk(root) for name in (*folders, *files)]
    return [name for name in found if name.startswith(".gatehouse-")]


def do(root: Path, op: Op, text: str) -> None:
    """Carry it out below `root`; `text` is one that was never written before."""
    with contextlib.suppress(OSError):
        if op.kind in ("move", "swap", "hard", "copy"):
            _do_with_other(root, op)
        else:
            _do(root, op, f"{op.who} {text}")


def _do(root: Path, op: Op, text: str) -> None:
    path, number = root / op.path, op.number
    match op.kind:
        case "line" | "save" | "sly":
            _write(root, path, op.kind, _with_line(path, number, text))
        case "whole":
            _write(root, path, "line", CONTENTS[number % len(CONTENTS)])
        case "turn":
            _turn(path, number, text)
        case "append" if not path.is_symlink() and not path.is_fifo():
            with path.open("ab") as file:
                file.write(f"{text}\n".encode())
        case "delete":
            _clear(path)
        case "chmod" if not path.is_symlink():
            modes = FOLDER_MODES if path.is_dir() else MODES
            path.chmod(modes[number % len(modes)])
        case "link":
            _clear(path)
            _place(root, path)
            path.symlink_to(TARGETS[number % len(TARGETS)])
        case "mkdir":
            if path.is_file() or path.is_symlink():
                path.unlink()
            path.mkdir(parents=True)
        case "fifo":
            os.mkfifo(path)


def _turn(path: Path, number: int, text: str) -> None:
    """A folder becomes a file or a link; what is none becomes a folder with something in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        if number % 3:
            path.write_text(f"{text}\n")
        else:
            path.symlink_to(TARGETS[number % len(TARGETS)])
        return
    path.unlink()
    path.mkdir()
    for name in ("e", "f", "g/h")[: 1 + number % 3]:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(f"{text} {name}\n")


def _do_with_other(root: Path, op: Op) -> None:
    path, other = root / op.path, root / op.other
    match op.kind:
        case "move":
            _place(root, other)
            path.rename(other)
        case "swap":
            spare = path.with_name(f"{path.name}.spare")
            path.rename(spare)
            other.rename(path)
            spare.rename(other)
        case "hard":
            _place(root, other)
            os.link(path, other, follow_symlinks=False)
        case "copy" if not path.is_fifo():
            _write(root, other, "line", path.read_bytes())


def _with_line(path: Path, number: int, text: str) -> bytes:
    is_file = path.is_file() and not path.is_symlink()
    data = path.read_bytes() if is_file else b"".join(b"line %d\n" % n for n in range(LINES))
    lines = data.split(b"\n")
    lines[number % len(lines)] = text.encode()
    return b"\n".join(lines)


def _write(root: Path, path: Path, kind: str, data: bytes) -> None:
    """In place, as an editor saves (a new file over the old one), or with the old time and a
    content of the old size."""
    if (
        path.is_symlink() or path.is_dir() or path.is_fifo()
    ):  # to open a fifo is to wait for whoever reads it
        _clear(path)
    _place(root, path)
    before = path.stat() if path.exists() else None
    if kind == "save":
        spare = path.with_name(f"{path.name}~")
        spare.write_bytes(data)
        spare.replace(path)
        return
    if kind == "sly" and before is not None:
        data = data[: before.st_size].ljust(before.st_size, b".")
    path.write_bytes(data)
    if kind == "sly":
        time_ns = before.st_mtime_ns if before is not None else OLD_NS
        os.utime(path, ns=(time_ns, time_ns))


def _place(root: Path, path: Path) -> None:
    """Make the folders on the way from the root; what is there instead of one goes."""
    for folder in reversed([one for one in path.parents if root in one.parents]):
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        folder.mkdir(exist_ok=True)


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
