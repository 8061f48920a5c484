"""Credentials on command lines are nowhere: not in the record, the database, the pages, the API,
live messages or on the terminal."""

import itertools
import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from supervisor.cli.card_verbs import request_text
from supervisor.cli.terminal import approval_lines
from supervisor.core.actions import Action, Exec, fingerprint
from supervisor.core.approvals import Request
from supervisor.core.packages import package_commands
from supervisor.core.policy import git_refs
from supervisor.errors import GatehouseError, RefusedError
from supervisor.server.common.request_views import request_view
from tests.core.command_lines import HARMLESS, NEEDLES, WITH_SECRETS
from tests.fakes.parts import FakeParts

PAGES = (
    "/",
    "/sessions",
    "/sessions/one",
    "/sessions/one/changes",
    "/history",
    "/rules",
    "/parts/inbox",
    "/parts/sessions/one/timeline?rules=true",
    "/parts/history",
)
# Cards that a page shows.
AT_ONCE = 40


def actions_of(command: str) -> list[Action]:
    """The command as each door takes it."""
    found: list[Action] = [Exec(command=command)]
    for parse in (git_refs.parse_command, package_commands.parse_command):
        try:
            found.append(parse(command, "."))
        except GatehouseError:
            continue
    return found


def expect_none(where: str, text: str) -> None:
    shown = [(one, text[max(0, text.find(one) - 80) :][:160]) for one in NEEDLES if one in text]
    assert not shown, f"{where}: {shown}"


async def test_a_credential_of_a_command_is_nowhere(
    browser: httpx.AsyncClient,
    cli: httpx.AsyncClient,
    agent: httpx.AsyncClient,
    parts: FakeParts,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: dict[str, str] = {}
    live: list[Request] = []
    parts.queue.on_change(live.append)
    for some in itertools.batched(WITH_SECRETS, AT_ONCE, strict=False):
        for command in some:
            why = f"because `{command}` is needed"
            for action in actions_of(command):
                parts.gate.lease(action, "one")
                parts.gate.ask(action, session_id="one", reason=why)
            answer = await agent.post("/v1/exec", json={"command": command, "reason": why})
            seen["agent"] = seen.get("agent", "") + answer.text
            denied = parts.gate.ask(
                Exec(command=f"rm -rf x; {command}"), session_id="one", reason=why
            )
            refused = parts.gate.claim(denied.id, "one")
            seen["refused"] = seen.get("refused", "") + str(refused)
        for page in PAGES:
            seen[page] = seen.get(page, "") + (await browser.get(page)).text
        listed = (await cli.get("/api/requests", params={"limit": 1000})).json()
        seen["approvals"] = "\n".join(map(approval_lines, listed)) + json.dumps(listed)
        for one in listed:
            shown = await cli.get(f"/api/requests/{one['id']}")
            seen[one["id"]] = shown.text + request_text(shown.json())
            seen[one["id"]] += (await browser.get(f"/requests/{one['id']}")).text
            seen[one["id"]] += (
                await cli.get(f"/api/requests/{one['id']}/suggestions", params={"effect": "allow"})
            ).text
        for request in parts.queue.pending():
            parts.gate.resolve(
                request.id, "denied", by="test", reason=f"not with {WITH_SECRETS[0]}"
            )
    seen["audit"] = (await cli.get("/api/audit", params={"limit": 1000})).text
    seen["agent's requests"] = (await agent.get("/v1/requests")).text
    seen["live"] = "".join(msgspec.json.encode(request_view(one, parts)).decode() for one in live)
    assert len(live) > len(WITH_SECRETS)
    parts.audit.flush()
    for path in sorted(path for path in parts.settings.data_dir.rglob("*") if path.is_file()):
        seen[str(path)] = path.read_bytes().decode("latin-1")
    assert {"audit.log", "gatehouse.db"} <= {Path(one).name for one in seen}
    captured = capsys.readouterr()
    seen["terminal"], seen["log"] = captured.out + captured.err, caplog.text
    for where, text in seen.items():
        expect_none(where, text)
    assert "[hidden]" in seen["/"]


@pytest.mark.parametrize(
    "command", ["PGPASSWORD=Zq7hunter psql -h db.test", "mysql -pZq7hunter app"]
)
async def test_what_was_asked_runs_and_its_output_says_no_secret(
    parts: FakeParts, running: FakeParts, cli: httpx.AsyncClient, command: str
) -> None:
    asked = Exec(command=command)
    request = parts.gate.ask(asked, session_id="one")
    assert request.fingerprint == fingerprint(asked)
    assert parts.queue.action_of(request) == asked
    answer = await cli.post(
        f"/api/requests/{request.id}/approve", json={"fingerprint": request.fingerprint}
    )
    assert answer.status_code == 200
    grant = parts.gate.ask(Exec(command=command, cwd="src"), session_id="one")
    parts.gate.resolve(grant.id, "approved", by="test")
    claimed: Any = parts.gate.claim(grant.id, "one")
    claimed.use(Exec(command=command, cwd="src"))
    parts.gate.settle(
        claimed, "done", {"exit_code": 1, "stdout": "login Zq7hunter failed\nDB_PASSWORD=other99\n"}
    )
    outcome = parts.queue.get(grant.id).outcome
    assert outcome is not None
    assert outcome["stdout"] == "login [hidden] failed\nDB_PASSWORD=[hidden]\n"


async def test_what_is_harmless_is_shown_as_it_was_asked(
    parts: FakeParts, cli: httpx.AsyncClient
) -> None:
    for command in HARMLESS:
        request = parts.gate.ask(Exec(command=command), session_id="two", reason=command)
        assert request.action == Exec(command=command)
        shown = (await cli.get(f"/api/requests/{request.id}")).json()["request"]
        assert shown["action"]["command"] == command


async def test_a_rule_with_a_credential_is_not_saved(cli: httpx.AsyncClient) -> None:
    answer = await cli.post(
        "/api/rules",
        json={"effect": "allow", "rule": "exec(curl -u bob:Zq7hunter https://a.test/)", "why": ""},
    )
    assert answer.status_code == 400
    assert "holds a secret" in answer.text
    answer = await cli.post(
        "/api/rules",
        json={"effect": "ask", "rule": "exec(docker login -p *)", "why": "TOKEN=Zq7hunter"},
    )
    assert answer.status_code == 200
    assert "Zq7hunter" not in (await cli.get("/api/rules")).text


async def test_after_a_restart_a_command_with_a_credential_is_carried_out_by_no_approval(
    tmp_path: Path,
) -> None:
    """Only what is shown is known then, and a grant is bound to what was asked."""
    before = FakeParts(tmp_path / "data")
    request = before.gate.ask(Exec(command="mysql -pZq7hunter app"), session_id="one")
    before.close()
    after = FakeParts(tmp_path / "data")
    after.gate.resolve(request.id, "approved", by="test")
    grant: Any = after.gate.claim(request.id, "one")
    with pytest.raises(
        RefusedError, match=r"`mysql -p\[hidden\] app` is not the action that was judged"
    ):
        grant.use(after.gate.queue.action_of(request))
    after.close()
