"""The same review by each runtime, in its sandbox: what it finds, costs and takes is measured by
egress."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.sessions import Session
from supervisor.errors import UserError
from tests.fakes.claude_code import claude_binary
from tests.fakes.messages_server import Json, MessagesServer, Step, calls, text, tool_use
from tests.fakes.supervised import StartSupervisor, Supervised
from tests.scenarios.test_review import KEY, MODEL_HOST, REVIEW, changed, files_of

__all__ = ["changed"]

BINARY = claude_binary()
MODEL = "claude-sonnet-5-5"


def script(runtime: str) -> list[Step]:
    """A review with calls and a repair."""

    def call(name: str, **given: object) -> Json:
        return tool_use(name if runtime == "loop" else f"mcp__gatehouse__{name}", given)

    return [
        calls(call("git_diff"), call("read_file", path="src/app.py"), words="I read."),
        calls(call("search", pattern="add"), words="I search."),
        calls(call("run_command", command="cat src/app.py; env", reason="to look")),
        text("<review>{</review>"),
        text(f"Done.\n<review>\n{json.dumps(REVIEW)}\n</review>", output_tokens=400),
    ]


async def reviewed(
    start: StartSupervisor, server: MessagesServer, workspace: Path, tmp_path: Path, runtime: str
) -> tuple[Session, Supervised, dict[str, Any]]:
    """A review by the runtime, without a question: the session, its supervisor, its spend."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    if BINARY is not None and not (programs / "claude").exists():
        (programs / "claude").symlink_to(BINARY)
    rules = (
        f"version: 1\nmodes: {{network: deny}}\nallow:\n  - network(127.0.0.1:{server.port})\n"
        "  - exec(cat *)\n  - exec(env)\n"
    )
    async with start(
        rules,
        names={MODEL_HOST: ("127.0.0.1",)},
        anthropic_api_key=KEY,
        anthropic_base_url=f"http://{MODEL_HOST}:{server.port}",
        review_model=MODEL,
        review_runtime=runtime,
    ) as running:
        path = f"{programs}:{os.defpath}"
        session = await running.start(workspace, kind="review", search_path=path)
        session = await running.ended(session)
        assert session.exit_code == 0, running.story()
        _, document = files_of(running, session)
        spend = running.parts.spending.summary(session).used["session"]
        verdicts = running.audit("verdict_given", session=session.id, category="network")
        turns = json.loads(
            (running.parts.settings.sessions_dir / session.id / "review.json").read_bytes()
        )["turns"]
        asked = [one for one in running.requests(session) if one.origin == "egress"]
        assert not asked, "nobody is asked about a host"
        assert {(one["verdict"], one["action"]["host"]) for one in verdicts} == {
            ("allow", MODEL_HOST)
        }
        assert KEY not in running.output(session) + document
        return session, running, {"cost": spend.cost, "turns": turns}


@pytest.mark.many
@pytest.mark.skipif(BINARY is None, reason="claude-agent-sdk has no CLI for this platform")
async def test_the_same_review_by_loop_cli_and_sdk(
    start_supervisor: StartSupervisor, changed: Path, tmp_path: Path
) -> None:
    found: dict[str, Any] = {}
    for runtime in ("loop", "sdk", "cli"):
        with MessagesServer(script(runtime), api_key=KEY) as server:
            session, _, spend = await reviewed(start_supervisor, server, changed, tmp_path, runtime)
            assert session.review is not None
            made = sum(2 * used + 10 * out for _, used, out in server.served)
            # In dollars of a million tokens: what the server's own books say.
            assert spend["cost"] == pytest.approx(made * 10**6, rel=0.01)
            assert {one.headers.get("x-api-key") for one in server.requests} == {KEY}
            told = json.dumps(server.conversations)
            assert KEY not in told
            assert "IS_SANDBOX=1" in told, "the command ran"
            usage = session.review["usage"]
            named = [[one["tool"] for one in turn.get("calls", ())] for turn in spend["turns"]]
            found[runtime] = {
                "findings": session.review["findings"],
                "verdict": session.review["verdict"],
                "turns": usage["turns"],
                "calls": named,
            }
            print(
                f"RUNTIME {runtime}: findings {len(session.review['findings'])}, verdict"
                f" {session.review['verdict']}, turns {usage['turns']}, tokens"
                f" {usage['input_tokens']} in {usage['output_tokens']} out, cost"
                f" {spend['cost'] / 10**12:.4f}"
            )
        if runtime != "loop":
            assert any(f"runtime {runtime}: Claude Code" in one for one in session.notices)
    assert found["sdk"] == found["loop"]
    assert found["cli"] == found["loop"]


async def test_a_runtime_that_is_not_here_is_refused_at_once(
    start_supervisor: StartSupervisor,
    changed: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with start_supervisor(
        "version: 1\n", anthropic_api_key=KEY, review_runtime="cli"
    ) as running:
        with pytest.raises(UserError, match="run `gatehouse claude` once"):
            await running.start(changed, kind="review", search_path=str(tmp_path))
