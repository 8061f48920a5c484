"""Parser from a safe subset of YAML to plain data that knows its lines.

A policy may use mappings, lists and text: nothing is resolved into another type (`no` stays `no`, a
date stays its digits), no aliases, no tags, no key twice. It must never build objects from tags,
and its work is bounded by the length of the text.
"""

from collections.abc import Iterable
from typing import Any

import yaml

from supervisor.errors import PolicyError

MAX_CHARS = 64 * 1024 * 1024
MAX_DEPTH = 20
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Unquoted texts that YAML takes for null.
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class Text(str):
    """A scalar, and the line that it stands on (1-based)."""

    __slots__ = ("line",)
    line: int


class Items(list[Any]):
    """A list, and its line."""

    __slots__ = ("line",)
    line: int


class Fields(dict[Any, Any]):
    """A mapping, and its line."""

    __slots__ = ("line",)
    line: int


def line_of(value: Any) -> int:
    """Return the line that a value stands on, 0 where it comes from no text."""
    line: int = getattr(value, "line", 0)
    return line


def load(text: str, source: str) -> Any:
    """Return the data of one YAML document: `Fields`, `Items`, `Text`, or None for nothing.
    `PolicyError` where it isn't that."""
    if len(text) > MAX_CHARS:
        raise PolicyError(f"{source}: longer than {MAX_CHARS} characters", "split the policy")
    try:
        return _Builder(source).build(yaml.parse(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = (
            getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        )
        remedy = "check the indentation and the quotes around `*`, `[` or `: `"
        raise PolicyError(f"{source}{line}: {problem}", remedy) from None
    except UnicodeEncodeError as error:
        number = text.count("\n", 0, error.start) + 1
        raise PolicyError(
            f"{source}:{number}: holds something that is not text", "save it as UTF-8"
        ) from None


class _Builder:
    """Data from the parser's events, one after the other.

    INVARIANT: nothing here or in PyYAML recurses: `yaml.compose` does, in C, and a text of
    nothing but `[` ends the process.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Any = None
        self.documents = 0
        # The lists and mappings that are open, and for each mapping the key that waits for its
        # value.
        self.open: list[Items | Fields] = []
        self.keys: list[str | None] = []

    def build(self, events: Iterable[yaml.Event]) -> Any:
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                self.put(self.scalar(event), event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self.start(
                    Items() if isinstance(event, yaml.SequenceStartEvent) else Fields(), event
                )
            elif isinstance(event, yaml.CollectionEndEvent):
                self.open.pop()
                self.keys.pop()
            elif isinstance(event, yaml.AliasEvent):
                raise self.fail(event, "an alias", "write the entries out")
            elif isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    raise self.fail(event, "a second document", "write all into one")
        return self.root

    def fail(self, event: yaml.Event, message: str, remedy: str) -> PolicyError:
        return PolicyError(f"{self.source}:{_line(event)}: {message}", remedy)

    def scalar(self, event: yaml.ScalarEvent) -> Text | None:
        self.check_tag(event)
        value: str = event.value
        if value in _NULLS and event.implicit[0]:
            return None
        text = Text(value)
        text.line = _line(event)
        return text

    def start(self, container: Items | Fields, event: yaml.CollectionStartEvent) -> None:
        self.check_tag(event)
        if len(self.open) > MAX_DEPTH:
            raise self.fail(event, "nested too deeply", "a policy has no more than a few levels")
        container.line = _line(event)
        self.put(container, event)
        self.open.append(container)
        self.keys.append(None)

    def check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            raise self.fail(
                event, f"the tag `{event.tag}`", "leave it out: everything in a policy is text"
            )

    def put(self, value: Any, event: yaml.Event) -> None:
        """A value into the innermost list or mapping; in a mapping the first of two is the key."""
        if not self.open:
            self.root = value
            return
        inner = self.open[-1]
        if isinstance(inner, Items):
            inner.append(value)
            return
        key = self.keys[-1]
        if key is not None:
            inner[key], self.keys[-1] = value, None
        elif not isinstance(value, str):
            raise self.fail(event, "a key that is not text", "write it as a plain word")
        elif value in inner:
            raise self.fail(event, f"the key `{value}` stands here twice", "put both into one")
        else:
            self.keys[-1] = value


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, "the parser marks every event"
    return event.start_mark.line + 1
