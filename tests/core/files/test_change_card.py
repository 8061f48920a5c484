"""The card of a file's change shows what an approval would apply, and nothing that it isn't
bound to."""

from typing import Any

import pytest

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files.change_card import ChangeCard, Side, make_card
from supervisor.core.files.text_diff import MOST_TEXT_BYTES

OLD, NEW = b"one\ntwo\n", b"one\n2\n"


def card(
    old: bytes | None = OLD, new: bytes | None = NEW, *, host: str | None = None, **fields: Any
) -> ChangeCard:
    before = content_hash(old) if old is not None else None
    after = content_hash(new) if new is not None else None
    action = FileChange(
        **{
            "operation": "write",
            "path": "a.txt",
            "before": before,
            "after": after,
            "mode": 0o644,
            **fields,
        }
    )
    sides = [Side(data, len(data), 0o644) if data is not None else None for data in (old, new)]
    return make_card(action, sides[0], sides[1], host or before)


def test_a_changed_text_shows_its_lines_sizes_and_modes() -> None:
    found = card()
    assert (found.content, found.is_stale, found.truncated, found.notes) == (
        "text",
        False,
        False,
        (),
    )
    assert [(line.kind, line.text) for line in found.diff.hunks[0].lines] == [
        ("context", "one"), ("removed", "two"), ("added", "2"),
    ]  # fmt: skip
    assert (found.old_size, found.new_size, found.old_mode, found.new_mode) == (8, 6, 0o644, 0o644)


def test_a_new_file_is_all_added_and_a_deleted_one_all_removed() -> None:
    assert (card(old=None).diff.added, card(old=None).diff.removed) == (2, 0)
    assert (card(new=None).diff.added, card(new=None).diff.removed) == (0, 2)


def test_what_has_no_content_shows_none() -> None:
    found = card(
        None,
        None,
        operation="symlink",
        after="symlink:x",
        link_target="../x",
        hazards=("symlink", "unheard-of"),
    )
    assert (found.content, found.link_target, found.hazards) == (
        "none",
        "../x",
        ("symlink", "unheard-of"),
    )
    assert found.notes == ("a symbolic link: whoever follows it ends up where it points",)


def test_a_host_that_moved_on_is_said_and_its_present_content_is_not_shown() -> None:
    found = card(host=content_hash(b"another"))
    assert found.is_stale
    assert "not as it was" in found.notes[0]
    assert (found.old_size, found.new_size) == (8, 6)
    assert (found.diff.removed, found.diff.added) == (0, 2)


@pytest.mark.parametrize(
    ("old", "new", "content"),
    [
        (OLD, b"\x00\x01", "binary"),
        (OLD, b"\xff\xfe", "binary"),
        (b"x" * (MOST_TEXT_BYTES + 1), NEW, "large"),
        (OLD, b"x" * (MOST_TEXT_BYTES + 1), "large"),
        (b"a\n" * 30_000, b"b\n", "large"),
    ],
)
def test_what_is_no_text_or_too_much_comes_without_lines(
    old: bytes, new: bytes, content: str
) -> None:
    found = card(old, new)
    assert found.content == content
    assert found.diff.hunks == ()
    assert found.truncated is (content == "large")


def test_a_snapshot_that_is_not_what_was_asked_for_is_never_shown() -> None:
    found = card(after=content_hash(b"what was really asked"))
    assert (found.content, found.diff.hunks) == ("large", ())
    assert found.notes == ("the snapshot of this request is damaged",)


def test_content_that_is_gone_is_said() -> None:
    action = FileChange(operation="write", path="a", before=None, after=content_hash(NEW))
    found = make_card(action, None, Side(None, 6), None)
    assert (found.content, found.notes, found.new_size) == (
        "large",
        ("the content is no longer kept",),
        6,
    )


def test_a_card_in_a_repositorys_folder_says_so() -> None:
    action = FileChange(operation="write", path="a/description", repositories=("a", "."))
    notes = make_card(action, None, None, None).notes
    assert "git takes a for a repository's own folder: what is in there can run programs" in notes
    assert (
        "git takes the workspace itself for a repository's own folder: what is in there can run"
        " programs" in notes
    )
