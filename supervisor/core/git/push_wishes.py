"""The updates that a push asks for: which source goes to which ref at the remote.

It is separate from `git_refs`, which reads the words, because only a push that is carried out needs
it. It must refuse every push whose words don't name the refs one by one.

Sources: git-push(1), gitrevisions(7).
"""

from typing import NamedTuple

from supervisor.core.actions import Git
from supervisor.core.policy.git_refs import refs_of, special_flags

# Every other option moves more than the named refs, or runs something.
CARRIED_OUT = frozenset({"--force", "--force-with-lease", "--delete"})
_BELOW_REFS = ("heads/", "tags/", "remotes/")


class PushWish(NamedTuple):
    """One update. `source` as written: `HEAD` for what is checked out, empty for a deletion.
    `target` is the full ref at the remote, empty where it is the source's own."""

    source: str
    target: str


def push_wishes(action: Git) -> tuple[PushWish, ...]:
    """Return the updates of a push in the order of its words. `ValueError`, with a whole why, for
    one that isn't carried out."""
    for flag in sorted(special_flags(action)):
        if flag.partition("=")[0] not in CARRIED_OUT:
            raise ValueError(f"a push with `{flag}` is not carried out")
    wishes = []
    for ref in refs_of(action):
        if ref.kind == "unknown" and ref.text not in ("", "HEAD", "@"):
            raise ValueError(f"`{ref.text}` doesn't say which branches are meant")
        if ref.kind == "unknown" and action.delete:
            raise ValueError("a push that deletes has to name the branch")
        if ref.kind == "unknown":
            wishes.append(PushWish("HEAD", ""))
        elif ref.delete:
            wishes.append(PushWish("", full_ref(ref.name)))
        elif ref.kind == "mapping":
            wishes.append(PushWish(ref.source, full_ref(ref.name)))
        else:
            wishes.append(PushWish(ref.name, ""))
    return tuple(wishes)


def full_ref(name: str) -> str:
    """Return a ref's full name at the remote: a bare one is a branch."""
    if name.startswith("refs/"):
        return name
    return f"refs/{name}" if name.startswith(_BELOW_REFS) else f"refs/heads/{name}"
