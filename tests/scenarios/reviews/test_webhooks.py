"""The door for webhooks over real HTTP: what is no webhook is refused, and what was answered with
202 is kept."""

import asyncio
import hashlib
import hmac
import http.client
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.reviewed import NAME, Reviewed, reviewed

pytestmark = pytest.mark.xdist_group("reviews")
EVENT = {"x-github-event": "pull_request", "x-github-delivery": "d-1"}


def send(
    on: Reviewed, body: bytes, *, path: str = "/github", method: str = "POST", **headers: str
) -> tuple[int, str]:
    """What the door answers; signed, unless a signature is given."""
    secret = on.forge.hook[1] if on.forge.hook else b""
    signature = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    given = {"x-hub-signature-256": signature, "content-type": "application/json", **EVENT}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(
        f"http://127.0.0.1:{on.port}{path}", body, given, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def announced(on: Reviewed, length: int) -> int:
    """What is answered to a body of this length before any of it is sent."""
    connection = http.client.HTTPConnection("127.0.0.1", on.port, timeout=20)
    connection.putrequest("POST", "/github")
    connection.putheader("Content-Length", str(length))
    connection.putheader("X-Hub-Signature-256", "sha256=" + "0" * 64)
    connection.endheaders()
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def deliveries(on: Reviewed) -> list[Any]:
    with on.service.engine.connect() as connection:
        return list(connection.exec_driver_sql("select delivery_id, outcome from deliveries"))


async def test_what_is_no_webhook_is_refused_and_kept_nowhere(tmp_path: Path) -> None:
    async with reviewed(tmp_path) as on:

        async def status(body: bytes = b"{}", **more: str) -> int:
            return (await asyncio.to_thread(send, on, body, **more))[0]

        assert await status(x_hub_signature_256="") == 401
        assert await status(x_hub_signature_256="sha256=" + "0" * 64) == 401
        assert await status(b"{") == 400
        assert await status(b'{"a": 1, "a": 2}') == 400
        assert await status(b"[" * 1000 + b"]" * 1000) == 400
        assert await status(x_github_event="../x") == 400
        assert await status(x_github_delivery="") == 400
        assert await asyncio.to_thread(announced, on, 5 * 1024 * 1024 + 1) == 413
        assert await status(path="/") == 404
        assert await status(path="/api/sessions", method="GET", body=b"") == 404
        assert await status(method="PUT") == 405
        assert deliveries(on) == []


async def test_what_nobody_knows_is_ignored_on_record_and_the_same_id_is_done_once(
    tmp_path: Path,
) -> None:
    async with reviewed(tmp_path) as on:

        async def answer(body: Any, **more: str) -> tuple[int, str]:
            data = json.dumps(body).encode()
            return await asyncio.to_thread(send, on, data, **more)

        status, outcome = await answer({"zen": "x"}, x_github_event="watch", x_github_delivery="a")
        assert (status, json.loads(outcome)["outcome"]) == (202, "ignored")
        about = {"action": "opened", "repository": {"full_name": "acme/gone"}}
        await answer(about | {"pull_request": {"number": 1}}, x_github_delivery="b")
        await answer(
            {"action": "opened", "repository": {"full_name": NAME}, "pull_request": {"number": -3}},
            x_github_delivery="c",
        )
        await on.running.until_soon(
            lambda: {outcome for _, outcome in deliveries(on)} == {"ignored"} or None, "all handled"
        )
        _, outcome = await answer(about | {"pull_request": {"number": 1}}, x_github_delivery="b")
        assert json.loads(outcome)["outcome"] == "duplicate"
        assert len(deliveries(on)) == 3
        assert on.acts() == []


def kept(on: Reviewed) -> dict[str, bool]:
    """Which deliveries are kept, and whether their bodies are."""
    with on.service.engine.connect() as connection:
        rows = connection.exec_driver_sql("select delivery_id, length(payload) from deliveries")
        return {name: length > 0 for name, length in rows}


async def test_what_was_handled_is_kept_for_a_while_and_what_was_ignored_never(
    tmp_path: Path,
) -> None:
    async with reviewed(tmp_path) as on:
        await asyncio.to_thread(send, on, b"{}", x_github_event="watch", x_github_delivery="a")
        await asyncio.to_thread(send, on, b"{}", x_github_event="issue_comment")
        await on.running.until_soon(
            lambda: {outcome for _, outcome in deliveries(on)} == {"ignored"} or None, "all handled"
        )
        await on.service.reconcile.poll()
        assert kept(on) == {"a": False, "d-1": True}

        def ago(days: int) -> None:
            with on.service.engine.begin() as connection:
                connection.exec_driver_sql(
                    f"update deliveries set handled_at = {time.time() - days * 86_400}"
                )

        ago(8)
        await on.service.reconcile.poll()
        assert kept(on) == {"a": False, "d-1": False}
        # Of a comment it can't be told any more what it was.
        on.service.handle_again("d-1")
        await on.running.until_soon(
            lambda: {outcome for _, outcome in deliveries(on)} == {"ignored"} or None, "done again"
        )
        ago(91)
        await on.service.reconcile.poll()
        assert kept(on) == {}
