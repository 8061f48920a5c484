"""Lock files and reports of plans: which packages they name, in which version.

Each manager's manual defines its format. Decides nothing. It must never raise anything but
`ValueError`, whatever it is given: the text comes out of a sandbox. Every reader takes linear time.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from supervisor.core.packages.registry_answers import project_link
from supervisor.core.packages.toml_text import read_toml
from supervisor.core.text.strict_yaml import load
from supervisor.errors import PolicyError

_UV_LINE = re.compile(r" *([+~-]) +([A-Za-z0-9._-]+)==(\S+)")
# More than any project needs; a reader's time and memory grow with the size.
MOST_CHARS = 8 * 1024 * 1024
# npm's list of the folder's packages, in the format of its lock file.
NPM_INSTALLED = "node_modules/.package-lock.json"
# The pins of a file of requirements, whatever it is called, or of a pyproject.toml.
PINS = "requirements.txt"
_PIN = re.compile(
    r"(?:^[ \t]*|[\"'])([A-Za-z0-9][A-Za-z0-9._-]{0,100})(?:\s?\[[^\]\n]{0,200}\])?"
    r" {0,4}== {0,4}([A-Za-z0-9.!+_-]{1,100})",
    re.MULTILINE,
)
# YAML takes more time than JSON.
MOST_YAML_CHARS = 2 * 1024 * 1024
# Of go.mod one requirement, and of go.sum the hash of a module's code.
_GO_NEED = re.compile(r"(?:require )?[ \t]*([\w.~/-]{1,250}) (v[\w.+-]{1,100})(?:[ \t]*//.*)?")
_GO_SUM = re.compile(r"([\w.~/-]{1,250}) (v[\w.+-]{1,100}) (h1:[A-Za-z0-9+/=]{44})")
# npm's own bound of a name is 214.
MOST_NAME = 256


class Locked(NamedTuple):
    """One version of a package, with what the lock file says about it; None: nothing. `integrity`
    is the hash of its file, or all hashes of several files; if one has none, `url` has all
    addresses instead. `link`: where its changes may be read."""

    name: str
    version: str
    url: str = ""
    has_scripts: bool | None = None
    licence: str | None = None
    integrity: str = ""
    link: str = ""


type Locks = dict[tuple[str, str], Locked]


def locks_in(file: str, text: str) -> Locks:
    """Return every package that a lock file names, by name and version; none if the text is empty.
    Raise `ValueError` if it can't be read."""
    if len(text) > MOST_CHARS:
        raise ValueError(f"{file} is longer than {MOST_CHARS} characters")
    if not text.strip():
        return {}
    try:
        found = _FORMATS[file](text)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file} can't be read ({type(error).__name__})") from error
    if not all(_is_word(word) for one in found for word in (one.name, one.version)):
        raise ValueError(f"{file} has a name or a version that is none")
    locks: Locks = {}
    for one in found:
        known = locks.setdefault((one.name, one.version), one)
        if not is_one_file(known, one):
            raise ValueError(f"{file} names {one.name} {one.version} as different files")
        if one.integrity and not known.integrity:
            locks[one.name, one.version] = one
    return locks


def is_one_file(one: Locked, other: Locked) -> bool:
    """Return whether two entries may mean the same file; a package bundled with another names no
    file."""
    if one.integrity and other.integrity:
        return one.integrity == other.integrity
    return one.url == other.url or not (one.url and other.url)


def _is_word(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= MOST_NAME and text.isprintable()


def _npm(text: str) -> list[Locked]:
    found = []
    for path, entry in json.loads(text).get("packages", {}).items():
        name = entry.get("name") or path.rpartition("node_modules/")[2]
        if entry.get("link") or "node_modules/" not in path:
            continue
        licence = entry.get("license")
        found.append(
            Locked(
                name,
                entry["version"],
                str(entry.get("resolved") or ""),
                bool(entry.get("hasInstallScript")),
                _short(licence) if isinstance(licence, str) else None,
                str(entry.get("integrity") or ""),
            )
        )
    return found


def _toml(text: str) -> list[Locked]:
    """Read a lock file of cargo or uv: packages without a source are the project's own."""
    found = []
    for entry in read_toml(text).get("package", []):
        source: Any = entry.get("source")
        if source is None or (isinstance(source, dict) and not source.keys() & {"registry", "url"}):
            continue
        files = [one for one in (*entry.get("wheels", []), entry.get("sdist")) if one]
        urls = [str(one["url"]) for one in files if "url" in one]
        hashes = sorted(str(one["hash"]) for one in files if "hash" in one)
        if len(hashes) == len(files):
            urls = urls[:1]
        else:
            hashes = []
        integrity = str(entry.get("checksum") or " ".join(hashes))
        found.append(Locked(entry["name"], entry["version"], " ".join(urls), integrity=integrity))
    return found


def _pip(text: str) -> list[Locked]:
    """Read the report of `pip install --dry-run --report` (pip's manual, installation report)."""
    found = []
    for entry in json.loads(text)["install"]:
        data, source = entry["metadata"], entry["download_info"]
        licence = data.get("license_expression") or data.get("license")
        url = str(source["url"])
        # A wheel runs nothing when it is installed; everything else is built by its own code.
        runs = not url.partition("#")[0].endswith(".whl")
        # Since pip 23.1 by algorithm; before, one text.
        said = source["archive_info"]
        sha256 = said.get("hashes", {}).get("sha256") or said["hash"].removeprefix("sha256=")
        integrity = f"sha256:{sha256}"
        link = project_link([*data.get("project_url", ()), f"homepage,{data.get('home_page')}"])
        name, version = data["name"], data["version"]
        found.append(Locked(name, version, url, runs, _short(licence), integrity, link))
    return found


def read_pnpm(text: str) -> dict[str, Any]:
    """Return a lock file of pnpm's ninth form as data of texts. Raise `ValueError` if it isn't
    one."""
    if len(text) > MOST_YAML_CHARS:
        raise ValueError(f"pnpm-lock.yaml is longer than {MOST_YAML_CHARS} characters")
    try:
        lock = load(text, "pnpm-lock.yaml")
    except PolicyError as error:
        raise ValueError(str(error)) from error
    if not isinstance(lock, dict) or not str(lock.get("lockfileVersion")).startswith("9."):
        raise ValueError("pnpm-lock.yaml has another form than that of pnpm 9 and later")
    return lock


def _pnpm(text: str) -> list[Locked]:
    found = []
    for key, entry in (read_pnpm(text).get("packages") or {}).items():
        name, _, version = key.rpartition("@")
        said = entry["resolution"]
        url, integrity = said.get("tarball") or "", said.get("integrity") or ""
        found.append(Locked(name, version, str(url), integrity=str(integrity)))
    return found


def _go_mod(text: str) -> list[Locked]:
    """Read a go.mod, followed by its go.sum where that is known: the versions that it requires,
    with the hashes of their code (Go's reference of modules)."""
    needed, hashes, block = [], {}, ""
    for line in text.splitlines():
        if hashed := _GO_SUM.fullmatch(line):
            hashes[hashed[1], hashed[2]] = hashed[3]
        elif line.rstrip().endswith("("):
            block = line.split("(")[0].strip()
        elif line.strip() == ")":
            block = ""
        elif block == "require" or (not block and line.startswith("require")):
            needed += [(one[1], one[2])] if (one := _GO_NEED.fullmatch(line)) else []
    return [Locked(*one, integrity=hashes.get(one, "")) for one in needed]


def _go_sum(text: str) -> list[Locked]:
    rows = [_GO_SUM.fullmatch(line) for line in text.splitlines()]
    return [Locked(row[1], row[2], integrity=row[3]) for row in rows if row]


def _short(licence: object) -> str | None:
    text = str(licence or "").strip()
    return text if text and len(text) <= 60 and text.isprintable() else None


def _uv(text: str) -> list[Locked]:
    """Read the lines of `uv pip install --dry-run`."""
    rows = [_UV_LINE.match(line) for line in text.splitlines()]
    return [Locked(row[2], row[3]) for row in rows if row and row[1] != "-"]


def _pins(text: str) -> list[Locked]:
    """Read `NAME==VERSION`, on a line or quoted; nothing else locks anything."""
    return [Locked(found[1], found[2]) for found in _PIN.finditer(text)]


_FORMATS: dict[str, Callable[[str], list[Locked]]] = {
    "package-lock.json": _npm,
    NPM_INSTALLED: _npm,
    "pnpm-lock.yaml": _pnpm,
    "Cargo.lock": _toml,
    "go.mod": _go_mod,
    "go.sum": _go_sum,
    "uv.lock": _toml,
    "pip-report.json": _pip,
    "uv-pip.txt": _uv,
    PINS: _pins,
}
# Those that lie in a project.
LOCKS = frozenset(
    {"package-lock.json", "pnpm-lock.yaml", "Cargo.lock", "uv.lock", "go.mod", "go.sum", PINS}
)
