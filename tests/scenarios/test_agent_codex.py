"""The real Codex CLI as the agent: in the sandbox, through egress, against a local server that
speaks OpenAI's Responses API over TLS.

With the `openai` preset and nothing else: the key it sends is a placeholder, and the one that
the server sees is the real one. Its calls are metered to what the server counts, and a budget
ends it. It is run where it is on the PATH.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from supervisor.core.sessions import Session
from tests.fakes.codex import MISSING, codex_command
from tests.fakes.responses_server import ResponsesServer, runs, says
from tests.fakes.site import trustme_context
from tests.fakes.supervised import StartSupervisor, Supervised

HOST = "openai.test"
KEY = "sk-test-4f1d2c7be0a94c3b8e55d0"
FINAL_WORDS = "It is made."
WHY = "this model is nobody's friend"
COMMAND = "echo by codex > src/made.txt; env | grep API_KEY; echo EN''D"

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]


@pytest.fixture
def model(authority: trustme.CA) -> Iterator[ResponsesServer]:
    tls = trustme_context(authority, HOST)
    with ResponsesServer([runs(COMMAND), says(FINAL_WORDS)], api_key=KEY, tls=tls) as server:
        yield server


@contextlib.asynccontextmanager
async def running_with(
    start: StartSupervisor,
    model: ResponsesServer,
    upstream_ca: Path,
    folder: Path,
    rules: str = "",
    **changes: object,
) -> AsyncIterator[Supervised]:
    data = folder / "data"
    (data / "secrets").mkdir(parents=True)
    secret = data / "secrets/openai"
    secret.write_text(KEY)
    secret.chmod(0o600)
    binding = f"openai: {{preset: openai, hosts: ['{HOST}:{model.port}']}}"
    (data / "credentials.yaml").write_text(f"version: 1\ncredentials:\n  {binding}\n")
    policy = f"""
version: 1
modes: {{network: deny}}
allow:
  - network(POST https://{HOST}:{model.port}/v1/responses)
  - network(127.0.0.1:{model.port})
  - filesystem(src/*)
{rules}
"""
    async with start(
        policy, names={HOST: ("127.0.0.1",)}, upstream_ca=upstream_ca, **changes
    ) as running:
        yield running


def codex(model: ResponsesServer) -> tuple[str, ...]:
    """As a user runs it whose OpenAI has another address; nothing else is set."""
    return codex_command(f'openai_base_url = "https://{HOST}:{model.port}/v1"')


def settled(running: Supervised, session: Session) -> list[dict[str, Any]]:
    return running.audit("spend_settled", session=session.id)


async def test_it_works_with_a_placeholder_and_is_metered_to_what_the_server_counts(
    start_supervisor: StartSupervisor,
    model: ResponsesServer,
    upstream_ca: Path,
    tmp_path: Path,
    workspace: Path,
) -> None:
    async with running_with(start_supervisor, model, upstream_ca, tmp_path) as running:
        session, output = await running.run(workspace, *codex(model))
        assert session.exit_code == 0, output
        assert FINAL_WORDS in output
        assert (workspace / "src/made.txt").read_text() == "by codex\n"
        (result,) = model.results()
        assert "END" in result
        assert "OPENAI_API_KEY=gatehouse-placeholder-openai-" in result
        assert (
            KEY not in output + result + (running.parts.settings.data_dir / "audit.log").read_text()
        )
        # What it says first, on a WebSocket, would be counted by nobody: it goes on with plain
        # requests at once.
        assert model.upgrades == []
        assert "Reconnecting" not in output
        assert len(settled(running, session)) == len(model.requests) == 2
        assert {flag for line in settled(running, session) for flag in line["flags"]} == set()
        used = running.parts.spending.summary(session).used["session"]
        assert used.cost == model.billed_picousd > 0


async def test_a_denial_ends_it_with_the_reason(
    start_supervisor: StartSupervisor,
    model: ResponsesServer,
    upstream_ca: Path,
    tmp_path: Path,
    workspace: Path,
) -> None:
    rules = f"deny:\n  - rule: network(POST https://{HOST}:{model.port}/**)\n    why: {WHY}"
    async with running_with(start_supervisor, model, upstream_ca, tmp_path, rules) as running:
        session, output = await running.run(workspace, *codex(model))
        assert session.exit_code not in (0, None)
        assert WHY in output
        assert model.requests == []


async def test_at_the_limit_of_its_budget_a_person_is_asked_and_it_goes_on(
    start_supervisor: StartSupervisor,
    model: ResponsesServer,
    upstream_ca: Path,
    tmp_path: Path,
    workspace: Path,
) -> None:
    async with running_with(
        start_supervisor, model, upstream_ca, tmp_path, max_cost="0.01usd"
    ) as running:
        session = await running.start(workspace, *codex(model))
        await running.asked("budget")
        assert model.requests == [], "held, not sent"
        with running.answering(lambda request: "approved"):
            session = await running.ended(session)
        assert session.exit_code == 0, running.output(session)
        assert (
            running.parts.spending.summary(session).used["session"].cost == model.billed_picousd > 0
        )


async def test_a_budget_that_is_used_up_ends_it_cleanly(
    start_supervisor: StartSupervisor,
    model: ResponsesServer,
    upstream_ca: Path,
    tmp_path: Path,
    workspace: Path,
) -> None:
    async with running_with(
        start_supervisor, model, upstream_ca, tmp_path, max_cost="0.01usd", ask_at_limit=False
    ) as running:
        session, output = await running.run(workspace, *codex(model))
        assert session.exit_code not in (0, None)
        # Its own words for what OpenAI answers then; it doesn't try again.
        assert "Quota exceeded" in output
        assert len(running.audit("budget_refused", session=session.id)) == 1
        assert model.requests == []
