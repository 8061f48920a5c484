"""What git prints of a file, read line by line: nothing is left out, and numbers are right."""

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.files import text_diff
from supervisor.core.files.patch_text import read_patch
from supervisor.core.files.text_diff import MOST_WORD_PAIRS

PATCH = """diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@ def f():
 one
-x = 1
+x = 2
 three
@@ -9 +9,2 @@
-end
\\ No newline at end of file
+end
+more
\\ No newline at end of file
"""


def rows(patch: str) -> list[tuple[str, int | None, int | None, str]]:
    return [
        (line.kind, line.old_number, line.new_number, line.text)
        for hunk in read_patch(patch).hunks
        for line in hunk.lines
    ]


def test_lines_have_their_numbers_and_words_that_changed_are_marked() -> None:
    note = ("note", None, None, "\\ No newline at end of file")
    assert rows(PATCH) == [
        ("context", 1, 1, "one"),
        ("removed", 2, None, "x = 1"),
        ("added", None, 2, "x = 2"),
        ("context", 3, 3, "three"),
        ("removed", 9, None, "end"),
        note,
        ("added", None, 9, "end"),
        ("added", None, 10, "more"),
        note,
    ]
    found = read_patch(PATCH)
    assert (found.added, found.removed) == (3, 2)
    assert [hunk.header for hunk in found.hunks] == ["@@ -1,3 +1,3 @@", "@@ -9,1 +9,2 @@"]
    assert found.hunks[0].lines[1].spans == (("x = ", False), ("1", True))


def test_what_has_no_hunk_has_no_line() -> None:
    assert read_patch("diff --git a/a b/a\nold mode 100644\nnew mode 100755\n").hunks == ()
    assert read_patch("").hunks == ()


def test_two_changes_with_nothing_between_are_two() -> None:
    assert [kind for kind, *_ in rows("@@ -1,2 +1,2 @@\n-a\n+b\n-c\n+d\n")] == [
        *("removed", "added", "removed", "added")
    ]


def test_many_lines_are_not_all_compared_word_by_word() -> None:
    many = MOST_WORD_PAIRS + 1
    patch = "@@ -1 +1 @@\n" + "-x = 1\n" * many + "+x = 2\n" * many
    last = read_patch(patch).hunks[0].lines
    assert last[many - 1].spans == (("x = 1", False),)
    assert last[0].spans == (("x = ", False), ("1", True))


LINES = st.lists(
    st.sampled_from(["a", "b", "", "-", "+x", "@@ -1 +1 @@", "\\", "c d"]), max_size=30
)


@given(LINES, LINES)
def test_both_sides_are_what_they_were(old: list[str], new: list[str]) -> None:
    before, after = ("".join(f"{line}\n" for line in side).encode() for side in (old, new))
    made = text_diff.diff(before, after)
    found = read_patch(text_diff.unified(made, "a", "b"))
    assert [hunk.lines for hunk in found.hunks] == [hunk.lines for hunk in made.hunks]


def test_git_itself_is_read(tmp_path: Path) -> None:
    for name, text in (("a", "1\n2\n3\n"), ("b", "1\ntwo\n3\n4")):
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["git", "diff", "--no-index", "a", "b"], cwd=tmp_path, capture_output=True, check=False
    )
    (hunk,) = read_patch(done.stdout.decode()).hunks
    assert [line.text for line in hunk.lines if line.new_number] == ["1", "two", "3", "4"]
