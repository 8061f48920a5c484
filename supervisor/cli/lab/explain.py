"""`gatehouse policy explain`: one action in, everything that a policy says of it out.

Decides only what action the words of the command line mean; what is said of it is
`core.explain`'s, how it is printed `explain_text`'s. It changes nothing, and needs no running
supervisor.
"""

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from supervisor.base.clock import RealClock
from supervisor.cli.lab.explain_text import as_text
from supervisor.cli.lab.inputs import chosen_policy
from supervisor.core.actions import RULE_CATEGORIES, PathOperation
from supervisor.core.lab.check import OWN_LISTENERS, action_of, answer_line, surroundings
from supervisor.core.lab.explain import as_data
from supervisor.core.lab.explain import explain as explained
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.text.display import visible
from supervisor.core.text.mistyped import nearest
from supervisor.core.text.utf8 import is_text
from supervisor.errors import UserError
from supervisor.settings import Settings
from supervisor.workspace.disk.links import look

MOST_LINE_BYTES = 1_000_000
_METHOD = re.compile(r"[A-Za-z][A-Za-z-]*\Z")
_EXAMPLES = {
    "exec": "exec 'git log | head'",
    "filesystem": "filesystem src/a.py, or filesystem delete src/a.py, or filesystem rename a b",
    "network": "network https://host/path, or network POST https://host/path, or network host:443",
    "git": "git 'git push origin x'",
    "packages": "packages 'npm install x'",
    "review": "review post acme/shop",
}


def explain(
    action: list[str],
    policy_file: str | None,
    workspace: str | None,
    settings: Settings,
    *,
    as_json: bool,
) -> int:
    """Print what a policy says of one action, and why; 0.

    `action` is a category and what is asked, or one line as `policy check` takes it, or `-`: such a
    line on standard input. `UserError` where it is none of these. As JSON, one object:

        category, action                  what was asked, in one line
        verdict, why, remedy, rule,       as everywhere: `rules` made the verdict, the first of them
                                          leads; `sticky`: no "always"
        rules, sticky
        basis                             rules | forced | mode | free | always | nothing: what made
                                          the verdict
        mode                              what the category does where no rule matches
        forced                            what no allow rule lifts, each in a sentence
        understood                        {what: value}: canonical host, path, operation, ...
        parts                             what is judged on its own, e.g. each command: {kind, text,
                                          answer: allow | ask | deny | free (needs no rule) | open
                                          (no rule), rules, forced, notes}
        parts_left_out                    how many more there are: of a very long action only the
                                          first are told apart
        looked_at                         every rule of the category, the most telling first: {rule,
                                          effect, id, rule_why, source, line, outcome: decides |
                                          overruled | partly | held | excepted | inactive | never |
                                          spare | missed, why, parts: positions in `parts`,
                                          distance: 0 fits, up to 4 nearly}
        not_looked_at                     {category: how many rules}
        suggestions                       allow rules that would do, the first of each part
                                          together: {part, rule, label, explains}
        advice                            what to do where an allow rule isn't enough
        on_disk                           {verdict, why} where links in the workspace lead to
                                          another verdict, else null
        trouble                           empty, else why some of this is missing
    """
    fields = fields_of(action)
    try:
        asked = action_of(fields)
        root, remotes = surroundings(fields, workspace)
        own = fields.get("policy")
        policy = (
            chosen_policy(policy_file, settings)
            if own is None
            else policy_from_data(own, "the line's own policy")
        )
    except ValueError as error:
        raise UserError(visible(str(error), one_line=True), f"write {_example(fields)}") from None
    root, now = str(Path(root).absolute()), RealClock().now()
    found = explained(
        policy,
        asked,
        now=now,
        workspace=root,
        forbidden_endpoints=OWN_LISTENERS,
        configured_remotes=remotes,
        uses={},
    )
    answer = answer_line(
        msgspec.json.encode({**fields, "workspace": root}), policy, root, now, look=look
    )
    is_other = answer["verdict"] != found.verdict.decision
    on_disk = {"verdict": answer["verdict"], "why": answer["why"]} if is_other else None
    if as_json:
        print(msgspec.json.encode({**as_data(found), "on_disk": on_disk}).decode())
    else:
        print(as_text(found, on_disk))
    return 0


def _example(fields: dict[str, Any]) -> str:
    return _EXAMPLES.get(str(fields.get("category")), "a line as `gatehouse policy check` takes it")


# -- from words to a line of `policy check` -------------------------------------------------------


def fields_of(words: Sequence[str]) -> dict[str, Any]:
    """The fields of a check line that the words mean; `UserError` where they mean none."""
    if list(words) == ["-"]:
        return _line(sys.stdin.buffer.readline(MOST_LINE_BYTES + 1), "standard input")
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _line(words[0].encode("utf-8", "surrogatepass"), "the line")
    odd = next((word for word in words if not is_text(word)), None)
    if odd is not None:
        remedy = "give a line as for `policy check`, where `path_b64` stands for such a name"
        raise UserError(f"`{visible(odd[:60], one_line=True)}` is not UTF-8 text", remedy)
    category, rest = words[0], list(words[1:])
    if category not in _READERS:
        raise UserError(
            f"`{visible(category[:60], one_line=True)}` is not a category",
            nearest(category, RULE_CATEGORIES),
        )
    if not any(word.strip() for word in rest):
        raise UserError(
            f"{category}: what should be explained isn't said", f"write {_EXAMPLES[category]}"
        )
    return {"category": category, **_READERS[category](rest)}


def _line(data: bytes, where: str) -> dict[str, Any]:
    remedy = """give one line as for `policy check`, e.g. {"category":"exec","command":"git log"}"""
    if len(data) > MOST_LINE_BYTES:
        raise UserError(f"{where} is longer than {MOST_LINE_BYTES} bytes", remedy)
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UserError(f"{where} is not JSON: {error}", remedy) from None
    if not isinstance(fields, dict):
        raise UserError(f"{where} is not a JSON object", remedy)
    return fields


def _joined(words: Sequence[str]) -> str:
    """A command line: one word is the line itself, several are its words."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _exec(words: list[str]) -> dict[str, Any]:
    return {"command": _joined(words)}


def _git(words: list[str]) -> dict[str, Any]:
    line = _joined(words)
    return {"command": line if re.match(r"\S*git(?:\s|\Z)", line) else f"git {line}"}


def _network(words: list[str]) -> dict[str, Any]:
    words = words[0].split(maxsplit=1) if len(words) == 1 else words
    if len(words) > 2:
        raise UserError(f"network: {len(words)} words", f"write {_EXAMPLES['network']}")
    *method, target = words
    if "://" not in target:
        if method:
            raise UserError(
                f"network: `{visible(target, one_line=True)}` is not a URL",
                f"write {_EXAMPLES['network']}",
            )
        return {"connect": target}
    if method and not _METHOD.match(method[0]):
        raise UserError(
            f"network: `{visible(method[0], one_line=True)}` is not a method",
            f"write {_EXAMPLES['network']}",
        )
    return {"method": method[0] if method else "GET", "url": target}


def _filesystem(words: list[str]) -> dict[str, Any]:
    if len(words) == 1:
        return {"operation": "write", "path": words[0]}
    operation, *paths = words
    if operation not in get_args(PathOperation):
        raise UserError(
            f"filesystem: `{visible(operation, one_line=True)}` is not an operation",
            nearest(operation, get_args(PathOperation)),
        )
    most = {"rename": 2, "symlink": 2, "chmod": 2}.get(operation, 1)
    if len(paths) != most:
        raise UserError(
            f"filesystem: {operation} takes {most} {'words' if most > 1 else 'path'}",
            _usage(operation),
        )
    if operation == "chmod":
        return {"operation": operation, "mode": paths[0], "path": paths[1]}
    return {"operation": operation, "path": paths[0], **({"to": paths[1]} if most == 2 else {})}


def _usage(operation: str) -> str:
    takes = {"rename": "OLD NEW", "symlink": "PATH TARGET", "chmod": "MODE PATH"}.get(
        operation, "PATH"
    )
    return f"write filesystem {operation} {takes}"


def _packages(words: list[str]) -> dict[str, Any]:
    return {"command": _joined(words)}


def _review(words: list[str]) -> dict[str, Any]:
    if len(words) != 2:
        raise UserError(
            "review: give an operation and a repository", f"write {_EXAMPLES['review']}"
        )
    return {"operation": words[0], "repository": words[1]}


_READERS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "exec": _exec,
    "filesystem": _filesystem,
    "network": _network,
    "git": _git,
    "packages": _packages,
    "review": _review,
}
