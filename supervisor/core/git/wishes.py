"""The content of a push, fetch or pull: which refs go where, and the remote's address. Pure.

It must refuse every push whose words don't name the refs one by one, and every option that would
change the meaning of a fetch.

Sources: git-push(1), gitrevisions(7); git-fetch(1), git-pull(1), "GIT URLS" in both.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from supervisor.core.actions import Git
from supervisor.core.git.remote_addresses import protocol_of
from supervisor.core.policy.git_refs import Ref, refs_of, special_flags
from supervisor.core.text.ref_names import full_ref, is_full, is_spelled

# Reasons for which a push isn't asked: programs know them from git, by other words.
ALL_THERE = "the remote has all of this already"
NOT_AHEAD = "has commits at the remote that yours lacks"
STALE = "stale info"
_LEASE = "--force-with-lease="
TAGS = frozenset({"-t", "--tags"})
# How a pull combines the histories: passed to git in the private copy.
JOINS = frozenset({"--rebase", "-r", "--ff", "--no-ff", "--autostash"})
_HEADS, _TAGS = "refs/heads/", "refs/tags/"
# No other namespaces: git treats some, like refs/replace/, as instructions.
_FETCHED = (_HEADS, _TAGS, "refs/pull/", "refs/merge-requests/")
_PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}
# No `%`, which some decode, and nothing else that could end a host for one reader and not for
# another.
_HOST = r"(?P<host>\[[0-9a-fA-F.]*:[0-9a-fA-F.]*:[0-9a-fA-F.:]*\]|[^]/?#\\:@%\s[]+)"
_URL = re.compile(rf"\A[a-z+]+://(?:[^/?#\\]*@)?{_HOST}(?::(?P<port>[0-9]{{0,5}}))?(?:/|\Z)")
_SCP = re.compile(rf"\A(?:[^/:]*@)?{_HOST}(?P<port>):")
# Every other option moves more than the named refs, or runs something.
CARRIED_OUT = frozenset({"--force", "--force-with-lease", "--delete"})


def check_flags(action: Git) -> None:
    """Raise `ValueError`, with a complete reason, for an option that isn't supported."""
    known = TAGS | (JOINS if action.operation == "pull" else frozenset())
    for flag in action.flags:
        if flag not in known:
            raise ValueError(f"a {action.operation} with `{flag}` is not carried out")


def wanted_refs(action: Git, there: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted refs at the remote, out of those that are `there`: by full name, with their
    object ids. Without words, these are all branches. Raise `ValueError` if one doesn't exist, or
    is mapped to another name."""
    found = {}
    for ref in refs_of(action):
        if ref.kind in ("unknown", "mapping"):
            raise ValueError(f"`{ref.text}` doesn't name a branch or tag at the remote")
        names = (ref.name, f"{_HEADS}{ref.name}", f"{_TAGS}{ref.name}")
        name = next((one for one in names if one in there and one.startswith(_FETCHED)), None)
        if name is None:
            raise ValueError(f"the remote has no branch or tag `{ref.name}`")
        found[name] = there[name]
    if not found:
        found = {name: oid for name, oid in there.items() if name.startswith(_HEADS)}
    if TAGS & set(action.flags):
        found |= {name: oid for name, oid in there.items() if name.startswith(_TAGS)}
    return found


def tracking_ref(remote: str, name: str) -> str:
    """Return the private copy's ref for one of the remote's refs. Raise `ValueError` if the
    remote's name allows none."""
    if not name.startswith(_HEADS):
        return name
    ref = f"refs/remotes/{remote}/{name.removeprefix(_HEADS)}"
    if not is_spelled(ref):
        raise ValueError(f"`{ref}` is no ref's name")
    return ref


def remote_endpoint(url: str) -> tuple[str, int] | None:
    """Return host and port of a remote's URL; None for a path on this machine. Raise `ValueError`
    for a URL whose host can't be read for sure, or whose protocol isn't supported."""
    protocol = protocol_of(url)
    if protocol == "file":
        return None
    found = (_URL if "://" in url else _SCP).match(url)
    if found is None:
        raise ValueError("the remote's address doesn't say plainly which host it is at")
    return found["host"].strip("[]"), int(found["port"] or _PORTS[protocol])


def check_leases(action: Git, there: Mapping[str, str]) -> None:
    """Raise `ValueError`, with a complete reason, where one of the remote's refs isn't what a push
    with `--force-with-lease=REF:ID` expects (git-push(1))."""
    for flag in action.flags:
        ref, colon, expected = flag.removeprefix(_LEASE).partition(":")
        if flag.startswith(_LEASE) and colon:
            is_none = not expected.strip("0")  # it must not exist
            if there.get(full_ref(ref), "") != ("" if is_none else expected):
                raise ValueError(f"{STALE}: the remote's `{ref}` isn't what the push expects")


class PushWish(NamedTuple):
    """One update. `source` as written: `HEAD` for the checked-out commit, empty for a deletion.
    `target` is the full ref at the remote, empty if it equals the source's."""

    source: str
    target: str


def push_wishes(action: Git) -> tuple[PushWish, ...]:
    """Return the updates of a push in the order of its words. Raise `ValueError`, with a complete
    reason, for one that isn't supported."""
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
