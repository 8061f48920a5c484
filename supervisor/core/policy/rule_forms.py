"""Warnings about a single rule: it can never match, or means more than it looks.

For `lint`, and for importers that must not bring such rules in. It is separate from `lint`, which
compares rules with each other and with the record. It must never call something impossible that
some action could show: where it can't tell, it says nothing.
"""

import fnmatch
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from supervisor.core.actions import WORKSPACE, Packages
from supervisor.core.packages.package_commands import items_of, managers, risky_flags
from supervisor.core.policy.file_rules import Protected
from supervisor.core.policy.git_rules import GitPattern
from supervisor.core.policy.network_patterns import NetworkPattern, is_nowhere_public
from supervisor.core.policy.package_rules import PackagePattern
from supervisor.core.policy.rule_containment import Compiled
from supervisor.core.shell import exec_rules
from supervisor.core.shell.exec_candidates import quote
from supervisor.core.shell.exec_patterns import ExecPattern, PatternWord
from supervisor.core.shell.exec_tables import basename, is_shell_state, tables
from supervisor.core.shell.exec_wrappers import unwrap
from supervisor.core.shell.shell_words import ASSIGNMENT, Word
from supervisor.core.text.globs import Glob
from supervisor.core.text.hosts import address_class, is_metadata_name, is_shared_by_strangers
from supervisor.core.text.tables import table
from supervisor.core.text.words import is_star
from supervisor.core.verdicts import Mode

# A network of more addresses than this has many owners.
_MANY = {4: 1 << 16, 6: 1 << 96}
type ProtectedBy = Callable[[str], Protected | None]


class Remark(NamedTuple):
    """A fault of a rule, as the rest of a sentence about it, and a remedy."""

    what: str
    remedy: str


# -- can never match ------------------------------------------------------------------------------


def never(rule: Compiled, protected_by: ProtectedBy, mode: Mode) -> Remark | None:
    """Return why the rule can match no action; None where that can't be told.

    `protected_by` returns the protected name of a path; `mode` is the category's mode.
    """
    if not rule.is_allow:
        return None
    if rule.rule.uses == 0:
        return Remark("may be used 0 times", "say how often, e.g. `uses: 20`, or remove it")
    match rule.rule.category:
        case "filesystem":
            return _never_path(rule.pattern, protected_by)
        case "exec":
            return _never_command(rule.pattern)
        case "network":
            return _never_host(rule.pattern)
        case "packages" if mode != "deny":
            # Where all else is denied, a rule that names an action makes even a never-allowed one
            # asked.
            return _never_package(rule.pattern)
        case _:
            return None


def _never_command(pattern: ExecPattern) -> Remark | None:
    if pattern.is_bare:
        return Remark(
            "is bare, and a bare rule allows no command", "name the commands, or remove it"
        )
    name = pattern.words[0].literal
    if name is None:
        return None
    if is_shell_state(name):
        return Remark(
            f"is about `{name}`, which no rule may allow",
            "remove it: the command is asked each time",
        )
    literals = [word.literal for word in pattern.words]
    lead = [
        Word(text)
        for text in literals[: literals.index(None) if None in literals else None]
        if text is not None
    ]
    wrapper, inner = tables().wrappers.get(basename(name)), unwrap(lead)
    if wrapper is not None and wrapper.assigns and inner is not None and inner.payloads:
        before = lead[1 : inner.payloads[0].start]
        if any(ASSIGNMENT.match(word.text) for word in before):
            return Remark(
                "sets a variable for a command, which no rule may allow",
                "write the rule without it",
            )
    if pattern.is_exact:
        line = " ".join(quote(text) for text in literals if text is not None)
        said = exec_rules.judge(
            line, ".", allow=[(0, pattern)], ask=(), deny=(), workspace_roots=(WORKSPACE,)
        )
        if said.never_allow:
            reason = said.why.removeprefix("no rule may allow ")
            return Remark(
                f"holds what no rule may allow: {reason}",
                "remove it: the command is asked each time",
            )
    return None


def _never_path(glob: Glob, protected_by: ProtectedBy) -> Remark | None:
    """A wildcard reaches no protected name, so a rule all of whose paths have one allows
    nothing."""
    if glob.literal is not None:
        return None
    literals = [found for one in glob.text.split("/") if (found := Glob(one).literal)]
    names = [
        name
        for one in ("/".join(glob.fixed), *literals)
        if one and (name := protected_by(one)) is not None
    ]
    strictest = min(names, key=lambda name: name.decision != "deny", default=None)
    if strictest is None:
        return None
    verb = "denied" if strictest.decision == "deny" else "asked"
    remedy = (
        "use a `git(...)` rule"
        if strictest.pattern.startswith(".git/")
        else "spell each path out, or remove it"
    )
    return Remark(
        f"reaches only what the protected name `{strictest.pattern}` keeps {verb}", remedy
    )


def _never_host(pattern: NetworkPattern) -> Remark | None:
    name = pattern.host or (pattern.suffix or "")[1:]
    if name and is_metadata_name(name):
        return Remark("names a cloud metadata service, which is never reached", "remove it")
    network = pattern.network
    if (
        network is not None
        and network.num_addresses == 1
        and address_class(network[0]) in ("metadata", "never")
    ):
        return Remark("names an address that is never reached", "remove it")
    return None


def _never_package(pattern: PackagePattern) -> Remark | None:
    if pattern.is_bare:
        return Remark(
            "is bare, and a bare rule allows no package", "name the packages, or remove it"
        )
    if pattern.manager not in managers() or pattern.operation is None:
        return None
    action = Packages(
        manager=pattern.manager, operation=pattern.operation, flags=tuple(sorted(pattern.options))
    )
    if risky_flags(action):
        shown = ", ".join(f"`{flag}`" for flag in risky_flags(action))
        return Remark(
            f"holds {shown}, which could change where code comes from",
            "remove it: that is asked each time",
        )
    if pattern.item is None:
        known = managers()[pattern.manager]
        if pattern.operation in known.operations and pattern.operation not in known.without:
            return Remark(
                "names no package, and without one nothing is allowed", "name the packages"
            )
        return None
    if pattern.file or "*" in pattern.item:
        return None
    return _never_item(pattern)


def _never_item(pattern: PackagePattern) -> Remark | None:
    action = Packages(
        manager=pattern.manager, operation=pattern.operation or "", names=(pattern.item or "",)
    )
    try:
        origins = [item.origin for item in items_of(action) if item.origin]
    except ValueError as error:
        origins = [str(error)]
    return (
        Remark(f"is never allowed: {origins[0]}", "name a package, by its name and version")
        if origins
        else None
    )


# -- wider than it looks --------------------------------------------------------------------------


def wide(rule: Compiled) -> Remark | None:
    """Return what an allow rule lets through beyond its words, or None."""
    if not rule.is_allow:
        return None
    match rule.rule.category:
        case "exec":
            return runs_anything(rule.pattern) or _crosses_folders(rule.pattern)
        case "filesystem":
            return _wide_path(rule.pattern)
        case "network":
            return _wide_host(rule.pattern)
        case "git":
            return _wide_git(rule.pattern)
        case "review":
            bare = Remark("covers every act on every forge", "name operation and repositories")
            return bare if rule.pattern.is_bare else None
        case _:
            return _wide_package(rule.pattern)


@cache
def _runners() -> dict[tuple[str, ...], str]:
    known = table("wide_rules")
    found = {
        words: f"lets `*` stand for {means}" for words, means in known["runs_anything"].items()
    }
    for words, besides in known["runs_allowed"].items():
        found[words] = f"lets every command that another rule allows run {besides}"
    return {tuple(words.split()): what for words, what in found.items()}


def runs_anything(pattern: ExecPattern) -> Remark | None:
    """Return what a wildcard in a program's place lets run; None where it stands for an
    argument."""
    words = pattern.words
    if pattern.is_bare:
        return None
    if words[0].literal is None:
        # `./scripts/*` names a folder, and `* --version` the one argument.
        is_named = "/" in words[0].parts[0] or (len(words) > 1 and not pattern.has_tail)
        return (
            None
            if is_named
            else Remark("lets any program run whose name fits", "name the programs")
        )
    lead: list[str] = []
    for word in words:
        if word.literal is None:
            break
        lead.append(word.literal)
    is_open = (
        words[len(lead)].is_star
        if len(lead) < len(words)
        else pattern.has_tail and not pattern.stays_inside
    )
    if not is_open:
        return None
    spelled = [basename(lead[0]) if lead[0].startswith("/") else lead[0], *lead[1:]]
    for runner, what in _runners().items():
        if len(runner) == len(spelled) and all(map(fnmatch.fnmatchcase, spelled, runner)):
            return Remark(what, "name what is run, in a rule for each")
    return None


def _crosses_folders(pattern: ExecPattern) -> Remark | None:
    """A `*` after the start of a name crosses `/`, so it reaches into other folders. After a folder
    it stays below that."""
    name = basename(pattern.words[0].literal or "")
    if name in table("wide_rules")["not_paths"]:
        return None
    at = next((i for i, word in enumerate(pattern.words) if i and _looks_like_a_path(word)), 0)
    if not at or "/" in pattern.words[at].parts[0]:
        return None
    word = pattern.words[at].raw
    remedy = f"spell the path out, or write `exec({name} *)` where any file will do"
    return Remark(f"has `{word}`, where `*` crosses `/`: it is no folder's limit", remedy)


def _looks_like_a_path(word: PatternWord) -> bool:
    if word.literal is not None or word.is_star:
        return False
    start = word.parts[0]
    return (
        bool(start)
        and not start.startswith(("-", "+"))
        and "://" not in start
        and start[-1] not in ":=@,"
    )


def _wide_path(glob: Glob) -> Remark | None:
    if set(glob.text.split("/")) <= {"*", "**"}:
        return Remark(
            "covers every file of the workspace but protected names",
            "name the folders that are meant",
        )
    return None


def _wide_host(pattern: NetworkPattern) -> Remark | None:
    suffix = pattern.suffix
    if suffix is not None and is_shared_by_strangers(suffix[1:]):
        return Remark(
            f"reaches hosts of strangers: anybody can have a name below `{suffix[1:]}`",
            "name the hosts that are meant",
        )
    network = pattern.network
    if (
        network is not None
        and network.num_addresses > _MANY[network.version]
        and not is_nowhere_public(network)
    ):
        return Remark(
            f"reaches {network.num_addresses} addresses, of many owners",
            "name hosts, or a smaller network",
        )
    return None


def _wide_git(pattern: GitPattern) -> Remark | None:
    if pattern.is_bare:
        return Remark(
            "covers every push, fetch and pull, the main branch included",
            "name branches, e.g. `git(bot/*)`",
        )
    return None


def _wide_package(pattern: PackagePattern) -> Remark | None:
    if pattern.is_bare or pattern.item is None or pattern.file:
        return None
    known = managers().get(pattern.manager)
    if known is not None and pattern.operation is not None and _only_removes(pattern.operation):
        return None
    if is_star(pattern.item):
        return Remark("covers every package that there is", "name the packages")
    if "*" in pattern.item:
        # `@team/*` is everything of one owner, and `left-pad@1.*` some versions; `pytest*` is
        # anybody's.
        if re.search(r"[/@:=<>~]", pattern.item.partition("*")[0][1:]):
            return None
        return Remark(
            "covers every package whose name begins like that, strangers' too", "name the packages"
        )
    if pattern.operation is None or _has_no_version(
        pattern.manager, pattern.operation, pattern.item
    ):
        return Remark("covers every version, also one that appears tomorrow", "name the version")
    return None


def _has_no_version(manager: str, operation: str, text: str) -> bool:
    if manager not in managers():
        return False
    try:
        (item,) = items_of(Packages(manager=manager, operation=operation, names=(text,)))
    except ValueError:
        return False
    inner = text.removesuffix("]")
    extras = inner.find("[", inner.rfind("]") + 1) if inner != text else -1
    return not item.origin and (text if extras < 0 else text[:extras]) == item.name


def _only_removes(operation: str) -> bool:
    return operation.rpartition(" ")[2] in ("uninstall", "remove")
