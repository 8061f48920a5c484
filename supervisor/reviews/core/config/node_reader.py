"""Read YAML nodes into a given type, and report everything that is wrong with them.

Knows `msgspec`'s types and no file: `reader` says which shape is wanted. Each value's line is kept
by its path (`review.prompts[0].mode`).
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from msgspec import inspect

from supervisor.core.text.mistyped import nearest
from supervisor.core.text.strict_yaml import FaultyNode, Fields, Items, Node, Text, YamlFault

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?\Z", re.ASCII)
# The fault of a text that a pattern refuses: only ids have a pattern.
_ID_REMEDY = "write small letters, digits and `-`, 64 at most"
# Returns why a text isn't valid in a format, and what to do; None if it is valid.
type CheckFormat = Callable[[str, str], tuple[str, str] | None]


class NodeReader:
    """One reading. `faults` and `lines` are its results."""

    def __init__(self, check_format: CheckFormat) -> None:
        self.faults: list[YamlFault] = []
        self.lines: dict[str, int] = {}
        self._check_format = check_format

    def fault(self, line: int, message: str, remedy: str) -> None:
        """Record a fault."""
        self.faults.append(YamlFault(line, message, remedy))

    def struct(self, node: Node, wanted: inspect.StructType, path: str) -> dict[str, Any]:
        """Return the values of a mapping, by the keys as written; faulty values are left out."""
        fields = {field.encode_name: field for field in wanted.fields}
        if not isinstance(node, Fields):
            self._wrong(node, path, "is not a mapping", f"below it stand {_listed(fields)}")
            return {}
        found: dict[str, Any] = {}
        for key, value in node.items():
            if key not in fields:
                where = f" in `{path}`" if path else ""
                self.fault(key.line, f"unknown key `{_shown(key)}`{where}", nearest(key, fields))
                continue
            below = f"{path}.{key}" if path else str(key)
            self.lines[below] = key.line
            self._put(found, str(key), self.value(value, fields[key].type, below))
        for key, field in fields.items():
            if field.required and key not in node:
                self.fault(node.line, f"`{path or 'the file'}` has no `{key}`", f"add `{key}:`")
        return found

    def value(self, node: Node, wanted: inspect.Type, path: str) -> Any:
        """Return the value of a node, or a `FaultyNode`."""
        if isinstance(node, FaultyNode):
            return node
        if isinstance(node, Text) and node.is_nothing:
            return self._wrong(node, path, "has no value", "give it one, or leave the key out")
        match wanted:
            case inspect.Metadata():
                return self._formatted(node, wanted, path)
            case inspect.UnionType():
                return self.value(node, _choice(node, wanted), path)
            case inspect.StructType():
                return self.struct(node, wanted, path)
            case inspect.VarTupleType():
                return self._list(node, wanted, path)
            case inspect.DictType():
                return self._dict(node, wanted, path)
        if not isinstance(node, Text):
            return self._wrong(node, path, "is not one value", "write one word or number")
        return self._scalar(node, wanted, path)

    def _put(self, found: dict[str, Any], key: str, value: Any) -> None:
        if not isinstance(value, FaultyNode):
            found[key] = value

    def _formatted(self, node: Node, wanted: inspect.Metadata, path: str) -> Any:
        value = self.value(node, wanted.type, path)
        schema = wanted.extra_json_schema or {}
        if isinstance(value, FaultyNode):
            return value
        problem = self._check_format(str(schema["format"]), value)
        return value if problem is None else self._wrong(node, path, *problem)

    def _list(self, node: Node, wanted: inspect.VarTupleType, path: str) -> Any:
        if not isinstance(node, Items):
            return self._wrong(node, path, "is not a list", "write it as `[...]`")
        if not self._has_length(node, len(node), wanted, path, "entries"):
            return FaultyNode()
        found = []
        for number, item in enumerate(node):
            below = f"{path}[{number}]"
            self.lines[below] = getattr(item, "line", node.line)
            value = self.value(item, wanted.item_type, below)
            if not isinstance(value, FaultyNode):
                found.append(value)
        return found

    def _dict(self, node: Node, wanted: inspect.DictType, path: str) -> Any:
        if not isinstance(node, Fields):
            return self._wrong(node, path, "is not a mapping", "write names and lists below it")
        if not self._has_length(node, len(node), wanted, path, "entries"):
            return FaultyNode()
        found: dict[str, Any] = {}
        for key, value in node.items():
            below = f"{path}.{key}"
            self.lines[below] = key.line
            name = self._scalar(key, wanted.key_type, below)
            self._put(found, str(name), self.value(value, wanted.value_type, below))
        return found

    def _scalar(self, node: Text, wanted: inspect.Type, path: str) -> Any:
        match wanted:
            case inspect.BoolType():
                if node.is_plain and node in ("true", "false"):
                    return node == "true"
                why, remedy = "is neither true nor false", "write `true` or `false`, without quotes"
            case inspect.IntType():
                if node.is_plain and _WHOLE.match(node):
                    return self._within(node, int(node), wanted, path)
                why, remedy = "is no whole number", "write digits, without quotes"
            case inspect.FloatType():
                if node.is_plain and _NUMBER.match(node):
                    return self._within(node, float(node), wanted, path)
                why, remedy = "is no number", "write e.g. `0.4`, without quotes"
            case inspect.LiteralType(values=values):
                return self._literal(node, values, path)
            case inspect.StrType():
                return self._text(node, wanted, path)
            case _:
                raise TypeError(f"no file has a value of {wanted}")
        return self._wrong(node, path, why, remedy)

    def _literal(self, node: Text, values: Collection[Any], path: str) -> Any:
        whole = [value for value in values if isinstance(value, int)]
        if whole:
            if node.is_plain and node in map(str, whole):
                return int(node)
            return self._wrong(
                node, path, f"is not the number {whole[0]}", f"write `{whole[0]}`, without quotes"
            )
        if node in values:
            return str(node)
        return self._wrong(node, path, "is not known", nearest(node, sorted(values)))

    def _text(self, node: Text, wanted: inspect.StrType, path: str) -> Any:
        if not self._has_length(node, len(node), wanted, path, "characters"):
            return FaultyNode()
        if wanted.pattern and not re.fullmatch(wanted.pattern, node):
            return self._wrong(node, path, "is no id", _ID_REMEDY)
        return str(node)

    def _within(
        self, node: Text, value: float, wanted: inspect.IntType | inspect.FloatType, path: str
    ) -> Any:
        if wanted.ge is not None and value < wanted.ge:
            return self._wrong(node, path, "is too small", f"the least is {wanted.ge:g}")
        if wanted.le is not None and value > wanted.le:
            return self._wrong(node, path, "is too large", f"the most is {wanted.le:g}")
        return value

    def _has_length(
        self,
        node: Node,
        length: int,
        wanted: inspect.StrType | inspect.VarTupleType | inspect.DictType,
        path: str,
        what: str,
    ) -> bool:
        if wanted.min_length and length < wanted.min_length:
            self._wrong(node, path, "is empty", "put something in, or leave the key out")
            return False
        if wanted.max_length is not None and length > wanted.max_length:
            most = f"keep it to {wanted.max_length:,}"
            self._wrong(node, path, f"has {length:,} {what}", most)
            return False
        return True

    def _wrong(self, node: Node, path: str, why: str, remedy: str) -> FaultyNode:
        is_short = isinstance(node, Text) and not node.is_nothing and len(node) <= 100
        said = f"{path}: {_spelled(node)}" if is_short and path else path or "the file"
        self.fault(getattr(node, "line", 1), f"`{said}` {why}", remedy)
        return FaultyNode()


def _choice(node: Node, wanted: inspect.UnionType) -> inspect.Type:
    """Return which of the types a node is meant to have: the list type for a list, else the
    first."""
    types = [one for one in wanted.types if not isinstance(one, inspect.NoneType)]
    if isinstance(node, Items):
        return next((one for one in types if isinstance(one, inspect.VarTupleType)), types[0])
    return types[0]


def _listed(fields: Collection[str]) -> str:
    return ", ".join(f"`{one}`" for one in fields)


def _spelled(node: Any) -> str:
    return _shown(node) if node.is_plain else f'"{_shown(node)}"'


def _shown(text: str) -> str:
    """Return a word of the file as a message shows it, whatever it holds."""
    return text[:80].encode("ascii", "backslashreplace").decode().replace("`", "'")
