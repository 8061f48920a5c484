"""What came of an answer, where it was given: the verbs over a real door, the page, History; and
commands that failed read so."""

import argparse
import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from supervisor.base.clock import RealClock
from supervisor.cli import card_verbs, terminal, verbs
from supervisor.cli.common.client import Client
from supervisor.core.actions import Exec, FileChange, Network
from supervisor.core.approvals import Request, status
from supervisor.errors import UserError
from supervisor.gate.gate import Grant, Outcome, Refused
from tests.fakes.parts import FakeParts
from tests.server.conftest import OnSocket

BAD = {"error": "exit code 3", "exit_code": 3, "stdout": ""}


def options(**given: Any) -> argparse.Namespace:
    usual = {
        "changes": False,
        "below": None,
        "rule": None,
        "always": False,
        "lasts": None,
        "reason": None,
    }
    return argparse.Namespace(
        **(
            usual
            | {"hunks": None, "drop_rest": False, "watch": False, "json": False, "seen": None}
            | given
        )
    )


def ask(parts: FakeParts, command: str = "make all") -> Request:
    return parts.gate.ask(Exec(command=command), session_id="one", reason="to see")


def carried_out_as(
    parts: FakeParts, outcome: Outcome, facts: dict[str, Any], after: asyncio.Event | None = None
) -> None:
    """Commands come to this, once `after` is set."""

    async def carry_out(request: Request) -> None:
        grant = parts.gate.claim(request.id, request.session_id)
        assert isinstance(grant, Grant)
        if after is not None:
            await after.wait()
        parts.gate.settle(grant, outcome, facts)

    parts.gate.handlers.on_ready("exec", "agent_api", carry_out)


class LookedThrough(Client):
    """A client that tells of each look at a request."""

    def __init__(self, door: OnSocket, then: Callable[[int], None] = lambda looks: None) -> None:
        super().__init__(door.serving.port, door.auth.cli_token)
        self._looks, self._then = 0, then

    def get(self, path: str, **query: Any) -> Any:
        found = super().get(path, **query)
        self._looks += path.startswith("/api/requests/")
        self._then(self._looks)
        return found


async def approve(client: Client, request: Request, **given: Any) -> int:
    return await asyncio.to_thread(
        card_verbs.answer, client, request.id, options(**given), "approve"
    )


async def test_approve_prints_what_it_approves_and_what_came_of_it(
    operator_door: OnSocket, running: FakeParts, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ask(running)
    assert await approve(LookedThrough(operator_door), request) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"{request.id}  exec        make all"
    assert "    the agent says: to see" in rest
    assert rest[-1] == "approved; done, exit code 0"
    assert running.carried_out == [request.id]


async def test_approve_waits_for_the_effect_and_tells_that_it_failed(
    operator_door: OnSocket, running: FakeParts, capsys: pytest.CaptureFixture[str]
) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    carried_out_as(running, "failed", BAD, over)
    request = ask(running)
    client = LookedThrough(
        operator_door, lambda looks: looks >= 4 and loop.call_soon_threadsafe(over.set) and None
    )
    assert await approve(client, request) == 2
    assert capsys.readouterr().out.splitlines()[-1] == "approved; failed: exit code 3"
    assert await asyncio.to_thread(card_verbs.show, client, request.id) == 2
    assert "    status: approved; failed: exit code 3" in capsys.readouterr().out


async def test_approve_does_not_wait_for_ever(
    operator_door: OnSocket,
    running: FakeParts,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(card_verbs, "PATIENCE_S", 0.0)
    over = asyncio.Event()
    carried_out_as(running, "done", {"exit_code": 0}, over)
    request = ask(running)
    assert await approve(LookedThrough(operator_door), request) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    over.set()
    assert said in (
        f"approved; being carried out (see later: gatehouse show {request.id})",
        f"approved; not carried out yet (see later: gatehouse show {request.id})",
    )


async def test_a_connection_goes_on_when_the_agent_tries_again(
    operator_door: OnSocket, running: FakeParts, capsys: pytest.CaptureFixture[str]
) -> None:
    action = Network(operation="connect", host="a.example.org", port=443)
    request = running.gate.ask(action, session_id="one", origin="egress")
    assert await approve(LookedThrough(operator_door), request) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "approved; goes through when the agent tries again"
    )


async def test_what_changed_between_the_look_and_the_answer_is_not_approved(
    operator_door: OnSocket, running: FakeParts, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = asyncio.get_running_loop()
    older = running.gate.ask(
        FileChange(operation="write", path="a", after="1"), session_id="one", origin="egress"
    )

    def newer(looks: int) -> None:
        again = FileChange(operation="write", path="a", after="2")

        async def change() -> None:
            running.gate.ask(again, session_id="one", origin="egress")

        asyncio.run_coroutine_threadsafe(change(), loop).result()

    with pytest.raises(UserError, match="this request was already superseded"):
        await approve(LookedThrough(operator_door, newer), older)
    assert "write a" in capsys.readouterr().out
    assert [status(one) for one in running.queue.of_session("one")].count("pending") == 1
    assert not [one for one in running.queue.of_session("one") if one.answer == "approved"]


async def test_approvals_for_programs(
    operator_door: OnSocket,
    running: FakeParts,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = LookedThrough(operator_door)
    monkeypatch.setattr(verbs, "_asked", lambda given, work: work(client))
    waiting = ask(running)
    connection = Network(operation="connect", host="a.example.org", port=443)
    approved = running.gate.ask(connection, session_id="one", origin="egress")
    running.gate.resolve(approved.id, "approved", by="operator")
    assert await asyncio.to_thread(verbs.approvals, options(json=True)) == 0
    told = json.loads(capsys.readouterr().out)
    assert ([one["id"] for one in told["requests"]], told["changes"]) == ([waiting.id], [])
    assert [(one["id"], one["delivery"]) for one in told["approved"]] == [
        (approved.id, "goes through when the agent tries again")
    ]
    assert await asyncio.to_thread(verbs.approvals, options()) == 0
    text = capsys.readouterr().out
    assert "    waits until the session ends, in 1h" in text
    assert (
        f"{approved.id}  approved; goes through when the agent tries again: connect"
        " a.example.org:443" in text
    )


async def test_how_long_a_held_connection_waits(
    operator_door: OnSocket, running: FakeParts
) -> None:
    action = Network(operation="connect", host="a.example.org", port=443)
    request = running.gate.ask(action, session_id="one", origin="egress", hold_s=60)
    client = Client(operator_door.serving.port, operator_door.auth.cli_token)
    shown = (await asyncio.to_thread(client.get, f"/api/requests/{request.id}"))["request"]
    now = RealClock().now()
    assert "held: 1m" in terminal.approval_lines(shown | {"hold_until": now + 80})
    gone = terminal.approval_lines(shown | {"hold_until": now - 1})
    assert "the agent stopped waiting; your answer counts at its next try" in gone


# -- commands that failed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settled",
    [("failed", BAD), ("done", {"exit_code": 3})],
    ids=["as it is stored now", "as it was stored before"],
)
async def test_a_command_that_failed_reads_as_failed_everywhere(
    running: FakeParts,
    cli: httpx.AsyncClient,
    browser: httpx.AsyncClient,
    settled: tuple[Outcome, dict[str, Any]],
) -> None:
    carried_out_as(running, *settled)
    request = ask(running)
    body = {"fingerprint": request.fingerprint}
    assert (await cli.post(f"/api/requests/{request.id}/approve", json=body)).status_code == 200
    while running.gate.queue.get(request.id).settled_at is None:
        await asyncio.sleep(0)
    seen = (await cli.get(f"/api/requests/{request.id}")).json()["request"]
    assert (seen["failure"], seen["delivery"]) == ("exit code 3", "failed: exit code 3")
    assert terminal.outcome_line(seen) == "approved; failed: exit code 3"
    card = (await browser.get(f"/parts/card/{request.id}")).text
    assert re.search(r'<span class="state failed">.*?failed</span>', card)
    assert '<span data-role="delivery">failed: exit code 3</span>' in card
    history = (await browser.get("/history")).text
    row = history[history.index("effect settled") :]
    assert "</svg>failed</span> exit code 3" in " ".join(row[: row.index("<details")].split())


async def test_one_that_went_well_does_not(running: FakeParts, cli: httpx.AsyncClient) -> None:
    request = ask(running)
    await cli.post(f"/api/requests/{request.id}/approve", json={"fingerprint": request.fingerprint})
    while running.gate.queue.get(request.id).settled_at is None:
        await asyncio.sleep(0)
    seen = (await cli.get(f"/api/requests/{request.id}")).json()["request"]
    assert (seen["failure"], seen["delivery"]) == ("", "done, exit code 0")


async def test_an_agent_that_failed_reads_as_failed_in_history(
    running: FakeParts, browser: httpx.AsyncClient
) -> None:
    running.audit.record("agent_exited", session="one", exit_code=2, why="")
    running.audit.record("agent_exited", session="two", exit_code=0, why="")
    text = (await browser.get("/history")).text
    assert text.count("</svg>failed</span>") == 1


async def test_history_shows_no_path_of_a_clone_of_our_own(
    running: FakeParts, browser: httpx.AsyncClient
) -> None:
    clone = running.settings.clones_dir / "acme" / "trees" / "1"
    running.audit.record("session_started", session="one", workspace=str(clone))
    running.audit.record("session_started", session="two", workspace="/home/me/shop")
    text = (await browser.get("/history")).text
    assert str(running.settings.clones_dir) not in text
    assert "/home/me/shop" in text


# -- what rules deny for good ---------------------------------------------------------------------


@pytest.mark.parametrize("lasts", ["always", "15m", "session"])
async def test_what_was_denied_for_always_may_not_be_asked_again(
    running: FakeParts, cli: httpx.AsyncClient, agent: httpx.AsyncClient, lasts: str
) -> None:
    action = Network(operation="connect", host="a.example.org", port=443)
    held = asyncio.ensure_future(
        running.gate.decide(action, session_id="one", origin="egress", hold_s=60)
    )
    while not running.queue.pending():
        await asyncio.sleep(0)
    request = running.queue.pending()[0]
    body = {"fingerprint": request.fingerprint, "always": "network(*.example.org)", "lasts": lasts}
    assert (await cli.post(f"/api/requests/{request.id}/deny", json=body)).status_code == 200
    refused = await held
    assert isinstance(refused, Refused)
    later = (await agent.get(f"/v1/requests/{request.id}")).json()
    again = running.gate.ask(action, session_id="one", origin="egress")
    for remedy in (refused.remedy, later["remedy"], again.remedy):
        assert remedy == "ask the operator for a rule, or do without it"


async def test_what_was_denied_once_may_be_asked_again(
    running: FakeParts, cli: httpx.AsyncClient, agent: httpx.AsyncClient
) -> None:
    request = ask(running)
    await cli.post(f"/api/requests/{request.id}/deny", json={"fingerprint": request.fingerprint})
    assert "ask again after" in (await agent.get(f"/v1/requests/{request.id}")).json()["remedy"]


async def test_a_denial_that_became_a_rule_is_no_more_among_those_that_run_out(
    running: FakeParts, cli: httpx.AsyncClient
) -> None:
    request = ask(running)
    await cli.post(f"/api/requests/{request.id}/deny", json={"fingerprint": request.fingerprint})
    assert ask(running).id == request.id
    assert len((await cli.get("/api/quiet")).json()) == 1
    await cli.post("/api/rules", json={"effect": "deny", "rule": "exec(make all)"})
    assert (await cli.get("/api/quiet")).json() == []
