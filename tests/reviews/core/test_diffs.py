"""The change of a pull request as git prints it."""

import subprocess
from pathlib import Path

import pytest

from supervisor.reviews.core.diffs import (
    ChangedFile,
    ShownLines,
    changed_files,
    skipped_words,
    unseen,
    with_unseen,
)

DIFF = ("git", "diff", "--no-color", "--find-renames", "-U3")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for words in (("init", "-q"), ("config", "user.email", "a@b.c"), ("config", "user.name", "A")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def commit(folder: Path, files: dict[str, bytes | None]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(["git", "commit", "-qm", "x", "--allow-empty"], cwd=folder, check=True)


def change(folder: Path):
    def git(*words: str) -> bytes:
        done = subprocess.run(
            [*DIFF, *words, "HEAD~1", "HEAD"], cwd=folder, check=True, capture_output=True
        )
        return done.stdout

    return {one.path: one for one in changed_files(git("--raw", "--no-abbrev", "-z"), git())}


def test_every_kind_of_change_is_told(repository: Path) -> None:
    lines = [b"line %d" % number for number in range(100)]
    commit(
        repository,
        {
            "a.py": b"\n".join(lines),
            "gone.py": b"x\n",
            "old.py": b"\n".join(lines[:50]) + b"\n",
            "crlf.txt": b"a\r\nb\r\n",
        },
    )
    lines[10], lines[80] = b"new ten", b"new eighty"
    commit(
        repository,
        {
            "a.py": b"\n".join(lines),
            "gone.py": None,
            "old.py": None,
            "new name.py": b"\n".join(b"line %d" % number for number in range(50)) + b"\n",
            "made.py": b"no newline at the end",
            "crlf.txt": b"a\r\nc\r\n",
            "empty.py": b"",
        },
    )
    found = change(repository)
    assert found["a.py"].hunks == (ShownLines(8, 14), ShownLines(78, 84))
    assert (found["a.py"].added, found["a.py"].deleted) == (2, 2)
    assert found["a.py"].holds(8, 14)
    assert not found["a.py"].holds(14, 78)
    assert found["gone.py"].status == "D"
    assert found["gone.py"].hunks == (ShownLines(0, -1),)
    assert (found["new name.py"].status, found["new name.py"].old_path) == ("R", "old.py")
    assert found["made.py"].hunks == (ShownLines(1, 1),)
    assert found["crlf.txt"].hunks == (ShownLines(1, 2),)
    assert found["empty.py"].hunks == ()
    assert skipped_words(list(found.values())) == []


def test_what_is_left_out_says_why(repository: Path) -> None:
    commit(repository, {"README.md": b"x"})
    commit(
        repository,
        {
            "logo.png": b"\x89PNG\0\0",
            "web/package-lock.json": b"{}\n",
            "big.txt": b"word\n" * 200_000,
            "long.txt": b"x" * 140_000,
            "model.bin": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
            "tab\tname.py": b"x\n",
        },
    )
    entry = f"160000,{'1' * 40},sub"
    subprocess.run(
        ["git", "update-index", "--add", "--cacheinfo", entry], cwd=repository, check=True
    )
    subprocess.run(["git", "commit", "-qm", "y", "--amend"], cwd=repository, check=True)
    found = {path: one.skipped for path, one in change(repository).items()}
    assert found == {
        "logo.png": "binary",
        "web/package-lock.json": "generated",
        "big.txt": "1171 kB of changes",
        "long.txt": "a line of more than 5,000 characters",
        "model.bin": "kept by Git LFS",
        "tab\tname.py": "its name isn't plain text",
        "sub": "a submodule",
    }
    assert "logo.png: binary" in skipped_words(list(change(repository).values()))


def test_a_list_that_does_not_fit_its_diff_is_refused() -> None:
    with pytest.raises(ValueError, match="1 files in git's list, 0 in its diff"):
        changed_files(b":100644 100644 a b M\0x.py\0", b"")


def test_a_line_that_is_no_head_of_lines_is_passed_over() -> None:
    raw = b":100644 100644 a b M\0x.py\0"
    patch = b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n@@ odd\n"
    (found,) = changed_files(raw, patch)
    assert found.hunks == (ShownLines(1, 1),)


def test_a_name_that_is_no_utf_8_is_named_in_a_text_that_can_be_stored() -> None:
    raw = b":000000 100644 %s %s A\0no-\xff.py\0" % (b"0" * 40, b"1" * 40)
    patch = b'diff --git "a/no-\\377.py" "b/no-\\377.py"\n@@ -0,0 +1 @@\n+x\n'
    found = changed_files(raw, patch)
    assert skipped_words(found) == ["no-\ufffd.py: its name isn't plain text"]
    assert found[0].path.encode("utf-8", "surrogateescape") == b"no-\xff.py"


def test_a_file_that_becomes_a_link_and_back_is_one_of_the_change(repository: Path) -> None:
    commit(repository, {"a.py": b"x\n", "b.py": b"1\n2\n", "c.py": b"old\n"})
    (repository / "b.py").unlink()
    (repository / "b.py").symlink_to("a.py")
    commit(repository, {"a.py": b"y\n", "c.py": b"new\n"})
    found = change(repository)
    assert list(found) == ["a.py", "b.py", "c.py"]
    assert (found["b.py"].status, found["b.py"].added, found["b.py"].deleted) == ("T", 1, 2)
    assert found["b.py"].hunks == (ShownLines(0, -1), ShownLines(1, 1))
    assert found["c.py"].hunks == (ShownLines(1, 1),)
    (repository / "b.py").unlink()
    commit(repository, {"b.py": b"\0binary"})
    assert change(repository)["b.py"].skipped == "binary"


def changed(path: str, old_path: str = "", **more: object) -> ChangedFile:
    base = ChangedFile(path, old_path or path, "M", 1, 0, (ShownLines(1, 1),))
    return base._replace(**more)  # type: ignore[arg-type]


def test_what_an_earlier_round_left_out_is_not_seen_by_what_came_since() -> None:
    files = [
        changed("was long.py"),
        changed("b.py", "a.py"),
        changed("new name.py"),
        changed("moved: base.py"),
        changed("still.map", skipped="generated"),
        changed("seen.py"),
    ]
    skipped = ["was long.py: a line", "a.py: binary", "no-\ufffd.py: odd", "still.map: generated"]
    touched = [changed("was long.py"), changed("new name.py", "no-\udcff.py", status="R")]
    found = unseen(files, touched, skipped=skipped, rebased={"moved: base.py", "other.py"})
    assert found == {"was long.py", "b.py", "new name.py", "moved: base.py"}
    assert unseen(files, touched, skipped=["still.map: generated"], rebased=()) == set()


def test_lines_that_nobody_has_seen_count_as_touched() -> None:
    whole = (ShownLines(1, 90),)
    files = [changed("a.py", hunks=whole), changed("b.py", "old.py", hunks=whole, status="R")]
    touched = [changed("a.py", "before.py", status="R"), changed("c.py")]
    assert with_unseen(touched, files, {"a.py", "b.py"}) == [
        changed("a.py", "before.py", status="R", hunks=whole),
        changed("c.py"),
        changed("b.py", hunks=whole),
    ]
    assert with_unseen(touched, files, ()) == touched
