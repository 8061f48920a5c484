"""The configuration in force for a repository: its settings, its files, and its owner's.

`reviews.core.config` merges them; this reads them. A file with a mistake is ignored, and the result
says so.
"""

import asyncio
import zoneinfo
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from supervisor.base import log
from supervisor.errors import GatehouseError, UserError
from supervisor.reviews.clones import BranchFiles, Checkout, Clones, WantedBranch, clone_name
from supervisor.reviews.core import prompts
from supervisor.reviews.core.config.effective import ConfigLayer, EffectiveConfig, combine
from supervisor.reviews.core.config.reader import (
    ReadConfig,
    fault_words,
    read_refinery,
    read_reviewerc,
    read_settings,
)
from supervisor.reviews.core.config.shapes import RefineryFile
from supervisor.reviews.forges.base import Forges
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.store import queries
from supervisor.settings import review_runtime_of

REVIEWERC, REFINERY = ".reviewerc", ".code-refinery.yml"
# The repositories of an owner that may hold a `.reviewerc` for all of them, the first that has one.
CENTRAL = (".github", ".gatehouse")
# The fields of a repository's settings that are configuration.
SETTINGS = tuple(RefineryFile.__struct_fields__)
# The field that holds a whole `.reviewerc`, as text.
WHOLE = "reviewerc"
# The field that names what conducts its reviews; no file of a repository says it.
RUNTIME = "runtime"
MOST_FAULTS = 3


class Configurations:
    """The configurations of one supervisor's repositories. `inputs` is stronger than theirs."""

    def __init__(
        self, engine: Engine, forges: Forges, clones: Clones, inputs: ConfigLayer | None = None
    ) -> None:
        self._engine = engine
        self._forges = forges
        self._clones = clones
        self._inputs = inputs
        self._zones = zoneinfo.available_timezones()

    async def effective(
        self, repository: queries.Repository, checkout: Checkout, revision: str
    ) -> EffectiveConfig:
        """Return the configuration for a run, with the files of a commit of its checkout. Raise
        `ForgeError` or `CloneError` if the owner's files can't be read."""
        files = {
            path: data
            for path in (REVIEWERC, REFINERY)
            if (data := await self._clones.data_at(checkout, revision, path)) is not None
        }
        return await self._effective(repository, BranchFiles(revision, files))

    async def of_default_branch(self, repository: queries.Repository) -> EffectiveConfig:
        """Return the configuration of the current default branch. Raise as `effective` does."""
        found = await self._branch_files(repository, (REVIEWERC, REFINERY))
        return await self._effective(repository, found or BranchFiles("", {}))

    async def wants_drafts(self, repository: queries.Repository) -> bool:
        """Return whether a prompt on the default branch runs on drafts. False if that is
        unknown."""
        try:
            config = await self.of_default_branch(repository)
        except GatehouseError as error:
            log.warning("the configuration can't be read", error=str(error))
            return False
        return prompts.wants_drafts([one.value for one in config.prompts])

    def change(self, repository_id: int, changes: Mapping[str, object]) -> None:
        """Store the operator's settings for a repository; an empty value removes a setting. Raise
        `UserError` if a value can't be used."""
        with self._engine.begin() as connection:
            known = queries.repository_of(connection, repository_id).settings
            merged = self._merged(known, changes)
            queries.change_repository(connection, repository_id, settings=merged)

    def change_owner(self, forge: str, owner: str, changes: Mapping[str, object]) -> None:
        """Do the same for all repositories of an owner."""
        with self._engine.begin() as connection:
            merged = self._merged(queries.owner_settings(connection, forge, owner), changes)
            queries.put_owner(connection, forge, owner, merged)

    def _merged(
        self, known: Mapping[str, object], changes: Mapping[str, object]
    ) -> dict[str, object]:
        merged = {key: value for key, value in (dict(known) | dict(changes)).items() if value}
        read_settings(_fields(merged))
        if RUNTIME in merged:
            review_runtime_of(str(merged[RUNTIME]), "the runtime")
        if text := str(merged.get(WHOLE, "")):
            faults = read_reviewerc(text.encode(), self._zones).faults
            if faults:
                raise UserError(fault_words("line", faults[0]), "the settings stay as they were")
        return merged

    def owner_settings(self, repository: queries.Repository) -> dict[str, Any]:
        """Return the operator's settings for all repositories of this one's owner."""
        with self._engine.connect() as connection:
            return queries.owner_settings(connection, repository.forge, owner_of(repository))

    def runtime(self, repository: queries.Repository) -> tuple[str, str]:
        """Return what conducts a repository's reviews, and who said so; both "" for the service's
        own."""
        made = {
            "dashboard": repository.settings,
            f"dashboard for {owner_of(repository)}": self.owner_settings(repository),
        }
        return next(
            ((str(one[RUNTIME]), said) for said, one in made.items() if one.get(RUNTIME)), ("", "")
        )

    async def _effective(self, repository: queries.Repository, own: BranchFiles) -> EffectiveConfig:
        layers = [] if self._inputs is None else [self._inputs]
        notes: list[str] = []
        owner = owner_of(repository)
        made = {"": repository.settings, f" for {owner}": self.owner_settings(repository)}
        for whose, settings in made.items():
            name = f"dashboard{whose}"
            try:
                layers.append(ConfigLayer(name, read_settings(_fields(settings))))
            except UserError as error:
                notes.append(f"the settings of the {name} are not used: {error}")
            text = str(settings.get(WHOLE, ""))
            await self._add(name, text.encode() or None, layers, notes)
        await self._add(f"`{REVIEWERC}` at {own.sha[:7]}", own.files.get(REVIEWERC), layers, notes)
        await self._add(f"`{REFINERY}` at {own.sha[:7]}", own.files.get(REFINERY), layers, notes)
        for name, found in await self._central(repository):
            called = f"`{REVIEWERC}` of {name} at {found.sha[:7]}"
            await self._add(called, found.files.get(REVIEWERC), layers, notes)
        return combine(layers, notes)

    async def _add(
        self, name: str, data: bytes | None, layers: list[ConfigLayer], notes: list[str]
    ) -> None:
        """Add a file's configuration, or a note if it has a mistake. Reading a long file takes its
        time."""
        if data is None:
            return
        read: ReadConfig
        if REFINERY in name:
            read = await asyncio.to_thread(read_refinery, data)
        else:
            read = await asyncio.to_thread(read_reviewerc, data, self._zones)
        if read.config is not None:
            layers.append(ConfigLayer(name, read.config, read.lines))
            return
        said = [fault_words("line", one) for one in read.faults[:MOST_FAULTS]]
        more = len(read.faults) - len(said)
        further = f" and {more} more" if more else ""
        notes.append(f"{name} has mistakes and is not used: {' / '.join(said)}{further}")

    async def _central(self, repository: queries.Repository) -> list[tuple[str, BranchFiles]]:
        """Return the owner's file, if the App is installed on a repository that has one."""
        owner = owner_of(repository)
        for name in CENTRAL:
            with self._engine.connect() as connection:
                found = queries.repository(connection, repository.forge, f"{owner}/{name}")
            if found is None or found.removed_at is not None or found.id == repository.id:
                continue
            files = await self._branch_files(found, (REVIEWERC,))
            if files is not None and files.files:
                return [(found.full_name, files)]
        return []

    async def _branch_files(
        self, repository: queries.Repository, paths: tuple[str, ...]
    ) -> BranchFiles | None:
        branch = WantedBranch(
            name=clone_name(repository.forge, repository.full_name),
            url=repository.clone_url,
            token=await self._forges.of(repository).clone_token(facts_of(repository)),
            branch=repository.default_branch,
        )
        return await self._clones.branch_files(branch, paths)


def owner_of(repository: queries.Repository) -> str:
    """Return the owner of a repository."""
    return repository.full_name.split("/", maxsplit=1)[0]


def chosen(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that are configuration."""
    return {key: settings[key] for key in (*SETTINGS, WHOLE, RUNTIME) if key in settings}


def _fields(settings: Mapping[str, object]) -> dict[str, object]:
    return {key: settings[key] for key in SETTINGS if key in settings}
