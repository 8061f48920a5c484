"""Which permissions of new folders belong to an action, and when what was asked about them still
holds."""

import msgspec
import pytest

from supervisor.core.actions import FileChange, FileStep, NewFolder, decode, encode, fingerprint
from supervisor.core.files.changes import (
    ANY_MODE,
    Known,
    Seen,
    agree,
    create_or_change,
    is_still,
    is_usual,
    name_of,
    want,
)
from supervisor.core.files.new_folders import (
    holds_for,
    made_with,
    meant,
    modes_on_way,
    notes,
    with_way,
)

WRITE = FileChange(operation="write", path="a/b/c/x", after="h", mode=0o644)
SIGNATURE = (0, 0, 0, 1, 0o040700)


def folder(mode: int, *, is_anew: bool = False) -> Seen:
    return Seen("dir", mode, (0, 1, 1, 7, 0o040000 | mode), is_anew=is_anew)


@pytest.mark.parametrize(
    ("mode", "expected"), [(0o755, ANY_MODE), (0o2775, ANY_MODE), (0o3700, 0o700), (0, 0)]
)
def test_what_a_umask_leaves_says_nothing(mode: int, expected: int) -> None:
    assert meant(mode) == expected
    assert is_usual(mode) == (expected == ANY_MODE)


def test_an_action_has_the_folders_that_somebody_meant() -> None:
    action = with_way(WRITE, (("a", 0o711), ("a/b", ANY_MODE), ("a/b/c", 0o500)))
    assert action.folders == (NewFolder(path="a", mode=0o711), NewFolder(path="a/b/c", mode=0o500))
    assert modes_on_way(action) == {0: 0o711, 2: 0o700}  # filled before it is shut
    assert [made_with(action, name) for name in ("a", "a/b", "a/b/c")] == [0o711, ANY_MODE, 0o700]
    assert notes(action.folders) == (
        "also makes the folder a with mode 711",
        "also makes the folder a/b/c with mode 500",
    )
    assert decode(encode(action)) == action
    assert name_of(action) == WRITE.path


def test_a_name_that_is_not_utf8_counts_its_folders_alike() -> None:
    action = with_way(WRITE, (("a", ANY_MODE), ("a/\udcff", 0o700)))
    assert action.folders == (NewFolder(path="a/\\xff", mode=0o700),)
    assert modes_on_way(action) == {1: 0o700}


def test_each_folder_and_its_mode_are_in_the_fingerprint() -> None:
    step = FileStep(operation="delete", path="a/b")
    folders = [(), (NewFolder(path="a", mode=0o700),), (NewFolder(path="a", mode=0o711),)]
    made = [
        msgspec.structs.replace(WRITE, folders=one, steps=steps, to_b64=to)
        for one in folders
        for steps in ((), (step,))
        for to in (None, "YQ==")
    ]
    assert len({fingerprint(one) for one in made}) == len(made)


@pytest.mark.parametrize(
    ("before", "now", "holds"),
    [
        ((("a", 0o700),), (("a", 0o700),), True),
        ((("a", 0o700),), (), True),  # it was made since
        ((), (("a", ANY_MODE),), True),
        ((), (("a", 0o700),), False),
        ((("a", 0o700),), (("a", ANY_MODE),), False),
        ((("a", 0o700),), (("a", 0o711),), False),
    ],
)
def test_what_was_asked_holds_as_long_as_it_would_make_the_same(
    before: tuple[tuple[str, int], ...], now: tuple[tuple[str, int], ...], holds: bool
) -> None:
    assert holds_for(before, now) is holds


def test_folders_that_each_side_made_agree_unless_somebody_meant_the_permissions() -> None:
    assert agree(None, folder(0o775), folder(0o755))
    assert not agree(None, folder(0o700), folder(0o755))
    wanted = want(None, folder(0o700), folder(0o755))
    assert wanted is not None
    assert (wanted.operation, wanted.mode, wanted.hazards) == ("chmod", 0o700, ("conflict",))


def test_a_folder_made_on_the_way_counts_from_the_first_look_on() -> None:
    made = Known("dir", ANY_MODE, host_signature=SIGNATURE)
    assert is_still(folder(0o775), made)
    assert not is_still(folder(0o700), made)
    assert is_still(folder(0o700), Known("dir", ANY_MODE))
    before = Known("dir", 0o775, host_signature=SIGNATURE)
    assert is_still(folder(0o755, is_anew=True), before)
    assert not is_still(folder(0o700, is_anew=True), before)


def test_a_folder_on_the_way_that_everybody_may_write_to_is_a_hazard() -> None:
    assert with_way(WRITE, (("a", 0o750), ("a/b", 0o700))).hazards == ()
    wide = with_way(WRITE, (("a", 0o750), ("a/b", 0o773)))
    assert wide.hazards == ("wider",)
    assert with_way(wide, (("a", 0o773),)).hazards == ("wider",)
    assert with_way(WRITE, (("a", ANY_MODE),)).hazards == ()


@pytest.mark.parametrize(
    ("mode", "before", "hazards"),
    [
        (0o777, 0o700, ("wider",)),
        (0o711, 0o700, ("wider",)),
        (0o755, 0o755, ()),
        (0o700, 0o755, ()),
        (0o775, None, ()),
        (0o777, None, ("wider",)),
    ],
)
def test_a_folder_that_others_get_into_is_a_hazard(
    mode: int, before: int | None, hazards: tuple[str, ...]
) -> None:
    host = None if before is None else folder(before)
    conflicts = ("conflict",) if host is not None else ()
    assert create_or_change(None, folder(mode), host).hazards == (*hazards, *conflicts)
