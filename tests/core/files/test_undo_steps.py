"""What takes effects back, on values alone: in any order of effects the tree before comes out,
and what lies on what is known."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.files.changes import Seen
from supervisor.core.files.undo_steps import (
    MADE_FOLDER,
    Effect,
    HeldContent,
    Restoration,
    Selection,
    chosen,
    held_link,
    held_of,
    in_force,
    in_force_until,
    is_as,
    is_same,
    kept_out_of,
    made_folders,
    restorations,
    with_open_folders,
)

A, B, C = (HeldContent("file", 0o644, digest) for digest in "abc")
DIR = HeldContent("dir", 0o755)


def effect(
    number: int, name: str, before: HeldContent | None, after: HeldContent | None, request: str = ""
) -> Effect:
    return Effect(number, request or f"r{number}", name, "write", before, after, float(number))


def test_states_are_told_apart_by_all_that_a_person_sees() -> None:
    assert is_same(A, HeldContent("file", 0o644, "a", mtime_ns=5, uid=7))
    for other in (
        B,
        HeldContent("file", 0o600, "a"),
        HeldContent("file", 0o4644, "a"),
        held_link("a"),
        DIR,
        None,
    ):
        assert not is_same(A, other)
    assert is_same(MADE_FOLDER, DIR)
    assert is_same(held_link("x"), held_link("x"))
    assert not is_same(held_link("x"), held_link("y"))
    assert not is_same(HeldContent("dir", 0o700), DIR)


def test_a_look_becomes_a_value_that_a_journal_can_keep() -> None:
    signature = (3, 1_000_000_007, 2, 5, 0)
    seen = Seen("file", 0o4750, signature, "a", uid=7)
    assert held_of(seen) == HeldContent("file", 0o4750, "a", None, 1_000_000_007, 7)
    assert is_as(seen, HeldContent("file", 0o4750, "a"))
    assert not is_as(None, A)
    link = Seen("symlink", 0o777, signature, None, "\udcff")
    held = held_of(link)
    assert held is not None
    assert held.link_target == "\udcff"
    assert held.token == link.token
    assert msgspec.json.decode(msgspec.json.encode(held), type=HeldContent) == held


def test_the_first_before_and_the_last_after_count() -> None:
    history = [effect(1, "x", A, B), effect(2, "x", B, C), effect(3, "y", None, A)]
    assert restorations(history, history) == [Restoration("y", None, A), Restoration("x", A, C)]
    assert restorations(history, history[1:2]) == [Restoration("x", B, C)]


def test_what_came_back_by_itself_needs_nothing() -> None:
    history = [effect(1, "x", A, B), effect(2, "x", B, A)]
    assert restorations(history, history) == []


def test_inner_things_go_first_and_outer_things_come_first() -> None:
    history = [
        effect(1, "d/e/x", A, None),
        effect(2, "d/e", DIR, None),
        effect(3, "d", DIR, None),
        effect(4, "d", None, B),
        effect(5, "n", None, MADE_FOLDER),
        effect(5, "n/x", None, A),
    ]
    assert restorations(history, history) == [
        Restoration("n/x", None, A),
        Restoration("n", None, MADE_FOLDER),
        Restoration("d", None, B),
        Restoration("d", DIR, None),
        Restoration("d/e", DIR, None),
        Restoration("d/e/x", A, None),
    ]


def test_permissions_of_folders_change_while_what_is_in_them_can() -> None:
    open_, shut = HeldContent("dir", 0o755), HeldContent("dir", 0o555)
    history = [
        effect(1, "d", shut, open_), effect(2, "d/x", A, B), effect(3, "d/new", None, A), effect(4,
        "d/e", shut, open_),
        effect(5, "o", open_, shut), effect(6, "o/i", open_, shut), effect(7, "o/gone", A, None),
    ]  # fmt: skip
    assert [(one.name, one.to) for one in restorations(history, history)] == [
        ("o", open_), ("o/i", open_), ("d/new", None), ("d/x", A), ("o/gone", A), ("d/e", shut),
        ("d", shut),
    ]  # fmt: skip


def test_folders_that_the_session_made_go_with_their_last_file() -> None:
    history = [
        effect(1, "n", None, MADE_FOLDER),
        effect(1, "n/x", None, A),
        effect(2, "n/y", None, B),
    ]
    assert made_folders(history) == {"n"}
    assert restorations(history, history[2:]) == [
        Restoration("n/y", None, B),
        Restoration("n", None, MADE_FOLDER),
    ]
    existing = [effect(1, "n/y", None, B)]
    assert restorations(existing, existing) == [Restoration("n/y", None, B)]


def test_folders_that_the_session_took_away_come_back_with_their_first_file() -> None:
    shut = HeldContent("dir", 0o700)
    history = [
        effect(1, "d/e/x", A, None), effect(2, "d/e/y", B, None), effect(2, "d/e", shut, None),
        effect(2, "d", DIR, None),
    ]  # fmt: skip
    assert restorations(history, history[:1]) == [
        Restoration("d", DIR, None),
        Restoration("d/e", shut, None),
        Restoration("d/e/x", A, None),
    ]
    made_again = [*history, effect(3, "d", None, DIR)]
    assert restorations(made_again, history[:1]) == [
        Restoration("d/e", shut, None),
        Restoration("d/e/x", A, None),
    ]


def test_selections() -> None:
    history = [
        effect(1, "x", A, B),
        effect(2, "y", A, B),
        effect(2, "z", A, B),
        effect(3, "x", B, C),
    ]
    assert chosen(history, Selection()) == history
    assert chosen(history, Selection(ids=("r2",))) == history[1:3]
    assert chosen(history, Selection(after=1)) == history[1:]
    assert chosen(history, Selection(since=2.0)) == history[3:]
    assert chosen(history, Selection(ids=("other",))) == []


@pytest.mark.parametrize(
    ("history", "undos", "forced"),
    [
        ([effect(1, "x", A, B)], {}, {"r1"}),
        ([effect(1, "x", A, B), effect(2, "x", B, A, "u")], {"u": ("r1",)}, {"u"}),
        (
            [effect(1, "x", A, B), effect(2, "x", B, A, "u"), effect(3, "x", A, B, "v")],
            {"u": ("r1",), "v": ("u",)},
            {"r1", "v"},
        ),
        (
            [
                effect(1, "x", A, B),
                effect(2, "x", B, A, "u"),
                effect(3, "x", A, B, "v"),
                effect(4, "x", B, A, "w"),
            ],
            {"u": ("r1",), "v": ("u",), "w": ("r1", "u", "v")},
            {"w"},
        ),
        # Of a request with two paths one is still as it made it.
        (
            [
                effect(1, "x", A, B),
                effect(1, "y", A, B),
                effect(2, "x", B, C),
                effect(3, "x", C, B, "u"),
            ],
            {"u": ("r2",)},
            {"r1", "u"},
        ),
        # An undo of a path that nothing of what it took back touched, as a folder that goes with
        # its last file.
        ([effect(1, "x", A, B), effect(2, "d", DIR, None, "u")], {"u": ("r9",)}, {"r1", "u"}),
        # Beneath a change that stays, by a merge.
        (
            [effect(1, "x", A, B), effect(2, "x", B, C), effect(3, "x", C, A, "u")],
            {"u": ("r1",)},
            {"r2", "u"},
        ),
    ],
)
def test_what_is_in_force(
    history: list[Effect], undos: dict[str, tuple[str, ...]], forced: set[str]
) -> None:
    assert in_force(history, undos) == forced
    for at in range(len(history) + 1):
        assert in_force_until(history[:at], history[at:], undos) == (
            in_force(history[:at], undos),
            forced,
        )


STATES = st.sampled_from([None, A, B, C, held_link("t")])


@given(st.lists(st.tuples(st.sampled_from("pqr"), STATES), max_size=12), st.data())
def test_any_suffix_taken_back_gives_the_tree_at_its_beginning(
    changes: list[tuple[str, HeldContent | None]], data: st.DataObject
) -> None:
    tree: dict[str, HeldContent | None] = dict.fromkeys("pqr", A)
    trees = [dict(tree)]
    history: list[Effect] = []
    for number, (name, after) in enumerate(changes, 1):
        history.append(effect(number, name, tree[name], after))
        tree[name] = after
        trees.append(dict(tree))
    point = data.draw(st.integers(0, len(changes)))
    for one in restorations(history, chosen(history, Selection(after=point))):
        assert is_same(tree[one.name], one.expected)
        tree[one.name] = one.to
    assert tree == trees[point]


def test_a_path_that_is_changed_very_often_is_still_told_at_once() -> None:
    states = (A, B)
    history = [
        effect(number, "x", states[number % 2], states[(number + 1) % 2])
        for number in range(30_000)
    ]
    assert len(in_force(history, {})) == 30_000


def test_a_folder_that_keeps_out_its_owner_is_opened_before_all_else_and_shut_after() -> None:
    shut, within, free = (
        HeldContent("dir", 0o500),
        HeldContent("dir", 0o2055),
        HeldContent("dir", 0o755),
    )
    steps = [
        Restoration("x/in", None, within),
        Restoration("x", None, shut),
        Restoration("gone", None, MADE_FOLDER),
        Restoration("x", A, None),
        Restoration("y", shut, None),
        Restoration("y/f", A, None),
        Restoration("y/in", within, None),
        Restoration("z", free, None),
        Restoration("mode", shut, free),
    ]
    opened, opened_within = HeldContent("dir", 0o700), HeldContent("dir", 0o2755)
    assert with_open_folders(steps) == [
        Restoration("x", opened, shut),
        Restoration("x/in", opened_within, within),
        Restoration("x/in", None, opened_within),
        Restoration("x", None, opened),
        Restoration("gone", None, MADE_FOLDER),
        Restoration("x", A, None),
        Restoration("y", opened, None),
        Restoration("y/f", A, None),
        Restoration("y/in", opened_within, None),
        Restoration("z", free, None),
        Restoration("mode", shut, free),
        Restoration("y/in", within, opened_within),
        Restoration("y", shut, opened),
    ]


@pytest.mark.parametrize(
    ("to", "expected", "is_kept_out"),
    [
        (DIR, HeldContent("dir", 0o644), True),
        (None, HeldContent("dir", 0o600), True),
        (HeldContent("dir", 0o600), HeldContent("dir", 0o644), False),  # it stays shut
        (HeldContent("dir", 0o600), DIR, False),
        (None, MADE_FOLDER, False),
        (A, None, False),
    ],
)
def test_a_path_may_be_unseen_for_a_folder_that_is_opened_first(
    to: HeldContent | None, expected: HeldContent | None, is_kept_out: bool
) -> None:
    steps = [Restoration("x/y", to, expected)]
    assert kept_out_of(steps, "x/y/in/file") == is_kept_out
    assert not kept_out_of(steps, "x/y")
    assert not kept_out_of(steps, "x/yz/file")
