"""YAML text to plain data that knows its lines.

Decides which part of YAML a policy may use: mappings, lists and text, nothing that is resolved into another type (`no` stays
`no`, a date stays its digits), no aliases, no tags, no key twice. It is apart from `policy_text.py`, which knows what the data
means. It must never build objects from tags, and its work is bounded by the length of the text.
"""

from typing import Any

import yaml

from supervisor.errors import PolicyError

MAX_CHARS = 64 * 1024 * 1024
MAX_DEPTH = 20
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"


class Text(str):
    """A scalar, and the line that it stands on (1-based)."""

    __slots__ = ("line",)
    line: int


class Items(list[Any]):
    """A list, and its line."""

    line: int = 0


class Fields(dict[Any, Any]):
    """A mapping, and its line."""

    line: int = 0


def line_of(value: Any) -> int:
    """The line that a value stands on, 0 where it comes from no text."""
    return int(getattr(value, "line", 0))


def load(text: str, source: str) -> Any:
    """The data of one YAML document: `Fields`, `Items`, `Text`, or None for nothing. `PolicyError` where it isn't that."""
    if len(text) > MAX_CHARS:
        raise PolicyError(f"{source}: longer than {MAX_CHARS} characters", "split the policy")
    try:
        node = yaml.compose(text, Loader=_Loader)
        return None if node is None else _Converter(source).convert(node, 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        remedy = "check the indentation and the quotes around `*`, `[` or `: `"
        raise PolicyError(f"{source}{line}: {problem}", remedy) from None
    except UnicodeEncodeError as error:
        number = text.count("\n", 0, error.start) + 1
        raise PolicyError(f"{source}:{number}: holds something that is not text", "save it as UTF-8") from None
    except RecursionError:
        raise PolicyError(f"{source}: nested too deeply", "a policy has no more than a few levels") from None


class _Converter:
    def __init__(self, source: str) -> None:
        self.source = source
        self.seen: set[int] = set()

    def fail(self, node: yaml.Node, message: str, remedy: str) -> PolicyError:
        return PolicyError(f"{self.source}:{node.start_mark.line + 1}: {message}", remedy)

    def convert(self, node: yaml.Node, depth: int) -> Any:
        line = node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode):
            if node.tag == _NULL:
                return None
            text = Text(node.value)
            text.line = line
            return text
        # A node that is met twice is an alias: it could make a small text huge, or endless.
        if id(node) in self.seen or depth > MAX_DEPTH:
            raise self.fail(node, "an alias, or nested too deeply", "write the entries out")
        self.seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            items = Items(self.convert(item, depth + 1) for item in node.value)
            items.line = line
            return items
        fields = Fields()
        fields.line = line
        for key_node, value_node in node.value:
            key = self.convert(key_node, depth + 1)
            if not isinstance(key, str):
                raise self.fail(key_node, "a key that is not text", "write it as a plain word")
            if key in fields:
                raise self.fail(key_node, f"the key `{key}` stands here twice", "put both into one")
            fields[key] = self.convert(value_node, depth + 1)
        return fields
