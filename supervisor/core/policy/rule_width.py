"""Describe a rule's width in plain words for the person who would save it.

For example "every host below .com", "any command that begins with `git`". It decides and compares
nothing: `lint` knows what covers what, `preview` what a rule would have answered. It must never
make a rule look narrower than it is: a pattern without words of its own is shown as "whatever
fits", with the pattern.
"""

import re
from collections.abc import Callable

from supervisor.core.policy.git_rules import GitPattern
from supervisor.core.policy.network_patterns import NetworkPattern
from supervisor.core.policy.package_rules import PackagePattern
from supervisor.core.policy.review_rules import ReviewPattern
from supervisor.core.policy.rule_containment import compiled
from supervisor.core.policy.rule_forms import wide
from supervisor.core.shell.exec_patterns import ExecPattern
from supervisor.core.text.globs import Glob
from supervisor.core.text.words import is_star
from supervisor.core.verdicts import Rule


def width(rule: Rule) -> str:
    """Describe the rule's scope, and what its words don't show."""
    one = compiled(rule)
    said = _WORDS[rule.category](one.pattern)
    remark = (
        wide(one) if rule.category in ("exec", "network") else None
    )  # of the others the words say it already
    return said if remark is None else f"{said}; it {remark.what}"


def _network(pattern: NetworkPattern) -> str:
    if pattern.host is not None:
        where = f"the host {pattern.host}"
    elif pattern.suffix is not None:
        where = f"every host below {pattern.suffix}"
    elif pattern.network is None:
        where = "every host"
    elif pattern.network.num_addresses == 1:
        where = f"the address {pattern.network[0]}"
    else:
        where = f"every address of {pattern.network}: {pattern.network.num_addresses:,} addresses"
    if pattern.port is not None:
        where += f", port {pattern.port}"
    if pattern.glob is None:
        return where
    methods = (
        "requests of every method"
        if pattern.methods is None
        else f"{', '.join(sorted(pattern.methods))} requests"
    )
    path = pattern.glob.text
    paths = (
        "of every path"
        if path == "**"
        else f"of the path /{path}"
        if pattern.glob.literal is not None
        else ""
    )
    return f"{methods} {paths or f'of every path like /{path}'} at {where}"


def _filesystem(glob: Glob) -> str:
    if set(glob.text.split("/")) <= {"*", "**"} and "**" in glob.text:
        return "every file in the workspace"
    if glob.literal is not None:
        return f"the one path {glob.literal}"
    folder = "/".join(glob.fixed)
    rest = glob.text.removeprefix(f"{folder}/") if folder else glob.text
    if rest == "**":
        return f"every file below {folder}/"
    if rest == "*":
        return f"every file right in {folder or 'the top folder'}"
    return f"every path like {glob.text}"


def _exec(pattern: ExecPattern) -> str:
    if pattern.is_bare:
        return "any command"
    words = " ".join(word.raw for word in pattern.words)
    if pattern.is_exact:
        return f"exactly the command {words}"
    tail = pattern.has_tail and all(word.literal is not None for word in pattern.words)
    start = f"any command that begins with {words}" if tail else f"any command like {pattern.text}"
    return f"{start}, on what lies in the workspace" if pattern.stays_inside else start


def _git(pattern: GitPattern) -> str:
    if pattern.is_bare:
        return "every operation of git that reaches a remote"
    words = " ".join([*pattern.words, *sorted(pattern.options)])
    if len(pattern.words) == 1:
        return f"plain pushes to {_which('branch', words)}"
    return f"whatever of git fits {words}" if "*" in words else f"exactly git {words}"


def _packages(pattern: PackagePattern) -> str:
    if pattern.is_bare:
        return "every operation of every package manager"
    who = "any package manager" if is_star(pattern.manager) else pattern.manager
    does = (
        f"{who} {pattern.operation}" if pattern.operation is not None else f"any operation of {who}"
    )
    if pattern.item is None:
        return f"{does}, without a package's name"
    if is_star(pattern.item):
        return f"{does}, for every package"
    named = f"the file {pattern.item}" if pattern.file else _which("package", pattern.item)
    return f"{does}, for {named}" + (
        "" if re.search(r"[@=]", pattern.item[1:]) or pattern.file else ", in any version"
    )


def _review(pattern: ReviewPattern) -> str:
    does = "every act" if pattern.operation == "*" else f"the act `{pattern.operation}`"
    owner, name = pattern.owner, pattern.name
    where = f"the repository {owner}/{name}"
    if "*" in owner + name:
        where = "every repository" if owner == name == "*" else f"repositories like {owner}/{name}"
    levels = {"up to": pattern.up_to, "of confidence": pattern.confidence}
    narrowed = "".join(f", {what} {level}" for what, level in levels.items() if level)
    spelled = "".join(f", with {flag}" for flag in sorted(pattern.flags))
    return f"{does} on {where}{narrowed}{spelled}"


def _which(what: str, text: str) -> str:
    return f"every {what} like {text}" if "*" in text else f"the {what} {text}"


_WORDS: dict[str, Callable[..., str]] = {
    "network": _network,
    "filesystem": _filesystem,
    "exec": _exec,
    "git": _git,
    "packages": _packages,
    "review": _review,
}
