"""The commit of a job: git's own reading of what differs, and what git is told to commit."""

from supervisor.core.git.scoped_commit import TreeChange, commit_stream, tree_changes

OLD, NEW, NONE = "a" * 40, "b" * 40, "0" * 40


def test_changed_paths_are_read_as_bytes() -> None:
    raw = (
        f":100644 100755 {OLD} {NEW} M\0a\nb\0:000000 100644 {NONE} {NEW} A\0".encode()
        + b"\xff/:(exclude)x\0"
        + f":100644 000000 {OLD} {NONE} D\0gone\0".encode()
    )
    changed = tree_changes(raw)
    assert changed == (
        TreeChange(0o100755, NEW, b"a\nb", is_new=False),
        TreeChange(0o100644, NEW, b"\xff/:(exclude)x", is_new=True),
        TreeChange(0, NONE, b"gone", is_new=False),
    )
    assert [one.name for one in changed] == ["a\nb", "\udcff/:(exclude)x", "gone"]
    assert tree_changes(b"") == ()


def test_what_a_job_does_not_write() -> None:
    def change(path: bytes, mode: int = 0o100644, *, is_new: bool = True) -> TreeChange:
        return TreeChange(mode, NEW, path, is_new=is_new)

    assert change(b"src/a.py").is_file
    assert not change(b"vendored", 0o160000).is_file
    assert change(b"src/__pycache__.py").is_kept
    assert not change(b"src/__pycache__/a.pyc").is_kept
    assert change(b"src/__pycache__/a.pyc", is_new=False).is_kept
    assert change(b"a\n\xffb").shown == "a\\n\\xffb"


def test_a_commit_names_base_and_changes_alone() -> None:
    changes = tree_changes(
        f":100644 100644 {OLD} {NEW} M\0a\0:100644 000000 {OLD} {NONE} D\0b\0".encode()
    )
    assert commit_stream("refs/jobs/x", OLD, changes, "T\u00eft\n").decode() == (
        "commit refs/jobs/x\n"
        "author Gatehouse <gatehouse@localhost> now\n"
        "committer Gatehouse <gatehouse@localhost> now\n"
        "data 5\nT\u00eft\n\n"
        f"from {OLD}\n"
        'D "\\142"\n'
        f'M 100644 {NEW} "\\141"\n'
        "done\n"
    )
