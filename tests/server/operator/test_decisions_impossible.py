"""What no channel carries out isn't offered: it can be denied, and approved at no door; a
channel that is registered changes that."""

import argparse
from typing import Any

import httpx
import pytest
from msgspec import to_builtins as encoded

from supervisor.cli import card_verbs, terminal
from supervisor.core.actions import Action, Exec, Packages
from supervisor.core.approvals import Request, status
from supervisor.errors import UserError
from supervisor.server.common.views import operator_request
from supervisor.server.operator import decisions
from supervisor.server.operator.pages import page_views
from tests.fakes.parts import FakeParts

BY = "operator (browser)"
INSTALL = Packages(manager="pip", operation="install", names=("six",))
ACTIONS: list[tuple[Action, str]] = [
    (INSTALL, "this version of Gatehouse doesn't carry out installs"),
]


@pytest.mark.parametrize(("action", "why"), ACTIONS)
async def test_approving_is_refused_at_every_door(
    cli: httpx.AsyncClient, parts: FakeParts, action: Action, why: str
) -> None:
    request = parts.gate.ask(action, session_id="one")
    shown = {"fingerprint": request.fingerprint}
    for answer in (
        await cli.post(f"/api/requests/{request.id}/approve", json=shown),
        await cli.post(
            f"/api/requests/{request.id}/approve", json={**shown, "always": "packages(pip:six)"}
        ),
    ):
        assert answer.status_code == 400
        assert why in answer.json()["why"]
    category = (await cli.get(f"/api/requests/{request.id}")).json()["request"]["category"]
    mark = request.fingerprint
    for given in (
        decisions.answer(parts, request.id, "approved", by=BY, fingerprint=mark),
        decisions.answer_category(parts, category, "approved", by=BY, shown={request.id: mark}),
        parts.gate.resolve_in_turns([request.id], "approved", by=BY),
    ):
        with pytest.raises(UserError, match="doesn't carry out"):
            await given
    with pytest.raises(UserError, match="doesn't carry out"):
        parts.gate.resolve(request.id, "approved", by=BY)
    assert status(parts.queue.get(request.id)) == "pending"
    assert (
        await cli.get(f"/api/requests/{request.id}/suggestions", params={"effect": "allow"})
    ).json() == []
    assert (
        await cli.get(f"/api/requests/{request.id}/suggestions", params={"effect": "deny"})
    ).json()
    assert (await cli.post(f"/api/requests/{request.id}/deny", json=shown)).status_code == 200
    assert status(parts.queue.get(request.id)) == "denied"


@pytest.mark.parametrize(("action", "why"), ACTIONS)
async def test_it_is_said_before_anybody_tries(
    cli: httpx.AsyncClient, agent: httpx.AsyncClient, parts: FakeParts, action: Action, why: str
) -> None:
    request = parts.gate.ask(action, session_id="one")
    assert page_views.card(parts, request)["impossible"] == why
    seen = (await cli.get(f"/api/requests/{request.id}")).json()
    assert seen["request"]["impossible"] == why
    assert f"can't be approved: {why}" in terminal.approval_lines(seen["request"])
    assert f"can't be approved: {why}" in card_verbs.request_text(seen)
    told = (await agent.get(f"/v1/requests/{request.id}")).json()
    assert told["remedy"] == f"{why}: do without it, and say at the end what is left to do"
    sections = {
        one["category"]: one["may_approve"] for one in page_views.sections(parts, [request])
    }
    assert {category for category, may in sections.items() if not may} == {"packages"}


class Client:
    """The CLI's, over the gate."""

    def __init__(self, parts: FakeParts, request: Request) -> None:
        self.parts, self.request = parts, request

    def get(self, path: str, **params: Any) -> Any:
        return {"request": encoded(operator_request(self.request, self.parts)), "card": None}

    def post(self, path: str, **body: Any) -> Any:
        mark = body["fingerprint"]
        return self.parts.gate.resolve(
            self.request.id, "approved", by="operator (cli)", shown_fingerprint=mark
        )


def test_the_command_line_says_why(parts: FakeParts) -> None:
    request = parts.gate.ask(INSTALL, session_id="one")
    options = argparse.Namespace(
        changes=False, below=None, rule=None, always=False, lasts=None, reason="", seen=None
    )
    with pytest.raises(UserError, match="doesn't carry out installs"):
        card_verbs.answer(Client(parts, request), request.id, options, "approve")  # type: ignore[arg-type]


async def test_what_a_channel_carries_out_can_be_approved_as_soon_as_it_is_registered(
    parts: FakeParts,
) -> None:
    async def carry_out(request: Request) -> None:
        """Nothing, here."""

    request = parts.gate.ask(INSTALL, session_id="one")
    parts.gate.handlers.on_ready("packages", "agent_api", carry_out)
    assert page_views.card(parts, request)["impossible"] == ""
    done = await decisions.answer(
        parts, request.id, "approved", by=BY, fingerprint=request.fingerprint
    )
    assert status(done.request) == "approved"
    assert (
        page_views.card(parts, parts.gate.ask(Exec(command="make"), session_id="one"))["impossible"]
        == ""
    )


async def test_what_a_rule_allows_is_settled_truthfully(parts: FakeParts) -> None:
    async with parts.running():
        await decisions.add_rule(parts, "allow", "packages(pip:six)", why="", by=BY)
        request = parts.gate.ask(INSTALL, session_id="one")
        while parts.queue.get(request.id).settled_at is None:
            await parts.queue.next_change(request.id, 5.0)
    outcome = parts.queue.get(request.id).outcome or {}
    assert (outcome["ok"], outcome["carried_out"]) == (False, False)
    assert "so nothing was changed" in outcome["error"]
