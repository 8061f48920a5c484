"""What hostile or hanging MCP servers, and changes of their files, do to a supervisor and its
sessions: a real supervisor, real servers, each in a real sandbox."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.channels import mcp_connection, mcp_servers
from supervisor.core.approvals import Request, status
from supervisor.core.mcp_calls import ToolList
from supervisor.core.sessions import Session
from supervisor.errors import RefusedError
from tests.conftest import ROOT
from tests.fakes.supervised import StartSupervisor, Supervised

SERVER = ROOT / "tests/fakes/mcp_server.py"
ALL_NOTES = "version: 1\nallow: ['exec(mcp__notes__* *)']\n"


def put(file: Path, *names: str, **more: str) -> Path:
    """Write the servers' file: each a program of the tests; `more` are further lines."""
    lines = [f"    {name}: {one}\n" for name, one in more.items()]
    command = f"    command: [{sys.executable}, {SERVER}, stdio]\n    folders: [{SERVER.parent}]\n"
    text = "".join(f"  {name}:\n{command}{''.join(lines)}" for name in names)
    file.write_text(f"version: 1\nservers:\n{text}")
    file.chmod(0o600)
    return file


async def idle(running: Supervised, workspace: Path) -> Session:
    session = await running.start(workspace, "sh", "-c", "echo here; sleep 600")
    await running.printed(session, "here")
    return session


async def called(running: Supervised, session: Session, tool: str, **arguments: Any) -> Request:
    name = f"mcp__notes__{tool}"
    return await running.parts.mcp_servers.ask(session.id, name, arguments)


async def outcome(running: Supervised, request: Request) -> dict[str, Any]:
    return await running.done(request)


_TURNS = [0, *(pytest.param(one, marks=pytest.mark.many) for one in (1, 3)), None]


@pytest.mark.parametrize("turns", _TURNS)
async def test_a_session_ends_while_its_server_starts(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path, turns: int | None
) -> None:
    file = put(tmp_path / "mcp.yaml", "notes")
    async with start_supervisor(ALL_NOTES, mcp_servers=file) as running:
        session = await idle(running, workspace)
        servers = running.parts.mcp_servers
        asks = asyncio.create_task(called(running, session, "add", a=1, b=2))
        if turns is None:
            await running.until_soon(lambda: running.audit("mcp_server_started") or None)
        for _ in range(turns or 0):
            await asyncio.sleep(0)
        async with asyncio.timeout(15):
            await servers.end_session(session.id)
            with pytest.raises(RefusedError, match="the session ended"):
                await asks
            with pytest.raises(RefusedError, match="the session ended"):
                await called(running, session, "add", a=1, b=2)
            await running.parts.sessions.stop(session.id, reason="the test", by="the test")
            await running.ended(session)
        assert len(running.audit("mcp_server_ended")) == len(running.audit("mcp_server_started"))


async def test_a_call_without_an_answer_may_have_happened_and_so_may_its_neighbours(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    file = put(tmp_path / "mcp.yaml", "notes", timeout="2s")
    async with start_supervisor(ALL_NOTES, mcp_servers=file) as running:
        session = await idle(running, workspace)
        slow = await called(running, session, "slow", seconds=60)
        other = await called(running, session, "slow", seconds=61)
        for one in (slow, other):
            said = (await outcome(running, one))["error"]
            assert "a call took more than 2 s" in said
            assert "may or may not have happened; look before you call again" in said
        assert len(running.audit("effect_unknown")) == 2


async def test_a_changed_file_ends_what_runs_by_the_old_one(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    file = put(tmp_path / "mcp.yaml", "notes", env="{A: old}", credentials="[tracker]")
    given = tmp_path / "credentials.yaml"
    given.write_text(
        "version: 1\ncredentials:\n  tracker: {file: tracker, hosts: [t.example.org],"
        " header: x-key, variable: TRACKER}\n"
    )
    secrets = tmp_path / "data/secrets"
    secrets.mkdir(0o700, parents=True)
    secret = secrets / "tracker"
    secret.write_text("the-first-secret-1")
    for one in (given, secret):
        one.chmod(0o600)
    settings = {"mcp_servers": file, "credentials_file": given}
    async with start_supervisor(ALL_NOTES, **settings) as running:
        session = await idle(running, workspace)

        async def environment() -> dict[str, str]:
            said = await outcome(running, await called(running, session, "environment"))
            assert "said" in said, said
            found: dict[str, str] = json.loads(said["said"])
            return found

        async def ended(times: int) -> None:
            await running.until_soon(
                lambda: len(running.audit("mcp_server_ended")) == times or None, "its end"
            )

        assert (await environment())["A"] == "old"
        put(file, "notes", env="{A: new}", credentials="[tracker]")
        await ended(1)
        # It is started again at once: it didn't crash.
        assert (await environment())["A"] == "new"
        secret.write_text("the-second-secret-2")
        await ended(2)
        assert (await environment())["A"] == "new"
        put(file, "other")
        await ended(3)
        with pytest.raises(RefusedError, match="no MCP server `notes`"):
            await called(running, session, "environment")
        whys = {one["why"] for one in running.audit("mcp_server_ended")}
        assert whys == {"the operator changed what it is set up with"}


async def test_a_server_that_hangs_takes_no_tools_away_and_is_on_record_once(
    start_supervisor: StartSupervisor,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = put(tmp_path / "mcp.yaml", "notes")
    with file.open("a") as more:
        more.write("  hung:\n    command: [/bin/sleep, '600']\n")
    async with start_supervisor(ALL_NOTES, mcp_servers=file) as running:
        session = await idle(running, workspace)
        servers = running.parts.mcp_servers
        await outcome(running, await called(running, session, "add", a=1, b=2))
        monkeypatch.setattr(mcp_connection, "START_S", 4.0)
        monkeypatch.setattr(mcp_servers, "LIST_S", 2.0)
        async with asyncio.timeout(4):
            found = await servers.tools(session.id)
        assert {server for _, server, _ in found} == {"notes"}
        ended = await running.until_soon(
            lambda: running.audit("mcp_server_ended", server="hung") or None
        )
        assert ended[0]["why"] == "it listed no tools within 4 s"
        before = len(running.audit())
        for _ in range(20):
            await servers.tools(session.id)
        # One that it failed; and it may have been started once more meanwhile.
        assert len(running.audit()) - before <= 4


async def test_a_servers_words_hold_no_secret(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    secret = "a-secret-of-the-operator-9"
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "words").write_text(f"Add {secret} two.")
    file = put(tmp_path / "mcp.yaml", "notes", env=f"{{WORDS: {shown}/words, SAYS: {secret}}}")
    file.write_text(file.read_text().replace("folders: [", f"folders: [{shown}, "))
    async with start_supervisor(ALL_NOTES, mcp_servers=file) as running:
        running.parts.redactor.add(secret)
        session = await idle(running, workspace)
        await outcome(running, await called(running, session, "add", a=1, b=2))
        crashed = await outcome(running, await called(running, session, "crash"))
        assert "it is going down" in crashed["error"]
        ((_, _, add), *_) = await running.parts.mcp_servers.tools(session.id)
        assert add.description == "Add [redacted] two."
        kept = tmp_path / "data/mcp-tools/notes.json"
        assert msgspec.json.decode(kept.read_bytes(), type=ToolList).tools[0] == add
        for said in (crashed["error"], kept.read_text(), (tmp_path / "data/audit.log").read_text()):
            assert secret not in said


async def test_a_server_can_not_write_what_its_bridge_says(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    file = put(tmp_path / "mcp.yaml", "notes")
    async with start_supervisor(ALL_NOTES, mcp_servers=file) as running:
        session = await idle(running, workspace)
        said = await outcome(running, await called(running, session, "meddle"))
        assert said["said"] == "refused: 1"  # EPERM


async def test_a_list_that_changes_for_ever_is_one_card(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    file = put(tmp_path / "mcp.yaml", "notes")
    async with start_supervisor(ALL_NOTES, mcp_servers=file) as running:
        one, two = await idle(running, workspace), await idle(running, workspace)
        await outcome(running, await called(running, one, "add", a=1, b=2))
        put(file, "notes", env='{MANY: "3"}')
        await running.until_soon(lambda: running.audit("mcp_server_ended") or None)
        for session in (one, two, one, two):
            with pytest.raises(RefusedError, match="a person looks"):
                await called(running, session, "add", a=1, b=2)
        (waiting,) = running.parts.queue.pending()
        running.approve(waiting)
        await running.done(waiting)
        said = await outcome(running, await called(running, two, "add", a=1, b=2))
        assert said["said"] == "3"
        assert not [r for r in running.requests() if status(r) == "superseded"]


# In the place of the bridge: what a server could make of it.
TAKEN_OVER = """
import socket, sys
door = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
door.recv(65536)
try:
    door.sendall(SAID)
    door.recv(1)
except OSError:
    pass
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("b'{\"id\": 7}\\n' * 3_000_000", "it says too much that nobody asked for"),
        ('b\'{"tools": [{"name": "a", "schema": \' + b\'[\' * 900_000 + b\'\\n\'', "Error)"),
        ("b'x' * 3_000_000", "it said what isn't understood (ValueError)"),
    ],
)
async def test_a_bridge_that_its_server_took_over_holds_nobody(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path, said: str, why: str
) -> None:
    file = put(tmp_path / "mcp.yaml", "notes")
    async with start_supervisor(ALL_NOTES, mcp_servers=file) as running:
        session = await idle(running, workspace)
        around = running.parts.mcp_servers._around

        def hostile(*facts: Any) -> Any:
            spec = around.spec(*facts)
            code = TAKEN_OVER.replace("SAID", said)
            command = (spec.command[0], "-c", code, str(around.bridge_port))
            return msgspec.structs.replace(spec, command=command)

        running.parts.mcp_servers._around = around._replace(spec=hostile)
        with pytest.raises(RefusedError, match=re.escape(why)):
            await called(running, session, "add", a=1, b=2)


async def test_a_call_of_a_server_that_was_removed_meanwhile_is_refused(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    file = put(tmp_path / "mcp.yaml", "notes")
    async with start_supervisor(mcp_servers=file) as running:
        session = await idle(running, workspace)
        asked = await called(running, session, "add", a=1, b=2)
        put(file, "other")
        await running.until_soon(lambda: running.audit("mcp_server_ended") or None)
        running.approve(asked)
        assert "there is no MCP server `notes` any more" in (await outcome(running, asked))["error"]
