"""Looking at one path: what is read, how much of it, and by which folder's descriptor."""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from supervisor.workspace.disk.beneath import Neighbours, PathError, Root
from supervisor.workspace.disk.scan import BLOCK_BYTES, digest_fd, look


@pytest.mark.parametrize(
    "length", [0, 1, 5000, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES]
)
@pytest.mark.parametrize("wrong_by", [None, 0, -1, 1, BLOCK_BYTES])
def test_a_digest_is_of_all_that_is_there_whatever_its_size_was(
    tmp_path: Path, length: int, wrong_by: int | None
) -> None:
    data = os.urandom(length)
    (tmp_path / "a").write_bytes(data)
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        found = digest_fd(fd) if wrong_by is None else digest_fd(fd, max(length + wrong_by, 0))
    finally:
        os.close(fd)
    assert found == hashlib.blake2b(data, digest_size=32).hexdigest()


def test_what_an_earlier_look_found_stands_for_what_has_its_signature(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\n")
    root = Root(tmp_path)
    first = look(root, "a")
    assert first is not None
    assert look(root, "a", known=first) is first
    status = path.stat()
    path.write_text("two\n")  # the same size, and the same time of the last change but one
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    second = look(root, "a", known=first)
    assert second is not None
    assert second.digest != first.digest
    path.unlink()
    path.symlink_to("elsewhere")
    link = look(root, "a", known=second)
    assert link is not None
    assert link.kind == "symlink"
    path.unlink()
    assert look(root, "a", known=second) is None
    root.close()


def test_neighbours_are_looked_at_as_each_by_itself(tmp_path: Path) -> None:
    host = tmp_path / "host"
    data = host / "data"
    for folder in ("one", "two/deep", "data/inner"):
        (host / folder).mkdir(parents=True)
    for name in ("root", "one/a", "one/b", "two/deep/c", "data/secret"):
        (host / name).write_text(name)
    (host / "link").symlink_to("one")
    root = Root(host, out_of_bounds=[data])
    names = [
        "root",
        "one/a",
        "one/b",
        "one/none",
        "none/at/all",
        "two/deep/c",
        "link/a",
        "one/a",
        "root",
        "root/a",
    ]
    with contextlib.closing(Neighbours(root)) as near:
        assert [look(near, name) for name in names] == [look(root, name) for name in names]
        for name in ("data", "data/secret", "data/inner", "one/../root", "one/.git", "one/"):
            with pytest.raises(PathError):
                look(near, name)
            assert look(near, "one/a") == look(root, "one/a")
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if host in fd.resolve().parents]
    root.close()


def test_a_folder_that_is_deleted_among_neighbours_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/a").write_text("a")
    (tmp_path / "one/b").write_text("b")
    root = Root(tmp_path)
    with contextlib.closing(Neighbours(root)) as near:
        assert look(near, "one/a") is not None
        shutil.rmtree(tmp_path / "one")
        assert look(near, "one/b") is None
    root.close()
