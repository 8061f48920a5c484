"""Names of refs as a repository or a remote gives them: each has one spelling, or is none."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.text import ref_names
from supervisor.core.text.ref_names import (
    RemoteRefs,
    full_ref,
    is_full,
    is_oid,
    is_spelled,
    listed_refs,
    own_refs,
)
from tests.tables import each_row

ID = "a" * 40


@pytest.mark.parametrize(
    "name",
    ["main", "feature/x", "feature/heads/x", "v1.0", "caf\u00e9", "a-b_c", "\u6f22", "x" * 200],
)
def test_a_plain_name_is_one(name: str) -> None:
    assert is_full(f"refs/heads/{name}")
    assert is_full(f"refs/tags/{name}")
    assert is_spelled(name)
    assert is_spelled(f"heads/{name}")


@each_row(
    "name",
    [
        *("", "HEAD", "head", "@", "refs/heads/main", "heads/main", "tags/v1", "remotes/origin/x"),
        *("a b", "a\tb", "a\nb", "a..b", "a.lock", "a.lock/b", ".a", "a/.b", "a.", "a/", "/a"),
        *("a//b", "-a", "a@{0}", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "\x7f", "\ufffd"),
        *("ma\u00adin", "cafe\u0301", "main\u200b", "\u2800", "x" * 1001),
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_none(name: str) -> None:
    assert not is_full(f"refs/heads/{name}")
    assert not is_full(f"refs/tags/{name}")


@pytest.mark.parametrize("ref", ["main", "HEAD", "refs/heads", "refs/notes/x", "refs/remotes/o/x"])
def test_only_branches_and_tags_are_full(ref: str) -> None:
    assert not is_full(ref)


@pytest.mark.parametrize(
    ("name", "ok"),
    [
        ("refs/pull/1/head", True),
        ("remotes/origin/x", True),
        ("refs/x..y", False),
        ("refs/notes/a\u200b", False),
        (f"refs/notes/{'x' * 1001}", False),
        ("refs/heads/refs/heads/x", False),
    ],
)
def test_a_command_may_name_refs_of_other_namespaces(name: str, ok: bool) -> None:
    assert is_spelled(name) is ok


@given(st.text(alphabet="ab/.@{-*~ \\:HEAD\u00e9", min_size=1, max_size=12))
def test_git_takes_each_name_that_is_taken_here(name: str) -> None:
    if is_full(f"refs/heads/{name}"):
        subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], check=True)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("main", "refs/heads/main"),
        ("refs/notes/x", "refs/notes/x"),
        ("tags/v1", "refs/tags/v1"),
        ("feature/heads/x", "refs/heads/feature/heads/x"),
    ],
)
def test_a_bare_name_is_a_branch(name: str, full: str) -> None:
    assert full_ref(name) == full


def test_what_a_name_can_be() -> None:
    assert own_refs("x") == {"refs/heads/x", "refs/tags/x"}
    assert own_refs("heads/x") == own_refs("refs/heads/x") == {"refs/heads/x"}


def test_object_ids_are_whole() -> None:
    assert is_oid(ID)
    assert is_oid("b" * 64)
    assert not any(map(is_oid, (ID[1:], f"{ID}\n", ID.upper(), "a" * 41)))


def test_a_remote_s_list_is_read_strictly() -> None:
    lines = [
        "ref: refs/heads/main\tHEAD",
        f"{ID}\tHEAD",
        f"{ID}\trefs/heads/main",
        "ref: refs/heads/main\trefs/heads/feature/x",
        f"{ID}\trefs/heads/feature/x",
        f"{ID}\trefs/pull/1/head",
        f"{ID}\trefs/tags/v1",
        f"{ID}\trefs/tags/v1^{{}}",
        f"{ID}\trefs/heads/HEAD",
        f"{ID}\trefs/heads/refs/heads/main",
        f"{ID}\trefs/heads/\xff",
        f"{ID}\tmain",
        "nonsense",
        f"{ID[1:]}\trefs/heads/short",
        "",
    ]
    found = listed_refs("\n".join(lines).encode("latin-1"))
    assert found.symbolic == {
        "HEAD": "refs/heads/main",
        "refs/heads/feature/x": "refs/heads/main",
    }
    assert found.peeled == {"refs/tags/v1": ID}
    assert {"refs/heads/refs/heads/main", "refs/heads/HEAD", "main"} <= found.odd
    assert found.taken_for("refs/heads/main") == "refs/heads/refs/heads/main"
    assert found.taken_for("refs/heads/feature/x") == ""
    assert set(found.ids) == {
        *("HEAD", "refs/heads/main", "refs/heads/feature/x", "refs/pull/1/head", "refs/tags/v1")
    }


def test_a_list_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ref_names, "MOST_REFS", 2)
    lines = "".join(f"{ID}\trefs/heads/{at}\n" for at in range(3))
    with pytest.raises(ValueError, match="more than 2 refs"):
        listed_refs(lines.encode())


def test_what_moves_with_a_ref_at_the_remote() -> None:
    main, also, third = "refs/heads/main", "refs/heads/also", "refs/tags/third"
    there = RemoteRefs({}, {"HEAD": main, also: main, third: also, "refs/x/y": main})
    assert there.moved_with(main) == (main, also, third)
    assert there.moved_with(third) == (third, also, main)
    assert there.moved_with("refs/heads/x") == ("refs/heads/x",)
    with pytest.raises(ValueError, match="another name for `refs/remotes/o/x`"):
        RemoteRefs({}, {main: "refs/remotes/o/x"}).moved_with(main)
    with pytest.raises(ValueError, match="another name for itself"):
        RemoteRefs({}, {main: also, also: main}).moved_with(main)
