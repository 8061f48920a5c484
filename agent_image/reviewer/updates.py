"""Dependency updates: the package managers first, a model only for what breaks.

    ready     what is locked is installed, and the tests pass; else nothing is updated
    together  one update of everything that is wanted. The tests pass: done
    singly    else each package by itself; a model mends what its update breaks, or it is held back

Every install and every command is asked, like any agent's. What came of it is judged by others,
from the lock files: nothing said here counts for that.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import msgspec

from agent_image.reviewer.findings import Finding, Review, TracedTurn, Usage
from agent_image.reviewer.gatehouse import ApiError, Ask, Gatehouse, refusal_text
from agent_image.reviewer.loop import NoReviewError, Outcome
from agent_image.reviewer.model import ModelError
from agent_image.reviewer.settings import Settings
from agent_image.reviewer.text import Quarantine, plain
from agent_image.reviewer.workspace import PathError, Workspace

TESTS_S, INSTALL_S = 3600.0, 1200.0
MOST_LOCK_BYTES = 16 * 1024 * 1024
# Of packages that are tried one by one, and of those that a model mends.
MOST_SINGLE, MOST_MENDED = 40, 5
_TOLD = 6_000
_DEEPEST = 5
_INSTALLED = frozenset({"node_modules", ".venv", "venv", "vendor", "target"})
# The lock file, or the file of requirements, by manager.
LOCKS = {"npm": "package-lock.json", "uv": "uv.lock", "cargo": "Cargo.lock"}
_REQUIREMENTS = re.compile(r"requirements[\w.-]*\.txt\Z")
_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)(?P<extras>\s*\[[^\]\n]*\])?\s*==\s*"
    r"(?P<version>[\w.!+-]*\w)(?![\w.*])"
)
_MEND = """\
An update of {name} breaks this project. Mend the project's own code, so that its tests pass with the new version. \
The version is given: don't change a manifest, a lock file or a pin, and switch no test off.

The tests are `{tests}`. They say:
{output}"""  # noqa: E501


class Project(msgspec.Struct, frozen=True):
    """A folder with a lock file. `files` are what its manager changes; the last one has the
    versions."""

    manager: str
    folder: str
    files: tuple[str, ...]

    def path(self, name: str) -> str:
        """Return a file of the folder as a path below the workspace."""
        return PurePosixPath(self.folder, name).as_posix()


class Remembering(Workspace):
    """A workspace that knows what its files held before they were changed through it."""

    def __init__(self, root: Path, also: Sequence[Path] = ()) -> None:
        super().__init__(root, also)
        self._before: dict[str, bytes | None] = {}

    def write(self, name: str, data: bytes) -> None:
        self.remember(name)
        super().write(name, data)

    def delete(self, name: str) -> None:
        self.remember(name)
        super().delete(name)

    def remember(self, name: str) -> None:
        """Keep what a file holds now, unless that of an earlier moment is kept."""
        if name not in self._before:
            try:
                self._before[name] = self.read(name, MOST_LOCK_BYTES)[0]
            except PathError:
                self._before[name] = None

    def begin(self) -> None:
        """Go back to this moment with `put_back`."""
        self._before = {}

    def put_back(self) -> None:
        """Undo what was changed since `begin`."""
        for name, data in self._before.items():
            if data is not None:
                super().write(name, data)
            elif (self.root / name).is_file():
                super().delete(name)
        self._before = {}


class Updates:
    """One run. `converse(opening)` has a conversation with the model."""

    def __init__(
        self,
        settings: Settings,
        gatehouse: Gatehouse,
        workspace: Remembering,
        converse: Callable[[str], Outcome],
        quarantine: Quarantine,
        say: Callable[[str], None],
    ) -> None:
        assert settings.updates is not None
        self._wanted = settings.updates
        self._settings = settings
        self._gatehouse = gatehouse
        self._workspace = workspace
        self._converse = converse
        self._quarantine = quarantine
        self._say = say
        before = datetime.now(UTC) - timedelta(seconds=self._wanted.min_age_s)
        self._before = before.strftime("%Y-%m-%dT%H:%M:%SZ")
        self._findings: list[Finding] = []
        self._turns: list[TracedTurn] = []
        self._usage = Usage(turns=0, input_tokens=0, output_tokens=0)
        self._mends = 0
        # Whether anything was carried out since `_begin`.
        self._is_touched = False

    def run(self) -> Outcome:
        """Update what is wanted, and return what is to be said of it."""
        projects = list(self._projects())
        if not projects:
            return self._outcome("No lock file or pinned requirements were found to be updated.")
        ready = [one for one in projects if self._is_ready(one)]
        why = self._tested() if ready else ""
        if why:
            self._note("high", ready[0], "the tests fail before any update", why)
            return self._outcome("The tests fail before any update, so nothing was updated.")
        done = [name for one in ready for name in self._update(one)]
        if not done:
            return self._outcome("Nothing was updated.")
        return self._outcome(f"Updated: {', '.join(done)}.")

    # -- one project ------------------------------------------------------------------------------

    def _update(self, project: Project) -> list[str]:
        """Update one project. Return the changed packages with their versions."""
        wanted = [name for name in self._wanted.names if name in self._locked(project)]
        if self._wanted.names and not wanted:
            return []
        base = self._locked(project)
        self._begin(project)
        why, _ = self._tried(project, wanted)
        after = self._locked(project)
        if why and len(wanted) != 1:
            changed = [name for name in after if after[name] != base.get(name)]
            self._put_back(project)
            self._say(f"{project.manager}: not all at once: {plain(why, 300)}")
            for name in self._single(project, wanted or changed or list(base)):
                self._one(project, name)
        elif why:
            self._put_back(project)
            self._one(project, wanted[0])
        after = self._locked(project)
        return [
            f"{name} {base.get(name) or 'new'} -> {version}"
            for name, version in after.items()
            if version != base.get(name)
        ]

    def _one(self, project: Project, name: str) -> None:
        """Update one package; mend what that breaks, or hold it back."""
        self._begin(project)
        why, is_broken = self._tried(project, [name])
        if not why:
            return
        shown = f"{name} {self._locked(project).get(name, '')}" if is_broken else name
        said = self._mended(shown, why) if is_broken else ""
        if said:
            title = f"{shown}: the tests failed, and were mended"
            self._note("info", project, title, f"{why}\nChanged for it: {said}")
            return
        self._put_back(project)
        self._note("low", project, f"{shown} is held back", why)

    def _single(self, project: Project, names: Sequence[str]) -> list[str]:
        """Return those of the names that the project itself asks for."""
        manifest = self._text(project.files[0])
        own = [
            name
            for name in names
            if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", manifest, re.IGNORECASE)
        ]
        if len(own) > MOST_SINGLE:
            self._say(f"only {MOST_SINGLE} of {len(own)} packages are tried one by one")
        return own[:MOST_SINGLE]

    def _mended(self, shown: str, why: str) -> str:
        """Have the model mend what an update broke. Return what it says; "" where the tests still
        fail."""
        if self._mends >= MOST_MENDED:
            return ""
        self._mends += 1
        output = self._quarantine.wrap("output of the tests", why)
        try:
            found = self._converse(
                _MEND.format(name=plain(shown), tests=plain(self._settings.tests), output=output)
            )
        except (ModelError, NoReviewError, ApiError) as error:
            self._say(f"{shown}: not mended: {error}")
            return ""
        self._turns += found.turns
        self._usage = Usage(
            turns=self._usage.turns + found.usage.turns,
            input_tokens=self._usage.input_tokens + found.usage.input_tokens,
            output_tokens=self._usage.output_tokens + found.usage.output_tokens,
        )
        return "" if self._tested() else found.review.summary

    # -- what is asked ----------------------------------------------------------------------------

    def _is_ready(self, project: Project) -> bool:
        why = self._installed(project)
        if why:
            self._note("medium", project, f"{project.manager} can't install what is locked", why)
        return not why

    def _installed(self, project: Project) -> str:
        """Install what is locked. Return why that failed; "" where it didn't."""
        if project.manager == "pip":
            has_one = any((self._workspace.root / project.path(one)).is_dir() for one in _VENVS)
            if not has_one and (why := self._ran(f"python3 -m venv {_VENVS[0]}", project.folder)):
                return why
        for line in _READY[project.manager](project):
            if why := self._managed(project, line):
                return why
        return ""

    def _tried(self, project: Project, names: Sequence[str]) -> tuple[str, bool]:
        """Update the packages, all of them where none is named. Return why that is no good, and
        whether the tests say so."""
        before = self._locked(project)
        if why := self._managed(project, self._command(project, names)):
            return why, False
        if project.manager == "pip":
            self._pin(project)
        if self._locked(project) == before:
            return "", False
        if back := _gone_back(before, self._locked(project)):
            # npm does so with what was locked before it was old enough.
            return f"older versions than now would come: {back}", False
        for line in _AFTER.get(project.manager, ()):
            if why := self._managed(project, line):
                return why, False
        why = self._tested()
        return why, bool(why)

    def _command(self, project: Project, names: Sequence[str]) -> list[str]:
        match project.manager:
            case "npm":
                return ["npm", "update", *names, f"--before={self._before}"]
            case "uv":
                named = [f"--upgrade-package={name}" for name in names] or ["--upgrade"]
                return ["uv", "lock", *named]
            case "cargo":
                return ["cargo", "update", *names]
        return ["pip", "install", "--upgrade", *(names or self._locked(project))]

    def _managed(self, project: Project, words: Sequence[str]) -> str:
        line = shlex.join(words)
        self._say(f"asks: {line}")
        try:
            ask = self._gatehouse.packages(line, cwd=project.folder, reason="the updates of a job")
            return self._why(ask, INSTALL_S)
        except ApiError as error:
            return str(error)

    def _ran(self, line: str, folder: str = ".", reason: str = "the updates of a job") -> str:
        self._say(f"asks: {line}")
        try:
            ask = self._gatehouse.execute(line, cwd=folder, reason=reason, timeout_s=TESTS_S)
            return self._why(ask, TESTS_S)
        except ApiError as error:
            return str(error)

    def _tested(self) -> str:
        """Run the job's tests. Return what they say where they fail."""
        if not self._settings.tests:
            return ""
        return self._ran(self._settings.tests, reason="the job's tests")

    def _why(self, ask: Ask, settle_s: float) -> str:
        """Wait for an ask. Return why it wasn't done, or what it ended with; "" where all is
        well."""
        if not ask.is_over:
            limit_s = self._settings.limits.answer_wait_s
            ask = self._gatehouse.wait(ask.id, limit_s, settle_s=settle_s + 60)
        if not ask.is_granted:
            why = ask.why if ask.status != "pending" else "no answer yet"
            return refusal_text({"why": why, "rule": ask.rule, "remedy": ask.remedy})
        self._is_touched = True
        if not ask.is_over:
            return "it has not been carried out yet"
        told = ask.outcome if isinstance(ask.outcome, dict) else {}
        if told.get("ok", True):
            return ""
        said = (str(told.get(name) or "").strip() for name in ("error", "stdout", "stderr"))
        return "\n".join(filter(None, said))[-_TOLD:] or "it failed"

    # -- files ------------------------------------------------------------------------------------

    def _projects(self) -> Iterator[Project]:
        managers = self._wanted.managers
        names: dict[str, list[str]] = {}
        for path in self._workspace.walk(".", deepest=_DEEPEST):
            folder, name = PurePosixPath(path).parent.as_posix(), PurePosixPath(path).name
            if not _INSTALLED.intersection(PurePosixPath(path).parts):
                names.setdefault(folder, []).append(name)
        for folder, there in sorted(names.items()):
            for manager, lock in LOCKS.items():
                manifest = _MANIFESTS[manager]
                if {lock, manifest} <= {*there} and (not managers or manager in managers):
                    files = Project(manager, folder, (manifest, lock))
                    yield _with_paths(files)
            if LOCKS["uv"] in there or (managers and "pip" not in managers):
                continue
            files = Project("pip", folder, tuple(filter(_REQUIREMENTS.match, there)))
            if files.files and self._locked(_with_paths(files)):
                yield _with_paths(files)

    def _locked(self, project: Project) -> dict[str, str]:
        """Return the locked versions by name, of several in one text."""
        if project.manager == "pip":
            return {
                found["name"]: found["version"]
                for path in project.files
                for line in self._text(path).splitlines()
                if (found := _PIN.match(line.strip()))
            }
        try:
            return _versions(project.manager, self._text(project.files[-1]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}

    def _pin(self, project: Project) -> None:
        """Write what is installed now into the pins of the files of requirements."""
        there = self._in_environment(project)

        def pinned(found: re.Match[str]) -> str:
            version = there.get(_folded(found["name"]), found["version"])
            return found[0][: -len(found["version"])] + version

        for path in project.files:
            old = self._text(path)
            lines = [
                _PIN.sub(pinned, line, count=1) if _PIN.match(line.strip()) else line
                for line in old.split("\n")
            ]
            if "--hash" not in old and "\n".join(lines) != old:
                self._workspace.write(path, "\n".join(lines).encode())

    def _in_environment(self, project: Project) -> dict[str, str]:
        found = {}
        for venv in _VENVS:
            for one in (self._workspace.root / project.path(venv)).glob(_DISTS):
                name, _, version = one.name.removesuffix(".dist-info").partition("-")
                found.setdefault(_folded(name), version)
        return found

    def _text(self, path: str) -> str:
        try:
            return self._workspace.read(path, MOST_LOCK_BYTES)[0].decode("utf-8", "replace")
        except PathError:
            return ""

    def _begin(self, project: Project) -> None:
        self._is_touched = False
        self._workspace.begin()
        for path in project.files:
            self._workspace.remember(path)

    def _put_back(self, project: Project) -> None:
        """Undo the last update, in files and in what is installed."""
        self._workspace.put_back()
        if self._is_touched and (why := self._installed(project)):
            self._say(f"{project.manager}: what was locked can't be installed again: {why}")

    # -- what is said -----------------------------------------------------------------------------

    def _note(self, severity: str, project: Project, title: str, body: str) -> None:
        self._say(f"{title}: {plain(body, 300)}")
        finding = {"severity": severity, "title": title[:300], "body": body[-_TOLD:] or title}
        found = msgspec.convert(finding | {"path": project.files[-1]}, Finding)
        self._findings.append(found)

    def _outcome(self, summary: str) -> Outcome:
        review = Review(
            summary=summary[:20_000], verdict="comment", findings=tuple(self._findings[:200])
        )
        return Outcome(review, self._usage, tuple(self._turns))


_VENVS = (".venv", "venv")
_DISTS = "lib/python3*/site-packages/*.dist-info"
_MANIFESTS = {"npm": "package.json", "uv": "pyproject.toml", "cargo": "Cargo.toml"}
_READY: dict[str, Callable[[Project], list[list[str]]]] = {
    "npm": lambda _: [["npm", "ci"]],
    "uv": lambda _: [["uv", "sync", "--frozen"]],
    "cargo": lambda _: [["cargo", "fetch"]],
    "pip": lambda project: [
        ["pip", "install", "-r", PurePosixPath(path).name] for path in project.files
    ],
}
_AFTER: dict[str, list[list[str]]] = {
    "uv": [["uv", "sync", "--frozen"]],
    "cargo": [["cargo", "fetch"]],
}


def _with_paths(project: Project) -> Project:
    paths = tuple(project.path(name) for name in project.files)
    return Project(project.manager, project.folder, paths)


def _versions(manager: str, text: str) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    if manager == "npm":
        for path, entry in json.loads(text or "{}").get("packages", {}).items():
            if "node_modules/" in path and not entry.get("link"):
                name = entry.get("name") or path.rpartition("node_modules/")[2]
                found.setdefault(name, set()).add(str(entry.get("version", "")))
    else:
        for entry in tomllib.loads(text).get("package", []):
            if entry.get("source"):
                found.setdefault(entry["name"], set()).add(str(entry.get("version", "")))
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


def _gone_back(before: dict[str, str], after: dict[str, str]) -> str:
    """Return which packages have an older version than before, of those with one version."""
    return ", ".join(
        f"{name} {before[name]} -> {version}"
        for name, version in after.items()
        if _numbers(version) < _numbers(before.get(name, version))
    )


def _numbers(version: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d{1,9}", re.split(r"[-+,]", version)[0])]


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
