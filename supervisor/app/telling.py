"""Tells a person elsewhere what waits for an answer: on the desktop, in a chat, by a webhook.

What waits is read from the queue (law 8): all that was asked between the time up to which a target
was told and GATEHOUSE_TELL_AFTER ago. That time is kept in `told.json`, so that a restart loses
nothing and tells nothing twice. A target that fails is tried again; it holds up nobody else.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import msgspec

from supervisor.base import log, plain_files, process
from supervisor.core import waiting_lines
from supervisor.core.actions import title
from supervisor.core.waiting_lines import (
    NAMES,
    PAUSE_S,
    TEST_LINE,
    Line,
    TellTarget,
    WaitingRequest,
    retry_s,
)
from supervisor.errors import GatehouseError
from supervisor.parts import Parts
from supervisor.server.common.action_words import asks
from supervisor.settings import inherited

LOOK_EVERY_S = 1.0
# How long a target may take to answer.
ANSWER_S = 10.0
_DESKTOP = ("PATH", "HOME", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
_DESKTOP_BUS = "DBUS_SESSION_BUS_ADDRESS"
_REMEDY = "see GATEHOUSE_TELL in docs/settings.md; `gatehouse doctor` sends a test line"


class Telling:
    """The targets of one supervisor. `page` is the address of its pages. `on_change` is called when
    `Parts.untold`, which says that a target fails, may be another."""

    def __init__(
        self, parts: Parts, told: tuple[TellTarget, ...], page: str, on_change: Callable[[], None]
    ) -> None:
        self._parts = parts
        self._targets = told
        self._page = page
        self._on_change = on_change
        self._file = parts.settings.data_dir / "told.json"
        self._until = _read(self._file)
        self._failing: dict[TellTarget, str] = {}

    async def run(self) -> None:
        """Tell each target what it wasn't told, until cancelled."""
        send = await asyncio.to_thread(_Sender)
        try:
            async with asyncio.TaskGroup() as tasks:
                for target in self._targets:
                    tasks.create_task(self._tell(send, target))
        finally:
            await send.close()

    async def _tell(self, send: "_Sender", target: TellTarget) -> None:
        failures = 0
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                until = self._parts.clock.now() - self._parts.settings.tell_after_s
                told = self._line(target, until)
                problem = None if told is None else await send(target, told)
            except Exception as error:  # a full disk, mostly: it must not end the supervisor
                log.error("what waits can't be told", target=target.kind, error=str(error))
                problem, told = "Gatehouse can't read what waits", None
            failures = failures + 1 if problem else 0
            if told is None and problem is None:
                continue
            self._note(target, problem)
            if problem is None:
                self._keep(target, until)
            await asyncio.sleep(retry_s(failures) if problem else PAUSE_S)

    def _line(self, target: TellTarget, until: float) -> Line | None:
        """Return what to say; None where nothing waits that this target wasn't told."""
        # A clock that was set back must not silence a target.
        after = min(self._until.get(_key(target), 0.0), until)
        found = self._parts.queue.waiting_between(after, until)
        if not found:
            return None
        request_id, session_id = found[0]
        action = self._parts.queue.get(request_id).action
        sessions = self._parts.sessions
        name = sessions.identity(sessions.get(session_id)).name
        hide = self._parts.redactor.text
        first = WaitingRequest(request_id, hide(name), asks(action), hide(title(action)))
        return waiting_lines.line(target.kind, first, [one for _, one in found], self._page)

    def _keep(self, target: TellTarget, until: float) -> None:
        self._until[_key(target)] = until
        try:
            plain_files.replace(self._file, msgspec.json.encode(self._until))
        except OSError as error:  # told again after a restart, at the worst
            log.error("what was told can't be kept", error=str(error))

    def _note(self, target: TellTarget, problem: str | None) -> None:
        """Have the page say that a target fails, or no longer."""
        self._failing.pop(target, None)
        if problem is not None:
            self._failing[target] = f"{NAMES[target.kind]}: {problem}"
        said = "; ".join(self._failing.values())
        self._parts.untold = f"what waits can't be told to {said}; {_REMEDY}" if said else None
        self._on_change()


class _Sender:
    """Sends lines. Made in a thread: to read the authorities takes a while."""

    def __init__(self) -> None:
        # INVARIANT: an address is a secret, so nobody else is sent on to (no redirects), and no
        # text of an error is passed on, since some contain it.
        self._client = httpx2.AsyncClient(timeout=ANSWER_S, follow_redirects=False)

    async def __call__(self, target: TellTarget, told: Line) -> str | None:
        """Send a line; return why that failed."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await (self._notify(told) if not target.url else self._post(target, told))
        except TimeoutError:
            return f"no answer within {ANSWER_S:.0f} s"

    async def _notify(self, told: Line) -> str | None:
        words = ("notify-send", "--app-name=Gatehouse", "--", f"{told.text} {told.address}".strip())
        try:
            done = await process.run(
                words, env=inherited(*_DESKTOP, _DESKTOP_BUS), timeout_s=ANSWER_S
            )
        except GatehouseError as error:
            return error.message
        return None if done.ok else f"notify-send ended with {done.exit_code}"

    async def _post(self, target: TellTarget, told: Line) -> str | None:
        headers, body = waiting_lines.call(target.kind, told)
        try:
            async with self._client.stream(
                "POST", target.url, headers=headers, content=body
            ) as answer:
                code = answer.status_code
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            return f"it can't be reached ({type(error).__name__})"
        if 300 <= code < 400:
            return f"it answered {code}, and redirects aren't followed"
        return None if 200 <= code < 300 else f"it answered {code}"

    async def close(self) -> None:
        await self._client.aclose()


async def try_all(told: tuple[TellTarget, ...]) -> AsyncIterator[tuple[str, str | None]]:
    """Send each target a test line; yield its name, and why that failed."""
    send = _Sender()
    try:
        for target in told:
            yield NAMES[target.kind], await send(target, Line(TEST_LINE, "", 0, 0))
    finally:
        await send.close()


def _key(target: TellTarget) -> str:
    """Return what stands for a target on disk, where no address may be."""
    return hashlib.sha256(f"{target.kind} {target.url}".encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, float]:
    """Return until when each target was told; all anew where the file can't be read."""
    try:
        return msgspec.json.decode(plain_files.read_bytes(path), type=dict[str, float])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        log.error("told.json can't be read", error=str(error))
        return {}
