"""`gatehouse review` by Claude Code: a person sets a runtime, and the review is the same."""

import json
from pathlib import Path

import pytest

from tests.doors.conftest import House
from tests.doors.test_review_settings import WITH_HOST
from tests.fakes.claude_code import claude_binary
from tests.fakes.messages_server import MessagesServer, calls, text, tool_use
from tests.fakes.paid_reader import HOST, KEY

BINARY = claude_binary()
FINDING = {"path": "README.md", "line": 1, "severity": "low", "title": "a typo", "body": "Shpo."}
REVIEW = {"summary": "A typo.", "verdict": "comment", "findings": [FINDING]}


@pytest.mark.skipif(BINARY is None, reason="claude-agent-sdk has no CLI for this platform")
def test_a_person_has_a_review_by_claude_code(gatehouse: Path, root: Path, tmp_path: Path) -> None:
    hosts, program = tmp_path / "hosts", tmp_path / "gatehouse"
    hosts.write_text(f"127.0.0.1 localhost {HOST}\n")
    program.write_text(
        WITH_HOST.format(hosts=hosts, without_root=root / "scripts/without-root", program=gatehouse)
    )
    program.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/claude").symlink_to(str(BINARY))
    house = House(program, tmp_path)
    try:
        (house.workspace / "README.md").write_text("# Shpo\n")
        (house.workspace / "CLAUDE.md").write_text("HOSTILE-MEMORY\n")
        house.git("add", "CLAUDE.md")
        house.git("commit", "-qm", "memory")
        script = [
            calls(tool_use("mcp__gatehouse__read_file", {"path": "README.md"}), words="I read."),
            text(f"<review>{json.dumps(REVIEW)}</review>"),
        ]
        with MessagesServer(script, api_key=KEY) as model:
            wanted = {
                "ANTHROPIC_API_KEY": KEY,
                "ANTHROPIC_BASE_URL": f"http://{HOST}:{model.port}",
                "RUNTIME_MODE": "cli",
            }
            house.up(**wanted)
            house.ok("rules", "add", "allow", f"network(127.0.0.1:{model.port})")
            path = house.environment()["PATH"]
            done = house.run(
                "review",
                "--workspace",
                str(house.workspace),
                PATH=f"{tmp_path / 'bin'}:{path}",
                **wanted,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "runtime: cli, so Claude Code conducts the review" in done.stdout
        assert "read_file README.md" in done.stdout
        (session,) = house.sessions()
        facts = house.session(session["id"])
        assert any("runtime cli: Claude Code from" in one for one in facts["notices"])
        assert facts["review"]["findings"] == [FINDING], facts
        assert "HOSTILE-MEMORY" not in json.dumps(model.conversations)
        assert "# Shpo" in json.dumps(model.conversations[1])
        again = ("review", "--workspace", str(house.workspace))
        refused = house.run(*again, **wanted | {"GATEHOUSE_REVIEW_RUNTIME": "magic"})
        assert refused.returncode == 1
        assert "`magic` is no runtime; choose loop, sdk or cli" in refused.stderr
        # Other projects use that name for things of their own.
        assert house.run("--version", RUNTIME_MODE="production").returncode == 0
    finally:
        house.end()
