"""The refs that a fetch or a pull asks for, and where its remote is.

It is separate from `git_refs`, which reads the words, because only a fetch that is carried out
needs it. It must refuse every option that would have to change what a fetch means.

Sources: git-fetch(1), git-pull(1), "GIT URLS" in both.
"""

import re
from collections.abc import Mapping

from supervisor.core.actions import Git
from supervisor.core.git.remote_addresses import protocol_of
from supervisor.core.policy.git_refs import refs_of
from supervisor.core.text.ref_names import is_spelled

TAGS = frozenset({"-t", "--tags"})
# How a pull joins what came: handed on to git in the private copy.
JOINS = frozenset({"--rebase", "-r", "--ff", "--no-ff", "--autostash"})
_HEADS, _TAGS = "refs/heads/", "refs/tags/"
# No others: git reads some of them as orders, like refs/replace/.
_FETCHED = (_HEADS, _TAGS, "refs/pull/", "refs/merge-requests/")
_PORTS = {"https": 443, "http": 80, "ssh": 22, "git": 9418}
# No `%`, which some decode, and nothing else that could end a host for one reader and not for
# another.
_HOST = r"(?P<host>\[[0-9a-fA-F.]*:[0-9a-fA-F.]*:[0-9a-fA-F.:]*\]|[^]/?#\\:@%\s[]+)"
_URL = re.compile(rf"\A[a-z+]+://(?:[^/?#\\]*@)?{_HOST}(?::(?P<port>[0-9]{{0,5}}))?(?:/|\Z)")
_SCP = re.compile(rf"\A(?:[^/:]*@)?{_HOST}(?P<port>):")


def check_flags(action: Git) -> None:
    """`ValueError`, with a whole why, for an option that isn't carried out."""
    known = TAGS | (JOINS if action.operation == "pull" else frozenset())
    for flag in action.flags:
        if flag not in known:
            raise ValueError(f"a {action.operation} with `{flag}` is not carried out")


def wanted_refs(action: Git, there: Mapping[str, str]) -> dict[str, str]:
    """Return the refs at the remote that are wanted, of those that are `there`: by full name, with
    their object ids. Without words all branches. `ValueError` where one isn't there, or is mapped
    to another name."""
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
    """Return the private copy's ref for a ref of the remote's. `ValueError` where the remote's name
    makes it none."""
    if not name.startswith(_HEADS):
        return name
    ref = f"refs/remotes/{remote}/{name.removeprefix(_HEADS)}"
    if not is_spelled(ref):
        raise ValueError(f"`{ref}` is no ref's name")
    return ref


def remote_endpoint(url: str) -> tuple[str, int] | None:
    """Return host and port of a remote's URL; None for a path of this machine. `ValueError` for one
    whose host can't be read for sure, or that isn't spoken to."""
    protocol = protocol_of(url)
    if protocol == "file":
        return None
    found = (_URL if "://" in url else _SCP).match(url)
    if found is None:
        raise ValueError("the remote's address doesn't say plainly which host it is at")
    return found["host"].strip("[]"), int(found["port"] or _PORTS[protocol])
