"""Lock files and the like: which packages they name, in which version.

Each format is that of its manager's manual. Decides nothing. It must never raise but `ValueError`,
whatever it is given: the text comes out of a sandbox.
"""

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

_GEM = re.compile(r"^\s*([A-Za-z0-9_.-]+)-(\d[A-Za-z0-9.]*(?:-[a-z0-9_-]+)?)\s*$")
_UV_LINE = re.compile(r"^\s*([+~-])\s+([A-Za-z0-9._-]+)==(\S+)")
_YARN_HEAD = re.compile(r'^"?(@?[^@"\s]+)@')
_PNPM_KEY = re.compile(r"^/?(@?[^@(/]+(?:/[^@(/]+)?)[@/](\d[^(]*)")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


class Locked(NamedTuple):
    """One version of a package, with what the lock file says of it. None: it doesn't."""

    name: str
    version: str
    url: str = ""
    has_scripts: bool | None = None
    licence: str | None = None


type Locks = dict[tuple[str, str], Locked]


def locks_in(file: str, text: str) -> Locks:
    """Return every package that a lock file names, by name and version; none where the text is
    empty. `ValueError` where it can't be read."""
    if not text.strip():
        return {}
    try:
        found = _FORMATS[file](text)
        return {(one.name, one.version): one for one in found}
    except (
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        yaml.YAMLError,
        RecursionError,
    ) as error:
        raise ValueError(f"{file} can't be read ({type(error).__name__})") from error


def _npm(text: str) -> list[Locked]:
    found = []
    for path, entry in json.loads(text).get("packages", {}).items():
        name = entry.get("name") or path.rpartition("node_modules/")[2]
        if not path or entry.get("link") or "version" not in entry or "node_modules/" not in path:
            continue
        licence = entry.get("license")
        found.append(
            Locked(
                name,
                entry["version"],
                str(entry.get("resolved") or ""),
                bool(entry.get("hasInstallScript")),
                licence if isinstance(licence, str) else None,
            )
        )
    return found


def _pnpm(text: str) -> list[Locked]:
    found = []
    for key, entry in (yaml.safe_load(text).get("packages") or {}).items():
        match = _PNPM_KEY.match(key)
        if match:
            runs = entry.get("requiresBuild") if isinstance(entry, dict) else None
            found.append(Locked(match[1], match[2], "", runs))
    return found


def _yarn(text: str) -> list[Locked]:
    """Of its first version a format of its own, since the second YAML."""
    if "__metadata:" in text:
        entries = yaml.safe_load(text).values()
        named = [one for one in entries if isinstance(one, dict) and "resolution" in one]
        return [
            Locked(one["resolution"].rpartition("@npm:")[0], str(one["version"]))
            for one in named
            if "@npm:" in one["resolution"]
        ]
    found = []
    for block in re.split(r"\n(?=\S)", text):
        head = _YARN_HEAD.match(block)
        version = re.search(r'^\s+version "?([^"\n]+)', block, re.MULTILINE)
        url = re.search(r'^\s+resolved "([^"#\n]+)', block, re.MULTILINE)
        if head and version:
            found.append(Locked(head[1], version[1], url[1] if url else ""))
    return found


def _bun(text: str) -> list[Locked]:
    found = []
    for entry in json.loads(_TRAILING_COMMA.sub(r"\1", text)).get("packages", {}).values():
        name, _, version = entry[0].rpartition("@")
        found.append(Locked(name, version, entry[1] if str(entry[1]).startswith("http") else ""))
    return found


def _toml(text: str) -> list[Locked]:
    """Of cargo, uv and poetry: packages without a source are the project's own."""
    found = []
    for entry in tomllib.loads(text).get("package", []):
        source: Any = entry.get("source", {"registry": ""} if "files" in entry else None)
        if source is None or (isinstance(source, dict) and not source.keys() & {"registry", "url"}):
            continue
        files = [*entry.get("wheels", []), entry.get("sdist", {})]
        url = next((one["url"] for one in files if isinstance(one, dict) and "url" in one), "")
        found.append(Locked(entry["name"], str(entry["version"]), url))
    return found


def _go(text: str) -> list[Locked]:
    rows = [line.split() for line in text.splitlines()]
    return [
        Locked(row[0], row[1]) for row in rows if len(row) == 3 and not row[1].endswith("/go.mod")
    ]


def _pip(text: str) -> list[Locked]:
    """The report of `pip install --dry-run --report` (pip's manual, installation report)."""
    found = []
    for entry in json.loads(text)["install"]:
        data, url = entry["metadata"], str(entry.get("download_info", {}).get("url", ""))
        licence = data.get("license_expression") or data.get("license")
        # A wheel runs nothing when it is installed; everything else is built by its own code.
        runs = not url.partition("#")[0].endswith(".whl")
        found.append(Locked(data["name"], data["version"], url, runs, _short(licence)))
    return found


def _short(licence: object) -> str | None:
    text = str(licence or "").strip()
    return text if text and len(text) <= 60 and "\n" not in text else None


def _uv(text: str) -> list[Locked]:
    """The lines of `uv pip install --dry-run`."""
    rows = [_UV_LINE.match(line) for line in text.splitlines()]
    return [Locked(row[2], row[3]) for row in rows if row and row[1] != "-"]


def _gem(text: str) -> list[Locked]:
    """The lines of `gem install --explain`."""
    rows = [_GEM.match(line) for line in text.splitlines()]
    return [Locked(row[1], row[2]) for row in rows if row]


_FORMATS: dict[str, Callable[[str], list[Locked]]] = {
    "package-lock.json": _npm,
    "npm-shrinkwrap.json": _npm,
    "pnpm-lock.yaml": _pnpm,
    "yarn.lock": _yarn,
    "bun.lock": _bun,
    "Cargo.lock": _toml,
    "uv.lock": _toml,
    "poetry.lock": _toml,
    "go.sum": _go,
    "pip-report.json": _pip,
    "uv-pip.txt": _uv,
    "gem.txt": _gem,
}
