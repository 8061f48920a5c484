"""Holds the start-up law: verbs that need neither server nor model don't import what those need.

Seconds can't be asserted on a shared machine; imports can. `bench/start.py` measures the
seconds. Each verb is the real program in a real process, and `-X importtime` tells what it
imported.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Each takes longer to import than Python takes to start.
SERVERS_AND_SDKS = {
    "alembic", "anthropic", "claude_agent_sdk", "click", "httpx", "jinja2", "litestar", "mitmproxy",
    "pydantic", "rich",
    "rich_click", "sqlalchemy", "uvicorn", "uvloop", "watchfiles", "websockets",
}  # fmt: skip
# For verbs that only print.
FOR_LATER = {
    "asyncio",
    "http.client",
    "msgspec",
    "ssl",
    "tree_sitter",
    "yaml",
    "supervisor.app.app",
    "supervisor.parts",
    "supervisor.gate.gate",
}


def import_order(
    gatehouse: Path, data: Path, *arguments: str, given: str = ""
) -> tuple[list[str], int]:
    """Every module that `gatehouse ARGUMENTS` imported, in the order in which their imports
    ended, and its exit code."""
    python = gatehouse.with_name("python")
    done = subprocess.run(
        [str(python), "-X", "importtime", str(gatehouse), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "GATEHOUSE_DATA": str(data)},
    )
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    names = re.findall(r"^import time:.*\|\s+(\S+)$", done.stderr, re.MULTILINE)
    assert "supervisor.cli.cli" in names
    return names, done.returncode


def imported_by(
    gatehouse: Path, data: Path, *arguments: str, given: str = ""
) -> tuple[set[str], int]:
    """The same as a set, parents included."""
    names, code = import_order(gatehouse, data, *arguments, given=given)
    return {*names, *(name.split(".")[0] for name in names)}, code


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["no-such-verb"]]
)
def test_what_only_prints_imports_almost_nothing(
    gatehouse: Path, tmp_path: Path, arguments: list[str]
) -> None:
    names, code = imported_by(gatehouse, tmp_path, *arguments)
    assert names & (SERVERS_AND_SDKS | FOR_LATER) == set()
    assert code == (1 if arguments == ["no-such-verb"] else 0)


def test_reading_the_record_needs_no_server(gatehouse: Path, tmp_path: Path) -> None:
    names, code = imported_by(gatehouse, tmp_path, "audit")
    assert names & SERVERS_AND_SDKS == set()
    assert code in {0, 1}, "an installation without a record yet"


def test_a_policy_check_imports_the_engine_with_the_first_line(
    gatehouse: Path, tmp_path: Path
) -> None:
    names, code = imported_by(gatehouse, tmp_path, "policy", "check")
    assert names & (SERVERS_AND_SDKS | FOR_LATER) == set()
    assert "supervisor.core.policy.rules" not in names
    assert code == 0


def test_doctor_begins_before_it_imports_what_it_looks_at(gatehouse: Path, tmp_path: Path) -> None:
    names, _ = import_order(gatehouse, tmp_path, "doctor")
    assert set(names) & SERVERS_AND_SDKS == set()
    assert set(names[: names.index("supervisor.sandbox.kernel")]) & FOR_LATER == set()


def test_checking_a_policy_needs_no_server(gatehouse: Path, tmp_path: Path) -> None:
    line = json.dumps(
        {
            "id": "1",
            "category": "exec",
            "command": "git log -3",
            "policy": {"allow": ["exec(git log *)"]},
        }
    )
    names, code = imported_by(gatehouse, tmp_path, "policy", "check", given=line + "\n")
    assert names & SERVERS_AND_SDKS == set()
    assert code == 0


def test_a_session_loads_no_library_that_it_does_not_use(gatehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    run = ("run", "--port", "0", "--workspace", str(tmp_path / "workspace"), "--", "true")
    names, code = imported_by(gatehouse, tmp_path / "data", *run)
    assert code == 0
    assert {"litestar", "sqlalchemy", "supervisor.app.app"} <= names
    # The agent speaks no MCP, the database is new, nothing is decrypted.
    unused = {"alembic", "mcp", "mitmproxy", "pydantic", "sqlalchemy.dialects.postgresql"}
    assert names & unused == set()


def test_the_engine_needs_neither_server_nor_proxy() -> None:
    engine = [path.stem for path in (Path(__file__).parents[1] / "supervisor/core").glob("*.py")]
    code = "".join(f"import supervisor.core.{name}\n" for name in engine)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    names = {
        name.split(".")[0]
        for name in re.findall(r"^import time:.*\|\s+(\S+)$", done.stderr, re.MULTILINE)
    }
    assert "supervisor" in names
    assert names & SERVERS_AND_SDKS == set()
