"""Case files: expected answers of a policy, parsed and checked.

Decides what a well-formed case is, and judges each exactly as `gatehouse policy check` would judge
its line. Pure: the caller reads the files. A case holds numbers and truth values, and the cases of
one file share their policies by YAML anchors. It must never skip a case that it doesn't understand:
a test that doesn't run looks like one that passes.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import msgspec
import yaml

from supervisor.core.actions import RULE_CATEGORIES, Effect
from supervisor.core.lab.check import answer_line, keys_of
from supervisor.core.policy.policy_text import EFFECTS
from supervisor.core.policy.rules import Policy
from supervisor.core.text.mistyped import nearest
from supervisor.errors import UserError

MAX_DEPTH = 20
# The list of cases, a case, and what its keys hold.
_MAX_NESTING = MAX_DEPTH + 2
# Anchors could make a small text huge: this is what one case may hold, written out.
MAX_VALUES = 100_000
_OWN_KEYS = ("name", "verdict", "why", "rule")
_TAG = "tag:yaml.org,2002:"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Case(NamedTuple):
    """One case. `fields` is the line as `policy check` reads it; `rule` is the rule that must
    decide, None if the case doesn't say.

    `why` is for readers; it decides nothing.
    """

    name: str
    verdict: Effect
    fields: Mapping[str, Any]
    source: str
    line: int
    why: str = ""
    rule: str | None = None

    @property
    def has_policy(self) -> bool:
        """Return whether it carries its own policy."""
        return self.fields.get("policy") is not None


class Failure(NamedTuple):
    """A case that got another answer than expected. `rule` and `why` come from that answer."""

    case: Case
    verdict: Effect
    rule: str | None
    why: str

    def __str__(self) -> str:
        case = self.case
        wanted, got = str(case.verdict), str(self.verdict)
        if case.rule is not None:
            wanted, got = f"{wanted} by {case.rule}", f"{got} by {self.rule or 'no rule'}"
        meant = f" (the case says: {case.why})" if case.why else ""
        return (
            f"{case.source}:{case.line}: {case.name}: wanted {wanted}, got {got}: {self.why}{meant}"
        )


def failure_of(case: Case, policy: Policy | None, now: float) -> Failure | None:
    """Return how the case fails; None if it passes. `policy` judges a case that has no policy of
    its own."""
    answer = answer_line(msgspec.json.encode(dict(case.fields)), policy, None, now)
    if answer["verdict"] == case.verdict and case.rule in (None, answer["rule"]):
        return None
    return Failure(case, answer["verdict"], answer["rule"], answer["why"])


def read_cases(text: str, source: str) -> tuple[Case, ...]:
    """Parse a file's cases. Raise `UserError` (`source:line: what; remedy`) at the first error."""
    return tuple(_Reader(source).cases(_compose(text, source)))


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        _check_nesting(text, source)
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark is not None else source
        problem = (
            getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        )
        raise UserError(f"{where}: {problem}", "check the indentation and the quotes") from None
    except UnicodeEncodeError:
        raise UserError(f"{source}: can't be read as YAML", "save it as UTF-8") from None
    return node


def _check_nesting(text: str, source: str) -> None:
    """Raise `UserError` if the text nests too deeply.

    INVARIANT: this runs before `yaml.compose`, which recurses in C: a text of nothing but `[` would
    crash the process. The parser's events don't nest.
    """
    level = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
            if level > _MAX_NESTING:
                assert event.start_mark is not None, "the parser marks every event"
                raise UserError(
                    f"{source}:{event.start_mark.line + 1}: nested too deeply",
                    "a case has a few levels",
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1


class _Value(NamedTuple):
    """Plain data, with its number of values and its depth of lists and mappings."""

    value: Any
    size: int
    levels: int

    @classmethod
    def of(cls, value: Any, parts: Collection["_Value"]) -> "_Value":
        """Build a list or mapping of such values."""
        return cls(
            value,
            1 + sum(part.size for part in parts),
            1 + max((part.levels for part in parts), default=0),
        )


class _Reader:
    """Reads one file: YAML nodes to plain data that JSON can carry."""

    def __init__(self, source: str) -> None:
        self.source = source
        # Node and whether all of it is text -> its value. An anchor's node is read more than once.
        self.known: dict[tuple[int, bool], _Value] = {}

    def fail(self, node: yaml.Node | None, message: str, remedy: str) -> UserError:
        where = f"{self.source}:{node.start_mark.line + 1}" if node is not None else self.source
        return UserError(f"{where}: {message}", remedy)

    def cases(self, node: yaml.Node | None) -> Iterator[Case]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.fail(
                node,
                "a case file is a list of cases",
                "write `- {name: ..., category: ..., verdict: ...}`",
            )
        lines: dict[str, int] = {}
        for item in node.value:
            case = self.case(item)
            if case.name in lines:
                raise self.fail(
                    item,
                    f"the name `{case.name}` stands on line {lines[case.name]} too",
                    "name each case once",
                )
            lines[case.name] = case.line
            yield case

    def case(self, node: yaml.Node) -> Case:
        fields = self.fields(node)
        name, verdict = fields.pop("name", None), fields.pop("verdict", None)
        if not isinstance(name, str) or not name.strip():
            raise self.fail(
                node, "a case without a `name`", "add `name:`, in quotes where it isn't a word"
            )
        if verdict not in EFFECTS:
            shown = (
                "a case without a `verdict`" if verdict is None else f"unknown verdict `{verdict}`"
            )
            raise self.fail(node, shown, nearest(str(verdict), EFFECTS))
        why, rule = fields.pop("why", None), fields.pop("rule", None)
        for key, value in (("why", why), ("rule", rule)):
            if value is not None and not isinstance(value, str):
                raise self.fail(node, f"`{key}` is not text", "quote it")
        return Case(
            name,
            cast("Effect", verdict),
            MappingProxyType(fields),
            self.source,
            node.start_mark.line + 1,
            why or "",
            rule,
        )

    def fields(self, node: yaml.Node) -> dict[str, Any]:
        """Return the keys and values of a case. Each key must be one that a case, or a line of its
        category, may have."""
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(
                node,
                "a case that is not a mapping",
                "write `- {name: ..., category: ..., verdict: ...}`",
            )
        odd = next((key for key, _ in node.value if not isinstance(key, yaml.ScalarNode)), None)
        if odd is not None:
            raise self.fail(odd, "a key that is not text", "write it as a plain word")
        keys = {key.value: key for key, _ in node.value}
        found = {key.value: self.value(value, key.value == "policy") for key, value in node.value}
        if len(found) < len(node.value):
            again = [key for key, _ in node.value if keys[key.value] is not key]
            twice = keys[again[0].value]
            raise self.fail(
                twice, f"the key `{twice.value}` stands in one case twice", "leave one of them out"
            )
        category = found.get("category")
        of = (category,) if category in RULE_CATEGORIES else RULE_CATEGORIES
        known = (*_OWN_KEYS, *sorted({key for one in of for key in keys_of(one)}))
        for key in keys.values():
            if key.value not in known:
                raise self.fail(
                    key, f"unknown key `{key.value}` in a case", nearest(key.value, known)
                )
        if category not in RULE_CATEGORIES:
            shown = (
                "a case without a `category`"
                if category is None
                else f"unknown category `{category}`"
            )
            raise self.fail(
                keys.get("category", node), shown, nearest(str(category), RULE_CATEGORIES)
            )
        return found

    def value(self, node: yaml.Node, is_policy: bool) -> Any:
        found = self.convert(node, is_policy, 0)
        if found.size > MAX_VALUES:
            raise self.fail(
                node, f"anchors make more than {MAX_VALUES} values of this", "write it out"
            )
        return found.value

    def convert(self, node: yaml.Node, is_policy: bool, depth: int) -> _Value:
        key = (id(node), is_policy)
        if key not in self.known and depth <= MAX_DEPTH:
            self.known[key] = self.fresh(node, is_policy, depth)
        if key not in self.known or depth + self.known[key].levels > MAX_DEPTH:
            raise self.fail(
                node, "nested too deeply, or an anchor inside of itself", "write it out"
            )
        return self.known[key]

    def fresh(self, node: yaml.Node, is_policy: bool, depth: int) -> _Value:
        if isinstance(node, yaml.ScalarNode):
            return _Value(self.scalar(node, is_policy), 1, 0)
        if isinstance(node, yaml.SequenceNode):
            parts = [self.convert(child, is_policy, depth + 1) for child in node.value]
            return _Value.of([part.value for part in parts], parts)
        fields: dict[str, _Value] = {}
        for name, child in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.value in fields:
                raise self.fail(
                    name, "a key that is no text, or stands here twice", "write each key once"
                )
            fields[name.value] = self.convert(child, is_policy, depth + 1)
        return _Value.of({name: part.value for name, part in fields.items()}, fields.values())

    def scalar(self, node: yaml.ScalarNode, is_policy: bool) -> Any:
        """Return a number or truth value as JSON has it. In a policy every scalar is text, as in a
        policy file: there `no` stays `no`."""
        tag = node.tag.removeprefix(_TAG)
        if tag == "null":
            return None
        if is_policy or tag not in ("int", "bool"):
            return node.value
        construct = yaml.constructor.SafeConstructor()
        try:
            return (
                construct.construct_yaml_int(node)
                if tag == "int"
                else construct.construct_yaml_bool(node)
            )
        except (ValueError, KeyError):
            raise self.fail(
                node, f"`{node.value}` is not a number or truth value", "quote it"
            ) from None
