"""A session's next command runs in a sandbox that waited for it: as in one of its own, and in none
that another command had."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from supervisor.base.process import descendants
from supervisor.channels.exec import ExecBroker
from supervisor.core.actions import Exec
from supervisor.core.sessions import Session
from supervisor.sandbox.base import Spec
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of the shell in it, which reads its command.
WAITS = b"IFS= read -r -d"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervised]:
    policy = "version: 1\nmodes: {exec: contained}\n"
    async with supervised(settings_in(tmp_path_factory.mktemp("waiting"), policy)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def session(running: Supervised, tmp_path: Path) -> AsyncIterator[Session]:
    """One whose first command has run, so that a sandbox waits for the second."""
    workspace = make_repository(tmp_path / "project")
    session = await running.start(workspace, "sh", "-c", "echo up; exec sleep 1000")
    await running.printed(session, "up")
    await running.parts.containment.checked(session.id)
    assert await said(running, session, "echo first") == ("first\n", "", 0)
    await until_one_waits(running)
    yield session
    if running.parts.sessions.get(session.id).ended_at is None:
        await running.parts.sessions.stop(session.id, reason="over", by="the test")
    await running.ended(session)
    await running.until_soon(lambda: not waiting() or None, "the end of what waited")


def waiting() -> list[int]:
    """The sandboxes' first processes that wait for a command."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [pid] if words.startswith(b"/bin/bash\0-c\0") and WAITS in words else []
    return found


async def until_one_waits(running: Supervised, *before: int) -> int:
    """The one that waits, another than these."""

    def found() -> int | None:
        return next((one for one in waiting() if one not in before), None)

    return await running.until_soon(found, "a sandbox that waits")


async def said(
    running: Supervised, session: Session, command: str, cwd: str = "."
) -> tuple[str, str, int]:
    action = Exec(command=command, cwd=cwd)
    asked = running.parts.gate.ask(action, session_id=session.id, origin="agent_api")
    outcome = await running.done(asked)
    return outcome["stdout"], outcome["stderr"], outcome["exit_code"]


@pytest.mark.parametrize(
    ("command", "cwd", "expected"),
    [
        ("pwd; echo oops >&2; exit 3", ".", ("/workspace/merged\n", "oops\n", 3)),
        ("pwd; ls", "src", ("/workspace/merged/src\napp.py\n", "", 0)),
        ("cat", ".", ("", "", 0)),
        ("cat <<'X'\n a  \\b\n\tü\nX\n", ".", (" a  \\b\n\tü\n", "", 0)),
        ("kill -9 $$", ".", ("", "", 137)),
        (f"echo {'x' * 5000} | wc -c", ".", ("5001\n", "", 0)),  # too long to be handed over
    ],
)
async def test_a_command_in_it_is_as_in_one_of_its_own(
    running: Supervised, session: Session, command: str, cwd: str, expected: tuple[str, str, int]
) -> None:
    assert await said(running, session, command, cwd) == expected


async def test_each_is_used_once(running: Supervised, session: Session) -> None:
    first = await until_one_waits(running)
    leaves = "ls /tmp; pgrep sleep; touch /tmp/left; sleep 900 &"
    for _ in range(20):  # the first that waits may not be ready for the first
        assert await said(running, session, leaves) == ("", "", 0)
        if first not in waiting():
            break
        await until_one_waits(running)
    assert first not in waiting()


async def test_one_that_was_killed_is_not_used(running: Supervised, session: Session) -> None:
    os.kill(await until_one_waits(running), signal.SIGKILL)
    assert (await said(running, session, "echo on"))[0] == "on\n"


async def test_it_is_paused_with_its_session(running: Supervised, session: Session) -> None:
    parts = running.parts
    parts.sessions.pause(session.id, by="the test")
    asked = parts.gate.ask(Exec(command="echo on"), session_id=session.id, origin="agent_api")
    assert parts.queue.get(asked.id).settled_at is None
    parts.sessions.unpause(session.id, by="the test")
    assert (await running.done(asked))["stdout"] == "on\n"


async def test_all_are_stopped_before_one_begins(running: Supervised, session: Session) -> None:
    running.parts.kill_switch.stop("a look")
    try:
        asked = running.parts.gate.ask(
            Exec(command="touch ran"), session_id=session.id, origin="agent_api"
        )
        assert asked.decision == "deny"
    finally:
        running.parts.kill_switch.resume()
    assert await said(running, session, "ls ran") == (
        "",
        "ls: cannot access 'ran': No such file or directory\n",
        2,
    )


@pytest.mark.parametrize("fails", ["end", "hold"])
async def test_ports_are_given_back_when_a_waiting_sandbox_is_cut_short(fails: str) -> None:
    given, begun = list[str](), asyncio.Event()

    class Held:
        is_over = False

        async def end(self) -> None:
            begun.set()
            await asyncio.Event().wait()

    class Sandboxes:
        async def hold(self, spec: Spec, *, on_listeners: Any, last_bytes: int) -> Held:
            await on_listeners({})
            if fails == "hold":
                begun.set()
                await asyncio.Event().wait()
            return Held()

    async def lend(session_id: str, listeners: object) -> Any:
        async def give_back() -> None:
            given.append(session_id)

        return give_back

    unused: Any = None
    sandboxes: Any = Sandboxes()
    broker = ExecBroker(unused, sandboxes, unused, lend, unused)
    for host in ("a", "b"):
        spec = Spec(
            command=("x",), workspace_lower=None, workspace_merged=Path("/nowhere"), hostname=host
        )
        made = asyncio.create_task(broker._have_one_wait("one", spec))
        await asyncio.wait({made, asyncio.create_task(begun.wait())}, return_when="FIRST_COMPLETED")
        made.cancel()
        await asyncio.gather(made, return_exceptions=True)
    # The second ends the first one; of the second's own nothing is kept either way.
    assert given == ["one"] * (2 if fails == "hold" else 1)
