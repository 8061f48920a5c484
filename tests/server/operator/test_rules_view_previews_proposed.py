"""A rule that an agent proposes, on its card: how wide it is and what it would have answered, by
API, pages and CLI alike."""

import httpx
import pytest

from supervisor.cli import card_verbs, terminal
from supervisor.core.actions import Effect, Exec, Proposal
from supervisor.core.approvals import Request, status
from supervisor.server.operator import decisions
from supervisor.server.operator.pages import request_cards
from tests.fakes.parts import SECRET, FakeParts

BY = "operator (browser)"


def propose(parts: FakeParts, effect: Effect, rule: str) -> Request:
    return parts.gate.ask(Proposal(effect=effect, rule=rule, why="often"), session_id="one")


def with_history(parts: FakeParts) -> None:
    for command, answer in (("npm test", "approved"), ("npm run evil", "denied")):
        request = parts.gate.ask(Exec(command=command), session_id="one")
        parts.gate.resolve(request.id, answer, by=BY)  # type: ignore[arg-type]
    parts.gate.ask(Exec(command="npm run check"), session_id="one")


async def test_the_card_says_how_wide_it_is_and_what_it_would_have_answered(
    parts: FakeParts,
) -> None:
    with_history(parts)
    card = await request_cards.card(parts, propose(parts, "allow", "exec(npm *)"))
    assert ("how wide", "any command that begins with npm") in [
        (flag.name, flag.note) for flag in card["card"].flags
    ]
    facts = dict(card["proposed"])
    assert (
        facts["on record"]
        == "would have answered 2 of the last 2 exec requests: 1 you approved, 1 you denied"
    )
    assert facts["you had answered these the other way"] == "npm run evil"
    assert facts["waiting, answered by it"] == "1: npm run check"


@pytest.mark.parametrize(
    ("effect", "rule", "said"),
    [
        ("deny", "network(*.com)", "every host below .com"),
        ("allow", "filesystem(**)", "every file in the workspace"),
        ("allow", "exec(git *)", "any command that begins with git"),
    ],
)
async def test_api_and_cli_say_so_too(
    cli: httpx.AsyncClient, parts: FakeParts, effect: Effect, rule: str, said: str
) -> None:
    request = propose(parts, effect, rule)
    seen = (await cli.get(f"/api/requests/{request.id}")).json()
    assert seen["request"]["width"] == said
    assert seen["preview"]["rule"] == rule
    assert f"how wide: {said}" in terminal.approval_lines(seen["request"])
    assert f"on record: {seen['preview']['summary']}" in card_verbs.request_text(seen)
    (listed,) = (await cli.get("/api/requests")).json()
    assert listed["width"] == said


async def test_nothing_else_has_a_width_or_a_preview(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    request = parts.gate.ask(Exec(command="npm run check"), session_id="one")
    seen = (await cli.get(f"/api/requests/{request.id}")).json()
    assert (seen["request"]["width"], seen["preview"]) == ("", None)
    assert "how wide" not in card_verbs.request_text(seen)


async def test_the_agent_is_told_at_once_what_is_nonsense(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    for rule, why in (
        ("exec(**)", "a bare rule allows no command"),
        ("nonsense(", "unknown category `nonsense`"),
    ):
        answer = await agent.post("/v1/policy-proposals", json={"effect": "allow", "rule": rule})
        assert answer.json()["status"] == "denied"
        assert why in answer.json()["why"]
        assert answer.json()["remedy"]
    answer = await agent.post(
        "/v1/policy-proposals", json={"effect": "allow", "rule": f"exec(curl {SECRET})"}
    )
    assert answer.status_code == 400
    assert "holds a secret" in answer.json()["why"]
    assert not parts.queue.pending()


async def test_one_that_came_to_be_covered_while_it_waited_is_refused_then(
    parts: FakeParts,
) -> None:
    request = propose(parts, "allow", "exec(npm ci)")
    await decisions.add_rule(parts, "allow", "exec(npm *)", why="", by=BY)
    found = parts.queue.get(request.id)
    assert status(found) == "denied"
    assert "allow exec(npm *) answers all that exec(npm ci) is about" in found.answer_reason
