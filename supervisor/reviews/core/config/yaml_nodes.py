"""Parser from a strict subset of YAML to nodes that know their lines, with every fault at once.

Unlike `core.text.policy_yaml`, it goes on after a fault, and not every scalar is text: a whole
number, a truth value and a quoted text are told apart. No alias, anchor or tag, no key twice, one
document; the work is bounded by the length of the text.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import yaml

from supervisor.core.text.policy_yaml import Fields, Items

MOST_BYTES = 64 * 1024
MOST_DEPTH = 20
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Plain texts that YAML takes for nothing.
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})


class ConfigFault(NamedTuple):
    """Something wrong in a file: its line (1-based), what it is, and what to do."""

    line: int
    message: str
    remedy: str


class Scalar(str):
    """A scalar and its line. `is_plain`: it stands there without quotes."""

    __slots__ = ("is_plain", "line")
    is_plain: bool
    line: int

    @property
    def is_nothing(self) -> bool:
        """Return whether it is no value."""
        return self.is_plain and self in _NOTHING


class FaultyNode:
    """What stands for a node that was refused already."""


FAULTY = FaultyNode()
type Node = Scalar | Items | Fields | FaultyNode


def read_nodes(data: bytes) -> tuple[Node | None, list[ConfigFault]]:
    """Return the nodes of a document and every fault of its form; None where the text can't be
    followed to its end, or is empty."""
    if len(data) > MOST_BYTES:
        fault = ConfigFault(1, f"longer than {MOST_BYTES >> 10} kB", "shorten the prompts")
        return None, [fault]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, [ConfigFault(line, "holds something that is not text", "save it as UTF-8")]
    builder = _Builder()
    try:
        builder.build(yaml.parse(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # What is missing at the end is missed after the last line.
        line = min(mark.line + 1, len(text.splitlines())) if mark is not None else 1
        problem = getattr(error, "problem", None) or "a character that YAML doesn't take"
        remedy = "check the indentation and the quotes around `*`, `[` or `: `"
        builder.faults.append(ConfigFault(line, str(problem), remedy))
        return None, builder.faults
    except _EndedError:
        return None, builder.faults
    return builder.root, builder.faults


class _EndedError(Exception):
    """Nothing after it can be followed. Its fault is told."""


class _Open:
    """A list or a mapping that isn't ended, and the key that waits for its value."""

    def __init__(self, container: Items | Fields) -> None:
        self.container = container
        self.key: Scalar | FaultyNode | None = None


class _Builder:
    """Nodes from the parser's events, one after the other.

    INVARIANT: nothing here or in PyYAML recurses: `yaml.compose` does, in C, and a text of
    nothing but `[` ends the process.
    """

    def __init__(self) -> None:
        self.root: Node | None = None
        self.faults: list[ConfigFault] = []
        self._documents = 0
        self._open: list[_Open] = []

    def build(self, events: Iterable[yaml.Event]) -> None:
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                self._look_at(event)
                scalar = Scalar(event.value)
                scalar.line, scalar.is_plain = _line(event), bool(event.implicit[0])
                self._put(scalar, event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._start(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
            elif isinstance(event, yaml.AliasEvent):
                self._fault(event, "an alias", "write the entries out")
                self._put(FAULTY, event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    self._fault(event, "a second document", "write all into one")
                    raise _EndedError

    def _fault(self, event: yaml.Event, message: str, remedy: str) -> None:
        self.faults.append(ConfigFault(_line(event), message, remedy))

    def _look_at(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            self._fault(event, f"the tag `{event.tag[:80]}`", "leave it out")
        if event.anchor is not None:
            self._fault(event, f"the anchor `&{event.anchor[:80]}`", "leave it out")

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        self._look_at(event)
        if len(self._open) >= MOST_DEPTH:
            self._fault(event, "nested too deeply", "no key of it lies so deep")
            raise _EndedError
        container = Items() if isinstance(event, yaml.SequenceStartEvent) else Fields()
        container.line = _line(event)
        self._put(container, event)
        self._open.append(_Open(container))

    def _put(self, node: Node, event: yaml.Event) -> None:
        """Put a node into the innermost list or mapping; in a mapping the first of two is the
        key."""
        if not self._open:
            self.root = node
            return
        inner = self._open[-1]
        if isinstance(inner.container, Items):
            inner.container.append(node)
        elif inner.key is not None:
            if isinstance(inner.key, Scalar):
                inner.container[inner.key] = node
            inner.key = None
        else:
            inner.key = self._key(node, inner.container, event)

    def _key(self, node: Node, fields: dict[Any, Any], event: yaml.Event) -> Scalar | FaultyNode:
        if not isinstance(node, Scalar):
            self._fault(event, "a key that is not text", "write it as a plain word")
            return FAULTY
        if node in fields:
            self._fault(event, f"the key `{node[:80]}` stands here twice", "put both into one")
            return FAULTY
        return node


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, "the parser marks every event"
    return event.start_mark.line + 1
