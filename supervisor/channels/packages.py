"""Carries out approved installs: what was shown, in a sandbox that reaches the package index alone.

    asked      the plan is made (`package_plans`), and the action says what would come
    approved   the plan is made once more; as it was, the command runs, else it is asked again
    done       what the lock file names now is compared with the plan; a difference is a failure

Install scripts run only if the approving person said so, and so does anything else that needs the
project's code. Manifest, lock file and other changes are judged like all changed files.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from supervisor.base import log
from supervisor.channels.install_sandbox import InstallSandbox
from supervisor.channels.package_plans import InstallPlan, PackagePlans
from supervisor.core.actions import Packages
from supervisor.core.approvals import Request
from supervisor.core.packages.install_recipes import (
    PINNED,
    index_environment,
    is_at_home,
    is_unsaved,
    pinned,
    places_written,
    recipe_of,
    run_script,
)
from supervisor.core.packages.lock_files import Locked
from supervisor.errors import GatehouseError, RefusedError, UserError
from supervisor.gate.gate import Gate, Grant, Refused
from supervisor.sandbox.base import ToolResult

INSTALL_S = 900.0
KEPT_BYTES = 16 * 1024


class PackageBroker:
    """One per supervisor. `reopen` and `compare_left` are about the private copy of a session that
    has ended; nothing happens of one that runs. `is_offered`: installs can be carried out at all.
    """

    def __init__(
        self,
        gate: Gate,
        plans: PackagePlans,
        sandbox: InstallSandbox,
        reopen: Callable[[str], Awaitable[None]],
        compare_left: Callable[[str], Awaitable[None]],
        *,
        is_offered: bool,
    ) -> None:
        self._is_offered = is_offered
        self._gate = gate
        self._reopen = reopen
        self._compare_left = compare_left
        self._plans = plans
        self._sandbox = sandbox
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Requests whose install scripts a person allowed. Forgotten at a restart: then they don't
        # run.
        self._with_scripts: set[str] = set()

    async def planned(self, session_id: str, action: Packages) -> Packages:
        """Return the action with exactly what it would do. `RefusedError` where it can't be
        done."""
        if not self._is_offered:
            raise RefusedError(
                "installs are not carried out by compose yet",
                "put it into the image (agent_image/Dockerfile), or use `make up`",
            )
        async with self._turns[session_id]:
            return (await self._plans.planned(session_id, action)).action

    def allow_scripts(self, request_id: str, by: str) -> None:
        """Let the install scripts of a request run, if it is approved. `UserError` where it is no
        install."""
        request = self._gate.queue.get(request_id)
        if not isinstance(request.action, Packages):
            raise UserError("this is no install, so it has no scripts", "approve it as it is")
        self._with_scripts.add(request_id)
        self._gate.audit.record(
            "install_scripts_allowed", session=request.session_id, request=request_id, by=by
        )

    async def carry_out(self, request: Request) -> None:
        """Run what a ready request shows, and settle it with what the manager said."""
        grant = self._gate.claim(request.id, request.session_id)
        if isinstance(grant, Refused):
            return
        action = self._gate.queue.action_of(request)
        assert isinstance(action, Packages)
        # INVARIANT: whatever happens between claim and settle, the grant is settled.
        facts: dict[str, object] = {"error": "the install was stopped"}
        try:
            async with self._turns[request.session_id]:
                await self._reopen(request.session_id)
                facts = await self._install(grant, action, request)
                await self._compare_left(request.session_id)
        except GatehouseError as error:
            facts = {"error": str(error)}
        except Exception as error:
            log.exception("an install failed", request=request.id)
            facts = {"error": f"Gatehouse failed while it installed ({type(error).__name__})"}
        finally:
            self._with_scripts.discard(request.id)
            self._gate.settle(grant, "failed" if "error" in facts else "done", facts)

    async def _install(self, grant: Grant, action: Packages, request: Request) -> dict[str, object]:
        plan = await self._plans.planned(grant.session_id, action)
        if _what(plan.action) != _what(action):
            return self._asked_again(action, plan.action, request)
        scripts = request.id in self._with_scripts
        if plan.runs and not scripts:
            said = f"{plan.runs}, and it was approved without install scripts"
            return {"error": f"{said}: ask again, to have it approved with them (--with-scripts)"}
        recipe = recipe_of(action)
        assert recipe is not None
        config = await self._plans.home_config(action.manager)
        is_pinned = recipe.is_report and plan.locks is not None
        if is_pinned:
            config = f"{config}\n{index_environment(action, plan.indexes)}"
        done = await self._sandbox.install(
            grant,
            action,
            run_script(
                action,
                config,
                scripts=scripts,
                is_pinned=is_pinned,
                environment=plan.environment,
            ),
            timeout_s=INSTALL_S,
            home_files={PINNED: pinned(plan.locks)} if is_pinned and plan.locks else {},
            places=places_written(action, plan.environment, scripts=scripts, runs=bool(plan.runs)),
            printed=self._gate.printing.streams_of(grant),
        )
        facts = _facts(done)
        if "error" not in facts and (other := await self._difference(grant.session_id, plan)):
            facts["error"] = f"other packages came than were shown: {other}"
        return facts

    def _asked_again(self, shown: Packages, again: Packages, request: Request) -> dict[str, object]:
        asked = self._gate.ask(
            again, session_id=request.session_id, reason=request.reason, origin=request.origin
        )
        news = [one for one in (*again.notes, again.doubt) if one and one not in shown.notes]
        now = f" ({'; '.join(news)})" if news and again.plan == shown.plan else ""
        said = f"what it would install changed since it was shown{now}: asked again as {asked.id}"
        return {"error": said, "asked_again": asked.id}

    async def _difference(self, session_id: str, plan: InstallPlan) -> str:
        """Return in what the lock file differs from the plan, now that it was carried out; empty
        where it doesn't. Of a Python environment: what was to come and isn't there."""
        recipe = recipe_of(plan.action)
        if plan.locks is None or recipe is None or is_at_home(plan.action):
            return ""
        if recipe.is_report:
            missing = await self._plans.missing(session_id, plan)
            return ", ".join(missing[:5])
        try:
            there = await self._plans.locks(session_id, plan)
        except ValueError as error:
            return str(error)
        # What is in a folder may be less than what is locked: of other systems.
        keys = sorted(there if is_unsaved(plan.action) else there.keys() | plan.locks.keys())
        differing = [
            f"{name} {version}"
            for name, version in keys
            if not _is_same(there.get((name, version)), plan.locks.get((name, version)))
        ]
        return ", ".join(differing[:5])


def _is_same(there: Locked | None, planned: Locked | None) -> bool:
    return there is not None and planned is not None and there.integrity == planned.integrity


def _what(action: Packages) -> tuple[object, ...]:
    """Return what of a plan must be as it was shown: ages and sizes may differ."""
    plan = sorted((one.name, one.version, one.before) for one in action.plan)
    return (plan, action.index, action.hosts, action.notes, action.doubt)


def _facts(done: ToolResult) -> dict[str, object]:
    """Return what a person and the agent are told of a run."""
    said = {
        "exit_code": done.exit_code,
        "stdout": done.stdout[-KEPT_BYTES:].decode(errors="replace"),
        "stderr": done.stderr[-KEPT_BYTES:].decode(errors="replace"),
    }
    problem = done.killed_why or (f"exit code {done.exit_code}" if done.exit_code else "")
    return said | ({"error": problem} if problem else {})
