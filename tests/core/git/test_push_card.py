"""The card of a push: git's output read whole, and everything in red that a person must not
overlook."""

from typing import Any

import msgspec
import pytest

from supervisor.core.actions import RefUpdate
from supervisor.core.files.content_flags import Flags, flags_of
from supervisor.core.git.push_card import (
    GITLINK,
    LARGE_BYTES,
    LARGE_FILE_BYTES,
    MOST_COMMIT_CHARS,
    Commit,
    Entry,
    Move,
    NamedFile,
    RefMove,
    commits_in,
    entries_in,
    file_card,
    flags,
    has_content,
    move_of,
    named_file,
    objects_in,
    passing_in,
)
from supervisor.core.secrets.redact import Redactor

OLD, NEW, NONE = "a" * 40, "b" * 40, "0" * 40
FILE = 0o100644
TOKEN = b"key = ghp_" + b"a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8\n"


def fields_of(one: Commit) -> tuple[Any, ...]:
    return msgspec.structs.astuple(one)


def entry(path: str = "src/a.py", **changes: object) -> Entry:
    facts = {
        "status": "M", "old_mode": FILE, "new_mode": FILE, "old_id": OLD, "new_id": NEW,
        "old_path": path, "path": path,
    }  # fmt: skip
    return Entry(**(facts | changes))  # type: ignore[arg-type]


def card_of(one: Entry, **blobs: bytes) -> object:
    found = {{"old": OLD, "new": NEW}[side]: data for side, data in blobs.items()}
    return file_card(one, found, {name: len(data) for name, data in found.items()}, Redactor())


def batch(*objects: str) -> bytes:
    """As `git cat-file --batch` prints commits."""
    pieces = (f"{NEW} commit {len(one.encode())}\n{one}\n" for one in objects)
    return "".join(pieces).encode()


def test_commits_are_read_as_git_prints_them() -> None:
    ada = "Ada <ada@example.org> 1700000000 +0100"
    start = f"tree {OLD}\nparent {OLD}\nparent {NEW}\nauthor {ada}\n"
    first, second, third = commits_in(
        batch(
            f"{start}committer {ada}\n\n\nAdd a | b\nand ü\n\nWhy\n\nx\n\n",
            f"{start}committer {ada}\n\n",
            f"tree {OLD}\nauthor  <> 1 +0000\ncommitter Bob <b@x> 2 +0000\nencoding UTF-16LE\n"
            "tree x\ngpgsig a\n \n b\n\nfour\n\nfive\n",
        )
    )
    assert first == Commit(NEW, "Ada", "ada@example.org", 1700000000, "Add a | b and ü", "Why\n\nx")
    assert second == Commit(NEW, *fields_of(first)[1:4], "")
    # Whatever else a commit says is pushed with it.
    more = "committer Bob <b@x> 2 +0000\nencoding UTF-16LE\ntree x\ngpgsig a\n \n b"
    assert third == Commit(NEW, "", "", 1, "four", f"five\n\n{more}")
    assert commits_in(b"") == ()


@pytest.mark.parametrize(
    ("head", "at", "body"),
    [
        ("", 0, ""),
        (f"tree {OLD}", 0, ""),
        ("author A <a> ² x", 0, ""),
        ("author A <a> 1", 1, ""),
        ("author A <a>", 0, ""),
        ("committer A <a> 1 +0000", 0, "committer A <a> 1 +0000"),
    ],
)
def test_a_commit_that_git_would_not_make_is_read_all_the_same(
    head: str, at: int, body: str
) -> None:
    (one,) = commits_in(batch(f"{head}\n\nx"))
    assert (one.at, one.subject, one.body) == (at, "x", body)


def test_changed_paths_are_read_as_git_prints_them() -> None:
    raw = (
        f":100644 100755 {OLD} {NEW} M\0a file\0"
        f":100644 100644 {OLD} {NEW} R090\0old\nname\0new\0"
        f":000000 160000 {NONE} {NEW} A\0sub\0"
    ).encode()
    assert entries_in(raw) == (
        entry("a file", new_mode=0o100755),
        entry("new", status="R", old_path="old\nname"),
        entry("sub", status="A", old_mode=0, new_mode=GITLINK, old_id=NONE),
    )
    assert entries_in(b"") == ()


def test_what_a_commit_on_the_way_has_alone_is_found() -> None:
    one, two, merge = "c" * 40, "d" * 40, "e" * 40
    raw = (
        f"{merge}\0::000000 100644 100644 {NONE} {OLD} {'f' * 40} AM\0evil\0"
        f"{two}\0:100644 000000 {NEW} {NONE} D\0gone\0:100644 100644 {OLD} {NEW} M\0kept\0"
        f"{one}\0:000000 100644 {NONE} {NEW} A\0gone\0:000000 100644 {NONE} {OLD} A\0kept\0"
    ).encode()
    found = passing_in(raw, [entry("kept", old_mode=0, status="A")])
    assert [(commit, at.path, at.new_id, at.new_mode) for commit, at in found] == [
        (merge, "evil", "f" * 40, FILE),
        (one, "gone", NEW, FILE),
        (one, "kept", OLD, FILE),
    ]
    assert found[0][1].old_mode == 0
    assert passing_in(b"", []) == ()


@pytest.mark.parametrize(
    ("update", "rewrites", "how"),
    [
        (RefUpdate("r", "", NEW), False, "new"),
        (RefUpdate("r", OLD, ""), False, "deleted"),
        (RefUpdate("r", OLD, NEW), True, "rewritten"),
        (RefUpdate("r", OLD, NEW), False, "moved"),
    ],
)
def test_how_a_ref_moves(update: RefUpdate, rewrites: bool, how: Move) -> None:
    assert move_of(update, rewrites=rewrites) == how


def test_a_changed_file_has_its_difference() -> None:
    made = card_of(entry(), old=b"one\ntwo\n", new=b"one\nthree\n")
    assert (made.content, made.diff.added, made.diff.removed) == ("text", 1, 1)  # type: ignore[attr-defined]
    gone = card_of(entry(new_mode=0), old=b"one\n")
    assert (gone.operation, gone.diff.removed) == ("delete", 1)  # type: ignore[attr-defined]
    fresh = card_of(entry(old_mode=0, new_mode=0o100755), new=b"one\n")
    assert (fresh.old_size, fresh.new_mode, fresh.diff.added) == (None, 0o755, 1)  # type: ignore[attr-defined]


def test_what_is_no_plain_file_is_said() -> None:
    link = card_of(entry(old_mode=0, new_mode=0o120000), new=b"/etc/passwd")
    assert (link.content, link.link_target) == ("none", "/etc/passwd")  # type: ignore[attr-defined]
    sub = card_of(entry(new_mode=GITLINK, old_mode=GITLINK))
    assert (
        sub.notes
        == (  # type: ignore[attr-defined]
            f"a submodule, from {OLD[:12]} to {NEW[:12]}; its commits are not part of this push",
        )
    )
    lfs = card_of(entry(), old=b"", new=b"version https://git-lfs.github.com/spec/v1\noid x\n")
    assert "the content that it names is not part of this push" in lfs.notes[0]  # type: ignore[attr-defined]
    moved = card_of(entry("b", status="R", old_path="a"), old=b"x\n", new=b"x\n")
    assert moved.notes == ("renamed from a",)  # type: ignore[attr-defined]
    unread = file_card(entry(), {}, {OLD: 5, NEW: 10**9}, Redactor())
    assert (unread.content, unread.new_size) == ("large", 10**9)
    assert unread.notes == ("too large to be shown here",)


def test_what_only_a_name_is_shown_of() -> None:
    every = [entry(), entry(old_mode=0), entry(new_mode=0), entry(new_mode=GITLINK)]
    assert [named_file(one, was_searched=True).what for one in every] == [
        "changed", "new", "deleted", "changed",
    ]  # fmt: skip
    assert [has_content(one) for one in every] == [True, True, False, False]
    assert named_file(every[0], was_searched=False) == NamedFile("src/a.py", "changed", False)


def test_contents_are_read_as_git_prints_them() -> None:
    told = f"{OLD} blob 4\na\nb\n\n{NEW} blob 0\n\n".encode()
    assert dict(objects_in(told)) == {OLD: b"a\nb\n", NEW: b""}


def test_of_a_commit_longer_than_anybody_reads_the_start_is_shown_and_that_is_said() -> None:
    (one,) = commits_in(batch(f"author A <a> 1\n\nSubject\n\n{'x' * MOST_COMMIT_CHARS}"))
    assert (one.subject, one.is_cut) == ("Subject", True)
    assert one.body.endswith("x\n\n[25 more characters aren't shown]")
    (one,) = commits_in(batch("author A <a> 1\n\nSubject"))
    assert not one.is_cut


def move(how: Move, ref: str = "refs/heads/main", **changes: object) -> RefMove:
    return RefMove(ref=ref, old=OLD, new=NEW, how=how, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "flag"),
    [
        (move("moved"), None),
        (move("new"), ("new branch", "main is not at the remote yet")),
        (move("new", "refs/tags/v1"), ("new tag", "refs/tags/v1 is not at the remote yet")),
        (move("deleted"), ("deletes", f"main, which is at {OLD[:12]}")),
        (
            move("rewritten", lost=(Commit(OLD, "a", "b", 1, "Theirs"),), lost_count=9),
            ("forces", f"main loses 9 commits: {OLD[:12]} (Theirs)"),
        ),
    ],
)
def test_what_is_no_plain_move_is_in_red(one: RefMove, flag: tuple[str, str] | None) -> None:
    assert flags([one], [], [], {}) == (() if flag is None else (flag,))


def test_files_that_a_person_must_see_are_in_red() -> None:
    every = [
        entry(".github/workflows/ci.yaml"),
        entry("big.bin", new_id="c" * 40),
        entry("vendor", new_mode=GITLINK),
        *(entry(f".github/workflows/{one}.yaml") for one in range(9)),
    ]
    sizes = {NEW: 10, "c" * 40: LARGE_BYTES + 1}
    seen = [
        ("conf.py", flags_of(b"", TOKEN, Redactor())),
        ("x.py", flags_of(b"", "a = 1  # \u202e\n".encode(), Redactor())),
    ]
    found = dict(flags([], every, seen, sizes))
    assert sorted(found) == [
        "hidden characters", "large", "large files", "looks like a secret",
        "runs or decides elsewhere", "submodules",
    ]  # fmt: skip
    assert found["looks like a secret"] == "conf.py"
    assert found["large files"] == "big.bin (10.5 MB)"
    assert found["submodules"] == f"vendor (at {NEW[:12]})"
    assert ".github/workflows/ci.yaml (" in found["runs or decides elsewhere"]
    assert found["runs or decides elsewhere"].endswith(" and 2 more")


def test_what_only_passes_and_what_messages_say_is_in_red() -> None:
    passing = [entry("a"), entry(".envrc"), entry("both")]
    seen = flags(
        [],
        [entry("both")],
        [("the message of abc", Flags(secret=(1,), hidden=(2,))), ("def", Flags())],
        {NEW: LARGE_FILE_BYTES + 1},
        passing=passing,
        unsearched=["a", "b", "a"],
        unread=3,
    )
    found = dict(seen)
    assert found["only on the way"] == "a, .envrc"
    assert found["not looked at"] == "3 older commits"
    assert found["not searched for secrets"] == "a, b"
    assert found["looks like a secret"] == found["hidden characters"] == "the message of abc"
    assert ".envrc (" in found["runs or decides elsewhere"]
    assert found["large files"] == "both (2.1 MB), a (2.1 MB), .envrc (2.1 MB)"
    card = file_card(entry(), {}, {}, Redactor(), commit=OLD)
    assert f"only on the way, in {OLD[:12]}; it is pushed all the same" in card.notes


def test_a_plain_push_has_nothing_in_red() -> None:
    seen = [("src/a.py", Flags())]
    assert flags([move("moved")], [entry()], seen, {NEW: LARGE_FILE_BYTES}) == ()
