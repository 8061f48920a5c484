"""Candidate rules for one approved action, from narrow to wide.

Decides only what may be *offered* to `learn`, which decides what is proposed; commands have their
own module (`learn_exec`). An action that leaves the sandbox (a connection, a push, a package) must
have been approved more than once. It must never offer a rule that is wider than a folder's tree, a
host, or the branches beside those that were approved; nothing here needs to be right for safety,
because `learn` asks the engine what each rule would do.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from supervisor.core.actions import Action, FileChange, Git, Network, Packages, is_read_with_body
from supervisor.core.policy import git_refs
from supervisor.core.policy.suggest import suggest
from supervisor.core.text import globs
from supervisor.core.text.hosts import as_address, canonical_host
from supervisor.core.text.paths import canonical
from supervisor.core.text.urls import DEFAULT_PORTS, normalise_path

# Weight of a rule in the search for a smaller set: two literal ones weigh as much as one and a half
# with a wildcard.
SPELLED_OUT, ONE_WILDCARD, WHOLE_TREE = 2, 3, 6
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_PLAIN_URL_PATH = re.compile(r"[A-Za-z0-9._~/@:+,=-]*\Z")
# Branches that others build on: no number of approvals makes a push there routine.
_SHARED_BRANCHES = frozenset({"main", "master", "trunk", "develop", "production"})


class Option(NamedTuple):
    """A rule that may be learned, once at least `least` different `evidence` was approved for it.

    Empty evidence: each approved request counts for itself.
    """

    rule: str
    weight: int
    least: int = 1
    evidence: str = ""


def options(action: Action) -> tuple[Option, ...]:
    """Return candidate rules for the action; none where no rule should answer it. Commands (`Exec`)
    have their own module. Never raises."""
    try:
        return tuple(_options(action))
    except ValueError:
        return ()


def _options(action: Action) -> Iterator[Option]:
    match action:
        case FileChange():
            yield from _filesystem(action)
        case Network():
            yield from _network(action)
        case Git():
            yield from _git(action)
        case Packages():
            yield from (
                Option(one.rule, SPELLED_OUT, 2) for one in suggest(action) if one.label == "exact"
            )


def _filesystem(action: FileChange) -> Iterator[Option]:
    path = canonical(action.path, action.path_b64).text
    yield Option(f"filesystem({globs.escape(path)})", SPELLED_OUT)
    folder = posixpath.dirname(path)
    if not folder:
        # Files at the top steer the rest (build files, settings): file by file.
        return
    yield Option(f"filesystem({globs.escape(folder)}/*)", ONE_WILDCARD, 2, path)
    above = folder
    while above:
        yield Option(f"filesystem({globs.escape(above)}/**)", WHOLE_TREE, 3, folder)
        above = posixpath.dirname(above)


def _network(action: Network) -> Iterator[Option]:
    host = canonical_host(action.host)
    shown = f"[{host}]" if as_address(host) is not None and ":" in host else host
    if action.operation == "connect":
        port = "" if action.port in DEFAULT_PORTS.values() else f":{action.port}"
        yield Option(f"network({shown}{port})", SPELLED_OUT, 2)
        return
    path = normalise_path(action.path or "/")
    if is_read_with_body(action):
        return
    if path.ambiguous or path.has_empty_segments or not _PLAIN_URL_PATH.match(path.text):
        return
    port = "" if action.port == DEFAULT_PORTS.get(action.scheme) else f":{action.port}"
    head = f"network({action.method} {action.scheme}://{shown}{port}"
    yield Option(f"{head}{path.text})", SPELLED_OUT, 2)
    if action.method in _READS:
        folder = path.text.rpartition("/")[0]
        yield Option(f"{head}{folder}/**)", ONE_WILDCARD, 2, path.text)
        while folder:
            above = folder.rpartition("/")[0]
            yield Option(f"{head}{above}/**)", ONE_WILDCARD + 1, 2, folder)
            folder = above


def _git(action: Git) -> Iterator[Option]:
    refs = git_refs.refs_of(action)
    if action.operation in git_refs.READS:
        yield from (
            Option(one.rule, SPELLED_OUT, 2) for one in suggest(action) if one.label == "exact"
        )
    elif action.operation == "push" and len(refs) == 1:
        ref = refs[0]
        if ref.kind != "branch" or ref.name in _SHARED_BRANCHES or not action.remote:
            return
        yield Option(f"git(push {action.remote} {ref.name})", SPELLED_OUT, 2)
        folder = ref.name.rpartition("/")[0]
        if folder:
            yield Option(f"git(push {action.remote} {folder}/*)", ONE_WILDCARD, 2, ref.name)
