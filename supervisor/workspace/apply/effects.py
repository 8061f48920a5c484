"""Carry out file requests: claim the grant, apply, settle, update the copy.

Everything with an effect is here, and nothing else. The caller holds the channel's turn. It must
never carry out a change without the gate's grant, or read content from the copy instead of the
request's snapshot.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from supervisor.base.event_loop import slices, to_end
from supervisor.core.actions import FileChange, title
from supervisor.core.approvals import Request, failure, status
from supervisor.core.files.changes import (
    EditError,
    apply_edits,
    name_of,
    names_of,
)
from supervisor.core.files.swaps import single_changes
from supervisor.errors import GatehouseError, RefusedError
from supervisor.gate.gate import Gate, Grant, Outcome, Refused
from supervisor.workspace.apply.after_effect import Agreement, IntoCopy
from supervisor.workspace.apply.agent_edits import AgentEdits
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.apply.batch import Batch, BatchChange, BatchError, order
from supervisor.workspace.apply.crash_leftovers import clean_leftovers
from supervisor.workspace.apply.moving import Ends, is_moved
from supervisor.workspace.apply.placing import Applied
from supervisor.workspace.apply.staging import Staged, Use
from supervisor.workspace.disk.host_errors import StaleError
from supervisor.workspace.disk.scan import decode, look_quietly, read_file, signature_at
from supervisor.workspace.trees.journal import BatchBegun
from supervisor.workspace.trees.trees import Sides

_READY = ("allowed", "approved")
# Independently allowed changes that share their folders' syncs.
CHUNK = 500
# Changes settled in one go; the rest of the loop waits for it.
SETTLED = 50
_NONE: Mapping[str, Grant] = MappingProxyType({})


class Granted(NamedTuple):
    """A request that may be carried out now, once."""

    request: Request
    action: FileChange
    grant: Grant


type SettledEffect = tuple[Granted, Outcome, dict[str, object]]


class Effects:
    """Carries out one session's effects. `settled(name, failed)` is called after each;
    `ask_again(name, why)` for an effect that failed only because another of the same answer did.
    `at` is `Applier`'s, for tests."""

    def __init__(
        self,
        sides: Sides,
        gate: Gate,
        session_id: str,
        settled: Callable[[str, bool], None],
        at: Callable[[str], None],
        ask_again: Callable[[str, str], None] = lambda name, why: None,
    ) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._settled = settled
        self._ask_again = ask_again
        self._applier = Applier(sides.host, sides.blobs, sides.history, at=at)
        copy_applier = Applier(sides.copy, sides.blobs, None)
        self._batch = Batch(sides, self._applier, at)
        self.edits = AgentEdits()
        self._into_copy = IntoCopy(sides, copy_applier, self.edits)
        self.agreement = Agreement(sides, copy_applier)

    async def carry_out(self, request: Request) -> None:
        """Carry out a request that is allowed or approved. A second call finds it used."""
        request = self._gate.queue.get(request.id)
        if status(request) not in ("allowed", "approved"):
            return
        action = self.action_of(request)
        if request.origin == "agent_api" and (
            why := await asyncio.to_thread(self.why_stale, request, action)
        ):
            self._gate.answers.close(why, request.id)
            return
        grant = self._gate.claim(request.id, self._session_id)
        if isinstance(grant, Grant):
            await self._effect(request, action, grant)

    async def carry_out_all(
        self, requests: Sequence[Request], grants: Mapping[str, Grant] = _NONE
    ) -> None:
        """Carry out several requests: those that a person answered together all or none, those that
        rules allow one by one. Used requests are skipped, except those with one of these `grants`,
        by id."""
        begun = [
            Granted(one, self.action_of(one), grants[one.id])
            for one in requests
            if one.id in grants
        ]
        for at in range(0, len(begun), CHUNK):
            await self._each(begun[at : at + CHUNK])
        allowed = [
            request
            for request in requests
            if request.decision == "allow" and request.id not in grants
        ]
        for at in range(0, len(allowed), CHUNK):
            granted, _ = await self._claim(allowed[at : at + CHUNK])
            await self._each(granted)
        answered = [request for request in requests if request.decision != "allow"]
        answered = [one async for one in self._ready_of(answered)]
        if len(answered) == 1:
            await self.carry_out(answered[0])
        elif answered:
            granted, refused = await self._claim(answered)
            if refused:
                why = f"nothing of this was carried out: {refused[0].why}"
                again = lambda name: self._ask_again(name, "")  # noqa: E731
                await self._settle_all([(one, "failed", {"error": why}) for one in granted], again)
            elif granted:
                await self._as_one(_batch_of(answered), granted)

    async def _ready_of(self, requests: Sequence[Request]) -> AsyncIterator[Request]:
        async for part in slices(requests, SETTLED):
            for request in self._gate.queue.get_all([one.id for one in part]):
                if status(request) in _READY:
                    yield request

    async def _claim(self, requests: Sequence[Request]) -> tuple[list[Granted], list[Refused]]:
        given = await self._gate.claim_together(
            [request.id for request in requests], self._session_id
        )
        pairs = list(zip(requests, given, strict=True))
        granted = [
            Granted(one, self.action_of(one), grant)
            for one, grant in pairs
            if isinstance(grant, Grant)
        ]
        return granted, [refused for _, refused in pairs if isinstance(refused, Refused)]

    async def _each(self, granted: Sequence[Granted]) -> None:
        """Carry out each change separately, with folders synced once; a swap is several changes,
        done as a batch."""
        for one in granted:
            if one.action.operation == "swap":
                await self._swap(one)
        granted = [one for one in granted if one.action.operation != "swap"]
        outcomes = await to_end(lambda: self._apply_each(granted))
        pairs = list(zip(granted, outcomes, strict=True))
        await self._confirm([(one, came) for one, came in pairs if isinstance(came, Applied)])
        failed = [(one, came) for one, came in pairs if isinstance(came, GatehouseError)]
        settled: list[SettledEffect] = [(one, "failed", _failure(error)) for one, error in failed]
        await self._settle_all(settled, lambda name: self._settled(name, True))

    async def _as_one(self, batch: BatchBegun, granted: Sequence[Granted]) -> None:
        """Carry out all of them or none."""
        parts = [part for one in granted for part in _parts(one)]
        changes = await asyncio.to_thread(
            lambda: [
                BatchChange(one.request.id, one.action, use, self._time_of(*one[:2]))
                for one, use in parts
            ]
        )
        try:
            applied = await to_end(lambda: self._batch.carry_out(batch, changes))
        except GatehouseError as error:
            facts = _failure(error) | {"batch": batch.id}
            at_fault, why = (error.name, error.why) if isinstance(error, BatchError) else ("", "")
            again = lambda name: self._ask_again(name, why if name == at_fault else "")  # noqa: E731
            # A single change isn't blocked by others: it is due again after a while.
            then = again if len(granted) > 1 else lambda name: self._settled(name, True)
            await self._settle_all([(one, "failed", facts) for one in granted], then)
        else:
            await self._confirm(
                [(one, came) for (one, _), came in zip(parts, applied, strict=True)]
            )

    async def _swap(self, one: Granted) -> None:
        """Carry out a swap completely or not at all. If it was complete before a crash, only settle
        it: later changes of the person's are no reason to revert it."""
        if not self._sides.history.has_all(one.request.id, names_of(one.action)):
            await self._as_one(_batch_of([one.request]), [one])
            return
        parts = _parts(one)
        came = await to_end(
            lambda: [
                self._applier.found_done(part.action, part.request.id, use) for part, use in parts
            ]
        )
        await self._confirm([(part, found) for (part, _), found in zip(parts, came, strict=True)])

    async def _confirm(self, done: Sequence[tuple[Granted, Applied | None]]) -> None:
        """Record the agreement on finished effects and settle them, in portions so that nobody
        waits long. None: it was done, and somebody changed the path since."""
        # INVARIANT: the history lists effects in the order in which they happened; undo relies on
        # it.
        done = sorted(done, key=lambda one: order(one[0].action))
        last = {one.request.id: number for number, (one, _) in enumerate(done)}
        for at in range(0, len(done), SETTLED):
            for one, came in done[at : at + SETTLED]:
                if came is None:
                    self._sides.history.confirm_alone(one.request.id, name_of(one.action))
                else:
                    await self.agreement.record(one.request, one.action, came)
            part = [
                one
                for number, (one, _) in enumerate(done[at : at + SETTLED], at)
                if last[one.request.id] == number
            ]
            part = [Granted(one.request, self.action_of(one.request), one.grant) for one in part]
            pruned = await asyncio.to_thread(self._prune_all, part)
            settled: list[SettledEffect] = [
                (one, "done", _success(one.action) | pruned.get(one.request.id, {})) for one in part
            ]
            await self._settle_all(settled, lambda name: self._settled(name, False))

    def _prune_all(self, granted: Sequence[Granted]) -> dict[str, dict[str, object]]:
        """Return, for deletions and renames, the part of their outcome about folders removed with
        them."""
        return {
            one.request.id: {"folders_removed": self._prune(name_of(one.action), one.request.id)}
            for one in granted
            if one.action.operation in ("delete", "rename")
        }

    async def _settle_all(
        self, settled: Sequence[SettledEffect], then: Callable[[str], None]
    ) -> None:
        for at in range(0, len(settled), SETTLED):
            part = settled[at : at + SETTLED]
            self._gate.settle_all([(one.grant, outcome, facts) for one, outcome, facts in part])
            for one, _, _ in part:
                for name in names_of(one.action):
                    then(name)
            await asyncio.sleep(0)

    def _apply_each(self, granted: Sequence[Granted]) -> list[Applied | GatehouseError]:
        outcomes: dict[str, Applied | GatehouseError] = {}
        with self._applier.sharing_syncs():
            staged = self._stage_each(granted, outcomes) if len(granted) > 1 else {}
            for request, action, grant in sorted(granted, key=lambda one: order(one.action)):
                try:
                    if request.id in staged:
                        outcomes[request.id] = self._applier.place(staged[request.id])
                    elif request.id not in outcomes:
                        outcomes[request.id] = self._apply(request, action, grant)
                except GatehouseError as error:
                    outcomes[request.id] = error
        return [outcomes[one.request.id] for one in granted]

    def _stage_each(
        self, granted: Sequence[Granted], failed: dict[str, Applied | GatehouseError]
    ) -> dict[str, Staged]:
        """Stage each request's file beside its place, synced together. Requests that can't be
        staged are added to `failed`."""
        staged: dict[str, Staged] = {}
        try:
            with self._applier.staging_together():
                for request, action, grant in granted:
                    if action.operation == "rename":
                        continue
                    try:
                        host, mtime_ns = (
                            self._applier.check(action, request.id),
                            self._time_of(request, action),
                        )
                        if action.operation == "delete":
                            self._applier.keep(action, host)
                        ready = self._applier.stage(
                            action, host, request.id, grant.use, mtime_ns=mtime_ns
                        )
                    except GatehouseError as error:
                        failed[request.id] = error
                    else:
                        staged |= {request.id: ready} if ready is not None else {}
        except OSError as error:  # what isn't on the disk isn't placed
            why = GatehouseError(
                f"the new contents can't be written: {error.strerror}",
                "make room on the host's disk",
            )
            for request_id, ready in staged.items():
                self._applier.unstage(ready)
                failed[request_id] = why
            staged.clear()
        return staged

    async def recover(self) -> None:
        """Clean up after a crashed supervisor and finish its effects. The host's state alone says
        what happened."""
        intents = list(self._sides.history.open.values())
        self._sides.left_behind |= await asyncio.to_thread(
            lambda: clean_leftovers(self._sides.host, intents, anywhere=True)
        )
        left = self._gate.resume_all(
            self._session_id,
            lambda one: isinstance(one.action, FileChange) and one.origin != "egress",
        )
        granted = [
            Granted(request, self.action_of(request), grant)
            for request, grant in left
            if isinstance(grant, Grant)
        ]
        # `apply` finds each change done, or finds `before` and does it, or refuses.
        batch = self._sides.history.open_batch
        ids = set(batch.requests) if batch is not None else set()
        if batch is not None and any(request.id in ids for request, _ in left):
            if together := [one for one in granted if one.request.id in ids]:
                await self._as_one(batch, together)
        elif batch is not None:
            await to_end(lambda: self._batch.roll_back(batch))
        for one in granted:
            if one.request.id not in ids:
                await self._effect(*one)

    def action_of(self, request: Request) -> FileChange:
        """Return the request's action, which must be a file change."""
        action = self._gate.queue.action_of(request)
        if not isinstance(action, FileChange):
            raise TypeError(f"the workspace was given {type(action).__name__}")
        return action

    def names_open(self, answered: Iterable[Request], *, rest: bool) -> set[str]:
        """Return the paths whose changes in the copy weren't carried out; with `rest`, also those
        of the other requests, which may have left something."""
        found = self._gate.queue.get_all([one.id for one in answered if one.origin == "workspace"])
        still = [self.action_of(one) for one in found if rest or failure(one)]
        return {name for action in still for name in names_of(action)}

    async def _effect(self, request: Request, action: FileChange, grant: Grant) -> None:
        name = name_of(action)
        if action.operation == "swap":
            await self._swap(Granted(request, action, grant))
            return
        try:
            applied = await to_end(lambda: self._apply(request, action, grant))
        except GatehouseError as error:
            self._gate.settle(grant, "failed", _failure(error))
            for touched in names_of(action):
                self._settled(touched, True)
            return
        detail = _success(action)
        if request.origin == "agent_api":
            detail["copy"] = await asyncio.to_thread(self._into_copy.bring, request, action)
        await self.agreement.record(request, action, applied)
        if action.operation in ("delete", "rename"):
            detail["folders_removed"] = await asyncio.to_thread(self._prune, name, request.id)
        self._gate.settle(grant, "done", detail)
        for changed in names_of(action):
            self.edits.forget(changed)
            self._settled(changed, False)

    def _apply(self, request: Request, action: FileChange, grant: Grant) -> Applied:
        return self._applier.apply(
            action, request.id, grant.use, mtime_ns=self._time_of(request, action)
        )

    def _time_of(self, request: Request, action: FileChange) -> int | None:
        # Only a file that was made in the copy has a time worth keeping.
        mine = (
            signature_at(self._sides.copy, name_of(action))
            if request.origin == "workspace"
            else None
        )
        return mine[1] if mine else None

    def _prune(self, name: str, request_id: str) -> list[str]:
        removed = self._applier.prune(
            name, lambda folder: look_quietly(self._sides.copy, folder) is None, request_id
        )
        for folder in removed:
            self._sides.agreed(folder, None, request_id)
        return removed

    def why_stale(self, request: Request, action: FileChange) -> str | None:
        """Return why an approved action no longer fits the host, or None where it fits or is done
        already."""
        name = name_of(action)
        host = look_quietly(self._sides.host, name)
        token = host.token if host else None
        if action.operation == "rename":
            ends = Ends(host, look_quietly(self._sides.host, names_of(action)[1]))
            if is_moved(action, ends):
                return None
            if ends.new is not None and token == action.before:
                return (
                    f"stale: there is something at `{action.to}` on the host now; nothing was"
                    " overwritten"
                )
            if token == action.before:
                return None
        elif token in (action.before, action.after):
            return None
        # Don't even tell the hash of a file that the session doesn't have: short content can be
        # guessed from it.
        told = self._sides.known(name) is not None
        now = (
            ("its content is now " + token if told else "there is something else now")
            if token
            else "it is gone"
        )
        why = (
            f"stale: `{action.path}` changed on the host since this was asked ({now}); nothing was"
            " overwritten"
        )
        edits = self.edits.of(name, request.id)
        if edits is None:
            return f"{why} (read it again and ask anew)"
        try:
            apply_edits(decode(read_file(self._sides.host, name)), edits.edits)
        except EditError as error:
            return f"{why} ({error}; read it again and ask anew)"
        except (OSError, GatehouseError):
            return why
        return f"{why} (the old text is still there: ask for the edit again)"


def _batch_of(requests: Sequence[Request]) -> BatchBegun:
    # Like an undo's id, it contains its session's id, so that a person needn't give that
    # separately.
    return BatchBegun(
        f"batch-{requests[0].session_id}-{secrets.token_hex(4)}", tuple(one.id for one in requests)
    )


def _parts(granted: Granted) -> list[tuple[Granted, Use]]:
    """Return a request's single changes, each with its use of the grant. INVARIANT: the grant is
    used for the whole, and each step of a swap, rebuilt before it is done, must be one that the
    grant names."""
    _, *steps = single_changes(granted.action)
    return [
        (granted, granted.grant.use),
        *((granted._replace(action=step), _only(step)) for step in steps),
    ]


def _only(step: FileChange) -> Use:
    def use(rebuilt: FileChange) -> None:
        if rebuilt != step:
            raise RefusedError(f"`{title(rebuilt)}` is not a step of what was judged", "ask again")

    return use


def _success(action: FileChange) -> dict[str, object]:
    return {"path": action.path, "operation": action.operation, "hash": action.after}


def _failure(error: GatehouseError) -> dict[str, object]:
    is_stale = error.is_stale if isinstance(error, BatchError) else isinstance(error, StaleError)
    return {"error": str(error), "stale": is_stale}
