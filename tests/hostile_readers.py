"""Every expression, loader and decompressor of the product, and who writes what it reads (law 14).

`found()` are those that there are, by the sources, so that a new one can't be left out.
`hostile_readers.yaml` says of each whether it reads hostile text. `python -m tests.hostile_readers`
feeds the expressions their worst cases and prints a table of them.
"""

import ast
import importlib
import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from supervisor.core.models import model_calls
from supervisor.core.policy import file_rules, outside_acts, protected_names
from supervisor.core.secrets import command_secrets
from supervisor.core.shell import exec_secrets
from tests.source_reader import Module, dotted, imported_names, sources
from tests.worst_cases import LARGE, MOST_S, Slow, of_expression, slowest

# What takes a text apart, or unpacks it; `re` by its functions.
_LOADERS = re.compile(
    r"json\.(?:loads?|JSONDecoder)|msgspec\.(?:json|yaml|toml|msgpack)\.(?:decode|Decoder)"
    r"|yaml\.(?:\w*load\w*|compose\w*|parse|scan)|tomllib\.\w+|ast\.(?:parse|literal_eval)"
    r"|xml\..+|html\.parser\..+|configparser\..+|email\..+|csv\..+|pickle\..+|marshal\..+"
    r"|plistlib\..+|unidiff\..+|pygments\.(?:lex|highlight|lexers\..+)|markdown_it\.MarkdownIt"
    r"|tree_sitter\.Parser|fnmatch\.\w+|glob\.\w+|shlex\.(?:split|shlex)"
    r"|urllib\.parse\.(?:parse_qsl?|urlsplit|urlparse)|jwt\.decode|cbor2\..+"
    r"|(?:zlib|gzip|bz2|lzma|brotli|zstandard|tarfile|zipfile)\.\w*"
    r"(?:[dD]ecompress|open|GzipFile|BZ2File|LZMAFile|TarFile|ZipFile)\w*"
)
_RE = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


class Reader(NamedTuple):
    """One call that reads text. `name`: the constant or the function that holds it."""

    module: str
    name: str
    what: str
    node: ast.Call | None

    @property
    def key(self) -> str:
        return f"{self.module}:{self.name}"


@cache
def found() -> tuple[Reader, ...]:
    return tuple(one for module in sources() for one in _in(module))


def _in(module: Module) -> Iterator[Reader]:
    names = imported_names(module)

    def walk(node: ast.AST, scope: tuple[str, ...]) -> Iterator[Reader]:
        inner = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*scope, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not scope:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            inner = (dotted(target) or ast.unparse(target),)
        if isinstance(node, ast.Call):
            head, _, rest = dotted(node.func).partition(".")
            called = ".".join(filter(None, (names.get(head, head), rest)))
            if called.startswith("re.") and called[3:] in _RE:
                yield Reader(module.name, ".".join(scope) or "(top)", called, node)
        name = dotted(node)
        if name:
            head, _, rest = name.partition(".")
            used = ".".join(filter(None, (names.get(head, head), rest)))
            if head in names and _LOADERS.fullmatch(used):
                yield Reader(module.name, ".".join(scope) or "(top)", used, None)
            return
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inner)

    yield from walk(module.tree, ())


@cache
def listed() -> dict[str, dict[str, int]]:
    """`hostile`, `ours` and `ended`: the key of each reader, and how long a text it is given at
    most."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, int]] = {}
    for kind, modules in yaml.safe_load(text).items():
        found[kind] = {}
        for module, names in modules.items():
            for name in names.split():
                short, _, bound = name.partition("<=")
                top = "" if module.startswith("agent_image") else "supervisor."
                found[kind][f"{top}{module}:{short}"] = int(bound or LARGE)
    return found


def expressions(reader: Reader) -> list[re.Pattern[Any]]:
    """The compiled expressions of a reader of `re`; none where only what it reads makes them."""
    if reader.key in _BUILT:
        return _BUILT[reader.key]()
    if reader.node is None:
        return []
    call = reader.node
    at = {"sub": 99, "subn": 99, "split": 99, "compile": 1}.get(reader.what[3:], 2)
    flags = next((k.value for k in call.keywords if k.arg == "flags"), None)
    flags = flags or (call.args[at] if len(call.args) > at else None)
    space = vars(importlib.import_module(reader.module))
    try:
        text = _value(call.args[0], space)
        return [re.compile(text, _value(flags, space) if flags else 0)]
    except NameError:
        return []


def _value(node: ast.expr, space: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<reader>", "eval"), dict(space))


# Those that a function makes of our own tables.
_BUILT: dict[str, Callable[[], list[re.Pattern[Any]]]] = {
    "supervisor.core.models.model_calls:_PATHS": lambda: [one[1] for one in model_calls._PATHS],
    "supervisor.core.models.model_calls:_PARTS": lambda: [one[1] for one in model_calls._PARTS],
    "supervisor.core.policy.file_rules:_anywhere": lambda: [
        file_rules._names(frozenset(), frozenset(), frozenset()).any_pattern
    ],
    "supervisor.core.policy.outside_acts:_hint": lambda: [outside_acts._hint()],
    "supervisor.core.policy.protected_names:_marked": lambda: [protected_names._marked()],
    "supervisor.core.secrets.command_secrets:_hint": lambda: [command_secrets._hint()],
    "supervisor.core.shell.exec_secrets:_secrets": lambda: [
        expression for _, expression in exec_secrets._secrets()
    ],
}


def uses(reader: Reader) -> set[str]:
    """By which methods the expression is asked: all that are found beside its name."""
    if reader.what != "re.compile":
        methods = {reader.what.removeprefix("re.")}
    else:
        short, module = reader.name.rpartition(".")[2], reader.module.rpartition(".")[2]
        asked = re.compile(rf"(?<!\w){re.escape(short)}\.({'|'.join(_RE)})\b")
        methods = {
            found
            for other in sources()
            if other.name == reader.module or module in _text(other)
            for found in asked.findall(_text(other))
        }
    methods = {_LIKE.get(method, method) for method in methods}
    return methods or _IN_TABLES.get(reader.key, {"match", "fullmatch", "search"})


# Of those that a table holds, by which method they are asked.
_IN_TABLES = {
    "supervisor.core.packages.package_commands:_SPECS": {"match"},
    "supervisor.core.secrets.header_secrets:_OPEN": {"fullmatch"},
}
_LIKE = dict.fromkeys(("sub", "subn", "split", "findall"), "finditer")


@cache
def _text(module: Module) -> str:
    return module.path.read_text(encoding="utf-8")


def asking(expression: re.Pattern[Any], method: str) -> Callable[[str], object]:
    ask = getattr(expression, method)
    take = (lambda text: deque(ask(text), maxlen=0)) if method == "finditer" else ask
    is_bytes = isinstance(expression.pattern, bytes)
    return (lambda text: take(text.encode("latin-1", "replace"))) if is_bytes else take


def slowest_of(reader: Reader, most_cases: int) -> Slow | None:
    """The worst case of a reader's expressions, at its bound."""
    found = [
        slow
        for expression in expressions(reader)
        for method in sorted(uses(reader))
        if (slow := slowest(
            asking(expression, method), of_expression(expression, most_cases),
            min(LARGE, listed()["hostile"][reader.key]),
        ))
    ]  # fmt: skip
    return max(found, key=lambda slow: (slow.is_bad, slow.at_large or MOST_S), default=None)


def main() -> None:
    """Print a table: each reader of hostile text with its bound, its slowest input, and what that
    takes at a quarter of the bound and at it."""
    print("| reader | bound | slowest input | at a quarter, ms | at the bound, ms |")
    print("|---|---|---|---|---|")
    for reader in found():
        bound = listed()["hostile"].get(reader.key)
        slow = slowest_of(reader, 300) if bound and reader.what.startswith("re.") else None
        if slow:
            large = "ended" if slow.at_large is None else f"{slow.at_large * 1000:.1f}"
            print(
                f"| {reader.key} | {bound} | {slow.case} | {slow.at_middle * 1000:.1f} | {large} |"
            )


if __name__ == "__main__":
    main()
