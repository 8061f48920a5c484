"""Finds out what an install would do, before anybody is asked.

    the index in force   as the manager itself says, in the sandbox
    the plan             the manager resolves in a throwaway folder; before and after are compared
    what is known        of each package, from the registry

Before an approval only an index is reached that is the person's own, or that the rules allow.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from supervisor.base import process
from supervisor.channels.install_sandbox import Hosts, InstallSandbox
from supervisor.channels.registry_client import RegistryClient
from supervisor.core.actions import Network, Packages, PlannedPackage
from supervisor.core.packages import registry_answers
from supervisor.core.packages.install_plan import (
    MOST_PACKAGES,
    planned,
    what_is_unknown,
    with_facts,
)
from supervisor.core.packages.install_recipes import (
    MARK,
    RECIPES,
    Recipe,
    home_config,
    index_script,
    plan_script,
    recipe_of,
    why_not,
    words_of,
)
from supervisor.core.packages.lock_files import Locks, locks_in
from supervisor.core.packages.package_commands import Item, items_of, managers, risky_flags
from supervisor.core.packages.registry_answers import RegistryFacts, host_of
from supervisor.errors import GatehouseError, RefusedError
from supervisor.gate.gate import Gate
from supervisor.settings import for_package_managers

INDEX_S = 30.0
MOST_ASKED = 100
MOST_SAID = 500
_READ = "ask for what a package manager can do in the project"


class _UnplannedError(Exception):
    """The manager can't say what it would do."""


class Indexes(NamedTuple):
    """Where packages come from: the URLs in force for a command, and those of the person's own
    configuration."""

    in_force: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def strange(self) -> tuple[str, ...]:
        """Those that aren't the person's own."""
        known = {host_of(url) for url in self.own}
        return tuple(url for url in self.in_force if host_of(url) not in known)


class PackagePlans:
    """`now` gives seconds since the epoch."""

    def __init__(
        self,
        gate: Gate,
        sandbox: InstallSandbox,
        registry: RegistryClient,
        now: Callable[[], float],
    ) -> None:
        self._gate = gate
        self._sandbox = sandbox
        self._registry = registry
        self._now = now
        self._own: dict[str, tuple[str, ...]] = {}

    async def planned(self, session_id: str, action: Packages) -> Packages:
        """Return the action with what it would do, or why that isn't known. `RefusedError` where it
        can't be carried out."""
        action = replace(action, index="", hosts=(), plan=(), notes=(), unknown=(), doubt="")
        recipe = recipe_of(action)
        if recipe is None or action.operation not in managers()[action.manager].operations:
            raise RefusedError(f"`{' '.join(words_of(action))}` is not carried out", _READ)
        if why := why_not(action):
            raise RefusedError(why, "install into the project")
        indexes = await self._indexes(session_id, recipe, action)
        hosts = _hosts(indexes.in_force)
        for host in sorted(hosts):
            self._check_host(session_id, host)
        notes = [f"`{flag}` isn't known as harmless" for flag in risky_flags(action)]
        notes += [f"{_shown(url)} is not the index that you use" for url in indexes.strange]
        action = replace(action, index=" ".join(map(_shown, indexes.in_force)), hosts=_texts(hosts))
        # To plan code of the agent's own would be to run it, with a way to the index.
        values = _values_of_flags(action)
        strange = [one.origin for one in _items(action) if one.origin and one.text not in values]
        if strange:
            return _unplanned(action, notes, strange[0])
        closed = [url for url in indexes.strange if not self._is_allowed(session_id, url)]
        if closed:
            why = f"{_shown(closed[0])} isn't reached before you approve"
            return _unplanned(action, notes, why)
        return await self._resolved(session_id, recipe, action, indexes, notes)

    async def _resolved(
        self,
        session_id: str,
        recipe: Recipe,
        action: Packages,
        indexes: Indexes,
        notes: list[str],
    ) -> Packages:
        index = indexes.in_force[0]
        hosts = _hosts(indexes.in_force)
        asked = [item.name for item in _items(action) if not item.origin and not item.is_file]
        pages: dict[str, bytes] = {}
        base = index
        if recipe.kind == "pypi":
            # Where its files lie, only the index knows; the manager reads some while it resolves.
            urls = [registry_answers.address("pypi", index, name, "") for name in asked]
            pages = await self._registry.fetch(session_id, urls, hosts)
            hosts |= _file_hosts(pages)
        if recipe.kind == "crates":
            config = registry_answers.crates_config_address(index)
            answers = await self._registry.fetch(session_id, [config], hosts)
            base, files = registry_answers.crates_config(answers.get(config, b""))
            hosts |= _hosts([base, files])
        try:
            before, after = await self._states(session_id, recipe, action, indexes, hosts)
        except _UnplannedError as error:
            return _unplanned(replace(action, hosts=_texts(hosts)), notes, str(error))
        plan = planned(before, after)
        if not plan and after and not asked:
            plan = planned({}, after)  # nothing new: all of the lock file is to be installed
        if len(plan) > MOST_PACKAGES:
            raise RefusedError(
                f"it would change {len(plan)} packages, and {MOST_PACKAGES} can be shown",
                "install in parts",
            )
        facts = await self._facts(session_id, recipe, base, plan, asked, hosts, pages)
        elsewhere = _from_elsewhere(plan, after, hosts)
        notes += elsewhere
        downloads = [one.url for one in after.values()] + [one.url for one in facts.values()]
        shown = with_facts(recipe.kind, plan, facts, now=self._now())
        return replace(
            action,
            hosts=_texts(hosts | _hosts(downloads)),
            plan=shown,
            notes=tuple(notes),
            unknown=what_is_unknown(recipe.kind, shown),
            doubt=elsewhere[0] if elsewhere else "",
        )

    # -- the index --------------------------------------------------------------------------------

    async def _indexes(self, session_id: str, recipe: Recipe, action: Packages) -> Indexes:
        own = await self.own_index(action.manager)
        config = home_config(recipe.kind, own[0] if own else "")
        script = index_script(recipe, action, config)
        found = await self._index_lines(session_id, script, action.cwd, action.manager)
        if not own:
            # Without a configuration of the person's, it is the manager's own.
            alone = f'cd "$(mktemp -d)"\n{script}'
            own = await self._index_lines(session_id, alone, action.cwd, action.manager)
        words = (part for word in words_of(action) for part in word.split("="))
        said = [word for word in words if host_of(word)]
        in_force = tuple(dict.fromkeys([*said, *found]))
        if not in_force:
            raise RefusedError(
                f"{action.manager} doesn't say where packages come from",
                "see that it is installed where the sandbox has it (below /usr)",
            )
        return Indexes(in_force, own)

    async def own_index(self, manager: str) -> tuple[str, ...]:
        """Return the index of the person's own configuration; nothing where they have none, or no
        such manager."""
        if RECIPES[manager].kind not in ("npm", "pypi"):
            return ()
        if manager not in self._own:
            try:
                done = await process.run(
                    ["/bin/bash", "-c", RECIPES[manager].index_from],
                    env=for_package_managers(),
                    cwd="/",
                    timeout_s=INDEX_S,
                )
                self._own[manager] = _urls(done.stdout)
            except GatehouseError:
                self._own[manager] = ()
        return self._own[manager]

    async def _index_lines(
        self, session_id: str, script: str, cwd: str, manager: str
    ) -> tuple[str, ...]:
        done = await self._sandbox.run(
            session_id, script, cwd=cwd, manager=manager, timeout_s=INDEX_S
        )
        return _urls(done.stdout)

    # -- the plan ---------------------------------------------------------------------------------

    async def _states(
        self, session_id: str, recipe: Recipe, action: Packages, indexes: Indexes, hosts: Hosts
    ) -> tuple[Locks, Locks]:
        config = home_config(recipe.kind, indexes.own[0] if indexes.own else "")
        done = await self._sandbox.run(
            session_id,
            plan_script(recipe, action, config),
            cwd=action.cwd,
            manager=action.manager,
            hosts=hosts,
        )
        if done.exit_code != 0 or done.truncated:
            said = done.killed_why or (done.stderr or done.stdout).decode(errors="replace").strip()
            raise _UnplannedError(f"{action.manager} says: {said[-MOST_SAID:]}")
        _, before, after = done.stdout.decode(errors="replace").split(f"{MARK}\n", 2)
        try:
            return locks_in(recipe.installed_format, before), locks_in(recipe.lock, after)
        except ValueError as error:
            raise RefusedError(
                f"the plan can't be read: {error}", "report this as a bug"
            ) from error

    async def _facts(
        self,
        session_id: str,
        recipe: Recipe,
        base: str,
        plan: tuple[PlannedPackage, ...],
        asked: list[str],
        hosts: Hosts,
        pages: dict[str, bytes],
    ) -> dict[tuple[str, str], RegistryFacts]:
        """Ask about the packages that come, those that were named first."""
        coming = sorted(
            (one for one in plan if one.version), key=lambda one: one.name not in asked
        )[:MOST_ASKED]
        urls = {
            (one.name, one.version): registry_answers.address(
                recipe.kind, base, one.name, one.version
            )
            for one in coming
        }
        wanted = [url for url in urls.values() if url and url not in pages]
        answers = pages | await self._registry.fetch(session_id, wanted, hosts)
        found: dict[tuple[str, str], RegistryFacts] = {}
        for key, url in urls.items():
            if url in answers:
                try:
                    found[key] = registry_answers.facts(recipe.kind, answers[url], key[1])
                except ValueError:
                    continue
        return found

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


def _unplanned(action: Packages, notes: list[str], why: str) -> Packages:
    """Return an action whose plan couldn't be made: no rule may allow what nobody knows."""
    said = f"what it would install: {why}"
    return replace(
        action, notes=tuple(notes), unknown=(said,), doubt="what it would install isn't known"
    )


def _connect(host: tuple[str, int]) -> Network:
    return Network(operation="connect", host=host[0], port=host[1])


def _items(action: Packages) -> list[Item]:
    try:
        return items_of(action)
    except ValueError as error:
        raise RefusedError(str(error), "write names as the manager takes them") from error


def _values_of_flags(action: Packages) -> set[str]:
    """Return the addresses that stand behind a flag which isn't known, as an index does."""
    words, risky = words_of(action), set(risky_flags(action))
    pairs = itertools.pairwise(words)
    return {value for flag, value in pairs if flag in risky and host_of(value)}


def _urls(output: bytes) -> tuple[str, ...]:
    lines = (line.strip() for line in output.decode(errors="replace").splitlines())
    return tuple(dict.fromkeys(line for line in lines if host_of(line)))


def _hosts(urls: Iterable[str]) -> Hosts:
    return frozenset(host for url in urls if (host := host_of(url)))


def _texts(hosts: Hosts) -> tuple[str, ...]:
    return tuple(f"{host}:{port}" for host, port in sorted(hosts))


def _file_hosts(pages: dict[str, bytes]) -> Hosts:
    found: set[tuple[str, int]] = set()
    for url, body in pages.items():
        try:
            found |= registry_answers.file_hosts(body, url)
        except ValueError:
            continue
    return frozenset(found)


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


def _shown(url: str) -> str:
    """Return an index without what authenticates."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
