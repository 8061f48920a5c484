"""What is asked without a card, over the JSON API, and denials that are lifted; the terminal's verb does the same."""

import json
from typing import Any

import httpx

from supervisor import card_verbs
from supervisor.core.actions import Exec
from supervisor.core.approvals import status
from tests.fakes.parts import FakeParts


def ask(parts: FakeParts, command: str) -> Any:
    return parts.gate.ask(Exec(command=command), session_id="one")


async def test_repeats_are_listed_and_can_be_lifted(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    first = ask(parts, "npm publish")
    assert (await cli.post(f"/api/requests/{first.id}/lift")).json()["why"] == (
        "this request is pending, and was denied by nobody"
    )
    await cli.post(f"/api/requests/{first.id}/deny", json={"reason": "not yet"})
    assert (await cli.get("/api/quiet")).json() == []
    again = ask(parts, "npm  publish")
    assert (again.id, status(again)) == (first.id, "denied")
    (quiet,) = (await cli.get("/api/quiet")).json()
    (denied,) = quiet["denied"]
    assert (quiet["session_id"], quiet["held_count"]) == ("one", 0)
    assert (denied["title"], denied["asked_again"], denied["request_id"]) == ("npm publish", 1, first.id)
    assert denied["until"] > parts.clock.now()
    lifted = (await cli.post(f"/api/requests/{first.id}/lift")).json()
    assert [(one["id"], one["status"]) for one in lifted] == [(first.id, "denied")]
    assert (await cli.get("/api/quiet")).json() == []
    assert (await cli.post(f"/api/requests/{first.id}/lift")).status_code == 400
    parts.audit.flush()
    lines = [json.loads(line) for line in (parts.settings.data_dir / "audit.log").read_text().splitlines()]
    (line,) = [one for one in lines if one["event"] == "denial_lifted"]
    assert (line["requests"], line["session"]) == ([first.id], "one")
    assert line["by"]
    assert status(ask(parts, "npm publish")) == "pending"


async def test_secrets_and_hidden_characters_are_not_shown(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    secret = "sk-" + "a" * 40
    first = ask(parts, f"echo '\u202e' {secret}")
    await cli.post(f"/api/requests/{first.id}/deny", json={})
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
