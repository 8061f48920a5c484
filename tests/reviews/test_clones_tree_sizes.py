"""What a commit's files would take, from git's list of them."""

from supervisor.reviews import clones
from supervisor.reviews.clones import tree_size

SHA = b"0" * 40


def line(path: bytes, size: bytes = b"12", kind: bytes = b"blob") -> bytes:
    return b"100644 " + kind + b" " + SHA + b"     " + size + b"\t" + path + b"\0"


def test_files_folders_and_submodules_take_room() -> None:
    listed = line(b"a") + line(b"d", b"-", b"tree") + line(b"d/s", b"-", b"commit")
    assert tree_size(listed) == (3 * 4096 + 12, "")
    assert tree_size(b"") == (0, "")
    assert tree_size(line(b"with\ttab and\nline")) == (4096 + 12, "")


def test_what_is_too_much_says_what_is() -> None:
    assert tree_size(line(b"a", b"%d" % clones.MOST_BYTES))[1] == "its files have more than 4 GB"
    half = line(b"a", b"%d" % (clones.MOST_BYTES // 2))
    assert tree_size(half * 3)[1] == "its files have more than 4 GB"
    assert "250,000 files" in tree_size(b"\0" * (clones.MOST_ENTRIES + 1))[1]
    for path in (b"n" * 256, b"d/" * 1001, b"a/" + b"n" * 256 + b"/b"):
        assert "longer" in tree_size(line(path))[1]
