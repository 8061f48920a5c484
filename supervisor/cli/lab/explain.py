"""`gatehouse policy explain`: one action in, everything that a policy says of it out.

Decides which action the words of the command line mean, and how much is shown, at most 100 columns
wide; what is true is `core.lab.explain`'s. It changes nothing, and needs no running supervisor.
INVARIANT: what may come from an agent or a file is escaped before it is printed (law 6).
"""

import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from supervisor.base.clock import RealClock
from supervisor.cli.lab.inputs import chosen_policy
from supervisor.core.actions import RULE_CATEGORIES, PathOperation
from supervisor.core.lab.check import OWN_LISTENERS, action_of, answer_line, surroundings
from supervisor.core.lab.explain import Explanation, Looked, as_data
from supervisor.core.lab.explain import explain as explained
from supervisor.core.policy.category import NEAR, RuleOutcome
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.text.display import visible
from supervisor.core.text.mistyped import nearest
from supervisor.core.text.utf8 import is_text
from supervisor.core.verdicts import Rule
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
WIDTH = 100
MOST_PARTS = 30
MOST_MATCHING = 20
MOST_NEAR = 8
MOST_RELATED = 8
# How far a rule may be from matching for it to be worth a line of its own.
CLOSE = 2
# So few that counting them would tell less than showing them.
FEW = 3
_MATCHING: frozenset[RuleOutcome] = frozenset({"decides", "overruled", "partly"})
_STOPPED: frozenset[RuleOutcome] = frozenset({"held", "excepted", "inactive", "never", "spare"})
_ANSWERS = {"allow": "allow", "ask": "ask", "deny": "deny", "free": "-", "open": "no rule"}


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


def as_text(found: Explanation, on_disk: Mapping[str, str] | None = None) -> str:
    """The whole explanation. `on_disk`: another verdict, because of links in the workspace."""
    blocks = [_verdict(found, on_disk), _understood(found), *_rules(found), _changes(found)]
    return "\n\n".join("\n".join(lines) for lines in map(list, blocks) if lines)


def _verdict(found: Explanation, on_disk: Mapping[str, str] | None) -> Iterator[str]:
    verdict = found.verdict
    category = "" if found.action.startswith(f"{found.category} ") else f"{found.category} "
    yield from _wrapped(f"{verdict.decision}: {category}{found.action}", "", "     ", most=6)
    yield from _wrapped(verdict.why, "  ")
    yield from _wrapped(_basis(found), "  ")
    if on_disk is not None:
        yield from _wrapped(f"in this workspace it is {on_disk['verdict']}: {on_disk['why']}", "  ")
    if found.trouble:
        yield from _wrapped(found.trouble, "  ")


def _basis(found: Explanation) -> str:
    mode = f"the mode of {found.category} is {found.mode}"
    match found.basis:
        case "rules":
            return f"decided by {_counted(len(found.verdict.rules), 'rule')}; where none matches, {
                mode
            }"
        case "forced":
            return (
                "only a rule that spells it out lifts this"
                if found.suggestions
                else "no allow rule lifts this"
            )
        case "free":
            return "nothing in it needs a rule"
        case "nothing":
            return "no policy is in force"
    return ""  # the why says it


# -- what it was understood as --------------------------------------------------------------------


def _understood(found: Explanation) -> Iterator[str]:
    if not (found.facts or found.parts):
        return
    yield "understood as"
    shown = found.parts[:MOST_PARTS]
    numbers = [f" {at}" if len(found.parts) > 1 else "" for at in range(1, len(shown) + 1)]
    labels = [f"{part.kind}{number}" for part, number in zip(shown, numbers, strict=True)]
    width = max(map(len, [*(what for what, _ in found.facts), *labels]), default=0)
    for what, value in found.facts:
        yield from _wrapped(value, f"  {what:{width}}  ", " " * (width + 4))
    of_parts = {why for part in found.parts for why in part.forced}
    for why in found.forced:
        if why not in of_parts and why != found.verdict.why:
            yield from _wrapped(why, "  ", "    ")
    for label, part in zip(labels, shown, strict=True):
        head = f"  {label:{width}}  {_ANSWERS[part.answer]:7}  "
        yield from _wrapped(part.text, head, " " * len(head), most=4)
        forced = (why for why in part.forced if why != found.verdict.why)
        said = [*(f"by {rule}" for rule in part.rules[:4]), *forced, *part.notes]
        yield from _wrapped("; ".join(said), " " * len(head))
    hidden = len(found.parts) - len(shown) + found.parts_left_out
    if hidden:
        yield f"  and {hidden} more"


# -- rules ----------------------------------------------------------------------------------------


def _rules(found: Explanation) -> Iterator[Iterator[str]]:
    looked = found.looked
    matching = [one for one in looked if one.outcome in _MATCHING]
    stopped = [one for one in looked if one.outcome in _STOPPED and one.distance <= NEAR]
    others = [one for one in looked if one not in matching and one not in stopped]
    total, rest = _counted(len(looked), f"{found.category} rule"), len(others)
    if found.verdict.decision == "allow":
        # Which allow rules would come near, too, tells nobody anything.
        others = [one for one in others if one.rule.effect != "allow"]
    near = [one for one in others if one.distance <= CLOSE]
    related = [one for one in others if CLOSE < one.distance <= NEAR and one not in near]
    rest -= len(near) + len(related)
    if rest == len(others) <= FEW:
        near, rest = others, 0
    if matching:
        yield _section(f"rules that match ({len(matching)} of {total})", matching, MOST_MATCHING)
    elif found.category in RULE_CATEGORIES:
        yield iter([f"no rule matches (of {total})"])
    yield _section("rules that would match, but", stopped, MOST_NEAR)
    yield _near(
        "rules that come near" if near and near[0].distance <= NEAR else "other rules", near
    )
    yield _related(related)
    yield _rest(found, rest)


def _section(title: str, looked: Sequence[Looked], most: int) -> Iterator[str]:
    if not looked:
        return
    yield title
    for one in looked[:most]:
        note = "" if one.outcome in ("missed", "decides") else f"{one.outcome}: "
        yield from _rule(one, f"{note}{one.why}")
        if one.outcome in _MATCHING:
            yield from _wrapped(_origin(one.rule), " " * 9)
    if len(looked) > most:
        yield f"  and {len(looked) - most} more (all with --json)"


def _near(title: str, looked: Sequence[Looked]) -> Iterator[str]:
    """Rules that miss, those that miss for the same reason as one."""
    alike: dict[str, list[Looked]] = {}
    for one in looked:
        alike.setdefault(one.why, []).append(one)
    if alike:
        yield title
    for why, ones in list(alike.items())[:MOST_NEAR]:
        yield from _rule(
            ones[0], f"{why} (and {len(ones) - 1} more alike)" if len(ones) > 1 else why
        )
    if len(alike) > MOST_NEAR:
        hidden = sum(map(len, list(alike.values())[MOST_NEAR:]))
        yield f"  and {hidden} more (all with --json)"


def _rule(one: Looked, why: str) -> Iterator[str]:
    """On one line where there is room."""
    head = f"  {one.rule.effect:5}  "
    line = f"{head}{visible(one.rule.text, one_line=True):30}  {visible(why, one_line=True)}"
    if len(line) <= WIDTH:
        yield line
        return
    yield from _wrapped(one.rule.text, head, " " * 9, most=2)
    yield from _wrapped(why, " " * 11)


def _related(looked: Sequence[Looked]) -> Iterator[str]:
    """Rules about the same thing, of which it would say little how each differs."""
    if not looked:
        return
    texts = [
        f"{one.rule.effect} {one.rule.text}" if one.rule.effect != "allow" else one.rule.text
        for one in looked
    ]
    if len(texts) > MOST_RELATED:
        texts[MOST_RELATED:] = [f"and {len(texts) - MOST_RELATED} more"]
    yield "further off, but related"
    line = "  "
    for text in (visible(text, one_line=True) for text in texts):
        if line.strip() and len(line) + len(text) + 1 > WIDTH:
            yield line.rstrip()
            line = "  "
        line += text + ("" if text == texts[-1] else ", ")
    yield from _wrapped(line.strip(), "  ")


def _origin(rule: Rule) -> str:
    place = f"{rule.source}:{rule.line}" if rule.line else rule.source
    return " - ".join(text for text in (place, rule.why) if text)


def _rest(found: Explanation, hidden: int) -> Iterator[str]:
    said = []
    if hidden:
        said.append(f"{_counted(hidden, f'{found.category} rule')} further off (all with --json)")
    if found.others:
        counts = ", ".join(f"{count} {category}" for category, count in found.others)
        said.append(f"not looked at: {counts}")
    yield from _wrapped("; ".join(said), "")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


# -- what would change it -------------------------------------------------------------------------


def _changes(found: Explanation) -> Iterator[str]:
    if found.suggestions:
        parts = sorted({one.part for one in found.suggestions})
        purpose = "to have it allowed" if found.verdict.decision == "deny" else "to be asked less"
        yield f"{purpose}, add to `allow` " + (
            "one of" if len(parts) == 1 else "one for each of these"
        )
        for at in parts:
            if len(parts) > 1:
                yield from _wrapped(
                    found.parts[at].text,
                    f"  for {found.parts[at].kind} {at + 1}: ",
                    " " * 9,
                    most=2,
                )
            for one in found.suggestions:
                if one.part == at:
                    yield from _wrapped(one.rule, "  - ", " " * 4)
                    yield from _wrapped(one.explains, " " * 6)
    elif found.advice:
        yield "to change it"
        yield from _wrapped(found.advice, "  ")


def _wrapped(text: str, first: str, later: str | None = None, *, most: int = 12) -> Iterator[str]:
    """Escaped, in lines of `WIDTH` columns; at most so many of them. Nothing for an empty text."""
    lines = textwrap.wrap(
        visible(text, one_line=True),
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" ...",
    )
    yield from lines


__all__ = ["as_text"]
