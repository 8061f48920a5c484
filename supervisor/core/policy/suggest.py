"""Rules offered for "always": up to three that would allow one action.

Decides up to three allow rules, from exact to broad, the default first. INVARIANT: each of them
parses, would have allowed this very action alone, and isn't bare; where none can be found
nothing is offered. It never saves anything.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from supervisor.core.act import OPERATION_WORDS, Act
from supervisor.core.actions import (
    WORKSPACE,
    Action,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    is_read_with_body,
)
from supervisor.core.packages import package_commands
from supervisor.core.policy import git_refs
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.review_rules import special
from supervisor.core.text import globs
from supervisor.core.text.hosts import (
    as_address,
    canonical_host,
    is_shared_by_strangers,
    registrable_domain,
)
from supervisor.core.text.paths import canonical
from supervisor.core.text.urls import DEFAULT_PORTS, normalise_path
from supervisor.errors import PolicyError

type Label = Literal["exact", "narrow", "broad"]

_PLAIN_PATH = re.compile(r"[A-Za-z0-9._~/@:+,=-]*\Z")
MOST = 3


class Candidate(msgspec.Struct, frozen=True):
    """A rule that may be saved. `explains` says in words what it would allow; exactly one candidate
    is the default."""

    label: Label
    rule: str
    default: bool
    explains: str


def suggest(action: Action, *, workspace: str = WORKSPACE) -> tuple[Candidate, ...]:
    """Up to three candidates, the default first; none where no rule may allow the action. Never
    raises."""
    try:
        found = list(_candidates(action, workspace))
    except (ValueError, PolicyError):
        return ()
    unique = {candidate.rule: candidate for candidate in reversed(found)}
    kept = [one for one in found if unique[one.rule] is one and _holds(one, action, workspace)][
        :MOST
    ]
    if not kept:
        return ()
    default = next((one for one in kept if one.default), kept[0])
    ordered = [default, *(one for one in kept if one is not default)]
    return tuple(msgspec.structs.replace(one, default=one is default) for one in ordered)


def _holds(candidate: Candidate, action: Action, workspace: str) -> bool:
    """Return whether the rule alone allows the action, without a warning."""
    try:
        policy = policy_from_data({"allow": [candidate.rule]})
    except PolicyError:
        return False
    if policy.warnings:
        return False
    remotes = frozenset({action.remote}) if isinstance(action, Git) and action.remote else None
    verdict = evaluate(policy, action, now=0.0, workspace=workspace, configured_remotes=remotes)
    return verdict.decision == "allow" and policy.rules[0].text in verdict.rules


def _candidates(action: Action, workspace: str) -> Iterator[Candidate]:
    match action:
        case Network():
            yield from _network(action)
        case FileChange():
            yield from _filesystem(action)
        case Exec():
            yield from _exec(action, workspace)
        case Git():
            yield from _git(action)
        case Packages():
            yield from _packages(action)
        case Act():
            yield from _review(action)


def _network(action: Network) -> Iterator[Candidate]:
    host = canonical_host(action.host)
    port = "" if action.port in DEFAULT_PORTS.values() else f":{action.port}"
    is_address = as_address(host) is not None
    shown = f"[{host}]" if ":" in host else host
    domain = None if is_address else registrable_domain(host)
    # Below some names strangers have their own hosts: there the exact host is the most that is
    # offered.
    is_wide = domain is not None and domain != host and not is_shared_by_strangers(domain)
    label: Label = "exact"
    if action.operation == "request" and action.path is not None:
        rule = _url_rule(action, shown)
        if rule:
            which = (
                "requests of every method"
                if is_read_with_body(action)
                else "only requests of this method"
            )
            yield Candidate(label, rule, default=False, explains=f"{which} below this path")
        label = "narrow"
    yield Candidate(
        label, f"network({shown}{port})", default=not is_wide, explains=f"everything at {host}"
    )
    if is_wide:
        yield Candidate(
            "broad",
            f"network(*.{domain}{port})",
            default=True,
            explains=f"every host below {domain}, not {domain} itself",
        )


def _url_rule(action: Network, host: str) -> str:
    path = normalise_path(action.path or "/")
    if path.ambiguous or path.has_empty_segments or not _PLAIN_PATH.match(path.text):
        return ""
    folder = path.text.rpartition("/")[0]
    below = f"{folder}/**" if folder else path.text
    port = "" if action.port == DEFAULT_PORTS.get(action.scheme) else f":{action.port}"
    methods = "*" if is_read_with_body(action) else action.method
    return f"network({methods} {action.scheme}://{host}{port}{below})"


def _filesystem(action: FileChange) -> Iterator[Candidate]:
    path = canonical(action.path, action.path_b64).text
    folder = path.rpartition("/")[0]
    pattern = globs.escape(folder) if folder else "."
    where = f"`{folder}`" if folder else "the top of the workspace"
    if action.operation == "swap":
        whole = f"filesystem({globs.escape(path)}/**)"
        yield Candidate(
            "narrow", whole, default=True, explains=f"`{path}` itself and everything below it"
        )
    yield Candidate(
        "narrow", f"filesystem({pattern}/*)", default=True, explains=f"files right in {where}"
    )
    yield Candidate(
        "exact", f"filesystem({globs.escape(path)})", default=False, explains="this path only"
    )
    if folder:
        yield Candidate(
            "broad",
            f"filesystem({pattern}/**)",
            default=False,
            explains=f"everything below {where}",
        )


def _exec(action: Exec, workspace: str) -> Iterator[Candidate]:
    from supervisor.core.shell.exec_candidates import candidates

    exact, narrow = candidates(action.command, action.cwd, (workspace,))
    if exact:
        yield Candidate(
            "exact",
            f"exec({exact})",
            default=True,
            explains="this command with these arguments only",
        )
    if narrow:
        yield Candidate(
            "narrow",
            f"exec({narrow})",
            default=False,
            explains="this command with any further arguments",
        )


def _git(action: Git) -> Iterator[Candidate]:
    refs = git_refs.refs_of(action)
    flags = git_refs.special_flags(action)
    options = "".join(f" {flag}" for flag in sorted(flags))
    remote = f" {action.remote}" if action.remote else ""
    if not refs:
        words = "".join(
            f" {_quoted(word)}"
            for word in ([action.remote] if action.remote else []) + [*action.refspecs]
        )
        yield Candidate(
            "exact",
            f"git({action.operation}{options}{words})",
            default=True,
            explains="this operation",
        )
    if len(refs) != 1:
        return
    ref = refs[0]
    if action.operation == "push" and ref.kind == "branch" and not flags:
        yield Candidate(
            "narrow", f"git({ref.name})", default=True, explains="plain pushes to this branch"
        )
        yield Candidate(
            "exact",
            f"git(push{remote} {ref.text})",
            default=False,
            explains="plain pushes to this branch there",
        )
        prefix = ref.name.rpartition("/")[0]
        if prefix:
            yield Candidate(
                "broad",
                f"git({prefix}/*)",
                default=False,
                explains=f"plain pushes to branches below {prefix}/",
            )
        return
    text = f" {ref.text}" if ref.text else ""
    yield Candidate(
        "exact",
        f"git({action.operation}{options}{remote}{text})",
        default=True,
        explains="exactly this",
    )


def _packages(action: Packages) -> Iterator[Candidate]:
    if not action.operation and action.command:
        action = package_commands.parse_command(action.command, action.cwd)
    manager = package_commands.manager_named(action.manager) or action.manager
    items = package_commands.items_of(action) if manager in package_commands.managers() else []
    if len(items) > 1:
        return
    text = f" {items[0].text if items[0].is_file else _quoted(items[0].text)}" if items else ""
    yield Candidate(
        "exact",
        f"packages({manager} {action.operation}{text})",
        default=True,
        explains="this package in this version only",
    )
    if items and not items[0].is_file:
        yield Candidate(
            "broad",
            f"packages({manager}:{items[0].name})",
            default=False,
            explains="this package in any version",
        )


def _review(action: Act) -> Iterator[Candidate]:
    flags = "".join(f" {flag}" for flag in special(action))
    level = f" --up-to={action.severity}" if action.severity not in ("", "critical") else ""
    owner = action.repository.partition("/")[0]
    for repository, label, where in (
        (action.repository, "narrow", "in this repository"),
        (f"{owner}/*", "broad", f"in every repository of {owner}"),
    ):
        explains = f"{OPERATION_WORDS[action.operation]} {where}"
        if level:
            explains += f", where nothing is graver than {action.severity}"
        rule = f"review({action.operation} {action.forge}:{repository}{level}{flags})"
        is_narrow = label == "narrow"
        yield Candidate("narrow" if is_narrow else "broad", rule, is_narrow, explains)


def _quoted(text: str) -> str:
    return (
        text
        if re.fullmatch(r"[A-Za-z0-9@._/+~^:=\[\],! -]*", text) and " " not in text
        else f"'{text}'"
    )
