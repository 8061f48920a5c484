"""The agent's door: asking, waiting, and everything that it must not be able to do."""

import asyncio
import base64
import json
import shlex
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from supervisor.core.actions import Exec, FileChange, Git, Packages, Proposal, content_hash
from supervisor.core.approvals import status
from supervisor.core.models.model_calls import ModelCall, Tokens
from supervisor.core.models.usage import Usage
from supervisor.server.agent.agent_bodies import COMMAND_CHARS, folder, in_workspace
from supervisor.server.agent.agent_calls import ASKS_AT_ONCE, MOST_LISTED_CHARS
from supervisor.server.app import build_agent_app, build_programs_app
from tests.fakes.parts import SECRET, FakeParts, FakeWorkspace
from tests.server.conftest import client_of

ASKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/exec", {"command": "make test"}),
    ("/v1/files/write", {"path": "a.py", "content": "x"}),
    ("/v1/files/edit", {"path": "a.py", "old": "x", "new": "y"}),
    ("/v1/files/delete", {"path": "a.py"}),
    ("/v1/files/move", {"path": "a.py", "to": "b.py"}),
    ("/v1/packages", {"command": "npm install left-pad"}),
    ("/v1/git", {"command": "git push origin main"}),
    ("/v1/policy-proposals", {"effect": "allow", "rule": "exec(ls)", "why": "often"}),
)
REVIEW = {
    "model": "recorded",
    "base": None,
    "head": "abc",
    "summary": f"fine {SECRET}",
    "verdict": "comment",
    "findings": [{"path": "a.py", "line": 3, "severity": "low", "title": "t", "body": "b"}],
    "usage": {"turns": 1, "input_tokens": 2, "output_tokens": 3},
}


@pytest.mark.parametrize(("path", "body"), ASKS)
async def test_an_ask_becomes_a_request_that_waits(
    agent: httpx.AsyncClient, parts: FakeParts, path: str, body: dict[str, Any]
) -> None:
    reason = {} if "proposals" in path else {"reason": "because"}
    answer = await agent.post(path, json=body | reason)
    assert answer.status_code == 202, answer.text
    shown = answer.json()
    assert (shown["status"], shown["decided"], shown["allowed"], shown["settled"]) == (
        "pending",
        False,
        False,
        False,
    )
    kept = parts.queue.get(shown["id"])
    assert (kept.session_id, kept.origin) == ("one", "agent_api")
    assert kept.reason == ("often" if "proposals" in path else "because")


@pytest.mark.parametrize(("path", "body"), ASKS)
@pytest.mark.parametrize(
    "field", ["resolved_by", "approved", "session_id", "status", "answer", "origin", "by", "always"]
)
async def test_no_body_decides_anything(
    agent: httpx.AsyncClient, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await agent.post(path, json=body | {field: "operator"})
    assert answer.status_code == 400
    assert field in answer.json()["why"]
    assert (await agent.get("/v1/requests")).json() == []


async def test_rules_answer_at_once(agent: httpx.AsyncClient, running: FakeParts) -> None:
    allowed = await agent.post("/v1/exec", json={"command": "git status"})
    assert (allowed.status_code, allowed.json()["allowed"]) == (200, True)
    settled = (await agent.get(f"/v1/requests/{allowed.json()['id']}", params={"wait": 10})).json()
    assert (settled["status"], settled["settled"], settled["outcome"]["stdout"]) == (
        "used",
        True,
        "done",
    )
    denied = await agent.post("/v1/exec", json={"command": "rm -rf x"})
    assert denied.status_code == 200
    body = denied.json()
    assert (body["status"], body["decided"], body["allowed"], body["settled"]) == (
        "denied",
        True,
        False,
        True,
    )
    assert body["rule"] == "exec(rm -rf *)"
    assert "rm -rf" in body["why"]


async def test_a_wait_ends_with_the_answer(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    request_id = (await agent.post("/v1/exec", json={"command": "make"})).json()["id"]
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(agent.get(f"/v1/requests/{request_id}", params={"wait": 60}))
        while not parts.queue._waiters:
            await asyncio.sleep(0)
        parts.gate.resolve(request_id, "denied", by="operator (cli)", reason="use make test")
    body = waiting.result().json()
    assert (body["status"], body["why"]) == ("denied", "denied by operator (cli): use make test")


async def test_an_approval_is_told_and_then_its_outcome(
    agent: httpx.AsyncClient, running: FakeParts
) -> None:
    request_id = (await agent.post("/v1/exec", json={"command": "make"})).json()["id"]
    statuses = []
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(agent.get(f"/v1/requests/{request_id}", params={"wait": 60}))
        while not running.queue._waiters:
            await asyncio.sleep(0)
        running.gate.resolve(request_id, "approved", by="operator (cli)")
    statuses.append(waiting.result().json()["status"])
    assert statuses[0] in ("approved", "used")
    body = (await agent.get(f"/v1/requests/{request_id}", params={"wait": 60})).json()
    assert (body["status"], body["settled"], body["outcome"]["ok"]) == ("used", True, True)


async def test_a_wait_that_nobody_answers_gives_the_request_as_it_is(
    agent: httpx.AsyncClient,
) -> None:
    request_id = (await agent.post("/v1/exec", json={"command": "make"})).json()["id"]
    body = (await agent.get(f"/v1/requests/{request_id}", params={"wait": 0.01})).json()
    assert body["status"] == "pending"
    for wait in ("61", "-1", "x", "nan", "inf"):
        assert (
            await agent.get(f"/v1/requests/{request_id}", params={"wait": wait})
        ).status_code == 400


async def test_a_wait_survives_a_restart(tmp_path: Path) -> None:
    headers = {"authorization": "Bearer token-of-one"}
    before = FakeParts(tmp_path)
    async with client_of(build_agent_app(before, "one"), **headers) as agent:
        request_id = (await agent.post("/v1/exec", json={"command": "make"})).json()["id"]
    before.close()
    after = FakeParts(tmp_path)
    async with after.running(), client_of(build_agent_app(after, "one"), **headers) as agent:
        assert (await agent.get(f"/v1/requests/{request_id}")).json()["status"] == "pending"
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(
                agent.get(f"/v1/requests/{request_id}", params={"wait": 60})
            )
            while not after.queue._waiters:
                await asyncio.sleep(0)
            after.gate.resolve(request_id, "approved", by="operator (cli)")
        assert waiting.result().json()["allowed"] is True
        body = (await agent.get(f"/v1/requests/{request_id}", params={"wait": 60})).json()
        assert body["outcome"] == {"ok": True, "exit_code": 0, "stdout": "done"}
    after.close()


async def test_anothers_requests_are_not_there(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    other = parts.gate.ask(Exec(command="make secret"), session_id="two")
    mine = (await agent.post("/v1/exec", json={"command": "make"})).json()["id"]
    foreign = await agent.get(f"/v1/requests/{other.id}", params={"wait": 60})
    missing = await agent.get("/v1/requests/nope-nope-nope")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.json()["why"].replace(other.id, "") == missing.json()["why"].replace(
        "nope-nope-nope", ""
    )
    assert [one["id"] for one in (await agent.get("/v1/requests")).json()] == [mine]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/requests/{id}/approve"),
        ("POST", "/v1/requests/{id}"),
        ("PUT", "/v1/requests/{id}"),
        ("PATCH", "/v1/requests/{id}"),
        ("DELETE", "/v1/requests/{id}"),
        ("POST", "/api/requests/{id}/approve"),
        ("GET", "/api/requests"),
        ("POST", "/v1/rules"),
        ("POST", "/api/rules"),
        ("GET", "/api/audit"),
        ("GET", "/ws"),
        ("GET", "/"),
        ("GET", "/login"),
        ("GET", "/v1/sessions"),
        ("GET", "/v1/session/two"),
    ],
)
async def test_there_is_no_route_to_an_answer(
    agent: httpx.AsyncClient, parts: FakeParts, method: str, path: str
) -> None:
    request_id = (await agent.post("/v1/exec", json={"command": "make"})).json()["id"]
    answer = await agent.request(method, path.format(id=request_id), json={})
    assert answer.status_code in (404, 405), answer.text
    assert answer.json()["error"] in ("not found", "method not allowed")
    assert status(parts.queue.get(request_id)) == "pending"


def test_the_routes_are_these(parts: FakeParts) -> None:
    """A new route of the agent's is a decision: name it here."""
    found = {
        (method, route.path_format)
        for route in build_agent_app(parts, "one").routes
        for method in getattr(route, "methods", ())
        if method != "OPTIONS" and not route.path_format.startswith("/v1/openapi.json")
    }
    assert found == {
        *(("POST", path) for path, _ in ASKS),
        ("POST", "/v1/tool-calls"),
        ("GET", "/v1/requests"),
        ("GET", "/v1/requests/{request_id}"),
        ("GET", "/v1/session"),
        ("GET", "/v1/budget"),
        ("GET", "/v1/changes"),
        ("POST", "/v1/review"),
        ("POST", "/v1/quarantine"),
    }


async def test_the_session_tells_its_facts_and_no_more(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    parts.clock.advance(600)
    facts = (await agent.get("/v1/session")).json()
    assert facts == {
        "id": "one",
        "state": "running",
        "workspace": "/workspace/merged",
        "deadline_at": facts["deadline_at"],
        "remaining_s": 3000.0,
        "model": None,
        "base": None,
    }


async def test_a_session_knows_when_to_conclude(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    call = ModelCall(api="messages", model="claude-sonnet-5-5", body_bytes=10, max_output_tokens=9)
    parts.spending.open_session(
        msgspec.structs.replace(parts.sessions.get("one"), budget="0.01usd")
    )
    assert (await agent.get("/v1/budget")).json() == {"used_percent": 0, "conclude": False}
    first = parts.spending.reserve("one", "h", call)
    assert isinstance(first, str)
    # While it is open the most that it can cost counts: about half a cent.
    assert (await agent.get("/v1/budget")).json()["used_percent"] > 40
    used = Usage(tokens=Tokens(input=10), has_input=True, has_output=True)
    parts.spending.settle(first, used)
    assert (await agent.get("/v1/budget")).json() == {"used_percent": 0, "conclude": False}
    second = parts.spending.reserve("one", "h", call)
    assert isinstance(second, str)
    parts.spending.settle(second, msgspec.structs.replace(used, tokens=Tokens(output=900)))
    assert (await agent.get("/v1/budget")).json() == {"used_percent": 90, "conclude": True}


async def test_actions_say_what_was_asked(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    async def action(route: str, **body: Any) -> Any:
        answer = await agent.post(route, json=body)
        assert answer.status_code == 202, answer.text
        return parts.queue.get(answer.json()["id"]).action

    assert await action(
        "/v1/exec", command="ls", cwd="/workspace/merged/src/../lib", timeout_s=5
    ) == Exec(command="ls", cwd="lib", timeout_s=5)
    content = base64.b64encode(b"\xff\x00").decode()
    assert await action(
        "/v1/files/write", path="/workspace/merged/a", content_b64=content
    ) == FileChange(operation="write", path="a", after=content_hash(b"\xff\x00"))
    assert await action(
        "/v1/packages", manager="npm", operation="install", names=["x@1"], flags=["-D"]
    ) == Packages(manager="npm", operation="install", names=("x@1",), flags=("-D",))
    assert await action("/v1/packages", command="npm  install y") == Packages(
        manager="npm", operation="install", names=("y",), command="npm  install y"
    )
    assert await action("/v1/git", command="git push origin x", cwd="sub") == Git(
        operation="push", remote="origin", refspecs=("x",), command="git push origin x", cwd="sub"
    )
    assert await action(
        "/v1/git", operation="push", remote="origin", refspecs=["x"], force=True
    ) == Git(operation="push", remote="origin", refspecs=("x",), force=True)
    assert await action("/v1/policy-proposals", effect="allow", rule="exec(ls)") == Proposal(
        effect="allow", rule="exec(ls)"
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/exec", {}),
        ("/v1/exec", {"command": ""}),
        ("/v1/exec", {"command": 1}),
        ("/v1/exec", {"command": "x" * (COMMAND_CHARS + 1)}),
        ("/v1/exec", {"command": "ls", "cwd": "../.."}),
        ("/v1/exec", {"command": "ls", "cwd": "/etc"}),
        ("/v1/exec", {"command": "ls", "cwd": "/workspace/merged/../lower"}),
        ("/v1/exec", {"command": "ls", "cwd": "/workspace/mergedX"}),
        ("/v1/exec", {"command": "ls", "cwd": "a\0b"}),
        ("/v1/exec", {"command": "ls", "timeout_s": 0}),
        ("/v1/exec", {"command": "ls", "timeout_s": 1e9}),
        ("/v1/exec", {"command": "ls", "reason": "x" * 2001}),
        ("/v1/files/write", {"path": "a"}),
        ("/v1/files/write", {"path": "a", "content": "x", "content_b64": "eA=="}),
        ("/v1/files/write", {"path": "a", "content_b64": "not base64"}),
        ("/v1/files/write", {"path": "", "content": "x"}),
        ("/v1/files/write", {"path": "a\0", "content": "x"}),
        ("/v1/files/edit", {"path": "a", "old": "", "new": "x"}),
        ("/v1/files/delete", {}),
        ("/v1/files/delete", {"path": "a", "recursive": True}),
        ("/v1/files/delete", {"path": "a\0"}),
        ("/v1/files/move", {"path": "a"}),
        ("/v1/files/move", {"path": "a", "to": ""}),
        ("/v1/files/move", {"path": "a", "to": "b\0"}),
        ("/v1/files/move", {"path": "a", "to": "b", "overwrite": True}),
        ("/v1/packages", {}),
        ("/v1/packages", {"command": "npm i x", "names": ["y"]}),
        ("/v1/packages", {"manager": "npm"}),
        ("/v1/git", {}),
        ("/v1/git", {"command": "git push", "force": True}),
        ("/v1/policy-proposals", {"effect": "maybe", "rule": "exec(ls)"}),
        ("/v1/review", {**REVIEW, "verdict": "great"}),
        ("/v1/review", {**REVIEW, "findings": [{"path": "a"}]}),
        ("/v1/review", {**REVIEW, "extra": 1}),
    ],
)
async def test_bad_input_is_said_and_asks_nothing(
    agent: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    answer = await agent.post(path, json=body)
    assert answer.status_code == 400, answer.text
    shown = answer.json()
    assert sorted(shown) == ["error", "remedy", "request_id", "rule", "why"]
    assert shown["why"]
    assert len(answer.text) < 4000
    assert (await agent.get("/v1/requests")).json() == []


def test_paths_are_taken_relative_to_the_workspace() -> None:
    assert in_workspace("/workspace/merged") == "."
    assert in_workspace("/workspace/merged//a/b") == "a/b"
    assert (
        in_workspace("/etc/passwd") == "/etc/passwd"
    )  # the channel and the rules deny it, on record
    assert in_workspace("../x") == "../x"
    assert folder("a/./b/..") == "a"


async def test_a_repeated_call_with_its_key_asks_once(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = (await agent.post("/v1/exec", json={"command": "git status"}, headers=headers)).json()
    again = (await agent.post("/v1/exec", json={"command": "git status"}, headers=headers)).json()
    other = (
        await agent.post(
            "/v1/exec", json={"command": "git status"}, headers={"Idempotency-Key": "k2"}
        )
    ).json()
    changed = (await agent.post("/v1/exec", json={"command": "make"}, headers=headers)).json()
    assert first["id"] == again["id"]
    assert len({first["id"], other["id"], changed["id"]}) == 3


async def test_an_edit_that_is_sent_again_is_not_asked_again(
    agent: httpx.AsyncClient, parts: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    begun = FakeWorkspace.edit

    async def slow_edit(self: FakeWorkspace, *args: Any) -> Any:
        asked.append(args)
        await asyncio.sleep(0)
        return await begun(self, *args)

    monkeypatch.setattr(FakeWorkspace, "edit", slow_edit)
    call = {"json": {"path": "a", "old": "x", "new": "y"}, "headers": {"Idempotency-Key": "k"}}
    answers = await asyncio.gather(*(agent.post("/v1/files/edit", **call) for _ in range(3)))  # type: ignore[arg-type]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(asked) == 1


async def test_a_flood_is_slowed_down(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    answers = [
        (await agent.post("/v1/exec", json={"command": "rm -rf x"})).status_code
        for _ in range(ASKS_AT_ONCE + 3)
    ]
    assert answers == [200] * ASKS_AT_ONCE + [429] * 3
    parts.clock.advance(1)
    assert (await agent.post("/v1/exec", json={"command": "rm -rf x"})).status_code == 200


@pytest.mark.parametrize(
    ("path", "more"),
    [("exec", {}), ("packages", {}), ("git", {}), ("tool-calls", {"tool": "command"})],
)
async def test_a_command_is_no_longer_than_a_system_starts(
    agent: httpx.AsyncClient, parts: FakeParts, path: str, more: dict[str, Any]
) -> None:
    """Each of its characters is searched for secrets as JSON writes it."""
    if path == "exec":
        for char, most in (("\x01", 20_000), ("x", COMMAND_CHARS)):
            answer = await agent.post("/v1/exec", json={"command": char * most})
            assert answer.status_code == 202
            parts.clock.advance(10)
    answer = await agent.post(f"/v1/{path}", json={"command": "\x01" * 22_000, **more})
    assert answer.status_code == 400
    assert "131072 bytes" in answer.json()["why"]


@pytest.mark.parametrize("path", ["/v1/git", "/v1/packages", "/v1/run-package"])
async def test_a_line_of_git_or_a_manager_that_nothing_reads_is_refused(
    agent: httpx.AsyncClient, parts: FakeParts, path: str
) -> None:
    """Both doors: 63 KB of it took a fifth of a second of everybody's time."""
    words = ["git" if path == "/v1/git" else "npm", "push", *(f"b{n}" for n in range(900))]
    line = f"{shlex.join(words)} {'x' * 10_000}"
    async with client_of(build_programs_app(parts, "one", "http://127.0.0.1:1")) as programs:
        body: dict[str, Any] = {"command": line}
        if path == "/v1/run-package":
            body = {"words": [*words, *["x" * 1000] * 10], "cwd": "."}
        doors = {"/v1/git": (agent, programs), "/v1/run-package": (programs,)}
        for one in doors.get(path, (agent,)):
            answer = await one.post(path, json=body)
            assert answer.status_code == 400, answer.text
            assert "10000 characters" in answer.json()["why"]
    if path != "/v1/run-package":
        kind = "refspecs" if path == "/v1/git" else "names"
        body = {"operation": "push", "manager": "npm", kind: ["x" * 1000] * 20}
        if path == "/v1/git":
            del body["manager"]
        answer = await agent.post(path, json=body)
        assert answer.status_code == 400
        assert "18000 characters" in answer.json()["why"]


async def test_what_is_long_counts_as_many_asks(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    body = {"command": f"rm -rf x {'y' * 60_000}"}
    codes = [(await agent.post("/v1/exec", json=body)).status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    content = {"path": "a", "content": "x" * 300_000}
    assert (await agent.post("/v1/files/write", json=content)).status_code == 202
    parts.clock.advance(4)
    assert (await agent.post("/v1/exec", json=body)).status_code == 200


async def test_a_list_holds_no_more_than_is_read_at_once(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    """Texts of controls are six times as long when they are shown."""
    for number in range(25):
        parts.clock.advance(1)
        await agent.post("/v1/exec", json={"command": f"echo {number}"})
    listed = [one["title"] for one in (await agent.get("/v1/requests?limit=200")).json()]
    assert listed == [f"echo {number}" for number in reversed(range(25))]
    assert len((await agent.get("/v1/requests?limit=12")).json()) == 12
    for number in range(4):
        parts.clock.advance(10)
        await agent.post("/v1/exec", json={"command": f"printf {number} " + "\x01" * 21_000})
    answer = await agent.get("/v1/requests?limit=200")
    assert len(answer.content) < 2 * MOST_LISTED_CHARS
    assert answer.json()[0]["title"].startswith("printf 3 ")


async def test_a_review_is_kept_redacted(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    assert (await agent.post("/v1/review", json=REVIEW)).json() == {"ok": True}
    kept = parts.sessions.get("one").review
    assert kept is not None
    assert kept["summary"] == "fine [redacted]"
    assert parts.sessions.get("two").review is None


async def test_a_session_without_a_workspace_says_so(parts: FakeParts) -> None:
    parts.sessions.add("bare")
    async with client_of(
        build_agent_app(parts, "bare"), authorization="Bearer token-of-bare"
    ) as agent:
        answer = await agent.post("/v1/files/write", json={"path": "a", "content": "x"})
        assert (answer.status_code, answer.json()["error"]) == (403, "refused")


async def test_ids_cannot_be_guessed(agent: httpx.AsyncClient) -> None:
    ids = [
        (await agent.post("/v1/exec", json={"command": f"make {n}"})).json()["id"]
        for n in range(50)
    ]
    assert len(set(ids)) == 50
    assert all(len(one) >= 22 for one in ids)  # 128 bits
    # Over all places, no character that all ids share, and no order in them.
    assert all(len({one[place] for one in ids}) > 5 for place in range(21))
    assert ids != sorted(ids)


# They answer at once, or for themselves.
NO_ASKS = ("/v1/review", "/v1/tool-calls", "/v1/quarantine")


async def test_the_openapi_document_is_complete(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    answer = await agent.get("/v1/openapi.json")
    document = json.loads(answer.text)
    assert document["openapi"].startswith("3.")
    for route in build_agent_app(parts, "one").routes:
        if route.path_format.startswith("/v1/openapi.json"):
            continue
        for method in set(getattr(route, "methods", ())) - {"OPTIONS"}:
            operation = document["paths"][route.path_format][method.lower()]
            assert operation["summary"]
            assert {"200", "401", "400"} <= set(operation["responses"])
            if method == "POST" and route.path_format not in NO_ASKS:
                assert {"202", "403", "429"} <= set(operation["responses"])
            if method == "POST":
                assert operation["requestBody"]["content"]["application/json"]["schema"]
    for name in _refs(document):
        assert name in document["components"]["schemas"]
    assert document["components"]["schemas"]["ExecBody"]["required"] == ["command"]


def _refs(data: Any) -> set[str]:
    if isinstance(data, dict):
        here = {data["$ref"].rpartition("/")[2]} if isinstance(data.get("$ref"), str) else set()
        return here.union(*(_refs(value) for value in data.values())) if data else here
    return (
        set().union(*(_refs(item) for item in data)) if isinstance(data, list) and data else set()
    )
