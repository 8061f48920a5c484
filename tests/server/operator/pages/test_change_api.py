"""Routes of one file's card: the operator's alone, only for what was shown, and images as
nothing but images."""

import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.cli.terminal import approval_lines
from supervisor.core.approvals import Request, status
from supervisor.server.common.routes import routes_of
from supervisor.server.operator.pages import change_api
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.compare.cards import MOST_BELOW
from supervisor.workspace.copy.snapshot import make_copy
from tests.fakes.parts import SECRET, FakeParts

LINES = [f"line {number}\n" for number in range(40)]
OLD, BOTH = "".join(LINES), "".join([*LINES[:3], "A\n", *LINES[4:30], "B\n", *LINES[31:]])
GIF = b"GIF89a" + struct.pack("<HH", 4, 2) + b"\x80\0\0" + bytes(20)


class Desk:
    def __init__(self, parts: FakeParts, host: Path, copy: Path, channel: WorkspaceChannel) -> None:
        self.parts, self.host, self.copy, self.channel = parts, host, copy, channel

    async def asked(
        self, path: str, data: bytes, *, path_of_request: str = "", mode: int = 0o644
    ) -> Request:
        """The agent's change of a file, as a request."""
        (self.copy / path).write_bytes(data)
        (self.copy / path).chmod(mode)
        async with self.channel._turn:
            await self.channel._now.comparison.run(None)
        return next(
            one
            for one in self.parts.queue.pending("one")
            if one.action.path == (path_of_request or path)
        )  # type: ignore[union-attr]


@pytest.fixture
async def desk(running: FakeParts, tmp_path: Path) -> AsyncIterator[Desk]:
    host, folder = tmp_path / "host", tmp_path / "session"
    host.mkdir()
    (host / "a.txt").write_text(OLD)
    (host / "logo.gif").write_bytes(GIF)
    channel = WorkspaceChannel(session_id="one", workspace=host, folder=folder, gate=running.gate)
    running.workspace_of = lambda session_id: channel if session_id == "one" else None  # type: ignore[assignment, return-value, method-assign]
    running.gate.handlers.on_ready("filesystem", "workspace", channel.carry_out)
    await make_copy(host, folder / "merged")
    await channel.start()
    yield Desk(running, host, folder / "merged", channel)
    await channel.stop()


async def card_of(cli: httpx.AsyncClient, request: Request) -> Any:
    return (await cli.get(f"/api/requests/{request.id}")).json()


async def test_some_hunks_by_the_api(
    desk: Desk, cli: httpx.AsyncClient, agent: httpx.AsyncClient
) -> None:
    request = await desk.asked("a.txt", BOTH.encode())
    seen = await card_of(cli, request)
    assert seen["card"]["may_choose"]
    hunks = seen["card"]["diff"]["hunks"]
    body = {
        "fingerprint": seen["request"]["fingerprint"],
        "hunks": [hunks[1]["id"]],
        "rest": "drop",
    }
    done = (await cli.post(f"/api/requests/{request.id}/approve-part", json=body)).json()
    assert (done["taken"], done["hunks"], done["request"]["outcome"]["ok"]) == (1, 2, True)
    assert done["request"]["answered_by"].startswith("operator")
    assert (desk.host / "a.txt").read_text() == "".join([*LINES[:30], "B\n", *LINES[31:]])
    # The agent is told: what its change became, and that the rest was left out.
    told = {one["id"]: one for one in (await agent.get("/v1/requests")).json()}
    assert told[request.id]["superseded_by"] == done["request"]["id"]
    assert told[done["request"]["id"]]["allowed"]
    assert not told[done["rest"]["id"]]["allowed"]
    assert (
        "left out: only 1 of 2 changes of this file were approved"
        in told[done["rest"]["id"]]["why"]
    )


async def test_what_was_noticed_is_not_put_into_the_agents_mouth(
    desk: Desk, cli: httpx.AsyncClient, browser: httpx.AsyncClient
) -> None:
    noticed = await desk.asked("a.txt", BOTH.encode())
    said = desk.parts.gate.ask(
        noticed.action, session_id="two", reason="tidied", origin="agent_api"
    )
    for request, words in (
        (noticed, '<dt>Noticed</dt><dd data-role="reason">changed in the private copy</dd>'),
        (said, '<cite>The agent says</cite><p data-role="reason">tidied</p>'),
    ):
        page = (await browser.get(f"/requests/{request.id}")).text
        assert words in page
        assert page.count('data-role="reason"') == 1
    lines = [approval_lines((await card_of(cli, one))["request"]) for one in (noticed, said)]
    assert "    noticed: changed in the private copy" in lines[0]
    assert "    the agent says: tidied" in lines[1]


@pytest.mark.parametrize(
    "body",
    [
        {"hunks": ["{0}"]},
        {"fingerprint": "{mark}"},
        {"fingerprint": "{mark}", "hunks": []},
        {"fingerprint": "{mark}", "hunks": ["{0}"], "rest": "allow"},
        {"fingerprint": "{mark}", "hunks": ["{0}"], "by": "somebody"},
        {"fingerprint": "0" * 64, "hunks": ["{0}"]},
        {"fingerprint": "{mark}", "hunks": ["0" * 32]},
        {"fingerprint": "{mark}", "hunks": [0]},
    ],
)
async def test_what_was_not_shown_is_not_answered(
    desk: Desk, cli: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    request = await desk.asked("a.txt", BOTH.encode())
    first = (await card_of(cli, request))["card"]["diff"]["hunks"][0]["id"]
    text = httpx.Request("POST", "http://x", json=body).content.decode()
    sent = text.replace("{mark}", request.fingerprint).replace("{0}", first)
    answer = await cli.post(
        f"/api/requests/{request.id}/approve-part",
        content=sent,
        headers={"content-type": "application/json"},
    )
    is_other = body.get("fingerprint") != "{mark}" or body.get("hunks") == ["0" * 32]
    assert answer.status_code == (409 if is_other else 400), answer.text
    assert answer.json()["remedy"] or answer.json()["why"]
    assert status(desk.parts.queue.get(request.id)) == "pending"
    assert (desk.host / "a.txt").read_text() == OLD


async def test_a_foreign_or_unknown_request(desk: Desk, cli: httpx.AsyncClient) -> None:
    request = await desk.asked("a.txt", BOTH.encode())
    body = {"fingerprint": request.fingerprint, "hunks": ["x"]}
    assert (await cli.post(f"/api/requests/{'0' * 32}/approve-part", json=body)).status_code == 404
    other = desk.parts.gate.ask(request.action, session_id="two", origin="workspace")
    answer = await cli.post(
        f"/api/requests/{other.id}/approve-part", json=body | {"fingerprint": other.fingerprint}
    )
    assert answer.status_code == 400
    assert "workspace is not open" in answer.json()["why"]
    assert (desk.host / "a.txt").read_text() == OLD


async def test_nobody_and_no_agent_reaches_these_routes(
    desk: Desk, nobody: httpx.AsyncClient, agent: httpx.AsyncClient, browser: httpx.AsyncClient
) -> None:
    request = await desk.asked("a.txt", BOTH.encode())
    image = await desk.asked("logo.gif", GIF + b"\0")
    body = {"fingerprint": request.fingerprint, "hunks": ["x"]}
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"/api/requests/{request.id}/approve-part", {"json": body}),
        ("POST", f"/requests/{request.id}/hunks", {"data": {"hunks": "x"}}),
        ("POST", f"/api/requests/{request.id}/merge", {"json": {"merged": "x"}}),
        ("POST", f"/api/requests/{request.id}/give-host", {"json": {}}),
        ("POST", f"/requests/{request.id}/conflict/merge", {"data": {}}),
        ("GET", f"/api/requests/{image.id}/image/new", {}),
        ("GET", f"/api/requests/{request.id}/conflict", {}),
        ("GET", f"/parts/conflict/{request.id}", {}),
        ("GET", f"/parts/conflict/{request.id}/rows?side=0&start=0", {}),
        ("GET", f"/parts/change/{request.id}", {}),
        ("GET", f"/parts/change/{request.id}/rows?start=0", {}),
        ("GET", f"/parts/change/{request.id}/gap/0", {}),
        ("GET", f"/parts/change/{request.id}/rendered", {}),
    ]
    assert len(calls) == len(routes_of(change_api))
    for method, path, sent in calls:
        assert (await nobody.request(method, path, **sent)).status_code == 401
        assert (await agent.request(method, path, **sent)).status_code == 404
    del browser.headers["x-gatehouse-csrf"]
    for method, path, sent in calls[:5]:
        assert (await browser.request(method, path, **sent)).status_code == 403
    assert (desk.host / "a.txt").read_text() == OLD


def outcome_of(html: str) -> str:
    return html[html.index('<div class="answer settled"') : html.index("</article>")]


async def test_the_form_of_the_page(
    desk: Desk, browser: httpx.AsyncClient, cli: httpx.AsyncClient
) -> None:
    request = await desk.asked("a.txt", BOTH.encode())
    first = (await card_of(cli, request))["card"]["diff"]["hunks"][0]["id"]
    missing = await browser.post(f"/requests/{request.id}/hunks", data={"hunks": first})
    assert missing.status_code == 409
    assert "say what was shown" in missing.text
    assert status(desk.parts.queue.get(request.id)) == "pending"
    done = await browser.post(
        f"/requests/{request.id}/hunks",
        data={"hunks": first, "fingerprint": request.fingerprint, "rest": "pending"},
    )
    assert "1 of 2 changes; the other waits" in outcome_of(done.text)
    # And so it stays: the page draws it anew when it hears of it.
    part = desk.parts.queue.get(request.id).superseded_by
    again = await browser.get(f"/parts/card/{part}")
    assert outcome_of(again.text) == outcome_of(done.text)
    assert (desk.host / "a.txt").read_text() == "".join([*LINES[:3], "A\n", *LINES[4:]])


async def test_a_swaps_path_that_is_not_read_still_says_what_it_is(
    desk: Desk, browser: httpx.AsyncClient
) -> None:
    """Of what comes last in a large folder too: where a link points, and that something can be
    executed."""
    (desk.copy / "a.txt").unlink()
    (desk.copy / "a.txt").mkdir()
    for number in range(MOST_BELOW):
        (desk.copy / f"a.txt/{number}").touch()
    (desk.copy / "a.txt/z-link").symlink_to("../logo.gif")
    request = await desk.asked("a.txt/z-run", b"#!/bin/sh\n", path_of_request="a.txt", mode=0o755)
    page = (await browser.get(f"/parts/card/{request.id}")).text
    rest = page[page.index("2 more paths") :]
    assert "link -&gt; ../logo.gif" in rest
    assert "symlink:" in rest
    assert "file, mode 755" in rest
    assert "new-executable:" in rest


async def test_images_are_served_as_images_only(desk: Desk, cli: httpx.AsyncClient) -> None:
    request = await desk.asked("logo.gif", GIF + b"\0\1")
    for side, data in (("old", GIF), ("new", GIF + b"\0\1")):
        answer = await cli.get(f"/api/requests/{request.id}/image/{side}")
        assert (answer.content, answer.headers["content-type"]) == (data, "image/gif")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        policies = answer.headers.get_list("content-security-policy")
        assert "default-src 'none'; sandbox" in policies
        assert any("frame-ancestors 'none'" in one for one in policies)
    assert (await cli.get(f"/api/requests/{request.id}/image/other")).status_code in (400, 404)
    (desk.host / "logo.gif").write_bytes(GIF + b"another")
    assert (await cli.get(f"/api/requests/{request.id}/image/old")).status_code == 404


@pytest.mark.parametrize(
    "data",
    [
        b"<html><script>alert(1)</script>",
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        b"\xff\xd8\xff<html>\0",
        b"GIF89a" + struct.pack("<HH", 60000, 60000) + b"\0",
        b"%PDF-1.7\0",
    ],
)
async def test_what_is_no_image_is_never_served(
    desk: Desk, cli: httpx.AsyncClient, data: bytes
) -> None:
    request = await desk.asked("logo.gif", data)
    answer = await cli.get(f"/api/requests/{request.id}/image/new")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/json")


async def test_secrets_are_flagged_and_stay_redacted(
    desk: Desk, cli: httpx.AsyncClient, browser: httpx.AsyncClient
) -> None:
    key = "ghp_" + "a1B2" * 9
    lines = [
        *LINES[:3],
        f"password {SECRET}\n",
        *LINES[4:30],
        f"line {key[:20]}-{key}\n",
        *LINES[31:],
    ]
    request = await desk.asked("a.txt", "".join(lines).encode())
    answer = await cli.get(f"/api/requests/{request.id}")
    assert answer.json()["card"]["flags"]["secret"] == [4, 31]
    page = await browser.get(f"/parts/card/{request.id}")
    assert "looks like a secret (lines 4, 31)" in page.text
    for text in (answer.text, page.text):
        assert SECRET not in text
        assert key not in text
        assert "[redacted]" in text
