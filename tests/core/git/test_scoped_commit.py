"""The commit of a job: git's own reading of what differs, and what git is told to commit."""

import pytest

from supervisor.core.actions import FileChange, FileStep, content_hash
from supervisor.core.git.scoped_commit import (
    MOST_BYTES,
    CommittedFile,
    TreeChange,
    commit_stream,
    files_in,
    line_counts,
    tree_changes,
)
from supervisor.core.jobs import Changed
from supervisor.errors import RefusedError
from tests.tables import each_row

OLD, NEW, NONE = "a" * 40, "b" * 40, "0" * 40


def test_changed_paths_are_read_as_bytes() -> None:
    raw = (
        f":100644 100755 {OLD} {NEW} M\0a\nb\0:000000 100644 {NONE} {NEW} A\0".encode()
        + b"\xff/:(exclude)x\0"
        + f":100644 000000 {OLD} {NONE} D\0gone\0".encode()
    )
    changed = tree_changes(raw)
    assert changed == (
        TreeChange(0o100755, NEW, b"a\nb", 0o100644),
        TreeChange(0o100644, NEW, b"\xff/:(exclude)x", 0),
        TreeChange(0, NONE, b"gone", 0o100644),
    )
    assert [one.changed({}).path for one in changed] == ["a\nb", "\udcff/:(exclude)x", "gone"]
    assert tree_changes(b"") == ()


@each_row(
    ("mode", "old_mode", "odd"),
    [
        (0o100644, 0, ""),
        (0o100644, 0o100755, ""),
        (0o100755, 0o100755, ""),
        (0, 0o100755, ""),
        (0o100755, 0, "a new executable"),
        (0o100755, 0o100644, "a new executable"),
        (0o120000, 0, "a symlink"),
        (0, 0o120000, "a symlink"),
        (0o100644, 0o120000, "a symlink"),
        (0o160000, 0o160000, "a submodule"),
        (0, 0o160000, "a submodule"),
    ],
)
def test_what_is_no_plain_file_is_judged_as_such(mode: int, old_mode: int, odd: str) -> None:
    change = TreeChange(mode, NEW, b"docs/a", old_mode)
    assert change.changed({b"docs/a": 3}) == Changed("docs/a", odd, 3)


def test_lines_are_counted_by_path() -> None:
    counts = line_counts(b"2\t1\ta\tb\x00-\t-\tc\n\x00")
    assert counts[b"a\tb"] == 3
    assert counts[b"c\n"] > 1_000_000
    assert TreeChange(0o100644, NEW, b"d", 0).changed(counts).lines > 1_000_000


CONTENTS = {content_hash(data): data for data in (b"old", b"new\n", b"")}


def hashed(data: bytes) -> str:
    return content_hash(data)


def read(digest: str, most: int) -> bytes | None:
    data = CONTENTS.get(digest)
    return None if data is None else data[: most + 1]


def test_changed_files_are_what_is_committed() -> None:
    step = {"before": hashed(b"old")}
    changes = [
        FileChange(operation="write", path="a", after=hashed(b"new\n"), mode=0o640),
        FileChange(operation="write", path="?", path_b64="Yv8=", after=hashed(b""), mode=0o700),
        FileChange(operation="chmod", path="c", after=hashed(b"old"), mode=0o644),
        FileChange(operation="delete", path="d", before=hashed(b"old")),
        FileChange(operation="delete", path="folder", before="dir"),
        FileChange(operation="mkdir", path="empty", after="dir", mode=0o755),
        FileChange(
            operation="swap",
            path="e",
            after=hashed(b"new\n"),
            mode=0o644,
            steps=(FileStep(operation="delete", path="e/x", **step),),
        ),
    ]
    assert files_in(changes, read) == [
        CommittedFile(b"a", b"new\n"),
        CommittedFile(b"b\xff", b"", is_program=True),
        CommittedFile(b"c", b"old"),
        CommittedFile(b"d", None),
        CommittedFile(b"e", None),
        CommittedFile(b"e", b"new\n"),
        CommittedFile(b"e/x", None),
    ]


def test_what_is_not_there_as_it_was_judged_is_not_committed() -> None:
    action = FileChange(operation="write", path="a\u200b", after="0" * 64)
    with pytest.raises(RefusedError, match="can't be committed"):
        files_in([action], read)
    with pytest.raises(RefusedError, match=r"`a\\u\{200b\}`"):
        files_in([action], lambda _, __: b"another")


def test_all_files_together_are_bounded() -> None:
    data = bytes(MOST_BYTES // 2 + 1)
    action = FileChange(operation="write", path="a", after=hashed(data))
    with pytest.raises(RefusedError, match="256 MB together"):
        files_in([action, action], lambda _, most: data[: most + 1])


def test_a_commit_names_base_and_files_alone() -> None:
    files = [
        CommittedFile(b"a/x", b"one\n"),
        CommittedFile(b"b", b"", is_program=True),
        CommittedFile(b"a", None),
    ]
    assert commit_stream("refs/jobs/x", OLD, files, "T\u00eft\n", "J\u00f8 <j@e>").decode() == (
        "commit refs/jobs/x\n"
        "author J\u00f8 <j@e> now\n"
        "committer J\u00f8 <j@e> now\n"
        "data 5\nT\u00eft\n\n"
        f"from {OLD}\n"
        'D "\\141"\n'
        'M 100644 inline "\\141\\057\\170"\n'
        "data 4\none\n\n"
        'M 100755 inline "\\142"\n'
        "data 0\n\n"
        "done\n"
    )
