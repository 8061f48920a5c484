"""Inputs of a plan: a project's manifest and lock, read as data and rewritten.

The files lie in a copy that an agent writes to. Entries that ask an index for packages are taken
over. All else is left out and named: scripts, configuration, other folders, repositories, archives.
A plan's folder must never hold a line that wasn't understood here. Pure; every reader takes linear
time.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from supervisor.core.actions import Packages
from supervisor.core.packages.lock_files import read_pnpm
from supervisor.core.packages.package_commands import ARCHIVE, fold_name
from supervisor.core.packages.registry_answers import host_of
from supervisor.core.packages.toml_text import read_toml, toml
from supervisor.core.text.strict_yaml import load
from supervisor.errors import PolicyError

MOST_CHARS = 4 * 1024 * 1024
# The files that are read from a project, by manager: the first is its manifest, the second its
# lock.
SOURCES: dict[str, tuple[str, ...]] = {
    "npm": ("package.json", "package-lock.json", "npm-shrinkwrap.json", ".npmrc"),
    "pnpm": (
        "package.json",
        "pnpm-lock.yaml",
        ".npmrc",
        ".pnpmfile.cjs",
        ".pnpmfile.mjs",
        "pnpm-workspace.yaml",
    ),
    "uv": ("pyproject.toml", "uv.lock", "uv.toml"),
    "cargo": ("Cargo.toml", "Cargo.lock", ".cargo/config.toml", ".cargo/config"),
    "go": ("go.mod", "go.sum", "go.work", "vendor/modules.txt"),
}
# Files that hold for their own folder alone, and not for those below.
HERE_ALONE = frozenset(
    ("npm-shrinkwrap.json", ".npmrc", ".pnpmfile.cjs", ".pnpmfile.mjs", "vendor/modules.txt")
)
REQUIREMENTS, CONSTRAINTS, INSTALLED = "requirements.txt", "constraints.txt", "installed"
_NODE_FIELDS = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_NODE_LOCK_FIELDS = ("dependencies", "optionalDependencies", "peerDependencies")
# A range or a tag of the index, or another name's: no path, address or repository.
_NODE_SPEC = re.compile(
    r"(?:npm:(?:@[\w.~-]+/)?[\w.~-]+(?:@|\Z))?(?!\.)[\w.*^~<>=| +-]*\Z", re.ASCII
)
# A version in a lock file of pnpm, with the peers that it is installed with: of the index.
_PNPM_VERSION = re.compile(r"[\w@/.+~-]+(?:\([\w@/.+~()-]+\))?\Z", re.ASCII)
_PNPM_KEPT = {"resolution", "engines", "cpu", "os", "libc", "deprecated", "hasBin", "optional"}
_PNPM_KEPT |= {"bundledDependencies", "peerDependencies", "peerDependenciesMeta"}
_PNPM_KEPT |= {"transitivePeerDependencies"}
# Which packages' scripts may run is asked with each install.
_PNPM_IDLE = frozenset(("onlyBuiltDependencies", "ignoredBuiltDependencies", "allowBuilds"))
_PNPM_IDLE |= frozenset(("neverBuiltDependencies", "minimumReleaseAge", "packages"))
# Lines of go.mod that say which versions are wanted, and none where code lies.
_GO_LINE = re.compile(
    r"(?:module|go|toolchain|tool|godebug|require|exclude|retract) [\w.~+/=, \[\]-]{1,500}\Z",
    re.ASCII,
)
_GO_SUM = re.compile(r"[\w.~+/-]{1,300} v[\w.+/-]{1,100} h1:[A-Za-z0-9+/=]{1,100}\n?\Z", re.ASCII)
# Settings that change how npm resolves; they are taken over.
_NPM_CARRIED = frozenset(("legacy-peer-deps", "strict-peer-deps", "save-exact"))
_NPM_IDLE = frozenset(("audit", "fund", "loglevel", "progress", "update-notifier", "engine-strict"))
# A line of npm's configuration that we and npm read in the same way: no escape, comment or
# quotation mark within, no other blank.
_NPM_LINE = re.compile(r"([\w.@:/-]+) *= *(?P<quote>[\"']?)([!-~]*)(?P=quote)\Z", re.ASCII)
_NPM_SYNTAX = frozenset(";#\\\"'$")
_PYTHON_SPEC = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]* ?(?:\[[A-Za-z0-9,._ -]*\])?"
    r" ?(?:\(?[<>=!~][A-Za-z0-9.*+!_<>=~, -]*\)?)?"
    r" ?(?:;[A-Za-z0-9._<>=!~'\"() -]*)?\Z"
)
_NAME = re.compile(r"[^A-Za-z0-9._-]")
_DIST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,99}\Z")
MOST_METADATA = 64 * 1024
_HASH = re.compile(r"--hash=sha(?:256|384|512):[0-9a-fA-F]+\Z")
_CRATE_KEYS = frozenset(("version", "features", "optional", "default-features", "package"))
MOST_NAMED = 20


class PlanInputs(NamedTuple):
    """The inputs of a plan. `files` are the contents of the plan's folder, by name. `default` is
    the address of the index that the project's own files name, empty if none; `more` are further
    ones. `unknown` names what was left out. `runs` names what could run code."""

    files: dict[str, str] = {}
    default: str = ""
    more: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    runs: bool = False


class _Found:
    """The inputs collected from one project so far."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.default = ""
        self.more: list[str] = []
        self.unknown: dict[str, None] = {}
        self.runs = False

    def leave(self, what: str) -> None:
        """Record the name of something left out, once, and only up to a limit."""
        if len(self.unknown) < MOST_NAMED:
            self.unknown[shown(what)] = None

    def given(self) -> PlanInputs:
        """Return the collected inputs."""
        more, unknown = tuple(self.more), tuple(self.unknown)
        return PlanInputs(self.files, self.default, more, unknown, self.runs)

    def kept(self, table: object, is_known: Callable[[object], bool], of: str) -> dict[str, Any]:
        """Return those entries of a table of dependencies that an index answers."""
        found = {}
        for name, wanted in _table(table).items():
            if is_known(wanted) and name.isprintable():
                found[name] = wanted
            else:
                self.leave(f"`{name}` of {of} doesn't come from the index")
        return found


def inputs(manager: str, files: Mapping[str, str]) -> PlanInputs:
    """Return the inputs of a plan. `files` are those of `SOURCES`, by name. Raise `ValueError` if
    one can't be read."""
    found = _Found()
    for name, text in files.items():
        if len(text) > MOST_CHARS:
            raise ValueError(f"{name} is longer than {MOST_CHARS} characters")
    try:
        _READERS[manager](found, files)
    except (TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"the project can't be read ({type(error).__name__})") from error
    return found.given()


def has_members(manager: str, manifest: str) -> bool:
    """Return whether a manifest includes folders below as parts of its own project, which then have
    no lock file of their own; also True if it can't be read."""
    if manager in ("pnpm", "go"):
        return False  # a file of its own says so
    if len(manifest) > MOST_CHARS:
        return True
    try:
        data = _table(json.loads(manifest) if manager == "npm" else read_toml(manifest))
        tool = _table(_table(data.get("tool")).get("uv"))
    except (ValueError, TypeError, RecursionError):
        return True
    return any(
        one is not None
        for one in (data.get("workspaces"), data.get("workspace"), tool.get("workspace"))
    )


def shown(text: str) -> str:
    """Return a text from the copy in a form that a card may show."""
    return text[:200].encode("ascii", "backslashreplace").decode()


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise TypeError
    return value or {}


# -- npm ------------------------------------------------------------------------------------------


def _npm(found: _Found, files: Mapping[str, str]) -> None:
    manifest = _table(json.loads(files.get("package.json") or "{}"))
    overrides = _table(manifest.get("overrides"))
    if all(_is_node_spec(one) or str(one).startswith("$") for one in _leaves(overrides)):
        _node_manifest(found, manifest, overrides=overrides)
    else:
        _node_manifest(found, manifest)
        found.leave("an override of package.json doesn't come from the index")
    if manifest.get("workspaces"):
        found.leave("what the workspaces of package.json need")
    if files.get("npm-shrinkwrap.json"):
        found.leave("what npm-shrinkwrap.json says")
    if lock := files.get("package-lock.json"):
        _npm_lock(found, _table(json.loads(lock)))
    _npm_config(found, files.get(".npmrc", ""))


def _node_manifest(found: _Found, manifest: dict[str, Any], **more: object) -> None:
    clean: dict[str, Any] = {key: manifest[key] for key in ("name", "version") if key in manifest}
    for field in _NODE_FIELDS:
        clean[field] = found.kept(manifest.get(field), _is_node_spec, "package.json")
    found.files["package.json"] = json.dumps(clean | more)


def _npm_lock(found: _Found, lock: dict[str, Any]) -> None:
    packages = {}
    if "packages" not in lock:
        found.leave("what package-lock.json of an old form says")
    for path, entry in _table(lock.get("packages")).items():
        origin = str(entry.get("resolved") or "https:")
        is_there = not path or path.startswith("node_modules/")
        is_from_index = origin.startswith(("http:", "https:")) and not entry.get("link")
        # A package without a version would be installed without being shown.
        is_version = not path or (bool(entry.get("version")) and _is_node_spec(entry["version"]))
        if not (is_there and is_from_index and is_version) or ".." in path.split("/"):
            found.leave(f"`{path}` of package-lock.json doesn't come from the index")
            continue
        clean = {
            field: found.kept(entry.get(field), _is_node_spec, "package-lock.json")
            for field in _NODE_LOCK_FIELDS
        }
        clean["devDependencies"] = (
            found.kept(entry.get("devDependencies"), _is_node_spec, "package-lock.json")
            if not path
            else {}
        )
        packages[path] = {
            key: value for key, value in entry.items() if key not in ("scripts", "workspaces")
        } | {key: value for key, value in clean.items() if value or key in entry}
    found.files["package-lock.json"] = json.dumps(
        {"lockfileVersion": 3, "requires": True, "packages": packages}
    )


def _npm_config(found: _Found, text: str) -> None:
    kept = []
    for line in text.replace("\r", "\n").split("\n"):
        said = line.replace("\t", " ").strip(" ")
        if not said or said.startswith((";", "#")):
            continue
        key = said.partition("=")[0].strip()
        row = _NPM_LINE.match(said)
        value = row[3] if row and not _NPM_SYNTAX.intersection(row[3]) else ""
        is_scoped = key.startswith("@") and key.endswith(":registry")
        if (key == "registry" or is_scoped) and host_of(value):
            found.more += [value] if is_scoped else []
            found.default = found.default if is_scoped else value
            kept.append(f"{key}={value}")
        elif key in _NPM_CARRIED and value.isalnum():
            kept.append(f"{key}={value}")
        elif key not in _NPM_IDLE | {"ignore-scripts"}:
            found.leave(f"what `{key}` in .npmrc changes")
    found.files[".npmrc"] = "".join(f"{line}\n" for line in kept)


def _is_node_spec(wanted: object) -> bool:
    return isinstance(wanted, str) and bool(
        len(wanted) <= 1000 and _NODE_SPEC.match(wanted) and not ARCHIVE.search(wanted)
    )


def _leaves(value: object) -> Iterator[object]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(one.values())
        else:
            yield one


# -- pnpm -----------------------------------------------------------------------------------------


def _pnpm(found: _Found, files: Mapping[str, str]) -> None:
    manifest = _table(json.loads(files.get("package.json") or "{}"))
    _npm_config(found, files.get(".npmrc", ""))
    for name in (".pnpmfile.cjs", ".pnpmfile.mjs"):
        if name in files:
            found.leave(f"what {name} changes")
    _pnpm_workspace(found, files.get("pnpm-workspace.yaml", ""))
    for key in ("pnpm", "resolutions"):
        if _table(manifest.get(key)).keys() - _PNPM_IDLE:
            found.leave(f"what `{key}` in package.json changes")
    # A setting can name a program, and a file of hooks is one.
    found.runs = bool(found.unknown)
    _node_manifest(found, manifest)
    if lock := files.get("pnpm-lock.yaml"):
        found.files["pnpm-lock.yaml"] = json.dumps(_pnpm_lock(found, read_pnpm(lock)))


def _pnpm_workspace(found: _Found, text: str) -> None:
    try:
        settings = _table(load(text, "pnpm-workspace.yaml"))
    except PolicyError as error:
        raise ValueError(str(error)) from error
    if settings.get("packages"):
        raise ValueError("a workspace of pnpm with packages of its own isn't planned")
    for key in settings.keys() - _PNPM_IDLE:
        found.leave(f"what `{key}` in pnpm-workspace.yaml changes")
    if str(age := settings.get("minimumReleaseAge") or "").isdecimal():
        found.files["pnpm-workspace.yaml"] = f"minimumReleaseAge: {age}\n"


def _pnpm_lock(found: _Found, lock: dict[str, Any]) -> dict[str, Any]:
    importers, packages, snapshots = (
        _table(lock.get(key)) for key in ("importers", "packages", "snapshots")
    )
    if importers.keys() - {"."}:
        raise ValueError("a workspace of pnpm with packages of its own isn't planned")
    for key in lock.keys() - {"lockfileVersion", "settings", "importers", "packages", "snapshots"}:
        found.leave(f"what `{key}` in pnpm-lock.yaml says")
    return {
        "lockfileVersion": "9.0",
        "settings": _untexted(_table(lock.get("settings"))),
        "importers": {
            ".": {
                field: found.kept(wanted, _is_pnpm_need, "pnpm-lock.yaml")
                for field, wanted in _table(importers.get(".")).items()
                if field in _NODE_FIELDS
            }
        },
        "packages": {
            key: {name: _untexted(one[name]) for name in one.keys() & _PNPM_KEPT}
            for key, one in found.kept(packages, _is_pnpm_package, "pnpm-lock.yaml").items()
            if _is_pnpm_key(found, key)
        },
        "snapshots": {
            key: {name: _untexted(one[name]) for name in one.keys() & _PNPM_KEPT}
            | {
                field: found.kept(one[field], _is_pnpm_version, "pnpm-lock.yaml")
                for field in _NODE_LOCK_FIELDS[:2]
                if field in one
            }
            for key, one in snapshots.items()
            if _is_pnpm_key(found, key)
        },
    }


def _is_pnpm_key(found: _Found, key: str) -> bool:
    if is_known := "@" in key[1:] and _is_pnpm_version(key):
        return is_known
    found.leave(f"`{key}` of pnpm-lock.yaml doesn't come from the index")
    return False


def _is_pnpm_version(wanted: object) -> bool:
    return isinstance(wanted, str) and len(wanted) <= 2000 and bool(_PNPM_VERSION.match(wanted))


def _is_pnpm_need(wanted: object) -> bool:
    return (
        isinstance(wanted, dict)
        and wanted.keys() == {"specifier", "version"}
        and _is_node_spec(wanted["specifier"])
        and _is_pnpm_version(wanted["version"])
    )


def _is_pnpm_package(entry: object) -> bool:
    said = _table(_table(entry).get("resolution"))
    return (
        "integrity" in said
        and said.keys() <= {"integrity", "tarball"}
        and ("tarball" not in said or host_of(str(said["tarball"])) is not None)
    )


def _untexted(value: Any) -> Any:
    """Return data of texts with truth values."""
    if isinstance(value, dict):
        return {key: _untexted(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_untexted(one) for one in value]
    return {"true": True, "false": False}.get(value, value)


# -- pip and uv -----------------------------------------------------------------------------------


def requirements(
    action: Packages, names: Iterable[str], files: Mapping[str, str | None]
) -> tuple[PlanInputs, tuple[str, ...]]:
    """Return the inputs of a pip plan, and the files that are still to be read. `files` are the
    files of requirements that were read, by path; None if there is no such file."""
    found, lines, missing = _Found(), {"-r": [*names], "-c": []}, []
    waiting = [(kind, path) for flag in action.flags for kind, path in _file_of(flag)]
    seen = set()
    while waiting:
        kind, path = waiting.pop()
        if (kind, path) in seen:
            continue
        seen.add((kind, path))
        if path not in files:
            missing.append(path)
            continue
        text = files[path]
        if text is None or len(text) > MOST_CHARS:
            found.leave(f"`{path}` can't be read")
            continue
        folder = path.rpartition("/")[0]
        for line in _joined(text):
            waiting += _requirement(found, lines[kind], kind, folder, line)
    found.files[REQUIREMENTS] = "".join(f"{line}\n" for line in lines["-r"])
    found.files[CONSTRAINTS] = "".join(f"{line}\n" for line in lines["-c"])
    return found.given(), tuple(missing)


def _joined(text: str) -> Iterator[str]:
    """Return the lines of a file of requirements, joined as pip joins them: a comment never
    continues on the next line."""
    begun: list[str] = []
    for line in text.splitlines():
        is_comment = line.lstrip().startswith("#")
        begun.append(f" {line}" if is_comment else line.rstrip("\\"))
        if is_comment or not line.endswith("\\"):
            yield "".join(begun)
            begun = []
    yield "".join(begun)


def _file_of(flag: str) -> list[tuple[str, str]]:
    name, equals, path = flag.partition("=")
    kinds = {"-r": "-r", "--requirement": "-r", "--requirements": "-r", "-c": "-c"}
    kinds |= {"--constraint": "-c", "--constraints": "-c"}
    return [(kinds[name], path)] if equals and name in kinds else []


def _requirement(
    found: _Found, lines: list[str], kind: str, folder: str, line: str
) -> list[tuple[str, str]]:
    """Take one line over, or record that it is left out. Return the file that it includes."""
    words = list(itertools.takewhile(lambda word: not word.startswith("#"), line.split()))
    if not words:
        return []
    name, equals, value = words[0].partition("=")
    value = value if equals else "".join(words[1:2])
    included = _file_of(f"{name}={value}") if name.startswith("-") else []
    if included and ".." not in value and not value.startswith(("/", "-")) and "://" not in value:
        return [(included[0][0], f"{folder}/{value}".removeprefix("/").replace("/./", "/"))]
    if name in ("-i", "--index-url") and host_of(value):
        found.default = value
        return []
    if name == "--extra-index-url" and host_of(value):
        found.more.append(value)
        return []
    hashes = [word for word in words if _HASH.match(word)]
    text = " ".join(word for word in words if word not in hashes)
    if is_python_spec(text) and kind in ("-r", "-c"):
        lines.append(" ".join((text, *hashes)))
    else:
        found.runs = True  # a folder, a repository, an archive: built by its own code
        found.leave(f"`{text}` doesn't come from the index")
    return []


def is_python_spec(text: object) -> bool:
    """Return whether a requirement asks an index by name."""
    return isinstance(text, str) and len(text) <= 1000 and bool(_PYTHON_SPEC.match(text))


def installed(files: Iterable[str | None]) -> dict[str, str]:
    """Return the packages that a Python environment holds, as files for a plan's folder: names,
    versions and what they need from an index. `files` are the `METADATA` of its packages."""
    written = {}
    for text in files:
        name, version, rows = _head(text)
        if _DIST.match(name) and _DIST.match(version):
            needs = "".join(
                f"Requires-Dist: {value}\n"
                for key, _, value in rows
                if key == "Requires-Dist" and is_python_spec(value)
            )
            said = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
            # In a folder's name the first `-` ends the package's (PEP 376, PEP 427).
            folder = f"{name.replace('-', '_')}-{version}.dist-info"
            written[f"{INSTALLED}/{folder}/METADATA"] = said
    return written


def held(files: Iterable[str | None]) -> set[tuple[str, str]]:
    """Return names, as `fold_name` writes them, and versions of the same packages."""
    heads = map(_head, files)
    return {(fold_name(name), version) for name, version, _ in heads}


def _head(text: str | None) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Return name and version of a package, and all rows of the head of its `METADATA`."""
    head = (text or "")[:MOST_METADATA].partition("\n\n")[0]
    rows = [line.partition(": ") for line in head.splitlines()]
    facts = {key: value for key, _, value in reversed(rows)}
    return facts.get("Name", ""), facts.get("Version", ""), rows


def _uv(found: _Found, files: Mapping[str, str]) -> None:
    data = read_toml(files.get("pyproject.toml", ""))
    project, tool = _table(data.get("project")), _table(_table(data.get("tool")).get("uv"))
    # The names that come from a folder, a repository or an address.
    elsewhere = {fold_name(name) for name in _table(tool.get("sources"))}
    clean: dict[str, Any] = {"version": "0"}
    for key in ("name", "version", "requires-python"):
        if isinstance(project.get(key), str):
            clean[key] = project[key]

    def lists(table: object) -> dict[str, Any]:
        return {name: _python_list(found, one, elsewhere) for name, one in _table(table).items()}

    clean["dependencies"] = _python_list(found, project.get("dependencies", []), elsewhere)
    clean["optional-dependencies"] = lists(project.get("optional-dependencies"))
    more = lists({key: tool[key] for key in tool if key.endswith("-dependencies")})
    written: dict[str, Any] = {"project": clean} if project else {}
    written |= {"dependency-groups": lists(data.get("dependency-groups")), "tool": {"uv": more}}
    found.files["pyproject.toml"] = toml(written)
    for index in tool.get("index", []):
        if host_of(str(index["url"])):
            found.more.append(str(index["url"]))
        else:
            found.leave("an index of pyproject.toml that is no web address")
    for key in tool.keys() - more.keys() - {"index", "package"}:
        found.leave(f"what `tool.uv.{key}` in pyproject.toml changes")
    if files.get("uv.toml"):
        found.leave("what uv.toml changes")
    if lock := files.get("uv.lock"):
        _uv_lock(found, read_toml(lock))


def _python_list(found: _Found, wanted: list[object], elsewhere: set[str]) -> list[object]:
    kept = []
    for said in wanted:
        one = " ".join(said.split()) if isinstance(said, str) else said
        is_group = isinstance(one, dict) and one.keys() == {"include-group"}
        if is_group or (
            is_python_spec(one) and fold_name(_NAME.split(str(one), 1)[0]) not in elsewhere
        ):
            kept.append(one)
        else:
            found.leave(f"`{one}` of pyproject.toml doesn't come from the index")
    return kept


def _uv_lock(found: _Found, lock: dict[str, Any]) -> None:
    packages = []
    for entry in lock.get("package", []):
        source = entry["source"]
        if source.keys() == {"registry"} and host_of(source["registry"]):
            packages.append(entry)
        elif source.keys() & {"virtual", "editable"} and "." in source.values():
            packages.append(entry | {"source": {"virtual": "."}})
        else:
            found.leave(f"`{entry['name']}` of uv.lock doesn't come from the index")
    found.files["uv.lock"] = toml(lock | {"package": packages})


# -- cargo ----------------------------------------------------------------------------------------


def _cargo(found: _Found, files: Mapping[str, str]) -> None:
    data = read_toml(files.get("Cargo.toml", ""))
    package = _table(data.get("package"))
    clean = {
        key: package[key]
        for key in ("name", "version", "edition", "rust-version")
        if isinstance(package.get(key), str)
    }
    if "workspace" in package:
        found.leave("what the workspace that Cargo.toml names says")
    written = {"package": clean, "features": _table(data.get("features")), **_crates(found, data)}
    for key in ("workspace", "patch", "replace"):
        if key in data:
            found.leave(f"what `{key}` in Cargo.toml says")
    targets = _table(data.get("target"))
    written["target"] = {name: _crates(found, _table(one)) for name, one in targets.items()}
    found.files |= {"Cargo.toml": toml(written), "src/lib.rs": ""}
    if lock := files.get("Cargo.lock"):
        found.files["Cargo.lock"] = toml(_cargo_lock(found, read_toml(lock)))
    for file in (".cargo/config", ".cargo/config.toml"):
        _cargo_config(found, read_toml(files.get(file, "")))


def _crates(found: _Found, table: dict[str, Any]) -> dict[str, Any]:
    return {
        field: found.kept(table.get(field), _is_crate, "Cargo.toml")
        for field in ("dependencies", "dev-dependencies", "build-dependencies")
    }


def _is_crate(wanted: object) -> bool:
    return isinstance(wanted, str) or (isinstance(wanted, dict) and wanted.keys() <= _CRATE_KEYS)


def _cargo_lock(found: _Found, lock: dict[str, Any]) -> dict[str, Any]:
    packages = []
    for entry in lock.get("package", []):
        source = str(entry.get("source", "registry+http"))
        if source.startswith(("registry+http", "sparse+http")):
            packages.append(entry)
        else:
            found.leave(f"`{entry['name']}` of Cargo.lock doesn't come from the index")
    return lock | {"package": packages}


def _cargo_config(found: _Found, data: dict[str, Any]) -> None:
    sources = _table(data.get("source"))
    kept = {}
    for name, source in sources.items():
        if source.keys() == {"replace-with"}:
            kept[name] = source
        elif source.keys() == {"registry"} and host_of(source["registry"].removeprefix("sparse+")):
            found.default = found.default or source["registry"].removeprefix("sparse+")
            found.more.append(source["registry"].removeprefix("sparse+"))
            kept[name] = source
        else:
            found.leave(f"what `source.{name}` in cargo's configuration says")
    if data.keys() - {"source"}:
        found.runs = True  # a compiler, a wrapper, a helper for credentials
        found.leave("what cargo's configuration in the project changes")
    if kept:
        found.files[".cargo/config.toml"] = toml({"source": kept})


# -- go -------------------------------------------------------------------------------------------


def _go(found: _Found, files: Mapping[str, str]) -> None:
    kept, block = [], ""
    for line in files.get("go.mod", "").splitlines():
        said, _, comment = line.strip().partition("//")
        said = " ".join(said.split())
        if said == ")":
            block = ""
        elif said.endswith("("):
            block = said.removesuffix("(").strip()
        elif said:
            said = f"{block} {said}".strip()
            if _GO_LINE.match(said):
                kept.append(f"{said}{' // indirect' * (comment.strip() == 'indirect')}\n")
            else:
                found.leave(f"what `{said}` in go.mod says")
    found.files["go.mod"] = "".join(kept)
    rows = files.get("go.sum", "").splitlines(keepends=True)
    found.files["go.sum"] = "".join(row for row in rows if _GO_SUM.match(row))
    for name in ("go.work", "vendor/modules.txt"):
        if name in files:
            found.leave(f"what {name} changes")


_READERS: dict[str, Callable[[_Found, Mapping[str, str]], None]] = {
    "npm": _npm,
    "pnpm": _pnpm,
    "uv": _uv,
    "cargo": _cargo,
    "go": _go,
}
