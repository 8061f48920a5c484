"""Reader of a strict subset of YAML, to data that knows its lines.

A file may use mappings, lists and text: nothing is resolved into another type (`no` stays `no`, a
date stays its digits), no aliases, no tags, no key twice, one document. `load` is for the person's
own files and stops at the first fault; `read_nodes` is for a repository's files, and finds all
faults. It must never build objects from tags, and its work is bounded by the length of the text.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import yaml

from supervisor.errors import PolicyError

MAX_CHARS = 64 * 1024 * 1024
# The limits of `read_nodes`.
MOST_BYTES = 64 * 1024
MAX_DEPTH = 20
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Unquoted texts that YAML takes for null.
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_SYNTAX_REMEDY = "check the indentation and the quotes around `*`, `[` or `: `"


class Text(str):
    """A scalar, and the line that it stands on (1-based). `is_plain`: it is written without
    quotes."""

    __slots__ = ("is_plain", "line")
    is_plain: bool
    line: int

    @property
    def is_nothing(self) -> bool:
        """Return whether it is an empty value."""
        return self.is_plain and self in _NULLS


class Items(list[Any]):
    """A list, and its line."""

    __slots__ = ("line",)
    line: int


class Fields(dict[Any, Any]):
    """A mapping, and its line."""

    __slots__ = ("line",)
    line: int


class FaultyNode:
    """A placeholder for a node that was refused already."""


_FAULTY = FaultyNode()
type Node = Text | Items | Fields | FaultyNode


class YamlFault(NamedTuple):
    """Something wrong in a file: its line (1-based), what it is, and what to do."""

    line: int
    message: str
    remedy: str


def line_of(value: Any) -> int:
    """Return the line of a value; 0 if it comes from no text."""
    line: int = getattr(value, "line", 0)
    return line


def load(text: str, source: str) -> Any:
    """Return the data of one YAML document: `Fields`, `Items`, `Text`, or None for an empty one.
    Raise `PolicyError` if it is anything else."""
    if len(text) > MAX_CHARS:
        raise PolicyError(f"{source}: longer than {MAX_CHARS} characters", "split the policy")
    try:
        return _FirstFault(source).build(yaml.parse(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = (
            getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        )
        raise PolicyError(f"{source}{line}: {problem}", _SYNTAX_REMEDY) from None
    except UnicodeEncodeError as error:
        number = text.count("\n", 0, error.start) + 1
        raise PolicyError(
            f"{source}:{number}: holds something that is not text", "save it as UTF-8"
        ) from None


def read_nodes(data: bytes) -> tuple[Node | None, list[YamlFault]]:
    """Return the nodes of a document and every fault in its form; None for the nodes if the text
    can't be followed to its end, or is empty."""
    if len(data) > MOST_BYTES:
        fault = YamlFault(1, f"longer than {MOST_BYTES >> 10} kB", "shorten the prompts")
        return None, [fault]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, [YamlFault(line, "holds something that is not text", "save it as UTF-8")]
    builder = _Builder()
    try:
        return builder.build(yaml.parse(text, Loader=_Loader)), builder.faults
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # If something is missing at the end, the error is reported after the last line.
        line = min(mark.line + 1, len(text.splitlines())) if mark is not None else 1
        problem = getattr(error, "problem", None) or "a character that YAML doesn't take"
        builder.faults.append(YamlFault(line, str(problem), _SYNTAX_REMEDY))
    except _EndedError:
        pass
    return None, builder.faults


class _EndedError(Exception):
    """Raised when the rest of the text can't be followed. Its fault is already recorded."""


class _Builder:
    """Builds data from the parser's events, and collects all faults.

    INVARIANT: nothing here or in PyYAML recurses: `yaml.compose` does, in C, and a text of nothing
    but `[` would crash the process.
    """

    tag_remedy = "leave it out"
    depth_remedy = "no key of it lies so deep"
    takes_anchors = False

    def __init__(self) -> None:
        self.faults: list[YamlFault] = []
        self.root: Any = None
        self.documents = 0
        # The lists and mappings that are open, and for each mapping the key that waits for its
        # value.
        self.open: list[Items | Fields] = []
        self.keys: list[Text | FaultyNode | None] = []

    def build(self, events: Iterable[yaml.Event]) -> Any:
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                self.look_at(event)
                text = Text(event.value)
                text.line, text.is_plain = _line(event), bool(event.implicit[0])
                self.put(self.value(text), event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self.start(
                    Items() if isinstance(event, yaml.SequenceStartEvent) else Fields(), event
                )
            elif isinstance(event, yaml.CollectionEndEvent):
                self.open.pop()
                self.keys.pop()
            elif isinstance(event, yaml.AliasEvent):
                self.fault(event, "an alias", "write the entries out")
                self.put(_FAULTY, event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    self.fault(event, "a second document", "write all into one")
                    raise _EndedError
        return self.root

    def fault(self, event: yaml.Event, message: str, remedy: str) -> None:
        self.faults.append(YamlFault(_line(event), message, remedy))

    def value(self, text: Text) -> Text | None:
        return text

    def look_at(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            self.fault(event, f"the tag `{event.tag[:80]}`", self.tag_remedy)
        if event.anchor is not None and not self.takes_anchors:
            self.fault(event, f"the anchor `&{event.anchor[:80]}`", "leave it out")

    def start(self, container: Items | Fields, event: yaml.CollectionStartEvent) -> None:
        self.look_at(event)
        if len(self.open) > MAX_DEPTH:
            self.fault(event, "nested too deeply", self.depth_remedy)
            raise _EndedError
        container.line = _line(event)
        self.put(container, event)
        self.open.append(container)
        self.keys.append(None)

    def put(self, value: Any, event: yaml.Event) -> None:
        """Add a value to the innermost list or mapping; in a mapping, the first of two is the
        key."""
        if not self.open:
            self.root = value
            return
        inner = self.open[-1]
        if isinstance(inner, Items):
            inner.append(value)
        elif (key := self.keys[-1]) is None:
            self.keys[-1] = self.key(value, inner, event)
        else:
            # The value of a refused key is dropped with it.
            if isinstance(key, Text):
                inner[key] = value
            self.keys[-1] = None

    def key(self, value: Any, fields: Fields, event: yaml.Event) -> Text | FaultyNode:
        if not isinstance(value, Text):
            self.fault(event, "a key that is not text", "write it as a plain word")
        elif value in fields:
            self.fault(event, f"the key `{value[:80]}` stands here twice", "put both into one")
        else:
            return value
        return _FAULTY


class _FirstFault(_Builder):
    """A builder that raises the first fault. An empty value becomes None."""

    tag_remedy = "leave it out: everything in a policy is text"
    depth_remedy = "a policy has no more than a few levels"
    takes_anchors = True

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def fault(self, event: yaml.Event, message: str, remedy: str) -> None:
        raise PolicyError(f"{self.source}:{_line(event)}: {message}", remedy)

    def value(self, text: Text) -> Text | None:
        return None if text.is_nothing else text


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, "the parser marks every event"
    return event.start_mark.line + 1
