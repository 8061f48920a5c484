"""Folder swaps: group the paths under a folder that replaced a file or link, or vice versa.

A comparison asks about them all as one: the request for the top path replaces those for the others.
It must never remove a folder that holds anything the session never had: ignored files, and files
new on the host, are the person's.
"""

import asyncio
import stat
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import (
    SPECIAL,
    Signature,
    Want,
    create_or_change,
    is_text,
    may_swap,
    name_fields,
    signature_of,
)
from supervisor.core.files.swaps import (
    MOST_NAMED_BYTES,
    MOST_STEPS,
    Below,
    going,
    named_bytes,
    whole,
)
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import GatehouseError
from supervisor.workspace.compare.copy_side import CopySide
from supervisor.workspace.compare.path_findings import PathFinding
from supervisor.workspace.disk.scan import (
    TooLargeError,
    UnsteadyError,
    each_name,
    look,
    readable_entries,
    signature_at,
)
from supervisor.workspace.trees.ignores import Ignores
from supervisor.workspace.trees.secrets_seen import hazards_of_kept
from supervisor.workspace.trees.trees import Sides


class Swap(NamedTuple):
    """A swapped path with everything below it. `action`, and the signatures behind it; `problem`:
    why it must wait; `large`: contents to drop as soon as no request names them."""

    action: FileChange | None = None
    members: dict[str, Signature] = {}
    problem: str = ""
    unsteady: bool = False
    large: tuple[str, ...] = ()


class _WaitsError(Exception):
    """The swap can't be asked about now; the message says why."""


class FolderSwaps:
    """Folder swaps of one session. Calls must not overlap, as those of the comparison don't."""

    def __init__(self, sides: Sides, side: CopySide, ignores: Ignores, redactor: Redactor) -> None:
        self._sides = sides
        self._side = side
        self._ignores = ignores
        self._redactor = redactor
        self._last: dict[str, tuple[object, Swap]] = {}

    def gather(self, found: dict[str, bool]) -> tuple[dict[str, bool], set[str]]:
        """Return the paths to examine, with paths below a swapped one replaced by it, and the
        replaced paths. Blocking."""
        looked: dict[str, str] = {}
        kept: dict[str, bool] = {}
        ended = [name for name in self._last if not self._is_swapped(name)]
        for name in ended:
            _, swap = self._last.pop(name)
            found = found | {one: self._is_there(one) for one in (name, *swap.members)}
        taken: set[str] = set()
        for name, there in found.items():
            top = self._top(name.rpartition("/")[0], looked)
            if top:
                kept[top] = True
                taken.add(name)
            else:
                kept[name] = there
        return kept, taken - kept.keys()

    def _top(self, folder: str, looked: dict[str, str]) -> str:
        """Return the outermost swapped path among a folder and its parents; empty where there is
        none."""
        if not folder:
            return ""
        if folder not in looked:
            looked[folder] = self._top(folder.rpartition("/")[0], looked) or (
                folder if self._is_swapped(folder) else ""
            )
        return looked[folder]

    def _is_swapped(self, name: str) -> bool:
        """Return whether a path is swapped, without reading files: every comparison asks while a
        swap waits."""
        sides = self._sides
        signatures = signature_at(sides.copy, name), signature_at(sides.host, name)
        if len({stat.S_ISDIR(one[4]) for one in signatures if one is not None}) < 2:
            return False
        try:
            mine, host = (
                sides.look_at_copy(name, is_read=False),
                look(sides.host, name, is_read=False),
            )
        except (OSError, GatehouseError):
            return False
        return may_swap(sides.known(name), mine, host) and sides.is_of_agent(name)

    def _is_there(self, name: str) -> bool:
        return signature_at(self._sides.copy, name) is not None

    # -- all of it --------------------------------------------------------------------------------

    async def complete(self, finding: PathFinding) -> Swap:
        """Return the complete action for a swapped path. Unchanged paths aren't read again."""
        assert finding.wanted is not None
        assert finding.mine is not None
        made = await self._listed(finding.name) if finding.mine.kind == "dir" else {}
        return await asyncio.to_thread(self._complete, finding, finding.wanted, made)

    async def _listed(self, name: str) -> dict[str, Signature]:
        """List a folder of the copy at any depth, without ignored paths and those that never leave
        the copy."""
        made: dict[str, Signature] = {}
        waiting = [name]
        while waiting and len(made) <= MOST_STEPS:
            level = await asyncio.to_thread(self._level, waiting)
            asked = {
                one: f"{one}/" if stat.S_ISDIR(signature[4]) else one
                for one, signature in level.items()
            }
            out = await self._ignores.among(list(asked.values()))
            level = {one: signature for one, signature in level.items() if asked[one] not in out}
            made |= level
            waiting = [one for one, signature in level.items() if stat.S_ISDIR(signature[4])]
        return made

    def _level(self, folders: Iterable[str]) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        for folder in folders:
            for leaf, status in readable_entries(self._sides.copy, folder):
                may_leave = (
                    stat.S_ISREG(status.st_mode)
                    or stat.S_ISDIR(status.st_mode)
                    or stat.S_ISLNK(status.st_mode)
                )
                if may_leave and not self._side.is_hidden(leaf):
                    found[f"{folder}/{leaf}"] = signature_of(status)
        return found

    def _complete(self, finding: PathFinding, wanted: Want, made: dict[str, Signature]) -> Swap:
        name = finding.name
        try:
            gone = {one: signature_at(self._sides.host, one) for one in self._going(finding)}
            self._check(name, len(gone) + len(made))
            _check_names(map(named_bytes, (*gone, *made)))
            circumstances = (wanted, made, gone, {one: self._sides.known(one) for one in gone})
            before, swap = self._last.get(name, (None, Swap()))
            if (
                before != circumstances
                or swap.action is None
                or not all(map(self._sides.blobs.has, swap.large))
            ):
                action = whole(name, wanted, [*self._gone(gone), *self._made(made)])
                large = tuple(
                    self._sides.blobs.large().keys() & {step.after for step in action.steps}
                )
                _check_names(named_bytes(step.path, step.link_target) for step in action.steps)
                swap = Swap(action, made, large=large)
                self._last[name] = circumstances, swap
            return swap
        except _WaitsError as why:
            self._last[name] = None, Swap(None, made)
            return Swap(problem=str(why))
        except UnsteadyError:
            return Swap(unsteady=True)
        except TooLargeError:
            return Swap(problem="a file in the folder is too large to be carried over")
        except GatehouseError as error:
            return Swap(problem=error.message)
        except OSError as error:
            return Swap(problem=f"it can't be read: {error.strerror}")

    def _check(self, name: str, number: int) -> None:
        if number > MOST_STEPS:
            raise _WaitsError(
                f"more than {MOST_STEPS} paths would go or come with it: swap it on the host"
                " yourself"
            )

    def _going(self, finding: PathFinding) -> list[str]:
        """List the host's folder."""
        assert finding.host is not None
        names: list[str] = []
        for name in each_name(self._sides.host, finding.name) if finding.host.kind == "dir" else ():
            names.append(name)
            self._check(finding.name, len(names))
            if self._sides.known(name) is None:
                shown = name_fields(name)[0]
                raise _WaitsError(
                    f"the host's folder holds `{shown}`, which this session never had: move that"
                    " away first"
                )
        return names

    def _gone(self, names: Iterable[str]) -> Iterable[Below]:
        for name in names:
            host = look(self._sides.host, name)
            if host is None:
                raise UnsteadyError
            yield name, going(self._sides.known(name), host)

    def _made(self, names: Iterable[str]) -> Iterable[Below]:
        sides = self._sides
        with sides.blobs.sharing_sync():
            for name in names:
                mine = look(sides.copy, name, digest_of=sides.blobs.keep_file)
                if mine is None or mine.kind in SPECIAL:
                    raise UnsteadyError
                wanted = create_or_change(sides.known(name), mine, None)
                if wanted.link_target is not None and not is_text(wanted.link_target):
                    raise _WaitsError(
                        f"the target of `{name_fields(name)[0]}` isn't UTF-8, so no request can"
                        " name it"
                    )
                if wanted.operation == "write":
                    hazards = hazards_of_kept(
                        sides, name, wanted.hazards, wanted.after, self._redactor
                    )
                    wanted = msgspec.structs.replace(wanted, hazards=hazards)
                yield name, wanted


def _check_names(each_bytes: Iterable[int]) -> None:
    if sum(each_bytes) > MOST_NAMED_BYTES:
        raise _WaitsError(
            f"the names of what would go or come with it take more than {MOST_NAMED_BYTES >> 10}"
            " kB: swap it on the host yourself"
        )
