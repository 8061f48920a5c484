"""The real Claude Code CLI within a budget: metered with no help from it, held at the limit, and
stopped cleanly by a denial."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from supervisor.core.actions import BudgetRaise
from tests.fakes.claude_code import FINAL_WORDS, claude_binary, claude_command, claude_script
from tests.fakes.messages_server import MessagesServer
from tests.fakes.supervised import StartSupervisor, Supervised

BINARY = claude_binary()
KEY = "sk-ant-test-4f1d2c7be0a94c3b8e55d0"
HOST = "model.test"

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="claude-agent-sdk has no CLI for this platform"),
]


@pytest.fixture
def model() -> Iterator[MessagesServer]:
    script = claude_script("/workspace/merged/src/app.py", "x = 1\n", "true")
    with MessagesServer(script, follow="conversation", api_key=KEY) as server:
        yield server


def claude(
    start: StartSupervisor, model: MessagesServer, max_cost: str, *, ask: bool = True
) -> AbstractAsyncContextManager[Supervised]:
    policy = f"""
version: 1
modes: {{network: deny}}
allow:
  - network(POST http://{HOST}:{model.port}/v1/messages)
  - network(127.0.0.1:{model.port})
  - filesystem(**)
"""
    url = f"http://{HOST}:{model.port}"
    return start(
        policy, names={HOST: ("127.0.0.1",)}, anthropic_api_key=KEY, anthropic_base_url=url,
        max_cost=max_cost, ask_at_limit=ask
    )  # fmt: skip


async def test_every_call_is_metered_and_the_limit_is_raised_by_a_person(
    start_supervisor: StartSupervisor, model: MessagesServer, workspace: Path
) -> None:
    async with claude(start_supervisor, model, "0.01usd") as running:
        session = await running.start(workspace, *claude_command(str(BINARY)))
        card = await running.asked("budget")
        assert isinstance(card.action, BudgetRaise)
        assert not model.requests, "held, not sent"
        running.approve(card)
        while (session := running.parts.sessions.get(session.id)).agent_exited_at is None:
            for other in running.parts.queue.pending(session.id):
                running.approve(other)
            await asyncio.sleep(0.05)
        output = running.output(session)
        assert json.loads(output[output.index("{") :])["result"] == FINAL_WORDS
        calls = [
            request for request in model.requests if request.path.split("?")[0] == "/v1/messages"
        ]
        settled = running.audit("spend_settled", session=session.id)
        assert len(settled) == len(calls)
        assert {flag for line in settled for flag in line["flags"]} == set()
        found = running.parts.spending.summary(session)
        assert found.used["session"].cost == sum(line["cost_picousd"] for line in settled) > 0
        assert found.used["session"].cost <= (found.limits["session"].cost or 0)


async def test_a_denial_ends_the_agent_cleanly(
    start_supervisor: StartSupervisor, model: MessagesServer, workspace: Path
) -> None:
    async with claude(start_supervisor, model, "0usd", ask=False) as running:
        session = await running.ended(await running.start(workspace, *claude_command(str(BINARY))))
        assert not [
            request for request in model.requests if request.path.split("?")[0] == "/v1/messages"
        ]
        assert session.end_reason == "the agent has exited"
        assert session.exit_code not in (0, None)
        assert "the budget of this session is $0.00" in running.output(session)
        # It doesn't try again and again: the error says that there is no point.
        assert len(running.audit("budget_refused", session=session.id)) <= 3
