"""Read the product's sources: modules, the names that each imports and uses."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


def run_as_root(name: str) -> tuple[str, ...]:
    """What the Makefile lists in `ROOT_SHARE` or `ROOT_TOO`: folders and files of tests."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"^{name} := (.+)$", makefile, re.MULTILINE)
    return tuple(listed.split())


class Module(NamedTuple):
    """One source file: its dotted name, its top-level package, and its tree."""

    name: str
    part: str
    path: Path
    tree: ast.Module
    is_package: bool


@cache
def sources() -> tuple[Module, ...]:
    found = []
    for path in sorted(
        [*(ROOT / "supervisor").rglob("*.py"), *(ROOT / "agent_image").rglob("*.py")]
    ):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        parts = parts[:-1] if is_package else parts
        part = parts[1] if parts[0] == "supervisor" and len(parts) > 1 else parts[0]
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        found.append(Module(".".join(parts), part, path, tree, is_package))
    return tuple(found)


@cache
def imported(module: Module) -> tuple[str, ...]:
    """Every dotted name that a module imports, relative ones resolved; `from a import b` gives
    `a.b`."""
    return tuple(_imported(module))


def _imported(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.name.split(".")
            up = node.level - (1 if module.is_package else 0)
            prefix = ".".join(base[: len(base) - up]) if node.level else ""
            start = ".".join(filter(None, (prefix, node.module)))
            yield from (f"{start}.{alias.name}" for alias in node.names)


@cache
def used(module: Module) -> frozenset[str]:
    """Every name that a module uses, as the dotted name it was imported by (`t.time` ->
    `time.time`)."""
    return frozenset(_used(module))


def imported_names(module: Module) -> dict[str, str]:
    """Each name that a module imports, and the dotted name it stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _used(module: Module) -> Iterator[str]:
    names = imported_names(module)
    for node in ast.walk(module.tree):
        name = dotted(node)
        if name:
            head, _, rest = name.partition(".")
            yield ".".join(filter(None, (names.get(head, head), rest)))


def dotted(node: ast.AST) -> str:
    """The dotted name that an expression is; empty where it is none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""
