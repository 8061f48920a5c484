"""TOML of manifests and lock files: read within bounds, and rewritten.

The standard library's reader takes time quadratic in the number of a key's parts, so a line may
have only so many. The writer knows what manifests hold: no dates, no control characters. Pure.
"""

import json
import tomllib
from typing import Any

MOST_CHARS = 2 * 1024 * 1024
MOST_DOTS = 300


def read_toml(text: str) -> dict[str, Any]:
    """Return a document. Raise `ValueError` if it isn't TOML, or exceeds the limits."""
    if len(text) > MOST_CHARS:
        raise ValueError(f"TOML of more than {MOST_CHARS} characters isn't read")
    if any(line.count(".") > MOST_DOTS for line in text.split("\n")):
        raise ValueError(f"a line of TOML with more than {MOST_DOTS} dots isn't read")
    return tomllib.loads(text)


def toml(data: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """Return a table as TOML; `path` are the keys above it. Raise `ValueError` for a value that
    this doesn't write, such as a date."""
    tables = {name: one for name, one in data.items() if isinstance(one, dict)}
    plain = [f"{_key(name)} = {_value(data[name])}\n" for name in data if name not in tables]
    for name, table in tables.items():
        below = (*path, _key(name))
        # Managers edit what stands below a header of its own.
        plain += [f"[{'.'.join(below)}]\n", toml(table, below)]
    return "".join(plain)


def _value(value: object) -> str:
    match value:
        case dict():
            return (
                f"{{{', '.join(f'{_key(name)} = {_value(one)}' for name, one in value.items())}}}"
            )
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case bool() | int():
            return str(value).lower()
        case str():
            return _key(value)
    raise ValueError(f"a {type(value).__name__} in TOML isn't taken over")


def _key(text: str) -> str:
    if "\x7f" in text:
        raise ValueError("a control character in TOML isn't taken over")
    return json.dumps(text, ensure_ascii=False)
