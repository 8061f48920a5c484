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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

import msgspec

from agent_image.reviewer.findings import Finding, Review, TracedTurn, Usage
from agent_image.reviewer.gatehouse import ApiError, Ask, Gatehouse, refusal_text
from agent_image.reviewer.model import ModelError
from agent_image.reviewer.runtime import NoReviewError, Outcome
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
# Manifest, lock file, and what installs that. pip has files with pins instead.
_MANAGERS = {
    "npm": ("package.json", "package-lock.json", ["npm", "ci"]),
    "pnpm": ("package.json", "pnpm-lock.yaml", ["pnpm", "install", "--frozen-lockfile"]),
    "uv": ("pyproject.toml", "uv.lock", ["uv", "sync", "--frozen"]),
    "cargo": ("Cargo.toml", "Cargo.lock", ["cargo", "fetch"]),
    "go": ("go.mod", "go.sum", ["go", "mod", "download"]),
}
# They change the lock file alone, and install nothing.
_LOCKING = frozenset({"uv", "cargo", "pnpm"})
_GO_NEED = re.compile(
    r"^(?:require )?[ \t]*([\w.~/-]{1,250}) (v[\w.+-]{1,100})[ \t]*(//[^\n]*)?$", re.MULTILINE
)
_PNPM_KEY = re.compile(r"^  '?(@?[^@'\s()]{1,250})@([\w.+-]{1,100})'?:", re.MULTILINE)
_PINNED = re.compile(r"requirements[\w.-]*\.txt\Z|pyproject\.toml\Z")
_PIN = re.compile(
    r"(?:^[ \t]*|[\"'])(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,100})(?:\s?\[[^\]\n]{0,200}\])?"
    r" {0,4}== {0,4}(?P<version>[A-Za-z0-9.!+_-]{1,100})(?![\w.*])",
    re.MULTILINE,
)
_VENVS = (".venv", "venv")
_DISTS = "lib/python3*/site-packages/*.dist-info"
_MEND = """\
An update of {name} breaks this project. Mend the project's own code, so that its tests pass with the new version. \
The version is given: don't change a manifest, a lock file or a pin, and switch no test off.

The tests are `{tests}`. They say:
{output}"""  # noqa: E501


class Project(msgspec.Struct, frozen=True):
    """A folder whose dependencies are locked. `files` are what its manager changes, as paths: the
    manifest and the lock file, or those with pins."""

    manager: str
    folder: str
    files: tuple[str, ...]


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

    def begin(self, names: Sequence[str]) -> None:
        """Go back to this moment with `put_back`, in these files and those that are changed."""
        self._before = {}
        for name in names:
            self.remember(name)

    def put_back(self) -> None:
        """Undo what was changed since `begin`."""
        for name, data in self._before.items():
            if data is not None:
                super().write(name, data)
            elif (self.root / name).is_file():
                super().delete(name)


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
        self._mended: list[Outcome] = []
        # Whether anything was carried out since `_begin`.
        self._is_touched = False

    def run(self) -> Outcome:
        """Update what is wanted, and return what is to be said of it."""
        ready = []
        for project in self._projects():
            if why := self._installed(project):
                self._note("medium", project, "what is locked can't be installed", why)
            else:
                ready.append(project)
        why = self._tested() if ready else ""
        if why:
            self._note("high", ready[0], "the tests fail before any update", why)
        done = [] if why else [name for one in ready for name in self._update(one)]
        said = f"Updated: {', '.join(done)}." if done else "Nothing was updated."
        findings = tuple(self._findings[:200])
        review = Review(summary=said[:20_000], verdict="comment", findings=findings)
        turns: tuple[TracedTurn, ...] = sum((one.turns for one in self._mended), ())
        count = {
            name: sum(getattr(one.usage, name) for one in self._mended)
            for name in Usage.__struct_fields__
        }
        return Outcome(review, Usage(**count), turns)

    # -- one project ------------------------------------------------------------------------------

    def _update(self, project: Project) -> list[str]:
        """Update one project. Return the changed packages with their versions."""
        base = self._locked(project)
        wanted = [name for name in self._wanted.names if name in base]
        if self._wanted.names and not wanted:
            return []
        if len(wanted) == 1:
            self._one(project, wanted[0])
        else:
            self._begin(project)
            why, _ = self._tried(project, wanted)
            if why:
                changed = [one for one in self._locked(project).items() if one not in base.items()]
                self._put_back(project)
                self._say(f"{project.manager}: not all at once: {plain(why, 300)}")
                for name in self._own(project, wanted or [name for name, _ in changed] or [*base]):
                    self._one(project, name)
        return [
            f"{name} {base.get(name) or 'new'} -> {version}"
            for name, version in self._locked(project).items()
            if version != base.get(name)
        ]

    def _one(self, project: Project, name: str) -> None:
        """Update one package; mend what that breaks, or hold it back."""
        self._begin(project)
        why, is_broken = self._tried(project, [name])
        if not why:
            return
        shown = f"{name} {self._locked(project).get(name, '')}" if is_broken else name
        if is_broken and (said := self._mend(shown, why)):
            title = f"{shown}: the tests failed, and were mended"
            self._note("info", project, title, f"{why}\nChanged for it: {said}")
            return
        self._put_back(project)
        self._note("low", project, f"{shown} is held back", why)

    def _own(self, project: Project, names: Sequence[str]) -> list[str]:
        """Return those of the names that the project itself asks for."""
        manifest = self._text(project.files[0])
        if project.manager == "go":
            indirect = (found[0] for found in _GO_NEED.finditer(manifest) if found[3])
            for line in indirect:
                manifest = manifest.replace(line, "")
        own = [
            name
            for name in names
            if project.manager == "pip"
            or re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", manifest, re.IGNORECASE)
        ]
        if len(own) > MOST_SINGLE:
            self._say(f"only {MOST_SINGLE} of {len(own)} packages are tried one by one")
        return own[:MOST_SINGLE]

    def _mend(self, shown: str, why: str) -> str:
        """Have the model mend what an update broke. Return what it says; "" where the tests still
        fail."""
        if len(self._mended) >= MOST_MENDED:
            return ""
        output, tests = self._quarantine.wrap("output of the tests", why), self._settings.tests
        try:
            found = self._converse(_MEND.format(name=plain(shown), tests=tests, output=output))
        except (ModelError, NoReviewError, ApiError) as error:
            self._say(f"{shown}: not mended: {error}")
            return ""
        self._mended.append(found)
        return "" if self._tested() else found.review.summary

    def _tried(self, project: Project, names: Sequence[str]) -> tuple[str, bool]:
        """Update the packages, all of them where none is named. Return why that is no good, and
        whether the tests say so."""
        before = self._locked(project)
        if why := self._managed(project, self._command(project, names)):
            return why, False
        if project.manager == "pip":
            self._pin(project)
        if project.manager == "go" and (why := self._managed(project, ["go", "mod", "tidy"])):
            return why, False
        if (after := self._locked(project)) == before:
            return "", False
        if back := _gone_back(before, after):
            # npm does so with what was locked before it was old enough.
            return f"older versions than now would come: {back}", False
        if project.manager in _LOCKING and (why := self._installed(project)):
            return why, False
        why = self._tested()
        return why, bool(why)

    # -- what is asked ----------------------------------------------------------------------------

    def _command(self, project: Project, names: Sequence[str]) -> list[str]:
        match project.manager:
            case "npm":
                return ["npm", "update", *names, f"--before={self._before}"]
            case "uv":
                named = [f"--upgrade-package={name}" for name in names] or ["--upgrade"]
                return ["uv", "lock", *named]
            case "cargo":
                return ["cargo", "update", *names]
            case "pnpm":
                age = f"--config.minimum-release-age={int(self._wanted.min_age_s // 60)}"
                return ["pnpm", "update", *names, age]
            case "go":
                return ["go", "get", *(names or self._own(project, [*self._locked(project)]))]
        return ["pip", "install", "--upgrade", *(names or self._locked(project))]

    def _installed(self, project: Project) -> str:
        """Install what is locked. Return why that failed; "" where it didn't."""
        if project.manager != "pip":
            return self._managed(project, _MANAGERS[project.manager][2])
        here = self._workspace.root / project.folder
        if not any((here / one).is_dir() for one in _VENVS) and (
            why := self._ran(f"python3 -m venv {_VENVS[0]}", project.folder)
        ):
            return why
        for path in project.files:
            pins = [f"{found['name']}=={found['version']}" for found in self._pins(path)]
            named = (
                ["-r", PurePosixPath(path).name] if path.endswith(".txt") else ["--upgrade", *pins]
            )
            if why := self._managed(project, ["pip", "install", *named]):
                return why
        return ""

    def _managed(self, project: Project, words: Sequence[str]) -> str:
        line, why = shlex.join(words), "the updates of a job"
        packages = self._gatehouse.packages
        return self._asked(line, lambda: packages(line, cwd=project.folder, reason=why), INSTALL_S)

    def _ran(self, line: str, folder: str = ".", reason: str = "the updates of a job") -> str:
        execute = self._gatehouse.execute
        return self._asked(
            line, lambda: execute(line, cwd=folder, reason=reason, timeout_s=TESTS_S), TESTS_S
        )

    def _tested(self) -> str:
        """Run the job's tests. Return what they say where they fail."""
        tests = self._settings.tests
        return self._ran(tests, reason="the job's tests") if tests else ""

    def _asked(self, line: str, asking: Callable[[], Ask], settle_s: float) -> str:
        """Ask, and wait for the end. Return why it wasn't done, or what it failed with; "" where
        all is well."""
        self._say(f"asks: {line}")
        try:
            ask = asking()
            if not ask.is_over:
                limit_s = self._settings.limits.answer_wait_s
                ask = self._gatehouse.wait(ask.id, limit_s, settle_s=settle_s + 60)
        except ApiError as error:
            return str(error)
        if not ask.is_granted:
            why = ask.why if ask.status != "pending" else "no answer yet"
            return refusal_text({"why": why, "rule": ask.rule, "remedy": ask.remedy})
        self._is_touched = True
        told = ask.outcome if isinstance(ask.outcome, dict) else {"ok": ask.is_over}
        if told.get("ok", True):
            return ""
        said = (str(told.get(name) or "").strip() for name in ("error", "stdout", "stderr"))
        return "\n".join(filter(None, said))[-_TOLD:] or "it failed"

    # -- files ------------------------------------------------------------------------------------

    def _projects(self) -> list[Project]:
        folders: dict[str, set[str]] = {}
        for path in map(PurePosixPath, self._workspace.walk(".", deepest=_DEEPEST)):
            if not _INSTALLED.intersection(path.parts):
                folders.setdefault(path.parent.as_posix(), set()).add(path.name)
        found = []
        for folder, there in sorted(folders.items()):
            names = {
                one: names[:2] for one, names in _MANAGERS.items() if there.issuperset(names[:2])
            }
            pinned = () if "uv.lock" in there else tuple(filter(_PINNED.match, sorted(there)))
            for manager, files in (names | {"pip": pinned}).items():
                paths = (PurePosixPath(folder, name).as_posix() for name in files)
                found.append(Project(manager, folder, tuple(paths)))
        managers = self._wanted.managers or ("pip", *_MANAGERS)
        return [one for one in found if one.manager in managers and self._locked(one)]

    def _locked(self, project: Project) -> dict[str, str]:
        """Return the locked versions by name, of several in one text."""
        if project.manager == "pip":
            pins = [found for path in project.files for found in self._pins(path)]
            return {found["name"]: found["version"] for found in pins}
        try:
            file = project.files[0 if project.manager == "go" else 1]
            return _versions(project.manager, self._text(file))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}

    def _pins(self, path: str) -> list[re.Match[str]]:
        text = self._text(path)
        # Of hashes nobody here knows new ones.
        return [] if "--hash" in text else list(_PIN.finditer(text))

    def _pin(self, project: Project) -> None:
        """Write what is installed now into the pins."""
        there = {}
        for venv in reversed(_VENVS):
            for one in (self._workspace.root / project.folder / venv).glob(_DISTS):
                name, _, version = one.name.removesuffix(".dist-info").partition("-")
                there[_folded(name)] = version
        for path in project.files:
            text = self._text(path)
            for found in reversed(self._pins(path)):
                version = there.get(_folded(found["name"]), found["version"])
                text = text[: found.start("version")] + version + text[found.end("version") :]
            if text != self._text(path):
                self._workspace.write(path, text.encode())

    def _text(self, path: str) -> str:
        try:
            return self._workspace.read(path, MOST_LOCK_BYTES)[0].decode("utf-8", "replace")
        except PathError:
            return ""

    def _begin(self, project: Project) -> None:
        self._is_touched = False
        self._workspace.begin(project.files)

    def _put_back(self, project: Project) -> None:
        """Undo the last update, in files and in what is installed."""
        self._workspace.put_back()
        if self._is_touched and (why := self._installed(project)):
            self._say(f"{project.manager}: what was locked can't be installed again: {why}")

    def _note(self, severity: str, project: Project, title: str, body: str) -> None:
        self._say(f"{title}: {plain(body, 300)}")
        found = {"severity": severity, "title": title[:300], "body": body[-_TOLD:] or title}
        self._findings.append(msgspec.convert(found | {"path": project.files[-1]}, Finding))


def _versions(manager: str, text: str) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    if manager == "npm":
        for path, entry in json.loads(text or "{}").get("packages", {}).items():
            if "node_modules/" in path and not entry.get("link"):
                name = entry.get("name") or path.rpartition("node_modules/")[2]
                found.setdefault(name, set()).add(str(entry.get("version", "")))
    elif manager == "pnpm":
        packages = text.partition("\npackages:\n")[2].partition("\nsnapshots:\n")[0]
        for one in _PNPM_KEY.finditer(packages):
            found.setdefault(one[1], set()).add(one[2])
    elif manager == "go":
        for one in _GO_NEED.finditer(text):
            found.setdefault(one[1], set()).add(one[2])
    else:
        for entry in tomllib.loads(text).get("package", []):
            if entry.get("source"):
                found.setdefault(entry["name"], set()).add(str(entry.get("version", "")))
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


def _gone_back(before: dict[str, str], after: dict[str, str]) -> str:
    """Return which packages have an older version than before."""
    return ", ".join(
        f"{name} {before[name]} -> {version}"
        for name, version in after.items()
        if _numbers(version) < _numbers(before.get(name, version))
    )


def _numbers(version: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d{1,9}", re.split(r"[-+,]", version)[0])]


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
