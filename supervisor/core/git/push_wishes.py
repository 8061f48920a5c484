"""The updates that a push asks for: which source goes to which ref at the remote.

It is separate from `git_refs`, which reads the words, because only a push that is carried out needs
it. It must refuse every push whose words don't name the refs one by one.

Sources: git-push(1), gitrevisions(7).
"""

from typing import NamedTuple

from supervisor.core.actions import Git
from supervisor.core.policy.git_refs import Ref, refs_of, special_flags
from supervisor.core.text.ref_names import full_ref, is_full

# Every other option moves more than the named refs, or runs something.
CARRIED_OUT = frozenset({"--force", "--force-with-lease", "--delete"})


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
    wishes = [_wish(ref, is_delete=action.delete) for ref in refs_of(action)]
    seen = set[str]()
    for target in (wish.target for wish in wishes if wish.target):
        if not is_full(target):
            raise ValueError(f"`{target}` is no branch or tag, and nothing else is pushed")
        if target in seen:
            raise ValueError(f"`{target}` is named twice")
        seen.add(target)
    return tuple(wishes)


def _wish(ref: Ref, *, is_delete: bool) -> PushWish:
    if ref.kind == "unknown":
        if ref.text not in ("", "HEAD", "@"):
            raise ValueError(f"`{ref.text}` doesn't say which branches are meant")
        if is_delete:
            raise ValueError("a push that deletes has to name the branch")
        return PushWish("HEAD", "")
    if ref.delete:
        return PushWish("", full_ref(ref.name))
    if ref.kind == "mapping":
        return PushWish(ref.source, full_ref(ref.name))
    return PushWish(ref.name if ref.kind == "branch" else full_ref(ref.name), "")
