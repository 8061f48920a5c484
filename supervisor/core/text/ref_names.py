"""Names of refs, and a remote's list of them: hostile text until it is checked here.

Pure, and stricter than git: a name that could be read in two ways is refused. INVARIANT: a name
that `is_full` accepts has one spelling, is a branch or a tag, and is printed and sent as one word.

Sources: git-check-ref-format(1), gitrevisions(7), gitprotocol-v2(5), git-ls-remote(1).
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from supervisor.core.text.display import first_hidden

HEADS, TAGS = "refs/heads/", "refs/tags/"
MOST_REFS = 100_000
_MOST_CHARS = 1000
_MOST_STEPS = 5  # as git's own SYMREF_MAXDEPTH
_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
# No ref has a character that looks blank: two names that look the same could be two branches.
# U+2800 is Braille's blank; U+FFFD stands for bytes that aren't text.
_BAD = re.compile(
    r"[\x00-\x20\x7f\s\u2800\ufffd~^:?*\[\\]|\.\.|@\{|//|^[-/.]|/\.|[/.]\Z|\.lock(?:/|\Z)|^@\Z"
)
# gitprotocol-v2(5), `peel`: the object that an annotated tag is a tag of.
_PEELED = "^{}"
_SPACE = re.compile(r"(?:refs/)?(?:heads|tags)/")
# Below `refs/heads/` such a name would be a second way to write another ref.
_SECOND = re.compile(r"(?:refs|heads|tags|remotes)/")
_OTHER = re.compile(r"(?:refs|remotes)/")


class RemoteRefs(NamedTuple):
    """The refs that a remote has: object ids by name, `HEAD` included; the symbolic refs among
    them, each with the ref that it stands for; names that could be read in two ways; and annotated
    tags, each with the object that it is a tag of."""

    ids: dict[str, str]
    symbolic: dict[str, str]
    odd: frozenset[str] = frozenset()
    peeled: Mapping[str, str] = {}

    def taken_for(self, ref: str) -> str:
        """Return one of the remote's refs to which git pushes instead of this one, by its rules for
        short names; empty if there is none."""
        longer = (f"{space}{ref}" for space in ("refs/", TAGS, HEADS, "refs/remotes/"))
        return next((one for one in longer if one in self.odd or one in self.ids), "")

    def moved_with(self, ref: str) -> tuple[str, ...]:
        """Return a branch or tag, followed by every ref that moves with it: the ref that it is
        another name for, and all other names of that ref. Raise `ValueError` if the names form a
        circle, or a ref other than a branch or tag would move."""
        end = self._end(ref)
        if end != ref and not is_full(end):
            raise ValueError(f"the remote's `{ref}` is another name for `{end}`")
        others = {end, *(one for one in self.symbolic if self._end(one) == end)} - {ref}
        return (ref, *sorted(filter(is_full, others)))

    def _end(self, ref: str) -> str:
        for _ in range(_MOST_STEPS):
            if (further := self.symbolic.get(ref)) is None:
                return ref
            ref = further
        raise ValueError(f"the remote's `{ref}` is another name for itself")


def is_oid(text: str) -> bool:
    """Return whether a text is a whole object id, of SHA-1 or SHA-256."""
    return _OID.match(text) is not None


def is_short(name: str) -> bool:
    """Return whether a text can name a branch or a tag, without its namespace."""
    return (
        0 < len(name) <= _MOST_CHARS
        and _BAD.search(name) is None
        and _SECOND.match(name) is None
        and name.casefold() != "head"
        and first_hidden(name) is None
        and unicodedata.is_normalized("NFC", name)
    )


def is_full(ref: str) -> bool:
    """Return whether a text is the full name of a branch or a tag."""
    return ref.startswith((HEADS, TAGS)) and is_short(ref.split("/", 2)[2])


def is_spelled(name: str) -> bool:
    """Return whether a text can name a ref in a command, with or without its namespace."""
    if found := _SPACE.match(name):
        return is_short(name[found.end() :])
    return _is_other(name) if _OTHER.match(name) else is_short(name)


def own_refs(source: str) -> frozenset[str]:
    """Return the refs that a branch or tag with this name can be; for a bare name, both."""
    if source.startswith("refs/"):
        return frozenset({source})
    if source.startswith(("heads/", "tags/")):
        return frozenset({f"refs/{source}"})
    return frozenset({HEADS + source, TAGS + source})


def full_ref(name: str) -> str:
    """Return a ref's full name at the remote: a bare name is a branch."""
    if name.startswith("refs/"):
        return name
    return (
        f"refs/{name}" if name.startswith(("heads/", "tags/", "remotes/")) else f"refs/heads/{name}"
    )


def listed_refs(listed: bytes) -> RemoteRefs:
    """Parse `git ls-remote --symref`. Raise `ValueError` if there are too many refs."""
    ids, symbolic, odd = dict[str, str](), dict[str, str](), set[str]()
    peeled = dict[str, str]()
    for line in listed.decode(errors="replace").split("\n"):
        said, _, ref = line.partition("\t")
        if said.startswith("ref: "):
            symbolic[ref] = said.removeprefix("ref: ")
        elif is_oid(said) and (ref == "HEAD" or (ref.startswith("refs/") and is_spelled(ref))):
            ids[ref] = said
        elif is_oid(said) and ref.removesuffix(_PEELED) in ids:
            peeled[ref.removesuffix(_PEELED)] = said
        else:
            odd.add(ref)
        if len(ids) + len(symbolic) + len(odd) + len(peeled) > MOST_REFS:
            raise ValueError(f"the remote has more than {MOST_REFS} refs")
    return RemoteRefs(ids, symbolic, frozenset(odd), peeled)


def _is_other(name: str) -> bool:
    """Return whether a name other than a branch or tag is one that git accepts."""
    return len(name) <= _MOST_CHARS and _BAD.search(name) is None and first_hidden(name) is None
