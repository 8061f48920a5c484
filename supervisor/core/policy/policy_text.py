"""Parser from policy YAML to `Policy`, with errors that name file and line.

Decides what is a well-formed policy, never what it means for an action. Every error names file,
line and a remedy, and the nearest known word if one was mistyped. It must never skip what it
doesn't understand: a rule that silently doesn't match is a hole (a deny) or a surprise (an allow).
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from supervisor.core.actions import RULE_CATEGORIES, Category, Effect
from supervisor.core.policy.categories import failing, rule_category
from supervisor.core.policy.protected_names import Protection, built_in
from supervisor.core.policy.rules import Policy
from supervisor.core.text import strict_yaml
from supervisor.core.text.display import first_hidden
from supervisor.core.text.duration import parse_duration
from supervisor.core.text.mistyped import nearest
from supervisor.core.text.strict_yaml import Text, line_of
from supervisor.core.verdicts import Mode, Rule
from supervisor.errors import PolicyError, UserError

EFFECTS: tuple[Effect, ...] = ("allow", "ask", "deny")
# From the loosest to the strictest.
MODES: tuple[Mode, ...] = ("allow", "contained", "ask", "deny")
# Replacements of names that the table once had, for policies from that time.
_FORMER = {".env*": (".env", ".env.*", ".env-*", ".env_*")}
_TOP_KEYS = ("version", "hold", "modes", "allow", "ask", "deny", "protected", "unprotected")
_ENTRY_KEYS = (
    "rule", "why", "expires", "session", "uses", "except", "match", "not_match", "id", "added_by",
    "added_at",
)  # fmt: skip
_KNOWN_KEYS = frozenset(_ENTRY_KEYS)
_RULE = re.compile(r"([A-Za-z_]+)[ \t]*(?:\((.*)\))?\Z", re.DOTALL)
# Words of other tools -> the word to use here.
_OTHER_TOOLS = {"bash": "exec", "shell": "exec", "edit": "filesystem", "write": "filesystem",
"file": "filesystem",
                "files": "filesystem", "webfetch": "network", "domain": "network",
                "package": "packages"}  # fmt: skip
MAX_RULE_CHARS = 4_000
# Egress itself waits no longer for an answer.
LONGEST_HOLD_S = 3600.0

DENY_ALL = Policy(is_deny_all=True, source="nothing")


def parse_policy(text: str, source: str) -> Policy:
    """Parse YAML text to a policy. `source` is the file's name, for messages.

    Raises `PolicyError` (`source:line: what; remedy`) at the first error. Empty text is a policy
    without rules.
    """
    return _Reader(source).policy(strict_yaml.load(text, source))


def policy_from_data(data: Any, source: str = "policy") -> Policy:
    """Build a policy from plain data (dicts, lists, strings: a JSON line). Raise `PolicyError` as
    for text."""
    return _Reader(source).policy(data)


def parse_rule(text: str, effect: Effect = "ask") -> Rule:
    """Parse one rule, as it is written in the list of `effect`. Raise `PolicyError` if it isn't
    valid there."""
    return _Reader("").rule(text, effect)


def merge(*policies: Policy) -> Policy:
    """Merge policies: all rules; the strictest modes and the shortest holds. If one of them denies
    everything, so does the result."""
    if any(policy.is_deny_all for policy in policies):
        return DENY_ALL
    modes: dict[Category, Mode] = {}
    protection = Protection()
    for policy in policies:
        protection = protection.joined(policy.protection)
        for category, mode in policy.modes.items():
            modes[category] = max(mode, modes.get(category, mode), key=MODES.index)
    return Policy(
        [rule for policy in policies for rule in policy.rules],
        modes,
        protection=protection,
        warnings=[warning for policy in policies for warning in policy.warnings],
        source=", ".join(policy.source for policy in policies if policy.source),
        hold_s=min(
            (policy.hold_s for policy in policies if policy.hold_s is not None), default=None
        ),
    )


def entry_of(rule: Rule) -> str | dict[str, Any]:
    """Return a rule as an entry of a policy file: only its text if it has no further keys.
    `parse_policy` reads it back."""
    entry: dict[str, Any] = {"rule": rule.text}
    if rule.why:
        entry["why"] = rule.why
    if rule.until_session_ends:
        entry["expires"] = "session"
    elif rule.expires_at is not None:
        entry["expires"] = datetime.fromtimestamp(rule.expires_at, UTC).isoformat()
    lists = {
        "except": list(rule.exceptions),
        "match": list(rule.match),
        "not_match": list(rule.not_match),
    }
    said = {
        "session": rule.session,
        "uses": rule.uses,
        **lists,
        "added_by": rule.added_by,
        "added_at": rule.added_at,
    }
    entry |= {key: value for key, value in said.items() if value not in (None, "", [])}
    if rule.id != rule_id(rule.effect, rule.text):
        entry["id"] = rule.id
    return rule.text if len(entry) == 1 else entry


def rule_id(effect: Effect, text: str) -> str:
    """Derive the id of a rule without one: equal rules get equal ids, in any file."""
    return hashlib.blake2b(
        f"{effect} {text}".encode("utf-8", "surrogatepass"), digest_size=5
    ).hexdigest()


class _Reader:
    """Reads one policy once. `fail` knows the current place."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.line = 0
        self.warnings: list[str] = []

    def fail(self, message: str, remedy: str) -> PolicyError:
        where = (
            f"{self.source}:{self.line}: "
            if self.source and self.line
            else f"{self.source}: "
            if self.source
            else ""
        )
        return PolicyError(f"{where}{message}", remedy)

    def at(self, value: Any) -> Any:
        """Record the line of a value, for messages."""
        self.line = line_of(value) or self.line
        return value

    def policy(self, data: Any) -> Policy:
        if data is None:
            data = {}
        self.at(data)
        if not isinstance(data, dict):
            raise self.fail(
                "a policy is a mapping of keys",
                "start with `version: 1`, then `allow:`, `ask:` or `deny:`",
            )
        for key in data:
            if key not in _TOP_KEYS:
                self.at(key)
                raise self.fail(f"unknown key `{key}`", nearest(str(key), _TOP_KEYS))
        if "version" in data and str(self.at(data["version"])) != "1":
            raise self.fail(f"version `{data['version']}` is not known", "write `version: 1`")
        modes = self.modes(data.get("modes"))
        rules = [
            self.entry(item, effect)
            for effect in EFFECTS
            for item in self.items(data.get(effect), effect)
        ]
        protection = self.protection(data.get("protected"), data.get("unprotected"))
        hold_s = self.hold(data.get("hold"))
        policy = Policy(
            rules,
            modes,
            protection=protection,
            warnings=self.warnings,
            source=self.source,
            hold_s=hold_s,
        )
        self.check_examples(rules)
        return policy

    def modes(self, data: Any) -> dict[Category, Mode]:
        if data is None:
            return {}
        self.at(data)
        if not isinstance(data, dict):
            raise self.fail("`modes` is not a mapping", "write e.g. `modes: {network: ask}`")
        found: dict[Category, Mode] = {}
        for category, mode in data.items():
            self.at(category)
            if category not in RULE_CATEGORIES:
                raise self.fail(
                    f"unknown category `{category}` in `modes`",
                    nearest(str(category), RULE_CATEGORIES),
                )
            if mode not in MODES:
                raise self.fail(f"unknown mode `{mode}` of `{category}`", nearest(str(mode), MODES))
            if mode == "contained" and category != "exec":
                raise self.fail(
                    f"`{category}` can't have the mode `contained`",
                    "only commands run contained: use `ask`",
                )
            if mode == "allow" and category in ("exec", "packages"):
                raise self.fail(
                    f"`{category}` can't have the mode `allow`",
                    "use `ask`, and allow rules for what is known",
                )
            found[cast("Category", str(category))] = cast("Mode", str(mode))
        return found

    def hold(self, data: Any) -> float | None:
        """Return how long an asked connection is held, in seconds."""
        if data is None:
            return None
        try:
            seconds = parse_duration(str(self.at(data)), "`hold`")
        except UserError as error:
            raise self.fail(error.message, error.remedy) from None
        if seconds > LONGEST_HOLD_S:
            raise self.fail(f"`hold: {data}` is longer than an hour", "write e.g. `hold: 2m`")
        return seconds

    def items(self, data: Any, key: str) -> Sequence[Any]:
        if data is None:
            return ()
        self.at(data)
        if not isinstance(data, list | tuple):
            raise self.fail(
                f"`{key}` is not a list",
                f"write one entry a line, each with `- ` before it, below `{key}:`",
            )
        return data

    def texts(self, data: Any, key: str) -> tuple[str, ...]:
        items = self.items(data, key)
        for item in items:
            self.at(item)
            if not isinstance(item, str):
                raise self.fail(f"`{key}` holds something that is not text", "quote it")
        return tuple(map(str, items))

    # -- rules ------------------------------------------------------------------------------------

    def entry(self, item: Any, effect: Effect) -> Rule:
        self.at(item)
        if isinstance(item, str):
            return self.rule(str(item), effect)
        if not isinstance(item, dict):
            raise self.fail(
                f"an entry of `{effect}` is neither a rule nor a mapping",
                "write e.g. `- exec(git status)`",
            )
        for key in item:
            if key not in _KNOWN_KEYS:
                self.at(key)
                raise self.fail(f"unknown key `{key}` in a rule", nearest(str(key), _ENTRY_KEYS))
        text = self.at(item.get("rule"))
        if not isinstance(text, str):
            raise self.fail(
                "an entry without a `rule`", "add e.g. `rule: network(packages.example.org)`"
            )
        # Only keys that are given are read: most entries of a large file are short.
        details: dict[str, Any] = {}
        for key, value in item.items():
            if key != "rule" and value is not None:
                self.at(key)
                self.detail(str(key), value, effect, details)
        self.at(item)
        return self.rule(str(text), effect, details)

    def detail(self, key: str, value: Any, effect: Effect, details: dict[str, Any]) -> None:
        match key:
            case "expires" if value == "session":
                details["until_session_ends"] = True
            case "expires":
                details["expires_at"] = self.moment(value)
            case "uses":
                details["uses"] = self.count(value, effect)
            case "except":
                details["exceptions"] = self.texts(value, key)
            case "match" | "not_match":
                details[key] = self.texts(value, key)
            case "added_at":
                details[key] = self.seconds(value)
            case _ if isinstance(value, str | int) and not isinstance(value, bool):
                details[key] = str(value)
            case _:
                raise self.fail(f"`{key}` is not text", "quote it")

    def moment(self, value: Any) -> float:
        """Return when a rule ends, in seconds since the epoch: a date means its first second in
        UTC."""
        try:
            parsed = datetime.fromisoformat(str(value))
        except ValueError:
            raise self.fail(
                f"`expires: {value}` is neither a date nor `session`",
                "write e.g. `expires: 2027-01-31`",
            ) from None
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()

    def seconds(self, value: Any) -> float:
        try:
            return float(str(value))
        except ValueError:
            return self.moment(value)

    def count(self, value: Any, effect: Effect) -> int:
        if effect != "allow":
            raise self.fail(
                f"`uses` in `{effect}`", "only an allow rule can be used up; use `expires`"
            )
        if not re.fullmatch(r"[0-9]{1,9}", str(value)):
            raise self.fail(f"`uses: {value}` is not a number", "write e.g. `uses: 20`")
        return int(str(value))

    def rule(self, text: str, effect: Effect, details: dict[str, Any] | None = None) -> Rule:
        """Read one rule, taking its further keys out of `details`."""
        details = {} if details is None else details
        category, pattern = self.split(text)
        shown = text.strip() if "(" in text else f"{category}({pattern})"
        try:
            warning = check_pattern(category, pattern, effect)
            exceptions = tuple(
                [self.exception(one, category) for one in details.pop("exceptions", ())]
            )
        except PolicyError as error:
            raise self.fail(error.message, error.remedy) from None
        if warning:
            self.warnings.append(str(self.fail(warning, "")))
        return Rule(
            effect=effect,
            category=category,
            pattern=pattern,
            text=shown,
            id=details.pop("id", "") or rule_id(effect, shown),
            exceptions=exceptions,
            source=self.source,
            line=self.line,
            **details,
        )

    def split(self, text: str) -> tuple[Category, str]:
        stripped = text.strip()
        found = _RULE.match(stripped)
        if len(stripped) > MAX_RULE_CHARS or first_hidden(stripped) is not None:
            raise self.unreadable(stripped)
        if found is None or found[1] not in RULE_CATEGORIES:
            raise self.unknown(
                stripped, found[1] if found else re.split(r"[^A-Za-z_]", stripped, maxsplit=1)[0]
            )
        word = found[1]
        pattern = "*" if found[2] is None else found[2].strip()
        if not pattern:
            raise self.fail(
                f"`{_shown(stripped)}` has an empty pattern",
                f"write `{word}(*)` for everything, or leave the rule out",
            )
        return cast("Category", word), pattern

    def unreadable(self, text: str) -> PolicyError:
        if len(text) > MAX_RULE_CHARS:
            return self.fail(f"a rule of {len(text)} characters", f"keep it below {MAX_RULE_CHARS}")
        return self.fail(
            f"a hidden character in `{_shown(text)}`",
            "type the rule anew; nothing invisible belongs in one",
        )

    def unknown(self, text: str, word: str) -> PolicyError:
        shown = _shown(text)
        if word in RULE_CATEGORIES:
            return self.fail(
                f"`{shown}` doesn't parse",
                f"write `{word}(pattern)`, with one closing bracket at the end",
            )
        if word.lower() in _OTHER_TOOLS:
            return self.fail(
                f"unknown category `{word}` in `{shown}`",
                f"write `{_OTHER_TOOLS[word.lower()]}(...)`",
            )
        if "(" not in shown:
            guess = (
                "network"
                if "." in shown and " " not in shown and "/" not in shown
                else "exec"
                if " " in shown
                else ""
            )
            example = f"did you mean `{guess}({shown})`?" if guess else f"write `category({shown})`"
            return self.fail(f"`{shown}` names no category", example)
        return self.fail(f"unknown category `{word}` in `{shown}`", nearest(word, RULE_CATEGORIES))

    def exception(self, text: str, category: Category) -> str:
        """Return an exception's pattern. Its category is the rule's own, and may be left out."""
        found = _RULE.match(text.strip())
        pattern = text.strip()
        if found and found[1] in RULE_CATEGORIES and found[2] is not None:
            if found[1] != category:
                raise PolicyError(
                    f"the exception `{text}` is of another category", f"write `{category}(...)`"
                )
            pattern = found[2].strip()
        check_pattern(category, pattern, "ask")
        return pattern

    # -- protected names --------------------------------------------------------------------------

    def protection(self, added: Any, taken: Any) -> Protection:
        if added is None and taken is None:
            return Protection()
        from supervisor.core.policy.file_rules import check_name

        lists: dict[str, frozenset[str]] = {"ask": frozenset(), "deny": frozenset()}
        if added is not None:
            self.at(added)
            if not isinstance(added, dict):
                raise self.fail(
                    "`protected` is not a mapping", "write `protected: {ask: [...], deny: [...]}`"
                )
            for key, value in added.items():
                self.at(key)
                if key not in lists:
                    raise self.fail(f"unknown key `{key}` in `protected`", nearest(str(key), lists))
                lists[str(key)] = frozenset(self.names(value, f"protected: {key}", check_name))
        named = self.names(taken, "unprotected", check_name)
        lifted = frozenset(now for name in named for now in _FORMER.get(name, (name,)))
        table = built_in()
        for name in sorted(lifted):
            if name in table["deny"]:
                raise self.fail(
                    f"`{name}` can't be unprotected",
                    "it is always denied: the git broker is the way",
                )
            if name not in table["ask"]:
                raise self.fail(
                    f"`unprotected` names `{name}`, which isn't in the table",
                    nearest(name, table["ask"]),
                )
        return Protection(lists["ask"], lists["deny"], lifted)

    def names(self, data: Any, key: str, check: Any) -> Iterable[str]:
        """Read a list of names: text, or a mapping of `name` and `why`."""
        for item in self.items(data, key):
            self.at(item)
            if isinstance(item, dict) and set(item) - {"name", "why"}:
                raise self.fail(
                    f"unknown key in `{key}`", "an entry is a name, or `name:` and `why:`"
                )
            name = item.get("name") if isinstance(item, dict) else item
            if not isinstance(name, str):
                raise self.fail(f"`{key}` holds something that is not a name", "quote it")
            try:
                check(str(name))
            except PolicyError as error:
                raise self.fail(error.message, error.remedy) from None
            yield str(name)

    # -- examples ---------------------------------------------------------------------------------

    def check_examples(self, rules: Sequence[Rule]) -> None:
        for rule in rules:
            if rule.match or rule.not_match:
                self.line = rule.line
                for example, expected in failing(rule):
                    verb = "doesn't match" if expected else "matches"
                    key = "match" if expected else "not_match"
                    raise self.fail(
                        f"`{rule.text}` {verb} its `{key}` example `{example}`",
                        "mend the rule or the example",
                    )


def _shown(text: str) -> str:
    """Return a rule as an error shows it, whatever it holds."""
    return text[:80].encode("ascii", "backslashreplace").decode()


def check_pattern(category: Category, pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` for a pattern that isn't valid in the list of `effect`; else return a
    warning, or nothing.

    Cheap: it doesn't compile the pattern.
    """
    return rule_category(category).check(pattern, effect)


__all__ = [
    "DENY_ALL", "EFFECTS", "Text", "check_pattern", "entry_of", "merge", "parse_policy",
    "parse_rule", "policy_from_data",
]  # fmt: skip
