"""The agent and the supervisor share no code, so this holds their two ideas of the agent API
together."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent_image.reviewer.findings import Finding, InvalidReviewError, Report, Usage, extract
from agent_image.reviewer.gatehouse import Ask, Gatehouse
from agent_image.reviewer.repository import Repository
from supervisor.server.agent import agent_api, agent_bodies
from supervisor.server.common.views import AgentRequest
from tests.fakes.agent_api import ASK_ROUTES, AgentApi

BODIES: dict[str, type[msgspec.Struct]] = dict(
    zip(
        ASK_ROUTES,
        (agent_bodies.ExecBody, agent_bodies.WriteBody, agent_bodies.EditBody,
         agent_bodies.PackagesBody, agent_bodies.GitBody, agent_bodies.ProposalBody),
        strict=True,
    )
)  # fmt: skip


def test_every_ask_is_one_that_the_supervisor_takes(api: AgentApi) -> None:
    door = Gatehouse(api.url, api.token)
    door.execute("ls", cwd="src", reason="r", timeout_s=3600)
    door.write("a", "b", reason="r")
    door.edit("a", "b", "c", replace_all=True, reason="r")
    door.packages("pip install x", reason="r")
    door.git("git push", reason="r")
    door.propose("allow", "exec(ls)", "w")
    assert [route for route, _ in api.asks] == list(BODIES)
    for route, body in api.asks:
        msgspec.convert(body, type=BODIES[route])


def test_the_answer_is_one_that_the_agent_understands() -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(AgentRequest)}
    assert {field.name for field in msgspec.structs.fields(Ask)} <= set(fields)


def test_the_longest_review_is_one_that_the_supervisor_takes(repo: Path) -> None:
    change = Repository(repo).change("auto")
    finding = Finding(
        path="p" * 1000,
        line=10_000_000,
        severity="critical",
        title="t" * 300,
        body="b" * 20_000,
        suggestion="s" * 20_000,
    )
    report = Report(
        model="recorded", base=change.base, head=None, summary="s" * 20_000, verdict="comment",
        findings=(finding,) * 30,
        usage=Usage(turns=20, input_tokens=1, output_tokens=1),
    )  # fmt: skip
    sent = json.dumps(msgspec.to_builtins(report))
    assert len(sent) < agent_api.REVIEW_BODY_BYTES
    msgspec.json.decode(sent, type=agent_bodies.ReviewBody)


def test_a_review_that_the_supervisor_would_not_take_goes_back_to_the_model() -> None:
    finding: dict[str, Any] = {"path": "p", "severity": "low", "title": "t", "body": "ü" * 20_000}
    review = {"summary": "s", "verdict": "comment", "findings": [finding] * 50}
    with pytest.raises(InvalidReviewError, match="longer than"):
        extract(f"<review>{json.dumps(review)}</review>")
