"""Go sources, reduced to what `go mod tidy` reads of them: build constraints, package, imports.

A plan gets these heads in place of the project's code. Linear in the length of a source. Pure.
"""

import re
from collections.abc import Iterator, Mapping

MOST_IMPORTS = 2_000
# Blanks and comments (The Go Programming Language Specification, "Source code representation").
_GAP = r"(?:[\s;]++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+"
_CONSTRAINT = re.compile(r"^//(?:go:build| ?\+build) [\w !&|().,]{1,500}$", re.MULTILINE)
_PACKAGE = re.compile(rf"\ufeff?{_GAP}package{_GAP}(\w{{1,100}})")
_IMPORT = re.compile(rf"{_GAP}import\b{_GAP}(\(?)")
_SPEC = re.compile(rf"{_GAP}(?:[\w.]{{1,100}}{_GAP})?[\"`]([\w.~+/-]{{1,300}})[\"`]", re.ASCII)
_END = re.compile(rf"{_GAP}\)")
# Imports of the project's that another system decides, or that are none.
_NO_MODULE = frozenset({"C", "unsafe"})


def go_heads(files: Mapping[str, str]) -> dict[str, str]:
    """Return the heads of sources by path. Those of nested modules, which have a `go.mod` of their
    own, are left out."""
    nested = [path.removesuffix("go.mod") for path in files if path.endswith("/go.mod")]
    return {
        path: head
        for path, text in files.items()
        if path.endswith(".go") and not path.startswith(tuple(nested))
        if (head := go_head(text))
    }


def go_head(text: str) -> str:
    """Return the head of one source; empty where it has none."""
    package = _PACKAGE.match(text)
    if package is None:
        return ""
    constraints = _CONSTRAINT.findall(text, 0, package.end())
    imports = [f'import _ "{one}"' for one in _imports(text, package.end())]
    return "\n".join((*constraints, "", f"package {package[1]}", *imports, ""))


def _imports(text: str, at: int) -> Iterator[str]:
    count = 0
    while begun := _IMPORT.match(text, at):
        at = begun.end()
        while (spec := _SPEC.match(text, at)) and count < MOST_IMPORTS:
            at, count = spec.end(), count + 1
            if spec[1] not in _NO_MODULE:
                yield spec[1]
            if not begun[1]:
                break
        if begun[1]:
            if (end := _END.match(text, at)) is None:
                return
            at = end.end()
        elif spec is None:
            return
