"""The facts of a conflict's card: what each side did, and the difference only where both
contents can be had."""

import pytest

from supervisor.core.files.conflict_card import Did, did, difference


@pytest.mark.parametrize(
    ("was_there", "is_there", "same_kind", "expected"),
    [
        (True, True, True, "edited"),
        (True, True, False, "replaced"),
        (False, True, True, "created"),
        (False, True, False, "created"),
        (True, False, True, "deleted"),
        (True, False, False, "deleted"),
    ],
)
def test_what_one_side_did_is_told_in_a_word(
    was_there: bool, is_there: bool, same_kind: bool, expected: Did
) -> None:
    assert did(was_there, is_there, same_kind) == expected


def test_a_difference_leads_from_the_old_content_to_the_new() -> None:
    found = difference(b"one\ntwo\n", b"one\n2\n")
    assert found is not None
    assert [(line.kind, line.text) for line in found.hunks[0].lines] == [
        ("context", "one"), ("removed", "two"), ("added", "2"),
    ]  # fmt: skip


def test_an_empty_content_is_one_and_a_missing_content_is_none() -> None:
    found = difference(b"", b"a\n")
    assert found is not None
    assert (found.added, found.removed) == (1, 0)
    assert difference(None, b"a\n") is None
    assert difference(b"a\n", None) is None
