"""Operators' MCP servers with a whole supervisor: a server over TLS that wants a key, and the real
Claude Code, whose hooks and MCP client are as an agent has them."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from supervisor.core.actions import title
from tests.conftest import ROOT
from tests.doors.conftest import until
from tests.fakes.claude_code import FINAL_WORDS
from tests.fakes.messages_server import calls, text, tool_use
from tests.fakes.supervised import StartSupervisor
from tests.scenarios.test_named_agents import claude, model, results, started, with_claude

__all__ = ["with_claude"]

SERVER = ROOT / "tests/fakes/mcp_server.py"
KEY = "a-key-of-the-operator-77"
NAME = "mcp.test"
CALL = """
call() { curl -s "$GATEHOUSE_URL/mcp" -H "Authorization: Bearer $GATEHOUSE_TOKEN" \
  -H "Content-Type: application/json" -H "Accept: application/json, text/event-stream" \
  -d '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": '"$1"'}'; }
echo "own=$FAR."
call '{"name": "mcp__stray__add", "arguments": {"a": 50, "b": 3}}'
call '{"name": "mcp__far__add", "arguments": {"a": 40, "b": 2}}'
call '{"name": "mcp__far__key", "arguments": {}}'
"""


def servers(folder: Path, text: str) -> Path:
    file = folder / "mcp-servers.yaml"
    file.write_text(f"version: 1\nservers:\n{text}")
    file.chmod(0o600)
    return file


@contextlib.contextmanager
def served(folder: Path, authority: trustme.CA) -> Iterator[int]:
    """The server over TLS: its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    pem = folder / "server.pem"
    issued = authority.issue_cert(NAME)
    parts = [one.bytes() for one in (issued.private_key_pem, *issued.cert_chain_pems)]
    pem.write_bytes(b"".join(parts))
    command = [sys.executable, SERVER, "https", str(port), str(pem)]
    log = folder / "server.txt"
    env = os.environ | {"KEY": KEY}
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=file, env=env) as process,
    ):

        def is_there() -> bool:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False

        until(is_there, "the server")
        try:
            yield port
        finally:
            process.kill()


async def test_a_servers_key_is_put_in_by_egress_and_never_comes_back(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    authority = trustme.CA()
    upstream = tmp_path / "upstream.pem"
    authority.cert_pem.write_to_path(str(upstream))
    with served(tmp_path, authority) as port:
        url = f"url: 'https://{NAME}:{port}/mcp', credentials: [far]"
        # A name that leads to a private address is reached where the file names that address.
        far = f"  far: {{{url}, network: ['127.0.0.1:{port}']}}\n"
        file = servers(tmp_path, f"{far}  stray: {{{url}}}\n")
        given = tmp_path / "credentials.yaml"
        given.write_text(
            "version: 1\ncredentials:\n  far: {file: far, header: x-key, variable: FAR, hosts:"
            f" ['{NAME}:{port}']}}\n"
        )
        given.chmod(0o600)
        secrets = tmp_path / "data/secrets"
        secrets.mkdir(0o700, parents=True)
        (secrets / "far").write_text(KEY)
        (secrets / "far").chmod(0o600)
        async with start_supervisor(
            "version: 1\nallow: ['exec(mcp__far__* *)', 'exec(mcp__stray__* *)']\n",
            names={NAME: ("127.0.0.1",)},
            upstream_ca=upstream,
            mcp_servers=file,
            credentials_file=given,
        ) as running:
            session = await running.ended(await running.start(workspace, "sh", "-c", CALL))
            printed = running.output(session)
            assert '"said":"42"' in printed, running.story()
            assert '"said":"53"' not in printed
            # The key is the servers' alone.
            assert "own=." in printed
            assert not running.parts.named_secrets.credentials
            assert KEY not in printed
            assert "the answer holds a credential" in (tmp_path / "data/audit.log").read_text()
            assert KEY not in (tmp_path / "data/audit.log").read_text()


@pytest.mark.many
async def test_claude_code_calls_a_tool_of_the_operators(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path, with_claude: str
) -> None:
    file = servers(
        tmp_path,
        f"  notes: {{command: [{sys.executable}, {SERVER}, stdio], folders: [{SERVER.parent}]}}\n",
    )
    script = [
        calls(tool_use("mcp__gatehouse__mcp__notes__add", {"b": 39, "a": 3})),
        text(FINAL_WORDS),
    ]
    with model(*script) as server:
        async with started(start_supervisor, server, "", mcp_servers=file) as running:
            session = await claude(running, workspace, with_claude)
            asked = await running.asked("exec")
            assert title(asked.action) == 'mcp__notes__add {"a":3,"b":39}'
            running.approve(asked)
            await running.agent_exited(session)
            ((said, is_error),) = results(server)
            assert "42" in said, running.story()
            assert not is_error
