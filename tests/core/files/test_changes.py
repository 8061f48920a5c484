"""The three-way comparison as a table, edits, and names."""

import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import FileChange, content_hash, decode, encode, fingerprint
from supervisor.core.files.changes import (
    ANY_MODE,
    MOST_EDITED_CHARS,
    EditError,
    Known,
    Seen,
    Want,
    agree,
    apply_edit,
    apply_edits,
    conflict,
    create_or_change,
    is_text,
    kind_of,
    link_token,
    may_swap,
    name_fields,
    name_of,
    names_of,
    rename_of,
    signature_of,
    to_action,
    want,
)
from tests.tables import each_row

A, B, C = (content_hash(text) for text in (b"a", b"b", b"c"))


def file(digest: str, at: int = 1, mode: int = 0o644, links: int = 1) -> Seen:
    # Other content is another signature, as the kernel's change time makes sure of.
    return Seen(
        "file", mode, (int(digest[:8], 16), at, at, 1, stat.S_IFREG | mode), digest, links=links
    )


def link(target: str, at: int = 1) -> Seen:
    return Seen(
        "symlink", 0o777, (len(target), at, at, ord(target[0]), stat.S_IFLNK), target=target
    )


def folder(mode: int = 0o755, *, is_anew: bool = False) -> Seen:
    return Seen("dir", mode, (1, 1, 1, 1, stat.S_IFDIR | mode), is_anew=is_anew)


def fifo() -> Seen:
    return Seen("fifo", 0o644, (0, 1, 1, 1, stat.S_IFIFO))


def known(seen: Seen, digest: str | None = None, host: Seen | None = None) -> Known:
    """Both sides agreed on `seen`."""
    return Known(
        seen.kind,
        seen.mode,
        digest or seen.digest,
        seen.target,
        (host or seen).signature,
        seen.signature,
    )


AGREED = known(file(A))
TABLE = {
    "nothing anywhere": (None, None, None, None),
    "unchanged": (AGREED, file(A), file(A), None),
    "touched": (AGREED, file(A, 2), file(A), None),
    "changed by the agent": (AGREED, file(B, 2), file(A), Want("write", A, B, 0o644)),
    "changed by the person": (AGREED, file(A), file(B, 2), None),
    "touched by the agent, changed by the person": (AGREED, file(A, 2), file(B, 2), None),
    "changed by both": (
        AGREED,
        file(B, 2),
        file(C, 2),
        Want("write", C, B, 0o644, hazards=("conflict",)),
    ),
    "changed by both to the same": (AGREED, file(B, 2), file(B, 3), None),
    "touched by the person": (AGREED, file(B, 2), file(A, 2), Want("write", A, B, 0o644)),
    "deleted by the agent": (AGREED, None, file(A), Want("delete", A)),
    "deleted by the person": (AGREED, file(A), None, None),
    "deleted by both": (AGREED, None, None, None),
    "deleted by the agent, changed by the person": (
        AGREED,
        None,
        file(B, 2),
        Want("delete", B, hazards=("conflict",)),
    ),
    "changed by the agent, deleted by the person": (
        AGREED,
        file(B, 2),
        None,
        Want("write", None, B, 0o644, hazards=("conflict",)),
    ),
    "new": (None, file(B), None, Want("write", None, B, 0o644)),
    "new by the person": (None, None, file(B), None),
    "new by both": (None, file(A), file(B), Want("write", B, A, 0o644, hazards=("conflict",))),
    "new by both and the same": (None, file(A), file(A), None),
    "unknown content, person's file as it was": (
        Known("file", 0o644, None, None, file(A).signature, file(A).signature),
        file(B, 2),
        file(A),
        Want("write", A, B, 0o644),
    ),
    "unknown content, person's file another": (
        Known("file", 0o644, None, None, file(A).signature, file(A).signature),
        file(B, 2),
        file(A, 2),
        Want("write", A, B, 0o644, hazards=("conflict",)),
    ),
    "unknown content, person's file touched, the agent's mode": (
        Known("file", 0o644, None, None, file(A).signature, file(A).signature),
        file(A, 2, 0o600),
        file(A, 2),
        Want("chmod", A, A, 0o600),
    ),
    "unknown content, another mode on either side": (
        Known("file", 0o644, None, None, file(A).signature, file(A).signature),
        file(A, 2, 0o600),
        file(A, 2, 0o640),
        Want("chmod", A, A, 0o600, hazards=("conflict",)),
    ),
    "unknown content, deleted by the agent, person's file touched": (
        Known("file", 0o644, None, None, file(A).signature, file(A).signature),
        None,
        file(A, 2),
        Want("delete", A, hazards=("conflict",)),
    ),
    "unknown content, a link in place of what the person touched": (
        Known("file", 0o644, None, None, file(A).signature, file(A).signature),
        link("x"),
        file(A, 2),
        Want("symlink", A, link_token("x"), link_target="x", hazards=("symlink", "conflict")),
    ),
    "mode only": (AGREED, file(A, 2, 0o600), file(A), Want("chmod", A, A, 0o600)),
    "executable": (
        AGREED,
        file(A, 2, 0o755),
        file(A),
        Want("chmod", A, A, 0o755, hazards=("new-executable",)),
    ),
    "still executable": (
        known(file(A, mode=0o755)),
        file(B, 2, 0o755),
        file(A, mode=0o755),
        Want("write", A, B, 0o755),
    ),
    "set-id": (
        AGREED,
        file(A, 2, 0o4644),
        file(A),
        Want("chmod", A, A, 0o644, hazards=("setuid",)),
    ),
    "set-id that was seen": (known(file(A, mode=0o4644)), file(A, 2, 0o4644), file(A), None),
    "hard link": (
        None,
        file(A, links=2),
        None,
        Want("write", None, A, 0o644, hazards=("hardlink",)),
    ),
    "symlink": (
        None,
        link("x"),
        None,
        Want("symlink", None, link_token("x"), link_target="x", hazards=("symlink",)),
    ),
    "symlink the same": (known(link("x")), link("x", 2), link("x"), None),
    "file to symlink": (
        AGREED,
        link("x"),
        file(A),
        Want("symlink", A, link_token("x"), link_target="x", hazards=("symlink",)),
    ),
    "symlink to file": (
        known(link("x")),
        file(A),
        link("x"),
        Want("write", link_token("x"), A, 0o644, hazards=("symlink",)),
    ),
    "new folder": (None, folder(), None, Want("mkdir", None, "dir", 0o755)),
    "folder that each side made": (None, folder(), folder(0o700), None),
    "folder's mode": (known(folder()), folder(0o700), folder(), Want("chmod", "dir", "dir", 0o700)),
    "folder's mode, back again": (known(folder()), folder(), folder(), None),
    "folder's mode by the person": (known(folder()), folder(), folder(0o700), None),
    "folder's mode by both": (
        known(folder()),
        folder(0o700),
        folder(0o770),
        Want("chmod", "dir", "dir", 0o700, hazards=("conflict",)),
    ),
    "folder's mode by both to the same": (known(folder()), folder(0o700), folder(0o700), None),
    "folder's mode where each side has its own": (
        known(folder(), host=folder(0o775)),
        folder(0o700),
        folder(0o775),
        Want("chmod", "dir", "dir", 0o700),
    ),
    "folder on the way to a file": (Known("dir", ANY_MODE), folder(0o700), folder(), None),
    "folder's mode that the record lacks": (
        Known("dir", 0o755),
        folder(0o700),
        folder(),
        Want("chmod", "dir", "dir", 0o700),
    ),
    "folder made anew by another umask": (
        known(folder()),
        folder(0o775, is_anew=True),
        folder(),
        None,
    ),
    "folder made anew with permissions that somebody meant": (
        known(folder()),
        folder(0o700, is_anew=True),
        folder(),
        Want("chmod", "dir", "dir", 0o700),
    ),
    "folder's set-id and sticky bits": (known(folder()), folder(0o3755), folder(0o2755), None),
    "folder deleted whose mode the person changed": (
        known(folder()),
        None,
        folder(0o700),
        Want("delete", "dir", hazards=("conflict",)),
    ),
    "folder deleted": (known(folder()), None, folder(), Want("delete", "dir")),
    "file to folder": (AGREED, folder(), file(A), Want("swap", A, "dir", 0o755)),
    "file that the person changed to folder": (
        AGREED,
        folder(),
        file(B, 2),
        Want("swap", B, "dir", 0o755, hazards=("conflict",)),
    ),
    "folder to file": (known(folder()), file(A), folder(), Want("swap", "dir", A, 0o644)),
    "folder to link": (
        known(folder()),
        link("x"),
        folder(),
        Want("swap", "dir", link_token("x"), link_target="x", hazards=("symlink",)),
    ),
    "link to folder": (
        known(link("x")),
        folder(),
        link("x"),
        Want("swap", link_token("x"), "dir", 0o755, hazards=("symlink",)),
    ),
    "fifo in place of a folder": (
        known(folder()),
        fifo(),
        folder(),
        Want("write", "dir", hazards=("fifo",)),
    ),
    "fifo": (None, fifo(), None, Want("write", None, hazards=("fifo",))),
    "fifo in place of a file": (AGREED, fifo(), file(A), Want("write", A, hazards=("fifo",))),
}


@each_row("case", TABLE)
def test_what_the_copy_asks_of_the_host(case: str) -> None:
    before, mine, host, expected = TABLE[case]
    assert want(before, mine, host) == expected


@each_row("case", TABLE)
def test_without_digests_a_swap_is_told_as_with_them(case: str) -> None:
    before, mine, host, expected = TABLE[case]
    unread = [
        None if seen is None else msgspec.structs.replace(seen, digest=None)
        for seen in (mine, host)
    ]
    assert may_swap(before, *unread) == (expected is not None and expected.operation == "swap")


def test_the_persons_folder_in_the_place_of_the_agents_file() -> None:
    """Only one that was written to may be a swap: what it holds isn't looked at."""
    assert not may_swap(AGREED, file(A), folder())
    assert may_swap(AGREED, file(B, 2), folder())
    touched = file(A, 2)
    assert may_swap(AGREED, touched, folder())
    assert want(AGREED, touched, folder()) is None


def test_a_folder_waits_for_what_is_in_it() -> None:
    assert want(known(folder()), None, folder(), holds_known=True) is None


def test_only_special_files_are_never_carried_over() -> None:
    assert want(None, fifo(), None).never  # type: ignore[union-attr]
    assert not want(None, link("x"), None).never  # type: ignore[union-attr]


_DIGESTS = st.sampled_from([A, B, C])
_SEEN = st.one_of(
    st.none(),
    st.builds(file, _DIGESTS, st.integers(1, 3), st.sampled_from([0o644, 0o755])),
    st.builds(link, st.sampled_from(["x", "y"]), st.integers(1, 3)),
    st.builds(folder, st.sampled_from([0o755, 0o700])),
)


@given(_SEEN, _SEEN, _SEEN)
def test_no_change_of_the_persons_is_overwritten_without_saying_so(
    base: Seen | None, mine: Seen | None, host: Seen | None
) -> None:
    """If the host isn't as both sides agreed, whatever is wanted of it is a conflict; and a copy
    that didn't change wants nothing."""
    agreed = known(base) if base else None
    wanted = want(agreed, mine, host)
    if wanted is not None:
        same = (base is None and host is None) or (
            base is not None and host is not None and base.token == host.token
        )
        same_mode = base is None or host is None or base.kind == "symlink" or base.mode == host.mode
        assert ("conflict" in wanted.hazards) == (not (same and same_mode))
        assert wanted.before == (host.token if host else None)
    if mine == base:
        assert wanted is None


@given(_SEEN, _SEEN)
def test_after_it_is_carried_out_nothing_more_is_wanted(
    mine: Seen | None, host: Seen | None
) -> None:
    """Step by step the host comes to have what the copy has, in at most two steps for one path."""
    agreed = known(host) if host else None
    for _ in range(3):
        wanted = want(agreed, mine, host)
        if wanted is None:
            break
        host = None if wanted.operation == "delete" else mine
        agreed = known(host) if host else None
    assert (mine is None and host is None) or (mine is not None and agree(agreed, mine, host))


def test_conflict_knows_a_touch_from_a_change() -> None:
    assert conflict(AGREED, file(A, 9)) == ()
    assert conflict(AGREED, file(A, 9, 0o600)) == ("conflict",)
    assert conflict(known(link("x")), link("x", 9)) == ()
    assert conflict(known(link("x")), link("y", 9)) == ("conflict",)
    assert conflict(known(folder()), folder(0o700)) == ("conflict",)
    assert conflict(known(folder()), folder(0o2755)) == ()
    assert conflict(Known("dir", 0o755), folder(0o700)) == ()
    assert conflict(known(folder()), file(A)) == ("conflict",)


def test_a_change_that_the_signature_doesnt_tell_is_one_by_its_content() -> None:
    hidden = msgspec.structs.replace(file(B), signature=file(A).signature)
    assert conflict(AGREED, hidden) == ("conflict",)
    assert conflict(msgspec.structs.replace(AGREED, digest=None), hidden) == ()


def test_states_of_different_kinds_never_share_a_token() -> None:
    target = "x"
    tokens = [
        file(content_hash(os.fsencode(target))).token,
        link(target).token,
        folder().token,
        fifo().token,
    ]
    assert len(set(tokens)) == len(tokens)


def test_kinds() -> None:
    kinds = {
        stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo",
        stat.S_IFSOCK: "socket", stat.S_IFBLK: "device", stat.S_IFCHR: "device",
    }  # fmt: skip
    assert {mode: kind_of(mode | 0o644) for mode in kinds} == kinds


@given(st.binary(min_size=1).filter(lambda raw: b"\0" not in raw))
def test_any_name_survives_an_action_and_json(raw: bytes) -> None:
    name = os.fsdecode(raw)
    action = to_action(name, Want("write", None, A, 0o644))
    assert os.fsencode(name_of(decode(encode(action)))) == raw  # type: ignore[arg-type]


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_two_names_never_share_a_fingerprint(left: bytes, right: bytes) -> None:
    marks = [fingerprint(to_action(os.fsdecode(raw), Want("delete", A))) for raw in (left, right)]
    assert (marks[0] == marks[1]) == (left == right)


def test_names_that_arent_utf8_are_shown_escaped() -> None:
    assert name_fields("plain/ü") == ("plain/ü", None)
    assert name_fields(os.fsdecode(b"caf\xe9")) == ("caf\\xe9", "Y2Fm6Q==")
    assert is_text("plain/ü")
    assert not is_text(os.fsdecode(b"caf\xe9"))
    with pytest.raises(ValueError):
        name_of(FileChange(operation="write", path="x", path_b64="not base64!"))


def test_a_rename_is_about_two_names() -> None:
    assert names_of(FileChange(operation="rename", path="a", to="b")) == ("a", "b")
    assert names_of(
        FileChange(operation="rename", path="caf\\xe9", path_b64="Y2Fm6Q==", to="b")
    ) == ("caf\udce9", "b")
    assert names_of(FileChange(operation="delete", path="a")) == ("a",)


_NAMES = st.binary(min_size=1, max_size=4).filter(lambda raw: b"\0" not in raw)


@given(_NAMES, _NAMES, _NAMES)
def test_a_rename_is_about_exactly_these_bytes(old: bytes, new: bytes, other: bytes) -> None:
    action = rename_of(os.fsdecode(old), os.fsdecode(new), A)
    assert tuple(map(os.fsencode, names_of(decode(encode(action))))) == (old, new)  # type: ignore[arg-type]
    for another in (
        rename_of(os.fsdecode(old), os.fsdecode(other), A),
        rename_of(os.fsdecode(other), os.fsdecode(new), A),
    ):
        is_same = names_of(another) == names_of(action)
        assert (fingerprint(another) == fingerprint(action)) == is_same


@each_row(
    ("text", "old", "new", "replace_all", "result"),
    [
        ("a b c", "b", "x", False, "a x c"),
        ("a b c", "a b c", "", False, ""),
        ("b b", "b", "x", True, "x x"),
        ("one\r\ntwo\r\n", "two", "2", False, "one\r\n2\r\n"),
        ("a", "a", "aa", True, "aa"),
        ("b b", "b", "x", False, EditError),
        ("aaa", "aa", "x", False, EditError),  # overlapping: which one?
        ("a", "b", "x", False, EditError),
        ("a", "b", "x", True, EditError),
        ("a", "", "x", False, EditError),
        ("a", "a", "a", False, EditError),
    ],
)
def test_edits(text: str, old: str, new: str, replace_all: bool, result: str | type) -> None:
    if isinstance(result, str):
        assert apply_edit(text, old, new, replace_all) == result
    else:
        with pytest.raises(EditError):
            apply_edit(text, old, new, replace_all)


def test_an_edit_that_would_fill_the_memory_is_refused_before_it_is_made() -> None:
    text, new = "a" * 10_000, "b" * (1 + MOST_EDITED_CHARS // 10_000)
    with pytest.raises(EditError, match="16 million characters"):
        apply_edit(text, "a", new, replace_all=True)
    assert len(apply_edit(text[:100], "a", new, replace_all=True)) == 100 * len(new)


def test_several_edits_are_each_made_on_what_the_one_before_made() -> None:
    assert apply_edits("one two", [("one", "two", False), ("two", "three", True)]) == "three three"
    assert apply_edits("as it was", []) == "as it was"


def test_where_one_of_several_edits_fails_it_is_named() -> None:
    with pytest.raises(EditError, match=r"\Aedit 2 of 2: the old text isn't in the file\Z"):
        apply_edits("one two", [("one", "1", False), ("one", "2", False)])
    with pytest.raises(EditError, match=r"\Athe old text isn't in the file\Z"):
        apply_edits("one two", [("three", "3", False)])


@given(st.text(), st.text(min_size=1), st.text())
def test_an_edit_changes_its_place_and_nothing_else(head: str, old: str, new: str) -> None:
    text = f"{head}{old}"
    try:
        edited = apply_edit(text, old, new)
    except EditError:
        assert text.count(old) != 1 or old == new or text.find(old) != text.rfind(old)
        return
    at = text.index(old)
    assert edited == text[:at] + new + text[at + len(old) :]


def test_a_signature_tells_any_later_change_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    before = signature_of(path.stat())
    assert before == signature_of(path.stat())
    assert before[0] == 3
    assert stat.S_ISREG(before[4])
    path.chmod(0o600)
    assert signature_of(path.stat()) != before


def test_a_folder_whose_mode_the_agent_left_alone_asks_nothing_of_the_host() -> None:
    """The person removed a folder that both sides had: the copy's, touched but the same, doesn't
    bring it back."""
    touched = Seen("dir", 0o755, (2, 2, 2, 2, stat.S_IFDIR | 0o755))
    assert want(known(folder()), touched, None) is None
    changed = Seen("dir", 0o700, (2, 2, 2, 2, stat.S_IFDIR | 0o700))
    asked = want(known(folder()), changed, None)
    assert asked is not None
    assert asked.operation == "mkdir"


@pytest.mark.parametrize(
    ("mode", "before", "hazards"),
    [
        (0o644, None, ()),
        (0o664, None, ()),
        (0o666, None, ("wider",)),
        (0o664, 0o644, ("wider",)),
        (0o640, 0o600, ("wider",)),
        (0o604, 0o644, ()),
        (0o666, 0o666, ()),
        (0o777, 0o755, ("wider",)),
        (0o777, 0o644, ("new-executable", "wider")),
    ],
)
def test_permissions_that_others_get_are_a_hazard(
    mode: int, before: int | None, hazards: tuple[str, ...]
) -> None:
    host = None if before is None else file(A, mode=before)
    assert create_or_change(None, file(B, mode=mode), host).hazards == (
        *hazards,
        *(("conflict",) if host is not None else ()),
    )
