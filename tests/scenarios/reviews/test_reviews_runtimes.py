"""One pull request reviewed by each runtime, which the repository's page chooses: findings, turns
and cost are measured by egress. docs/reviews.md has the table."""

import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.reviews.demo.stage import NAME
from supervisor.settings import ROOT
from tests.fakes.claude_code import claude_binary
from tests.fakes.messages_server import Json, Step, calls, text, tool_use
from tests.fakes.paid_reader import FINDING, books, paid, paid_server
from tests.fakes.paid_reader import written as the_review
from tests.fakes.reviewed import Reviewed
from tests.scenarios.reviews.test_budgets import client, settled

BINARY = claude_binary()
pytestmark = [
    pytest.mark.xdist_group("reviews-runtimes"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(BINARY is None, reason="claude-agent-sdk has no CLI for this platform"),
]
ROW = re.compile(r"^\| `(\w+)` \|(.+)\|$", re.MULTILINE)


def script(runtime: str) -> list[Step]:
    """A review with calls, one of a tool that is not there, and a repair."""

    def call(name: str, **given: object) -> Json:
        return tool_use(name if runtime == "loop" else f"mcp__gatehouse__{name}", given)

    return [
        calls(call("git_diff"), call("read_file", path="shop/cart.py"), words="I read."),
        calls(call("search", pattern="count"), tool_use("Bash", {"command": "id"})),
        calls(call("run_command", command="cat shop/cart.py", reason="to look")),
        text("<review>{</review>"),
        the_review(verdict="request_changes"),
    ]


async def chosen(on: Reviewed, web: httpx.AsyncClient, runtime: str) -> list[Json]:
    """Choose it on the repository's page; what holds there then."""
    await on.service.reconcile.repositories()
    (one,) = [each for each in (await web.get("/api/repos")).json() if each["name"] == NAME]
    door = f"/api/repos/{one['id']}"
    bad = await web.patch(f"{door}/settings", json={"runtime": "magic"})
    assert bad.status_code == 400, bad.text
    done = await web.patch(f"{door}/settings", json={"runtime": runtime})
    assert done.status_code == 200, done.text
    page = (await web.get(f"/repos/{one['id']}")).text
    assert f'<option value="{runtime}" selected>' in page
    rows: list[Json] = (await web.get(f"{door}/configuration")).json()["rows"]
    return rows


async def measured(tmp_path: Path, runtime: str) -> dict[str, Any]:
    """What a review by the runtime is and costs."""
    with paid_server(script(runtime)) as model:
        async with paid(model, tmp_path) as on, client(on) as web:
            if runtime != "loop":
                rows = await chosen(on, web, runtime)
                assert {"key": "runtime", "value": runtime, "source": "dashboard"} in rows
            on.open_pull()
            await on.receipt("found")
            used = await settled(on)
            (review,) = (await web.get("/api/reviews")).json()
            (session,) = on.running.parts.sessions.recent()
            trace = (await web.get(f"/api/reviews/{review['id']}/trace")).json()
        assert session.review is not None
        assert {one[0] for one in used.values()} == {books(model)}
        assert (f"--runtime={runtime}" in session.command) == (runtime != "loop")
        usage = session.review["usage"]
        return {
            "findings": session.review["findings"],
            "verdict": session.review["verdict"],
            "turns": usage["turns"],
            "shown": [[call["tool"] for call in turn.get("calls", ())] for turn in trace],
            "tokens": (usage["input_tokens"], usage["output_tokens"]),
            "cost": books(model) / 10**12,
        }


CALLS = [["git_diff", "read_file"], ["search", "Bash"], ["run_command"], [], []]


@pytest.mark.parametrize(
    "runtime",
    [
        "cli",
        pytest.param("sdk", marks=pytest.mark.many),
        pytest.param("loop", marks=pytest.mark.many),
    ],
)
async def test_the_same_review_of_a_pull_request(
    tmp_path: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(str(BINARY))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    rows = {
        name: [one.strip() for one in row.split("|")]
        for name, row in ROW.findall((ROOT / "docs/reviews.md").read_text("utf-8"))
    }
    found = await measured(tmp_path, runtime)
    (read, wrote), cost = found["tokens"], found["cost"]
    print(f"RUNTIME {runtime}: {read} {wrote} ${cost:.4f}")
    assert (found["findings"], found["shown"]) == ([FINDING], CALLS)
    findings, verdict, turns, *told = rows[runtime]
    assert (findings, verdict, turns) == ("1", found["verdict"], str(found["turns"]))
    assert int(told[0].replace(",", "")) == pytest.approx(read, rel=0.05)
    assert (int(told[1]), float(told[2][1:])) == (wrote, pytest.approx(cost, rel=0.05))


@pytest.mark.many
async def test_a_stranger_is_read_in_quarantine_by_claude_code_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "claude").symlink_to(str(BINARY))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script: list[Step] = [
        calls(
            tool_use("mcp__gatehouse__glob", {"pattern": "**/*.py"}),
            tool_use("mcp__gatehouse__read", {"reference": "shop/cart.py"}),
        ),
        the_review(),
    ]
    with paid_server(script) as model:
        async with paid(model, tmp_path, review_runtime="cli") as on:
            pull = on.open_pull(author="bob")
            on.let_in(pull)
            await on.receipt("found")
            (session,) = on.running.parts.sessions.recent()
    assert {"--quarantine", "--runtime=cli"} <= set(session.command)
    assert {one["name"] for one in model.conversations[0]["tools"]} == {
        f"mcp__gatehouse__{name}" for name in ("read", "grep", "glob")
    }
    assert session.review is not None
    answers = [
        block["content"]
        for message in model.conversations[1]["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else ())
        if block["type"] == "tool_result"
    ]
    assert "typed://" in str(answers[0])
    assert "def count" not in str(answers[1]), "a path is no reference"
