"""Check of a rule's `match` and `not_match` examples when the file loads.

Decides what action an example stands for: a command line (exec, git, packages), a path, a host,
or a URL with its method. It is apart from `policy_text.py` because it needs the judges, which
most policies don't need at load.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal

from msgspec.structs import replace

from supervisor.core.actions import (
    WORKSPACE,
    Action,
    Category,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
)
from supervisor.core.packages import package_commands
from supervisor.core.policy import git_refs
from supervisor.core.policy.rules import Protection, judge_of
from supervisor.core.text.urls import split_authority, split_url
from supervisor.core.verdicts import Context, Rule, Verdict
from supervisor.errors import PolicyError

_NAMED = re.compile(r"([a-z]+):(\S+)\Z")
_URL = re.compile(r"(?:(?P<method>[A-Z-]+)[ \t]+)?(?P<url>[a-z]+://.*)\Z", re.DOTALL)

_NO_NAMES = Protection()
_CONTEXT = Context(0.0, WORKSPACE, None, frozenset(), frozenset({"origin"}), None)


def failing(rule: Rule) -> Iterator[tuple[str, bool]]:
    """The examples that don't hold, each with whether the rule should have matched it."""
    is_limited = rule.expires_at is not None or rule.session is not None or rule.uses is not None
    alone = replace(rule, expires_at=None, session=None, uses=None) if is_limited else rule
    judge = judge_of(rule.category, [alone], _NO_NAMES)
    for examples, expected in ((rule.match, True), (rule.not_match, False)):
        for example in examples:
            seen, context = _seen(rule.category, judge.canonical, example)
            verdict = seen if isinstance(seen, Verdict) else judge.decide(seen, "ask", context)
            if (verdict.decision == rule.effect and rule.text in verdict.rules) != expected:
                yield example, expected


# The same example stands beside many rules, above all as what they don't match.
@lru_cache(maxsize=256)
def _seen(
    category: Category, canonical: Callable[[Action], Any], example: str
) -> tuple[Any, Context]:
    """An example as the judge of its category sees it, where the remote that it names is one
    that is configured."""
    action = action_of(category, example)
    remote = action.remote if isinstance(action, Git) else None
    context = _CONTEXT._replace(remotes=frozenset({"origin", remote})) if remote else _CONTEXT
    return canonical(action), context


def action_of(category: Category, example: str) -> Action:
    """Return the action that an example stands for; `PolicyError` where it can't be one."""
    match category:
        case "exec":
            return Exec(command=example)
        case "filesystem":
            return FileChange(operation="write", path=example)
        case "git":
            return git_refs.parse_command(_git_command(example))
        case "packages":
            return _packages(example)
        case "network":
            return _network(example)
        case "review":
            from supervisor.core.policy.review_rules import example_act

            return example_act(example)
    raise PolicyError(f"no example can be given for `{category}`", "leave it out")


def _packages(example: str) -> Packages:
    """`npm install x`, or `npm:x` as a rule names it."""
    found = _NAMED.match(example)
    manager = package_commands.managers().get(found[1]) if found else None
    if found is None or manager is None:
        return package_commands.parse_command(example)
    operation = next(
        one for one in ("install", "add", "get", *manager.operations) if one in manager.operations
    )
    return Packages(manager=found[1], operation=operation, names=(found[2],))


def _git_command(example: str) -> str:
    """`git push origin x`, `push origin x`, `push x` as a rule names it, or a bare branch."""
    words = example.split()
    if words[:1] == ["git"]:
        return example
    if (
        len(words) == 2
        and words[0] == "push"
        and words[1] != "origin"
        and not words[1].startswith("-")
    ):
        return f"git push origin {words[1]}"
    return (
        f"git push origin {example}"
        if len(words) == 1 and ("/" in example or example in ("main", "master"))
        else f"git {example}"
    )


def _network(example: str) -> Network:
    found = _URL.match(example)
    try:
        if found is not None:
            url = split_url(found["url"])
            scheme: Literal["https", "http"] = "https" if url.scheme == "https" else "http"
            method = found["method"] or "GET"
            return Network(
                operation="request",
                host=url.host,
                port=url.port,
                scheme=scheme,
                method=method,
                path=url.path,
            )
        host, port = (
            (example, None)
            if example.count(":") > 1 and "[" not in example
            else split_authority(example)
        )
    except ValueError as error:
        raise PolicyError(
            f"the example `{example}` {error}",
            "write a host, `host:port`, or `GET https://host/path`",
        ) from None
    return Network(operation="connect", host=host, port=port or 443)
