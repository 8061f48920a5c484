"""Translate Claude Code's permission lists to a policy.

Decides for each of their rules which of our rules mean the same: never more for allow, never less
for ask and deny. A rule that can't be translated is named with the reason. Pure: the caller reads
the file and saves nothing. It must never carry over an allow rule if its exceptions (their ask and
deny rules) can't be carried over.

Source: https://code.claude.com/docs/en/permissions, read in November 2026. `claude_commands` and
`claude_paths` know `Bash` and paths. The top of the resulting policy says what differs by
nature:
    a rule here compares words, not text: quotes, a system folder before the program's name and
    wrappers don't hide a command
    a rule about files here covers every change of them, whatever tool makes it
"""

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from supervisor.core.actions import Category, Effect
from supervisor.core.lab import claude_commands, claude_paths
from supervisor.core.lab.claude_commands import WHOLE_CATEGORY, NoCounterpartError
from supervisor.core.lab.claude_paths import SettingsPlace
from supervisor.core.policy.policy_text import EFFECTS, parse_rule
from supervisor.core.shell.exec_patterns import compile_pattern
from supervisor.core.shell.exec_tables import basename
from supervisor.core.text.display import visible
from supervisor.errors import PolicyError, UserError

__all__ = ["Carried", "Imported", "Left", "SettingsPlace", "policy_text", "translate"]

_RULE = re.compile(r"(?P<tool>[A-Za-z0-9_.*-]+)(?:\((?P<spec>.*)\))?\Z", re.DOTALL)
_DOMAIN = re.compile(r"domain\s*:\s*(?P<host>\S+)\Z")
# An unclosed comment or text extends to the end: searching for the close from each opening would
# take quadratic time.
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*|/\*.*?(?:(\*/)|\Z)', re.DOTALL)
_EDITING = ("Edit", "Write", "MultiEdit", "NotebookEdit")
_READING = ("Read", "Glob", "Grep", "LS", "NotebookRead")
_KNOWN_KEYS = (*EFFECTS, "defaultMode", "additionalDirectories")
# The modes in which a Claude Code session may start, and our modes for them.
_AS_HERE = ("default", "manual")
_MODES = {
    "acceptEdits": (
        "every change would go to the host unasked: write `modes: {filesystem: allow}` if that is"
        " meant"
    ),
    "plan": (
        "a way to begin, not a rule: write `modes: {filesystem: deny}` if nothing may be changed"
    ),
    "auto": "here a person answers what no rule does",
    "bypassPermissions": "here a person answers what no rule does",
}
_NO_COUNTERPART = {
    "WebSearch": "searching is the model provider's affair; here only connections are judged",
    "Agent": "agents within the agent are judged by what they do",
    "Task": "agents within the agent are judged by what they do",
    "PowerShell": "commands here are read by bash",
    "Cd": "folders outside of the workspace aren't in the sandbox",
}


class Carried(NamedTuple):
    """A rule of the resulting policy. `origin` is the rule that it was made from; `note` says how
    it differs."""

    effect: Effect
    rule: str
    origin: str
    note: str = ""


class Left(NamedTuple):
    """A rule or setting that isn't carried over, and why."""

    origin: str
    reason: str

    def __str__(self) -> str:
        return visible(f"{self.origin}: {self.reason}", one_line=True)


class Imported(NamedTuple):
    """Result of an import. `modes`: the modes that the settings give."""

    rules: tuple[Carried, ...]
    left: tuple[Left, ...]
    modes: Mapping[Category, Effect]


def translate(text: str, source: str, place: SettingsPlace) -> Imported:
    """Translate the rules of some settings. Raise `UserError` (`source:line: what`) if they can't
    be read."""
    permissions = _permissions(text, source)
    lists = {effect: _list(permissions, effect, source) for effect in EFFECTS}
    reader = _Reader(place, denies_asked=permissions.get("defaultMode") == "dontAsk")
    for effect in ("deny", "ask", "allow"):
        for rule in lists[effect]:
            reader.read(effect, rule)
    reader.settings(permissions)
    return reader.imported()


# -- reading --------------------------------------------------------------------------------------


def _permissions(text: str, source: str) -> dict[str, Any]:
    """Return the `permissions` of the settings. Comments are skipped. A repeated key is refused,
    because it could hide the first."""
    plain = _COMMENT.sub(
        lambda found: (
            re.sub(r"[^\n]", " ", found[0]) if found[1] or found[0][:2] == "//" else found[0]
        ),
        text,
    )
    try:
        data = json.loads(
            plain.removeprefix("\ufeff"), object_pairs_hook=lambda pairs: _once(pairs, source)
        )
    except json.JSONDecodeError as error:
        raise UserError(
            f"{source}:{error.lineno}: not JSON: {error.msg}", "give a settings.json of Claude Code"
        ) from None
    except RecursionError:
        raise UserError(
            f"{source}: nested too deeply", "give a settings.json of Claude Code"
        ) from None
    permissions = data.get("permissions", {}) if isinstance(data, dict) else None
    if not isinstance(permissions, dict):
        raise UserError(
            f"{source}: holds no permissions",
            'give settings such as {"permissions": {"allow": [...]}}',
        )
    return permissions


def _once(pairs: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(
            f"{source}: the key `{twice}` stands twice in one place", "put both into one"
        )
    return found


def _list(permissions: Mapping[str, Any], effect: str, source: str) -> list[str]:
    found = permissions.get(effect)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise UserError(
            f"{source}: `permissions.{effect}` is not a list of texts", "write each rule in quotes"
        )
    return found


class _Reader:
    """One reading of one file."""

    def __init__(self, place: SettingsPlace, *, denies_asked: bool) -> None:
        self.place = place
        self.denies_asked = denies_asked
        self.rules: list[Carried] = []
        self.left: list[Left] = []
        self.modes: dict[Category, Effect] = {}
        # Gaps left by ask and deny rules that aren't carried over: category and program -> that
        # rule.
        self.opened: dict[tuple[str, str], str] = {}

    def read(self, effect: Effect, rule: str) -> None:
        """Carry one rule over, or say why not."""
        origin = f"{effect} {rule}"
        found = _RULE.match(rule.strip())
        try:
            if found is None:
                raise NoCounterpartError("can't be read, so it says nothing there either")
            tool, spec = found["tool"], found["spec"]
            to: Effect = "deny" if effect == "ask" and self.denies_asked else effect
            made = list(
                self.rules_of(to, tool, spec if spec is None or spec.strip() else None, origin)
            )
            for text, _ in made:
                _check(to, text)
        except _Opening as opening:
            self.left.append(Left(origin, opening.reason))
            self.opened.setdefault(opening.at, rule)
        except NoCounterpartError as error:
            self.left.append(Left(origin, error.reason))
        else:
            self.rules += [Carried(to, text, rule, note) for text, note in made]

    def rules_of(
        self, effect: Effect, tool: str, spec: str | None, origin: str
    ) -> Iterator[tuple[str, str]]:
        """Return the policy's rules for one of theirs, each with how it differs."""
        if "*" in tool:
            yield from self.glob(effect, tool, spec, origin)
        elif tool == "Bash":
            yield from _bash(effect, spec)
        elif tool in _EDITING:
            yield from self.edit(effect, tool, spec)
        elif tool in _READING:
            yield from self.read_rule(effect, tool, spec, origin)
        elif tool == "WebFetch":
            yield from _fetch(effect, spec)
        elif tool.startswith("mcp__"):
            raise NoCounterpartError(
                "what a tool of an MCP server sends or changes is judged; its name isn't"
            )
        else:
            raise NoCounterpartError(_NO_COUNTERPART.get(tool, "there is no such thing here"))

    def glob(
        self, effect: Effect, tool: str, spec: str | None, origin: str
    ) -> Iterator[tuple[str, str]]:
        if effect == "allow" or spec is not None:
            raise NoCounterpartError(
                "a wildcard in the tool's name says nothing there in such a rule either"
            )
        found = [one for one in ("Bash", "Edit", "WebFetch") if fnmatch.fnmatchcase(one, tool)]
        for one in found:
            yield from self.rules_of(effect, one, None, origin)
        if tool.strip("*") == "":
            yield from (("git(*)", ""), ("packages(*)", ""))
        elif not found:
            raise NoCounterpartError("no tool of that name does anything that is judged here")

    def edit(self, effect: Effect, tool: str, spec: str | None) -> Iterator[tuple[str, str]]:
        if spec is None:
            yield from _edit_anything(effect, tool)
            return
        if re.match(r"replace_all\s*:", spec):
            raise NoCounterpartError(
                "is about a parameter of the tool, which changes here don't have"
            )
        if tool != "Edit" and effect == "allow":
            raise NoCounterpartError(
                f"Claude Code never looks at paths of {tool} rules: write Edit({spec}) if it is"
                " meant"
            )
        yield from self.paths(effect, spec)

    def paths(self, effect: Effect, spec: str) -> Iterator[tuple[str, str]]:
        try:
            found = claude_paths.patterns(spec, self.place, allows=effect == "allow")
        except NoCounterpartError as error:
            raise _opening("filesystem", error) from None
        yield from ((f"filesystem({one})", "") for one in found)

    def read_rule(
        self, effect: Effect, tool: str, spec: str | None, origin: str
    ) -> Iterator[tuple[str, str]]:
        """Translate a `Read` rule. Reading the private copy is free, but their deny rule for `Read`
        also keeps a file from being changed."""
        if effect == "allow":
            raise NoCounterpartError("reading needs no rule: the agent has a copy of its own")
        reason = (
            "reading can't be judged, the agent has a copy of its own: keep what it mustn't see out"
            " of the workspace"
        )
        if tool != "Read" or not origin.startswith("deny "):
            raise NoCounterpartError(reason)
        made = [("filesystem(**)", "")] if spec is None else list(self.paths(effect, spec))
        self.left.append(Left(origin, f"{reason}; that it can't be changed is carried over"))
        yield from ((rule, "for changes only") for rule, _ in made)

    def settings(self, permissions: Mapping[str, Any]) -> None:
        """Read the settings' other keys, beside the lists."""
        mode = permissions.get("defaultMode")
        if mode == "dontAsk":
            self.modes = dict.fromkeys(("exec", "filesystem", "network", "git", "packages"), "deny")
        elif mode is not None and mode not in _AS_HERE:
            self.left.append(
                Left(f"defaultMode {mode}", _MODES.get(str(mode), "there is no such mode here"))
            )
        for folder in permissions.get("additionalDirectories") or ():
            self.left.append(Left(f"additionalDirectories {folder}", "a session has one workspace"))
        for key in permissions:
            if key not in _KNOWN_KEYS:
                self.left.append(Left(key, "there is no such setting here"))

    def imported(self) -> Imported:
        """Return the carried rules, without the allow rules whose exceptions couldn't be carried
        over."""
        kept: list[Carried] = []
        for one in dict.fromkeys(self.rules):
            by = self.opened_by(one) if one.effect == "allow" else None
            if by is None:
                kept.append(one)
            else:
                reason = f"`{by}` takes something out of it, and can't be carried over"
                self.left.append(Left(f"allow {one.origin}", reason))
        return Imported(tuple(kept), tuple(dict.fromkeys(self.left)), self.modes)

    def opened_by(self, one: Carried) -> str | None:
        """Return the ask or deny rule without which this allow rule would allow more than Claude
        Code's."""
        rule = parse_rule(one.rule, "allow")
        names = [WHOLE_CATEGORY]
        if rule.category == "exec":
            names.append(basename(compile_pattern(rule.pattern).words[0].literal or ""))
        return next(
            (
                self.opened[rule.category, name]
                for name in names
                if (rule.category, name) in self.opened
            ),
            None,
        )


class _Opening(Exception):  # noqa: N818 (never seen outside)
    """A stricter rule that can't be carried over, and the allow rules (category and program) that
    it would have restricted."""

    def __init__(self, reason: str, at: tuple[str, str]) -> None:
        super().__init__(reason)
        self.reason, self.at = reason, at


def _check(effect: Effect, text: str) -> None:
    """Check that the rule can be written down and read again."""
    try:
        parse_rule(text, effect)
        if visible(text, one_line=True) != text:
            raise PolicyError("holds a character that nobody sees")
    except PolicyError as error:
        if effect == "allow":
            raise NoCounterpartError(error.message) from None
        raise _Opening(error.message, (text.partition("(")[0], WHOLE_CATEGORY)) from None


def _opening(category: str, error: NoCounterpartError) -> Exception:
    return error if error.opens is None else _Opening(error.reason, (category, error.opens))


def _bash(effect: Effect, spec: str | None) -> Iterator[tuple[str, str]]:
    if effect == "allow":
        pattern, note = claude_commands.allow(spec or "*")
        yield f"exec({pattern})", note
        return
    try:
        pattern, note = claude_commands.strict(spec or "*")
    except NoCounterpartError as error:
        raise _opening("exec", error) from None
    yield f"exec({pattern})", note
    other = claude_commands.elsewhere(pattern)
    if other is not None:
        yield other, "for what is no command here"


def _edit_anything(effect: Effect, tool: str) -> Iterator[tuple[str, str]]:
    if tool == "NotebookEdit":
        yield "filesystem(**/*.ipynb)", ""
    elif tool == "Edit" or (tool == "Write" and effect == "allow"):
        yield "filesystem(**)", ""
    elif tool == "Write":
        raise _Opening(
            "changes here don't tell one tool from another: write filesystem(**)",
            ("filesystem", WHOLE_CATEGORY),
        )
    else:
        raise NoCounterpartError("Claude Code has no such tool any more")


def _fetch(effect: Effect, spec: str | None) -> Iterator[tuple[str, str]]:
    found = _DOMAIN.match(spec.strip()) if spec is not None else None
    if spec is not None and found is None:
        raise NoCounterpartError("names no domain, so it says nothing there either")
    host = found["host"].lower().removesuffix(".") if found else "*"
    rule = f"network({host})" if effect != "allow" else f"network(GET https://{host}/**)"
    try:
        if "*" in host.removeprefix("*.") and host != "*":
            raise PolicyError("a `*` inside of a name can't be said here")
        parse_rule(rule, effect)
    except PolicyError as error:
        if effect == "allow":
            raise NoCounterpartError(
                f"{error.message}: {error.remedy or 'name the hosts'}"
            ) from None
        raise _Opening(error.message, ("network", WHOLE_CATEGORY)) from None
    yield rule, "reading pages only" if effect == "allow" else ""


# -- writing --------------------------------------------------------------------------------------


def policy_text(imported: Imported, source: str) -> str:
    """Return the policy as YAML: each rule with its origin, followed by what isn't carried over."""
    lines = [
        f"# Made by `gatehouse policy import claude` from {
            visible(source, one_line=True)
        }. Read it before you use it.",
        "#",
        (
            "# Rules about commands compare the words that a program gets: quotes and wrappers"
            " don't hide one. Rules about files are"
        ),
        "# about paths from the workspace's root, and cover every change, deleting included.",
        "version: 1",
    ]
    if imported.modes:
        said = ", ".join(f"{category}: {mode}" for category, mode in imported.modes.items())
        lines += ["", f"modes: {{{said}}}"]
    for effect in EFFECTS:
        entries = _merged([one for one in imported.rules if one.effect == effect])
        if entries:
            lines += ["", f"{effect}:"]
        for rule, why in entries.items():
            lines += [f"  - rule: {_quoted(rule)}", f"    why: {_quoted(why)}"]
    if imported.left:
        lines += ["", "# Not carried over:", *(f"#   {one}" for one in imported.left)]
    return "\n".join(lines) + "\n"


def _merged(rules: list[Carried]) -> dict[str, str]:
    """Merge rules that became the same. Return each rule with its reason."""
    found: dict[str, list[str]] = {}
    for one in rules:
        found.setdefault(one.rule, []).append(
            f"{one.origin} ({one.note})" if one.note else one.origin
        )
    return {
        rule: f"imported from {', '.join(dict.fromkeys(origins))}"
        for rule, origins in found.items()
    }


def _quoted(text: str) -> str:
    """Return a YAML scalar in double quotes, which has the same form in JSON."""
    return json.dumps(visible(text, one_line=True), ensure_ascii=False)
