""" "Always" by the API: a rule from an answer, what else it answers, and what takes none."""

from typing import Any

import httpx
import pytest

from supervisor.core.actions import Exec, Network, Proposal
from supervisor.core.approvals import Request, status
from supervisor.errors import StorageError
from supervisor.records import audit_chain
from tests.fakes.parts import SECRET, FakeParts


def ask(parts: FakeParts, command: str = "make test", session: str = "one", **more: Any) -> Request:
    return parts.gate.ask(Exec(command=command), session_id=session, **more)


def fetch(host: str) -> Network:
    return Network(operation="connect", host=host, port=443)


async def test_always_allow_answers_what_else_waits(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    mine = parts.gate.ask(fetch("files.example.com"), session_id="one", origin="egress")
    same = parts.gate.ask(fetch("api.example.com"), session_id="two", origin="egress")
    other = parts.gate.ask(fetch("example.org"), session_id="one", origin="egress")
    answer = await cli.post(
        f"/api/requests/{mine.id}/approve",
        json={"fingerprint": mine.fingerprint, "always": "network(*.example.com)"},
    )
    assert answer.status_code == 200, answer.text
    assert [one["id"] for one in answer.json()["also"]] == [same.id]
    assert status(parts.queue.get(same.id)) == "approved"
    assert status(parts.queue.get(other.id)) == "pending"
    later = parts.gate.ask(fetch("later.example.com"), session_id="two", origin="egress")
    assert status(later) == "allowed"
    records = audit_chain.newest_first(parts.settings.data_dir / "audit.log", 100)
    added = [one for one in records if one["event"] == "rule_added"]
    assert [(one["by"], one["rule"], one["request"]) for one in added] == [
        ("operator (cli)", "network(*.example.com)", mine.id)
    ]


def ask_for(parts: FakeParts, host: str, session: str = "one") -> Request:
    return parts.gate.ask(fetch(host), session_id=session, origin="egress")


async def test_a_rule_for_a_time_or_for_the_session(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    rule = "network(*.example.com)"
    for lasts, session_id, span in (("15m", "one", 900), ("session", "one", None)):
        mine, other = (
            ask_for(parts, f"{lasts}.example.com"),
            ask_for(parts, f"b.{lasts}.example.com", "two"),
        )
        answer = await cli.post(
            f"/api/requests/{mine.id}/approve",
            json={"fingerprint": mine.fingerprint, "always": rule, "lasts": lasts},
        )
        assert answer.status_code == 200, answer.text
        assert status(parts.queue.get(other.id)) == ("approved" if span else "pending")
        (listed,) = [one for one in (await cli.get("/api/rules")).json() if one["rule"] == rule]
        assert listed["expires_at"] == (parts.clock.now() + span if span else None)
        assert listed["session_id"] == (None if span else session_id)
        await cli.delete(f"/api/rules/{answer.json()['rule_id']}")


@pytest.mark.parametrize("lasts", ["forever", "0m", "-5m", "9999h", "15m; rm", "Session"])
async def test_a_time_that_is_none_answers_and_saves_nothing(
    cli: httpx.AsyncClient, parts: FakeParts, lasts: str
) -> None:
    mine = ask_for(parts, "a.example.com")
    body = {"always": "network(*.example.com)", "lasts": lasts}
    answer = await cli.post(
        f"/api/requests/{mine.id}/approve", json=body | {"fingerprint": mine.fingerprint}
    )
    assert (answer.status_code, "how long the rule holds" in answer.json()["why"]) == (400, True)
    answer = await cli.post(
        "/api/rules", json={"effect": "allow", "rule": "exec(ls)", "lasts": lasts}
    )
    assert answer.status_code == 400
    assert status(parts.queue.get(mine.id)) == "pending"
    assert not [one for one in (await cli.get("/api/rules")).json() if one["can_remove"]]


async def test_a_rule_of_no_request_is_of_no_session(cli: httpx.AsyncClient) -> None:
    answer = await cli.post(
        "/api/rules", json={"effect": "allow", "rule": "exec(ls)", "lasts": "session"}
    )
    assert (answer.status_code, "session's request" in answer.json()["why"]) == (400, True)


async def test_always_deny_answers_what_else_waits(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    mine = parts.gate.ask(fetch("a.ads.example.com"), session_id="one", origin="egress")
    same = parts.gate.ask(fetch("b.ads.example.com"), session_id="two", origin="egress")
    other = parts.gate.ask(fetch("example.com"), session_id="one", origin="egress")
    answer = await cli.post(
        f"/api/requests/{mine.id}/deny",
        json={"fingerprint": mine.fingerprint, "always": "network(*.ads.example.com)"},
    )
    assert answer.status_code == 200, answer.text
    assert status(parts.queue.get(mine.id)) == status(parts.queue.get(same.id)) == "denied"
    assert status(parts.queue.get(other.id)) == "pending"


async def test_what_a_written_rule_asks_takes_no_always(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    request = ask(parts, "make deploy")
    assert request.sticky
    shown = (await cli.get(f"/api/requests/{request.id}")).json()["request"]
    assert shown["may_always"] is False
    for effect in ("allow", "deny"):
        assert (
            await cli.get(f"/api/requests/{request.id}/suggestions", params={"effect": effect})
        ).json() == []
    for verb in ("approve", "deny"):
        body = {"fingerprint": request.fingerprint, "always": "exec(make deploy)"}
        answer = await cli.post(f"/api/requests/{request.id}/{verb}", json=body)
        assert answer.status_code == 400
        assert "asks for this every time" in answer.json()["why"]
    assert status(parts.queue.get(request.id)) == "pending"
    assert (
        await cli.post(
            f"/api/requests/{request.id}/approve", json={"fingerprint": request.fingerprint}
        )
    ).status_code == 200


async def test_a_proposal_takes_no_always(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    request = parts.gate.ask(Proposal(effect="allow", rule="exec(ls)"), session_id="one")
    assert (await cli.get(f"/api/requests/{request.id}")).json()["request"]["may_always"] is False
    answer = await cli.post(
        f"/api/requests/{request.id}/approve",
        json={"fingerprint": request.fingerprint, "always": "exec(ls)"},
    )
    assert answer.status_code == 400
    assert status(parts.queue.get(request.id)) == "pending"


@pytest.mark.parametrize(
    "rule",
    ["exec", "exec(*)", "exec(**)", "exec(* *)", "exec( ** )", "nonsense", "exec(make",
     "exec(other)", "network(make test)",
     "git(make test)", f"exec(make {SECRET})", "*", "()", "exec(make test)\nallow: [exec]"],
)  # fmt: skip
async def test_always_takes_only_a_rule_that_fits(
    cli: httpx.AsyncClient, parts: FakeParts, rule: str
) -> None:
    request = ask(parts)
    for verb in ("approve", "deny"):
        body = {"fingerprint": request.fingerprint, "always": rule}
        answer = await cli.post(f"/api/requests/{request.id}/{verb}", json=body)
        assert answer.status_code == 400, (verb, rule, answer.text)
    assert status(parts.queue.get(request.id)) == "pending"
    assert not (parts.settings.data_dir / "policy.yaml").exists()


async def test_suggestions_do_what_they_say(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    request = ask(parts)
    for effect in ("allow", "deny"):
        found = (
            await cli.get(f"/api/requests/{request.id}/suggestions", params={"effect": effect})
        ).json()
        assert found[0]["default"] is True
        assert "exec(make test)" in {one["rule"] for one in found}
    assert (
        await cli.get(f"/api/requests/{request.id}/suggestions", params={"effect": "ask"})
    ).status_code == 400


async def test_a_rule_that_cannot_be_recorded_is_not_in_force(
    cli: httpx.AsyncClient, parts: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> int:
        raise StorageError("the audit log can't be written", "free the disk")

    monkeypatch.setattr(parts.audit, "record", fail)
    answer = await cli.post("/api/rules", json={"effect": "allow", "rule": "exec(ls)"})
    assert (answer.status_code, answer.json()["why"]) == (503, "the audit log can't be written")
    assert "exec(ls)" not in {rule.text for rule in parts.policies.current().rules}
