"""The tree of many changes: what is counted, what needs a look of its own, and what an answer
covers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import FileChange, fingerprint
from supervisor.core.files import change_tree
from supervisor.core.files.change_tree import (
    FLAG_NOTES,
    LONG_NAME,
    MOST_LISTED,
    ChangeSet,
    Waiting,
    digest,
)


def waiting(path: str, *, at: float = 1.0, sticky: bool = False, **fields: object) -> Waiting:
    action = FileChange(**({"operation": "write", "path": path, "after": "a" * 64} | fields))  # type: ignore[arg-type]
    return Waiting(f"id-{path}", fingerprint(action), at, action, sticky)


TREE = [
    waiting("a.txt"),
    waiting("src/b.py", before="b" * 64),
    waiting("src/deep/c.py", operation="delete", before="c" * 64, after=None),
    waiting("src/deep/d.py"),
    waiting("srcs/e.py"),
]


def test_a_level_has_folders_with_counts_and_its_files() -> None:
    level = ChangeSet(TREE, {}).level()
    assert [(one.path, one.files) for one in level.folders] == [("src", 3), ("srcs", 1)]
    assert level.folders[0].counts == {"created": 1, "changed": 1, "deleted": 1, "renamed": 0}
    assert [one.path for one in level.files] == ["a.txt"]
    inner = ChangeSet(TREE, {}).level("src")
    assert [one.name for one in inner.folders] == ["deep"]
    assert [one.name for one in inner.files] == ["b.py"]
    assert inner.folder.files == 3


def test_what_was_in_the_way_before_needs_a_look_of_its_own() -> None:
    why = "could not be carried out before: `a.txt` is a folder on the host"
    found = ChangeSet([TREE[0]._replace(problem=why), *TREE[1:]], {})
    assert [(leaf.path, leaf.notes) for leaf in found.careful()] == [("a.txt", (why,))]


def test_a_name_that_a_list_folds_needs_a_look_of_its_own() -> None:
    found = ChangeSet([waiting("a.py"), waiting("x" * 230 + "/b.py"), waiting("漢" * 120)], {})
    assert [leaf.notes for leaf in found.careful()] == [(LONG_NAME,), (LONG_NAME,)]


def test_a_rename_is_counted_as_one() -> None:
    moved = waiting(
        "src/old.py", operation="rename", to="src/new.py", before="b" * 64, after="b" * 64
    )
    level = ChangeSet([moved], {}).level()
    assert level.folders[0].counts == {"created": 0, "changed": 0, "deleted": 0, "renamed": 1}


def test_lines_are_summed_where_they_are_known_and_a_rename_says_where_to() -> None:
    moved = waiting(
        "src/old.py", operation="rename", before="d" * 64, after="d" * 64, to="lib/new.py"
    )
    found = ChangeSet(
        [*TREE, moved],
        {},
        None,
        {"id-src/b.py": (3, 1), "id-src/deep/c.py": (0, 9), "id-a.txt": (1, 0)},
    )
    level = found.level()
    assert (level.folder.added, level.folder.removed) == (4, 10)
    assert [(one.added, one.removed) for one in level.folders] == [(3, 10), (0, 0)]
    inner = found.level("src")
    assert [(one.name, one.to, one.added, one.removed) for one in inner.files] == [
        ("b.py", None, 3, 1), ("old.py", "lib/new.py", None, None),
    ]  # fmt: skip


def test_only_so_many_files_are_listed() -> None:
    level = ChangeSet([waiting(f"{n}.txt") for n in range(MOST_LISTED + 7)], {}).level()
    assert (len(level.files), level.more) == (MOST_LISTED, 7)


def test_an_answer_covers_exactly_what_was_shown() -> None:
    found = ChangeSet(TREE, {})
    seen = found.level("src").folder.shown
    assert found.approved_by("src", seen, {}) == [
        "id-src/b.py",
        "id-src/deep/c.py",
        "id-src/deep/d.py",
    ]
    # Later ones don't count, and don't get in the way.
    later = ChangeSet([*TREE, waiting("src/new.py", at=2.0)], {}, seen.until)
    assert later.approved_by("src", seen, {}) == [
        "id-src/b.py",
        "id-src/deep/c.py",
        "id-src/deep/d.py",
    ]
    # Another folder's digest, one that is gone, another version: none of it is what was shown.
    assert found.approved_by("srcs", seen, {}) is None
    assert ChangeSet(TREE[:-2], {}).approved_by("src", seen, {}) is None
    assert (
        ChangeSet([*TREE[:3], waiting("src/deep/d.py", mode=0o755)], {}).approved_by(
            "src", seen, {}
        )
        is None
    )
    assert found.denied_by("src", seen) == found.approved_by("src", seen, {})


def test_what_needs_a_look_is_left_out_unless_it_is_ticked() -> None:
    link = waiting("src/link", operation="symlink", hazards=("symlink",))
    secret, guarded = waiting("src/key.txt"), waiting("src/guarded", sticky=True)
    found = ChangeSet([*TREE, link, secret, guarded], {secret.id: ["secret"]})
    assert [one.path for one in found.careful()] == ["src/guarded", "src/key.txt", "src/link"]
    assert all(one.notes for one in found.careful())
    seen = found.level("src").folder.shown
    plain = ["id-src/b.py", "id-src/deep/c.py", "id-src/deep/d.py"]
    assert found.approved_by("src", seen, {}) == plain
    assert found.approved_by("src", seen, {link.id: link.fingerprint}) == [*plain, link.id]
    assert found.approved_by("src", seen, {link.id: "another"}) is None
    assert found.approved_by("src", seen, {"no-such": "id"}) is None
    assert found.approved_by("srcs", found.level("srcs").folder.shown,
    {link.id: link.fingerprint}) == [
        "id-srcs/e.py", link.id,
    ]  # fmt: skip
    # A denial covers them; where one came to be careful meanwhile, neither answer holds.
    assert set(found.denied_by("src", seen) or ()) >= {link.id, secret.id, guarded.id}
    assert ChangeSet([*TREE, link, secret, guarded], {}).denied_by("src", seen) is None
    assert ChangeSet([*TREE, link, secret, guarded], {}).approved_by("src", seen, {}) is None


def test_what_the_rules_know_of_is_said_once() -> None:
    key = waiting("src/key.txt", hazards=("secret",))
    (leaf,) = ChangeSet([key], {key.id: [FLAG_NOTES["secret"], FLAG_NOTES["hidden"]]}).careful()
    assert [note.partition(":")[0] for note in leaf.notes] == ["secret", FLAG_NOTES["hidden"]]


def test_a_rule_that_asks_for_everything_tells_none_from_the_others() -> None:
    assert ChangeSet([one._replace(sticky=True) for one in TREE], {}).careful() == []


names = st.sampled_from(
    ["a", "b", "a/b", "a/c", "b/c/d", "ab", "a/b c", "\u202e", "<script>", "é/x"]
)
sets = st.lists(
    st.tuples(names, st.sampled_from(["1" * 64, "2" * 64])),
    unique_by=lambda one: one[0],
    max_size=6,
)


@given(sets, sets)
def test_two_digests_are_one_only_for_the_same_changes(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    first, second = (
        [waiting(name, after=after) for name, after in found] for found in (one, other)
    )
    assert (digest(first) == digest(second)) == (set(one) == set(other))


@given(sets, st.sampled_from(["", "a", "a/b", "b", "b/c", "\u202e"]))
def test_every_change_is_counted_once_at_each_level(one: list[tuple[str, str]], below: str) -> None:
    found = ChangeSet([waiting(name, after=after) for name, after in one], {})
    level = found.level(below)
    assert level.folder.files == sum(folder.files for folder in level.folders) + len(level.files)
    assert sum(level.folder.counts.values()) == level.folder.files
    approved = found.approved_by(below, level.folder.shown, {})
    assert approved == [one.id for one in found.below(below)]


@pytest.mark.parametrize("below", ["a", "a/b"])
def test_a_path_itself_can_be_answered_for(below: str) -> None:
    found = ChangeSet([waiting("a/b"), waiting("ab")], {})
    assert found.approved_by(below, found.level(below).folder.shown, {}) == ["id-a/b"]


def test_a_change_in_a_repositorys_folder_needs_a_look_of_its_own_and_a_marked_one_doesnt() -> None:
    changes = ChangeSet([waiting("a/config", repositories=("a",)), waiting("Makefile")], {})
    assert changes.notes == {
        "id-a/config": (
            "git takes a for a repository's own folder: what is in there can run programs",
        )
    }
    assert [one.mark for one in changes.level().files] == ["runs when you run tests or a build"]


def test_plain_files_come_by_path_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_tree, "MOST_FILES", 2)
    found = ChangeSet([*TREE[::-1], waiting("uv.lock")], {"id-src/b.py": [FLAG_NOTES["secret"]]})
    assert [one.path for one in found.plain()] == ["a.txt", "src/deep/c.py"]
    assert [one.path for one in found.plain(2)] == ["src/deep/d.py", "srcs/e.py"]
    assert [(one.path, one.generated) for one in found.plain(4)] == [("uv.lock", "lock file")]


def test_an_approval_leaves_out_what_lost_its_tick() -> None:
    found = ChangeSet(TREE, {"id-src/b.py": [FLAG_NOTES["secret"]]})
    seen, flagged = found.level().folder.shown, TREE[1]
    left = found.left_out(["id-a.txt", "unknown"], ["src/deep"])
    assert found.approved_by("", seen, {}, left) == ["id-srcs/e.py"]
    ticked = {flagged.id: flagged.fingerprint}
    assert found.approved_by("", seen, ticked, left) == ["id-srcs/e.py", flagged.id]
    assert found.approved_by("src", found.level("src").folder.shown, {}, left) == []
    # What is nearest decides; where both are said, it is left out.
    left = found.left_out([], [""], ["src", "a.txt"]) | found.left_out([], ["src/deep/c.py"])
    assert found.approved_by("", seen, {}, left) == ["id-a.txt", "id-src/deep/d.py"]
    assert "id-a.txt" in found.left_out([], ["a.txt"], ["a.txt"])
