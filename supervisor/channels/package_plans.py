"""Finds out what an install would do, before anybody is asked.

    the index in force   the person's own; else as the project's files and the flags say, read as
                         data
    the plan             the manager resolves what was taken over of manifest and lock
                         (`project_files`), in a folder with nothing else; before and after are
                         compared
    what is known        of each package, from the registry

Before an approval only indexes are reached that are the person's own or that the rules allow, only
by reads and without a secret (law 11).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from supervisor.base import process
from supervisor.channels.install_sandbox import Hosts, InstallSandbox
from supervisor.channels.project_files import Project, ProjectFiles
from supervisor.channels.registry_client import RegistryClient
from supervisor.core.actions import Network, Packages, PlannedPackage
from supervisor.core.jobs import Updates
from supervisor.core.packages import registry_answers
from supervisor.core.packages.install_plan import (
    MOST_PACKAGES,
    planned,
    what_is_unknown,
    with_facts,
)
from supervisor.core.packages.install_recipes import (
    GO_SETTINGS_FROM,
    RECIPES,
    Recipe,
    go_config,
    goes_home,
    home_config,
    index_environment,
    index_script,
    is_at_home,
    is_planned,
    lock_after,
    names_packages_alone,
    plan_script,
    recipe_of,
    said,
    words_of,
)
from supervisor.core.packages.lock_files import Locked, Locks, locks_in
from supervisor.core.packages.package_commands import (
    Item,
    fold_name,
    items_of,
    managers,
    risky_flags,
)
from supervisor.core.packages.plan_inputs import SOURCES, PlanInputs, shown
from supervisor.core.packages.registry_answers import RegistryFacts, host_of
from supervisor.core.packages.updates import too_young
from supervisor.core.text.duration import format_duration
from supervisor.errors import GatehouseError, RefusedError
from supervisor.gate.gate import Gate
from supervisor.sandbox.base import MERGED
from supervisor.settings import for_package_managers

INDEX_S = 30.0
MOST_ASKED = 100
MOST_SAID = 500
MOST_YOUNG = 20
_READ = "ask for what a package manager can do in the project"
_BY_OWN_CODE = "so code of the project's can run: approve it with install scripts, or not at all"


class _UnplannedError(Exception):
    """Nobody can say what the manager would do."""


class InstallPlan(NamedTuple):
    """What an install would do: `action` has what is shown. `locks` are what is locked afterwards
    in the folder `root`; None where nobody knows all of it. `runs` says what of it runs code that
    isn't the manager's, even without install scripts; empty where nothing does. `environment` is
    the Python environment that pip changes, by its absolute path; empty where there is none."""

    action: Packages
    locks: Locks | None = None
    root: str = ""
    indexes: tuple[str, ...] = ()
    runs: str = ""
    environment: str = ""


class _Indexes(NamedTuple):
    """Where packages come from: the URLs in force for a command, and those of the person's own
    configuration."""

    in_force: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def strange(self) -> tuple[str, ...]:
        """Return the indexes that aren't the person's own."""
        known = _hosts(self.own)
        return tuple(url for url in self.in_force if host_of(url) not in known)


class PackagePlans:
    """`now` gives seconds since the epoch, `updates_of` which dependencies a session's job
    updates; None for every other session."""

    def __init__(
        self,
        gate: Gate,
        sandbox: InstallSandbox,
        registry: RegistryClient,
        now: Callable[[], float],
        updates_of: Callable[[str], Updates | None],
    ) -> None:
        self._gate = gate
        self._sandbox = sandbox
        self._files = ProjectFiles(sandbox)
        self._registry = registry
        self._now = now
        self._updates_of = updates_of
        self._own: dict[str, tuple[str, ...]] = {}
        self._go = ""

    async def planned(self, session_id: str, action: Packages) -> InstallPlan:
        """Return what an action would do, or why that is unknown. `RefusedError` where it can't be
        carried out.
        """
        action = replace(action, index="", hosts=(), plan=(), notes=(), unknown=(), doubt="")
        recipe = recipe_of(action)
        if recipe is None or action.operation not in managers()[action.manager].operations:
            raise RefusedError(f"`{' '.join(words_of(action))}` is not carried out", _READ)
        strange = [one.origin for one in _items(action) if one.origin]
        project, why = await self._project(session_id, action)
        indexes = await self._indexes(session_id, recipe, action, project)
        for host in sorted(_hosts(indexes.in_force)):
            self._check_host(session_id, host)
        runs = _what_runs(action, project, strange)
        notes = [f"`{flag}` isn't known as harmless" for flag in risky_flags(action)]
        notes += [f"{shown(url)} is not the index that you use" for url in indexes.strange]
        notes += [f"{runs}, {_BY_OWN_CODE}"] if runs else []
        environment = project.environment
        if environment:
            where = shown(environment.removeprefix(f"{MERGED}/"))
            notes.append(f"the Python of `{where}`, which the agent can change, carries it out")
        elif recipe.kind == "pypi" and action.manager != "pip":
            notes.append("the project's own Python, which the agent can change, carries it out")
        hosts = _texts(_hosts(indexes.in_force))
        action = replace(action, index=" ".join(indexes.in_force), hosts=hosts, notes=tuple(notes))
        closed = [url for url in indexes.strange if not self._is_allowed(session_id, url)]
        flags = [f"`{flag}` isn't known as harmless" for flag in said(action).strange]
        nowhere = [f"{shown(url)} isn't reached before you approve" for url in closed]
        no_way = [f"`{action.manager} {action.operation}` isn't planned"]
        reasons = [*strange, *flags, *nowhere, *([] if is_planned(action) else no_way)]
        reasons += [why] if why else []
        try:
            if reasons:
                raise _UnplannedError(reasons[0])
            found = await self._resolved(session_id, recipe, action, indexes, project)
            self._check_age(session_id, found, project)
        except _UnplannedError as error:
            found = InstallPlan(_unplanned(action, str(error)))
        is_known = (recipe.is_report and found.locks is not None) or names_packages_alone(action)
        if goes_home(action, environment) and not is_known:
            raise RefusedError(
                "code of the project's could change what the session's other programs run",
                "install it into a virtual environment, or name packages of an index alone",
            )
        return found._replace(
            root=project.root, indexes=indexes.in_force, runs=runs, environment=environment
        )

    async def locks(self, session_id: str, plan: InstallPlan) -> Locks:
        """Return what came, as the lock file says. `ValueError` where it can't be read."""
        return await self._files.locks(session_id, plan.root, lock_after(plan.action))

    async def missing(self, session_id: str, plan: InstallPlan) -> list[str]:
        """Return which packages of a plan the project's environment lacks. What is in the home
        isn't read."""
        if not plan.locks or not plan.environment.startswith(f"{MERGED}/"):
            return []
        place = plan.environment.removeprefix(f"{MERGED}/")
        there = await self._files.packages_in(session_id, place)
        return [
            f"{one} {version}"
            for one, version in sorted(plan.locks)
            if (fold_name(one), version) not in there
        ]

    async def _project(self, session_id: str, action: Packages) -> tuple[Project, str]:
        """Return what it is planned from, and why that can't be read; empty where it can."""
        if is_at_home(action):
            return Project(PlanInputs()), ""
        try:
            return await self._files.project(session_id, action), ""
        except ValueError as error:
            why = shown(str(error))
            if action.manager == "pip":
                raise RefusedError(why, "see that it can be read, or install by hand") from error
            # What can't be read may be what names a program.
            has_files = action.manager in SOURCES
            return Project(PlanInputs(unknown=(why,), runs=has_files)), why

    async def _resolved(
        self,
        session_id: str,
        recipe: Recipe,
        action: Packages,
        indexes: _Indexes,
        project: Project,
    ) -> InstallPlan:
        index, own = indexes.in_force[0], _hosts(indexes.own)
        hosts = _hosts(indexes.in_force)
        asked = [item.name for item in _items(action) if not item.is_file]
        base = index
        if recipe.kind == "pypi":
            # Where its files lie, only the index knows; the manager reads some while it resolves.
            urls = [registry_answers.address("pypi", index, name, "") for name in asked]
            pages = await self._registry.fetch(session_id, urls, hosts, own=own, read=_file_hosts)
            more = frozenset(host for found in pages.values() for host in found)
        else:
            more = frozenset()
        if recipe.kind == "crates":
            config = registry_answers.crates_config_address(index)
            answers = await self._registry.fetch(
                session_id, [config], hosts, own=own, read=_crates_config
            )
            base, files = answers.get(config, ("", ""))
            more = _hosts([base, files])
        for host in sorted(more):
            self._check_host(session_id, host)
        # Where the person's own index says that its files lie is as much theirs; another one on the
        # same host may be anybody's.
        own |= more if index in indexes.own else frozenset()
        hosts |= more
        action = replace(action, hosts=_texts(hosts))
        after = await self._locked(session_id, recipe, action, indexes, project, hosts, own)
        plan = await asyncio.to_thread(planned, project.before, after)
        if not plan and after and not asked:
            plan = planned({}, after)  # nothing new: all of the lock file is to be installed
        if len(plan) > MOST_PACKAGES:
            raise RefusedError(
                f"it would change {len(plan)} packages, and {MOST_PACKAGES} can be shown",
                "install in parts",
            )
        claimed = await asyncio.to_thread(_claimed, recipe, project, after)
        first = {*asked, *(name for name, _ in claimed)}
        facts = await self._facts(session_id, recipe, base, plan, first, hosts, own)
        doubts = [*_from_elsewhere(plan, after, hosts), *_other_files(after, facts, claimed)]
        left_out = project.inputs.unknown
        downloads = [one.url for one in after.values()] + [one.url for one in facts.values()]
        given = await asyncio.to_thread(with_facts, recipe.kind, plan, facts, now=self._now())
        doubt = next(iter([*doubts, *left_out]), "")
        shown_action = replace(
            action,
            hosts=_texts(hosts | _hosts(downloads)),
            plan=given,
            notes=(*action.notes, *doubts),
            unknown=(*left_out, *what_is_unknown(recipe.kind, given)),
            doubt=doubt,
        )
        return InstallPlan(shown_action, None if left_out else after)

    # -- the index --------------------------------------------------------------------------------

    async def _indexes(
        self, session_id: str, recipe: Recipe, action: Packages, project: Project
    ) -> _Indexes:
        own = await self.own_index(action.manager)
        if not own:
            # Without a configuration of the person's, it is the manager's own.
            done = await self._sandbox.plan(
                session_id, {}, lambda _: index_script(recipe, ":"), manager=action.manager
            )
            own = _urls(done.stdout)
        flags, inputs = said(action), project.inputs
        named = flags.default or inputs.default
        urls = [*([named] if named else own), *flags.more, *inputs.more]
        in_force = tuple(dict.fromkeys(map(_public, urls)))
        if not in_force:
            raise RefusedError(
                f"{action.manager} doesn't say where packages come from",
                "see that it is installed where the sandbox has it (below /usr)",
            )
        return _Indexes(in_force, own)

    async def own_index(self, manager: str) -> tuple[str, ...]:
        """Return the index of the person's own configuration; nothing where they have none, or no
        such manager."""
        if RECIPES[manager].kind not in ("npm", "pypi", "go"):
            return ()
        if manager not in self._own:
            self._own[manager] = _urls(await _said(RECIPES[manager].index_from))
        return self._own[manager]

    async def home_config(self, manager: str) -> str:
        """Return the shell text that configures a sandbox's manager as the person's own is."""
        if manager == "go":
            if not self._go:
                self._go = go_config((await _said(GO_SETTINGS_FROM)).decode(errors="replace"))
            return self._go
        own = await self.own_index(manager)
        return home_config(RECIPES[manager].kind, own[0] if own else "")

    # -- the plan ---------------------------------------------------------------------------------

    async def _locked(
        self,
        session_id: str,
        recipe: Recipe,
        action: Packages,
        indexes: _Indexes,
        project: Project,
        hosts: Hosts,
        own: Hosts,
    ) -> Locks:
        """Return what would be locked, as the manager resolves it."""
        config = await self.home_config(action.manager)
        environment = index_environment(action, indexes.in_force)
        done = await self._sandbox.plan(
            session_id,
            project.inputs.files,
            lambda program: plan_script(
                action, f"{config}\n{environment}", program=program, python=project.python
            ),
            manager=action.manager,
            hosts=hosts,
            own=own,
        )
        if done.exit_code != 0 or done.truncated:
            told = done.killed_why or (done.stderr or done.stdout).decode(errors="replace").strip()
            raise _UnplannedError(f"{action.manager} says: {told[-MOST_SAID:]}")
        text = done.stdout.decode(errors="replace")
        try:
            return await asyncio.to_thread(locks_in, recipe.lock, text)
        except ValueError as error:
            raise _UnplannedError(f"the plan can't be read: {error}") from error

    async def _facts(
        self,
        session_id: str,
        recipe: Recipe,
        base: str,
        plan: tuple[PlannedPackage, ...],
        first: set[str],
        hosts: Hosts,
        own: Hosts,
    ) -> dict[tuple[str, str], RegistryFacts]:
        """Ask about the packages that come, some first."""
        coming = sorted(
            (one for one in plan if one.version), key=lambda one: one.name not in first
        )[:MOST_ASKED]
        versions: dict[str, list[tuple[str, str]]] = {}
        for one in coming:
            url = registry_answers.address(recipe.kind, base, one.name, one.version)
            if url:
                versions.setdefault(url, []).append((one.name, one.version))

        def read(url: str, body: bytes) -> dict[tuple[str, str], RegistryFacts]:
            wanted = tuple(version for _, version in versions[url])
            said_of = registry_answers.facts(recipe.kind, body, wanted)
            return {key: said_of[key[1]] for key in versions[url] if key[1] in said_of}

        answers = await self._registry.fetch(session_id, versions, hosts, own=own, read=read)
        return {key: one for found in answers.values() for key, one in found.items()}

    def _check_age(self, session_id: str, plan: InstallPlan, project: Project) -> None:
        """Refuse what brings versions for which a job of updates waits. What pins spell out isn't
        new."""
        updates, action = self._updates_of(session_id), plan.action
        is_pinned = action.manager == "pip" and all("==" in one for one in action.names)
        if updates is None or is_pinned:
            return
        if young := too_young(action.plan, project.before, updates, self._now()):
            age = format_duration(updates.min_age_s)
            raise RefusedError(
                f"{', '.join(young[:MOST_YOUNG])}: released less than {age} ago",
                "wait, or choose older versions",
            )

    # -- what may be reached ----------------------------------------------------------------------

    def _check_host(self, session_id: str, host: tuple[str, int]) -> None:
        verdict = self._gate.rulings.verdict(_connect(host), session_id)
        if verdict.decision == "deny":
            raise RefusedError(verdict.why, verdict.remedy, rule=verdict.rule)

    def _is_allowed(self, session_id: str, url: str) -> bool:
        host = host_of(url)
        if host is None:
            return False
        return self._gate.rulings.verdict(_connect(host), session_id).decision == "allow"


async def _said(script: str) -> bytes:
    """Return what the person's own managers say outside of every project; nothing where they
    fail."""
    try:
        done = await process.run(
            ["/bin/bash", "-c", script], env=for_package_managers(), cwd="/", timeout_s=INDEX_S
        )
    except GatehouseError:
        return b""
    return done.stdout


def _unplanned(action: Packages, why: str) -> Packages:
    """Return an action whose plan couldn't be made: no rule may allow what nobody knows."""
    told = f"what it would install: {why}"
    return replace(action, unknown=(told,), doubt="what it would install isn't known")


def _what_runs(action: Packages, project: Project, strange: list[str]) -> str:
    """Return what makes an install run code of the project's, or may; empty where nothing does."""
    if flags := said(action).strange:
        return f"`{flags[0]}` isn't known as harmless"
    if strange and RECIPES[action.manager].kind == "pypi":
        return strange[0]
    if project.inputs.runs:
        return project.inputs.unknown[0]
    if is_at_home(action) and action.manager == "cargo":
        return "cargo builds it by code of the packages' own"
    if action.manager == "gem":
        return "gem builds extensions by code of the package's own"
    if not SOURCES.get(action.manager) and action.manager not in ("pip", "go"):
        return f"{action.manager} reads configuration of the project's that names programs"
    return ""


def _connect(host: tuple[str, int]) -> Network:
    return Network(operation="connect", host=host[0], port=host[1])


def _items(action: Packages) -> list[Item]:
    try:
        return items_of(replace(action, names=said(action).names))
    except ValueError as error:
        raise RefusedError(str(error), "write names as the manager takes them") from error


def _urls(output: bytes) -> tuple[str, ...]:
    lines = (line.strip() for line in output.decode(errors="replace").splitlines())
    return tuple(dict.fromkeys(_public(line) for line in lines if host_of(line)))


def _hosts(urls: Iterable[str]) -> Hosts:
    return frozenset(host for url in urls if (host := host_of(url)))


def _texts(hosts: Hosts) -> tuple[str, ...]:
    return tuple(f"{host}:{port}" for host, port in sorted(hosts))


def _file_hosts(url: str, body: bytes) -> set[tuple[str, int]]:
    return registry_answers.file_hosts(body, url)


def _crates_config(url: str, body: bytes) -> tuple[str, str]:
    return registry_answers.crates_config(body)


def _claimed(recipe: Recipe, project: Project, after: Locks) -> set[tuple[str, str]]:
    """Return which packages come as the copy's lock file says, and neither the person's own nor
    the index does. Cargo and go take no lock file's word for it."""
    if recipe.kind in ("crates", "go"):
        return set()
    try:
        said = locks_in(recipe.lock, project.inputs.files.get(recipe.lock, ""))
    except ValueError as error:
        raise _UnplannedError(str(error)) from error
    return {
        key
        for key, one in after.items()
        if _file_of(said.get(key)) == _file_of(one) != _file_of(project.before.get(key))
    }


def _file_of(one: Locked | None) -> tuple[str, str] | None:
    return one and (one.url, one.integrity)


def _other_files(
    after: Locks,
    facts: Mapping[tuple[str, str], RegistryFacts],
    claimed: set[tuple[str, str]],
) -> list[str]:
    """Return which packages of a lock file are other files than the index has by their names, and
    of which nobody knows."""
    other, unknown = [], []
    for key, one in sorted(after.items()):
        told = facts.get(key, RegistryFacts())
        if one.integrity and told.integrity:
            is_other = not {*one.integrity.split()} <= {*told.integrity.split()}
        else:
            is_other = key in claimed and one.url not in ("", told.url)
        if is_other and told.url:
            other.append(" ".join(key))
        elif is_other:
            unknown.append(" ".join(key))
    doubts = (
        (other, "the lock file names another file than the index"),
        (unknown, "the lock file alone says which file it is"),
    )
    return [
        f"{', '.join(names[:3])}{' and others' * (len(names) > 3)}: {why}"
        for names, why in doubts
        if names
    ]


def _from_elsewhere(plan: Iterable[PlannedPackage], after: Locks, hosts: Hosts) -> list[str]:
    """Return which packages a lock file has come from a host that isn't the index's."""
    coming = {(one.name, one.version) for one in plan}
    found: dict[str, list[str]] = {}
    for key, one in after.items():
        host = host_of(one.url)
        if key in coming and host is not None and host not in hosts:
            found.setdefault(host[0], []).append(one.name)
    return [
        f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''} would come from {host}"
        for host, names in sorted(found.items())
    ]


def _public(url: str) -> str:
    """Return an index without what authenticates."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
