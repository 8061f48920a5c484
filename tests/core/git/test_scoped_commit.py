"""The commit of a job: git's own reading of what differs, and what git is told to commit."""

from supervisor.core.git.scoped_commit import (
    TreeChange,
    commit_stream,
    line_counts,
    tree_changes,
)
from supervisor.core.jobs import Changed
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
    assert [one.name for one in changed] == ["a\nb", "\udcff/:(exclude)x", "gone"]
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


def test_what_is_left_by_python_is_not_kept() -> None:
    assert not TreeChange(0o100644, NEW, b"src/__pycache__/a.pyc", 0).is_kept
    assert TreeChange(0o100644, NEW, b"src/__pycache__/a.pyc", 0o100644).is_kept
    assert TreeChange(0o100644, NEW, b"a\n\xffb", 0).shown == "a\\n\\xffb"


def test_lines_are_counted_by_path() -> None:
    counts = line_counts(b"2\t1\ta\tb\x00-\t-\tc\n\x00")
    assert counts[b"a\tb"] == 3
    assert counts[b"c\n"] > 1_000_000
    assert TreeChange(0o100644, NEW, b"d", 0).changed(counts).lines > 1_000_000


def test_a_commit_names_base_and_changes_alone() -> None:
    changes = tree_changes(
        f":100644 100644 {OLD} {NEW} M\0a\0:100644 000000 {OLD} {NONE} D\0b\0".encode()
    )
    assert commit_stream("refs/jobs/x", OLD, changes, "T\u00eft\n", "J\u00f8 <j@e>").decode() == (
        "commit refs/jobs/x\n"
        "author J\u00f8 <j@e> now\n"
        "committer J\u00f8 <j@e> now\n"
        "data 5\nT\u00eft\n\n"
        f"from {OLD}\n"
        'D "\\142"\n'
        f'M 100644 {NEW} "\\141"\n'
        "done\n"
    )
