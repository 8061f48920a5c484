"""A database that can't be written any more (a full disk, mostly): nothing is allowed, nothing
ends by it, and it heals."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from supervisor.core.actions import Exec
from supervisor.core.approvals import status
from supervisor.errors import StorageError
from supervisor.gate.gate import Grant
from tests.fakes.supervised import PATIENCE_S, settings_in, supervised

POLICY = "version: 1\nallow: [exec(echo *)]\n"


@contextlib.contextmanager
def unwritable(engine: Engine) -> Iterator[None]:
    """Every write fails meanwhile."""

    def refuse(connection: Any, _record: object, _proxy: object) -> None:
        connection.execute("PRAGMA query_only=1")

    def allow(connection: Any, _record: object, _proxy: object) -> None:
        connection.execute("PRAGMA query_only=0")

    event.listen(engine, "checkout", refuse)
    try:
        yield
    finally:
        event.remove(engine, "checkout", refuse)
        event.listen(engine, "checkout", allow)


async def test_asks_are_denied_with_the_reason_and_outcomes_are_stored_later(
    tmp_path: Path,
) -> None:
    (tmp_path / "workspace").mkdir()
    async with supervised(settings_in(tmp_path, POLICY)) as running:
        session = await running.start(tmp_path / "workspace", "sleep", "300")
        gate = running.parts.gate
        asked = gate.ask(Exec(command="./begun"), session_id=session.id, origin="egress")
        gate.resolve(asked.id, "approved", by="the test")
        grant = gate.claim(asked.id, session.id)
        assert isinstance(grant, Grant)
        with unwritable(running.parts.engine):
            denied = gate.ask(Exec(command="echo two"), session_id=session.id)
            assert status(denied) == "denied"
            assert "database" in denied.why
            gate.settle(grant, "done", {"found": 1})
            with pytest.raises(StorageError):
                gate.pending_writes.write()
        gate.pending_writes.write()
        assert gate.queue.get(asked.id).outcome == {"ok": True, "found": 1}
        assert status(gate.ask(Exec(command="echo three"), session_id=session.id)) == "used"


async def test_sessions_and_the_supervisor_still_end(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    with contextlib.ExitStack() as failing:
        async with (
            asyncio.timeout(PATIENCE_S),
            supervised(settings_in(tmp_path, POLICY)) as running,
        ):
            command = "trap 'exit 0' TERM; echo up; while sleep 0.1; do :; done"
            session = await running.start(tmp_path / "workspace", "sh", "-c", command)
            await running.printed(session, "up")
            (running.parts.sessions.folder(session.id) / "output.log").unlink()
            (running.parts.sessions.folder(session.id) / "output.log").mkdir()
            failing.enter_context(unwritable(running.parts.engine))
    # The next start finds that it had no end, and says so.
    async with supervised(settings_in(tmp_path, POLICY)) as running:
        assert any(session.id in line for line in running.supervisor.findings)
