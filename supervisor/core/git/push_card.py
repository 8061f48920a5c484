"""The card of a push: which refs move, with which commits, and what they change at the remote.

Pure: git's output comes as bytes. The caller redacts secrets and makes hidden characters visible.
INVARIANT: everything here is derived from the object ids that an approval would push, and from
nothing else.

Sources: git-cat-file(1) "BATCH OUTPUT", git-diff-tree(1) "RAW OUTPUT FORMAT" and "DIFF FORMAT FOR
MERGES"; the LFS pointer is Git LFS's spec.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Literal

import msgspec

from supervisor.core.actions import FileChange, RefUpdate, content_hash
from supervisor.core.files.change_card import ChangeCard, Side, make_card
from supervisor.core.files.content_flags import Flags
from supervisor.core.policy.file_rules import protected_name
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.numbers import whole_number

type Move = Literal["new", "moved", "rewritten", "deleted"]

GITLINK = 0o160000
_SYMLINK = 0o120000
_TYPE = 0o170000
# Pushes and single files larger than these are marked in red.
LARGE_BYTES = 10 * 1024 * 1024
LARGE_FILE_BYTES = 2 * 1024 * 1024
_LFS = b"version https://git-lfs.github.com/spec/"
_MOST_NAMED = 8
MOST_COMMIT_CHARS = 64_000


class Commit(msgspec.Struct, frozen=True):
    """One commit. `at` is when it was written, in seconds since the epoch. `body` is its message
    below the subject, followed by any other header: a different committer, a signature, an
    encoding, anything else. If it `is_cut`, only the start is here."""

    id: str
    author: str
    email: str
    at: int
    subject: str
    body: str = ""
    is_cut: bool = False


class Entry(msgspec.Struct, frozen=True):
    """A path that differs between two trees. Modes are git's, 0 if there is nothing; ids are those
    of blobs or, for a submodule, of commits. `old_path` differs from `path` for a rename."""

    status: str
    old_mode: int
    new_mode: int
    old_id: str
    new_id: str
    old_path: str
    path: str


class NamedFile(msgspec.Struct, frozen=True):
    """A changed path whose contents aren't shown; whether they were searched for secrets."""

    path: str
    what: Literal["new", "changed", "deleted"]
    was_searched: bool


class RefMove(msgspec.Struct, frozen=True, kw_only=True):
    """A ref that moves: the commits that it gains and loses (the first of each, and how many there
    are), and the changed files against `base`: the remote's commit, or for a new ref the commit
    that both have. `passing` are contents that a commit on the way has but the end hasn't: they are
    pushed, too. For `more_files` and `more_passing` only names are shown. `tag` is the text of a
    tag's own object."""

    ref: str
    old: str
    new: str
    how: Move
    base: str = ""
    commits: tuple[Commit, ...] = ()
    commit_count: int = 0
    lost: tuple[Commit, ...] = ()
    lost_count: int = 0
    files: tuple[ChangeCard, ...] = ()
    more_files: tuple[NamedFile, ...] = ()
    passing: tuple[ChangeCard, ...] = ()
    more_passing: tuple[NamedFile, ...] = ()
    tag: str = ""


class PushCard(msgspec.Struct, frozen=True, kw_only=True):
    """The card. `size` counts the bytes of all new contents. `flags` are what a person must not
    overlook: a word, and what it means."""

    url: str
    moves: tuple[RefMove, ...]
    size: int
    flags: tuple[tuple[str, str], ...]


def objects_in(told: bytes) -> Iterator[tuple[str, bytes]]:
    """Parse `git cat-file --batch` for objects that all exist: their ids and contents."""
    at = 0
    while at < len(told):
        end = told.index(b"\n", at)
        oid, _, size = told[at:end].decode().split(" ")
        at = end + 1 + int(size) + 1
        yield oid, told[end + 1 : at - 1]


def has_content(entry: Entry) -> bool:
    """Return whether the path has content of its own in the new tree."""
    return entry.new_mode not in (0, GITLINK)


def commits_in(told: bytes) -> tuple[Commit, ...]:
    """Parse `git cat-file --batch` of commits: their own bytes, as UTF-8 whatever encoding they
    name. The program that shows the commit decides how to read a named encoding."""
    return tuple(_commit(oid, data.decode(errors="replace")) for oid, data in objects_in(told))


def _commit(oid: str, text: str) -> Commit:
    more_chars = max(0, len(text) - MOST_COMMIT_CHARS)
    head, _, message = text[:MOST_COMMIT_CHARS].partition("\n\n")
    usual = ("tree ", "parent ")
    more = list(dropwhile(lambda line: line.startswith(usual), head.split("\n")))
    author, email, at = "", "", 0
    if more and more[0].startswith("author "):
        author, email, at = _person(more.pop(0))
    if more and more[0].startswith("committer ") and _person(more[0])[:2] == (author, email):
        del more[0]
    subject, _, body = message.strip("\n").partition("\n\n")
    cut = f"[{more_chars} more characters aren't shown]" if more_chars else ""
    body = "\n\n".join(filter(None, (body.strip("\n"), "\n".join(more), cut)))
    return Commit(oid, author, email, at, " ".join(subject.split("\n")), body, bool(more_chars))


def _person(line: str) -> tuple[str, str, int]:
    name, _, rest = line.partition(" ")[2].partition("<")
    email, _, when = rest.partition(">")
    seconds = when[:20].strip().partition(" ")[0]
    return name.rstrip(), email, whole_number(seconds) or 0


def passing_in(raw: bytes, at_end: Iterable[Entry]) -> tuple[tuple[str, Entry], ...]:
    """Parse `git diff-tree --stdin -r -c -z --raw --no-renames`: for each commit, the contents that
    only it adds and that aren't among those `at_end`. For a merge, git lists what no parent has."""
    known = {(one.path, one.new_mode, one.new_id) for one in at_end}
    pieces = iter(raw.decode(errors="replace").split("\0"))
    found, commit = dict[tuple[str, int, str], tuple[str, Entry]](), ""
    for piece in pieces:
        if not piece.startswith(":"):
            commit = piece
            continue
        parents = len(piece) - len(piece.lstrip(":"))
        fields, path = piece[parents:].split(" "), next(pieces)
        modes, ids = fields[: parents + 1], fields[parents + 1 : -1]
        entry = Entry(
            fields[-1][0], int(modes[0], 8), int(modes[-1], 8), ids[0], ids[-1], path, path
        )
        content = (path, entry.new_mode, entry.new_id)
        if entry.new_mode and content not in known:
            found.setdefault(content, (commit, entry))
    return tuple(found.values())


def entries_in(raw: bytes) -> tuple[Entry, ...]:
    """Parse `git diff-tree -r -z --raw -M`. A path that isn't UTF-8 has replacement characters."""
    pieces = iter(raw.decode(errors="replace").split("\0"))
    found = []
    while head := next(pieces):
        old_mode, new_mode, old_id, new_id, status = head.removeprefix(":").split(" ")
        old_path = next(pieces)
        path = next(pieces) if status[0] in "RC" else old_path
        found.append(
            Entry(status[0], int(old_mode, 8), int(new_mode, 8), old_id, new_id, old_path, path)
        )
    return tuple(found)


def file_card(
    entry: Entry,
    blobs: Mapping[str, bytes],
    sizes: Mapping[str, int],
    redactor: Redactor,
    commit: str = "",
) -> ChangeCard:
    """Return the card of one changed path. `blobs` have the contents that were read, `sizes` the
    sizes of all, by id; `commit` is the commit on the way that contains it."""
    old, new = (_side(one, blobs, sizes) for one in (_of_old(entry), _of_new(entry)))
    before, after = (_token(one, side) for one, side in ((entry.old_id, old), (entry.new_id, new)))
    is_link = entry.new_mode & _TYPE == _SYMLINK
    action = FileChange(
        operation="write" if entry.new_mode else "delete",
        path=entry.path,
        before=before if entry.old_mode else None,
        after=after if entry.new_mode else None,
        mode=entry.new_mode & 0o777 or None,
        link_target=blobs.get(entry.new_id, b"").decode(errors="replace") if is_link else None,
    )
    made = make_card(action, old, new, action.before, redactor)
    if any(side is not None and side.data is None for side in (old, new)):
        made = msgspec.structs.replace(made, notes=("too large to be shown here",))
    passing = [f"only on the way, in {commit[:12]}; it is pushed all the same"] if commit else []
    return msgspec.structs.replace(made, notes=(*made.notes, *passing, *_notes(entry, blobs)))


def flags(
    moves: Sequence[RefMove],
    entries: Iterable[Entry],
    found_in: Sequence[tuple[str, Flags]],
    sizes: Mapping[str, int],
    *,
    passing: Iterable[Entry] = (),
    unsearched: Iterable[str] = (),
    unread: int = 0,
) -> tuple[tuple[str, str], ...]:
    """Return what a person must not overlook in a push. `found_in` says what was found in paths and
    in messages of commits and tags; the contents of `unsearched` paths were not searched. `passing`
    contents aren't there at the end; `unread` commits were not looked at."""
    at_end, gone = list(entries), list(passing)
    entries = [*at_end, *gone]
    found = [said for move in moves for said in _of_move(move)]
    unseen = dict.fromkeys((one.path for one in gone), "")
    for one in at_end:
        unseen.pop(one.path, None)
    found += [("only on the way", _named(unseen))] if unseen else []
    found += [("not looked at", f"{unread} older commits")] if unread else []
    unknown = dict.fromkeys(unsearched, "")
    found += [("not searched for secrets", _named(unknown))] if unknown else []
    protected = {
        entry.path: name.why
        for entry in entries
        if (name := protected_name(entry.path)) is not None
    }
    found += [("runs or decides elsewhere", _named(protected))] if protected else []
    for flag, word in (("secret", "looks like a secret"), ("hidden", "hidden characters")):
        where = {name: "" for name, seen in found_in if flag in seen.names}
        found += [(word, _named(where))] if where else []
    large = {
        entry.path: _megabytes(sizes[entry.new_id])
        for entry in entries
        if sizes.get(entry.new_id, 0) > LARGE_FILE_BYTES
    }
    found += [("large files", _named(large))] if large else []
    total = sum(sizes.get(one, 0) for one in {entry.new_id for entry in entries})
    found += [("large", f"{_megabytes(total)} of new contents")] if total > LARGE_BYTES else []
    links = {
        entry.path: f"at {entry.new_id[:12]}" for entry in entries if entry.new_mode == GITLINK
    }
    found += [("submodules", _named(links))] if links else []
    return tuple(found)


def named_file(entry: Entry, *, was_searched: bool) -> NamedFile:
    """Return the entry for a path whose contents aren't shown."""
    if not entry.new_mode:
        return NamedFile(entry.path, "deleted", was_searched)
    return NamedFile(entry.path, "changed" if entry.old_mode else "new", was_searched)


def move_of(update: RefUpdate, *, rewrites: bool) -> Move:
    """Return how a ref moves."""
    if not update.new:
        return "deleted"
    if not update.old:
        return "new"
    return "rewritten" if rewrites else "moved"


def _of_move(move: RefMove) -> list[tuple[str, str]]:
    name = move.ref.removeprefix("refs/heads/")
    match move.how:
        case "new":
            what = "tag" if move.ref.startswith("refs/tags/") else "branch"
            return [(f"new {what}", f"{name} is not at the remote yet")]
        case "deleted":
            return [("deletes", f"{name}, which is at {move.old[:12]}")]
        case "rewritten":
            subjects = _named({one.id[:12]: one.subject for one in move.lost})
            return [("forces", f"{name} loses {move.lost_count} commits: {subjects}")]
        case _:
            return []


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _named(found: Mapping[str, str]) -> str:
    """Return some names, each with its remark, and the number of further names."""
    named = [f"{name} ({why})" if why else name for name, why in list(found.items())[:_MOST_NAMED]]
    more = len(found) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _notes(entry: Entry, blobs: Mapping[str, bytes]) -> list[str]:
    notes = []
    if entry.status == "R":
        notes.append(f"renamed from {entry.old_path}")
    if entry.new_mode == GITLINK:
        notes.append(
            f"a submodule, from {entry.old_id[:12]} to {entry.new_id[:12]}; its commits are not"
            " part of this push"
        )
    if blobs.get(entry.new_id, b"").startswith(_LFS):
        notes.append("a Git LFS pointer; the content that it names is not part of this push")
    return notes


def _of_old(entry: Entry) -> tuple[int, str]:
    return entry.old_mode, entry.old_id


def _of_new(entry: Entry) -> tuple[int, str]:
    return entry.new_mode, entry.new_id


def _side(
    one: tuple[int, str], blobs: Mapping[str, bytes], sizes: Mapping[str, int]
) -> Side | None:
    mode, blob = one
    if not mode or mode & _TYPE in (_SYMLINK, GITLINK & _TYPE):
        return None
    return Side(blobs.get(blob), sizes.get(blob), mode & 0o777)


def _token(blob: str, side: Side | None) -> str:
    """Return the token by which a card names a content: its hash if it was read, else git's id."""
    return f"git:{blob}" if side is None or side.data is None else content_hash(side.data)
