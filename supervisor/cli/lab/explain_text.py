"""An explanation as text for a person, at most 100 columns wide: the verdict, what was understood,
the rules, what would change it.

Decides how much is shown, never what is true. INVARIANT: what may come from an agent or a file
is escaped before it is printed (law 6).
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from supervisor.core.actions import RULE_CATEGORIES
from supervisor.core.lab.explain import Explanation, Looked
from supervisor.core.policy.category import NEAR, RuleOutcome
from supervisor.core.text.display import visible
from supervisor.core.verdicts import Rule

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
