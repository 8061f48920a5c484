"""What is asked without a card, over the JSON API, and denials that are lifted; the terminal's
verb does the same."""

import asyncio
import json
from typing import Any

import httpx

from supervisor.cli import card_verbs
from supervisor.core.actions import Exec, Network
from supervisor.core.approvals import status
from supervisor.gate.gate import Grant, Refused
from supervisor.gate.repeats import MOST_CONNECTIONS
from tests.fakes.parts import FakeParts
from tests.server.conftest import PATIENCE_S


def ask(parts: FakeParts, command: str) -> Any:
    return parts.gate.ask(Exec(command=command), session_id="one")


async def test_repeats_are_listed_and_can_be_lifted(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    first = ask(parts, "npm publish")
    assert (await cli.post(f"/api/requests/{first.id}/lift")).json()["why"] == (
        "this request is pending, and nobody denied it"
    )
    await cli.post(
        f"/api/requests/{first.id}/deny",
        json={"fingerprint": first.fingerprint, "reason": "not yet"},
    )
    assert (await cli.get("/api/quiet")).json() == []
    again = ask(parts, "npm  publish")
    assert (again.id, status(again)) == (first.id, "denied")
    (quiet,) = (await cli.get("/api/quiet")).json()
    (denied,) = quiet["denied"]
    assert (quiet["session_id"], quiet["held_count"]) == ("one", 0)
    assert (denied["title"], denied["asked_again"], denied["request_id"]) == (
        "npm publish",
        1,
        first.id,
    )
    assert denied["until"] > parts.clock.now()
    lifted = (await cli.post(f"/api/requests/{first.id}/lift")).json()
    assert [(one["id"], one["status"]) for one in lifted] == [(first.id, "denied")]
    assert (await cli.get("/api/quiet")).json() == []
    assert (await cli.post(f"/api/requests/{first.id}/lift")).status_code == 400
    parts.audit.flush()
    lines = [
        json.loads(line)
        for line in (parts.settings.data_dir / "audit.log").read_text().splitlines()
    ]
    (line,) = [one for one in lines if one["event"] == "denial_lifted"]
    assert (line["requests"], line["session"]) == ([first.id], "one")
    assert line["by"]
    assert status(ask(parts, "npm publish")) == "pending"


async def test_secrets_and_hidden_characters_are_not_shown(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    secret = "sk-" + "a" * 40
    first = ask(parts, f"echo '\u202e' {secret}")
    await cli.post(f"/api/requests/{first.id}/deny", json={"fingerprint": first.fingerprint})
    assert ask(parts, f"echo '\u202e'  {secret}").id == first.id
    text = (await cli.get("/api/quiet")).text
    assert secret not in text
    assert "\u202e" not in json.loads(text)[0]["denied"][0]["title"]


def test_the_terminal_lifts_too(capsys: Any) -> None:
    class Client:
        def post(self, path: str, **body: object) -> list[dict[str, str]]:
            assert (path, body) == ("/api/requests/abc/lift", {})
            return [{"title": "npm\x1b[2J publish"}]

    assert card_verbs.lift(Client(), "abc") == 0  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert said.startswith("may be asked again: npm")
    assert "\x1b" not in said


async def test_all_that_is_held_is_denied_at_once_each_with_one_verdict(
    cli: httpx.AsyncClient, browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    def held(number: int, session: str = "one") -> asyncio.Future[Grant | Refused]:
        action = Network(
            operation="connect", host=f"h{number}.example.net", port=443, scheme="https"
        )
        return asyncio.ensure_future(
            parts.gate.decide(action, session_id=session, origin="egress", hold_s=60)
        )

    def verdicts() -> list[str]:
        parts.audit.flush()
        lines = (parts.settings.data_dir / "audit.log").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        hosts = {
            one["request"]: one["action"]["host"]
            for one in found
            if one["event"] == "request_asked" and "host" in one["action"]
        }
        unseen = [
            one["action"]["host"]
            for one in found
            if one["event"] == "verdict_given" and one["verdict"] == "deny"
        ]
        return unseen + [
            hosts[one["request"]] for one in found if one["event"] == "request_answered"
        ]

    count = MOST_CONNECTIONS + 7
    waiting = [held(number) for number in range(count)]
    other, command = held(0, "two"), ask(parts, "npm publish")
    await asyncio.sleep(0)  # each begins to wait
    assert len(parts.gate.repeats.held_connections("one")) == 7
    assert f"Deny all {count} that are held" in (await browser.get("/")).text
    assert (await cli.post("/api/sessions/one/held/deny")).json() == {"denied": count}
    refused = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
    for one in refused:
        assert isinstance(one, Refused)
        assert (one.decision, "with all that was held" in one.why) == ("deny", True), one
    assert sorted(verdicts()) == sorted(f"h{number}.example.net" for number in range(count))
    assert (await cli.get("/api/quiet")).json() == []
    assert status(parts.queue.get(command.id)) == "pending"
    assert not other.done()
    denied = await browser.post("/api/sessions/two/held/deny")
    assert (denied.json(), denied.headers["hx-trigger"]) == ({"denied": 1}, "gatehouse:quiet")
    assert "are held" not in (await browser.get("/parts/quiet")).text
    assert isinstance(await asyncio.wait_for(other, PATIENCE_S), Refused)
    assert (await cli.post("/api/sessions/one/held/deny")).json() == {"denied": 0}
    assert (await cli.post("/api/sessions/none/held/deny")).status_code == 404
