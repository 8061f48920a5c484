"""A reader whose model is a local Messages server with books of its own, for tests of money.

A sandbox has a loopback of its own, so the server listens on another address of this machine.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.app import reviewing
from supervisor.server.common.listening import own_addresses
from tests.fakes.messages_server import Json, MessagesServer, Step, Turn, calls, text, tool_use
from tests.fakes.reviewed import Reviewed, reviewed

KEY = "sk-ant-test-1c2f7be0a94c3b8e55d04f"
MODEL = "claude-sonnet-5-5"
# Pico-dollars of a token, by policy/prices.yaml: $2 and $10 for a million.
INPUT, OUTPUT = 2 * 10**6, 10**7
FINDING = {
    "path": "shop/cart.py",
    "line": 5,
    "severity": "low",
    "title": "no type",
    "body": "It takes anything.",
    "quote": "def count(items):",
}
REVIEW: Json = {"summary": "It counts.", "verdict": "comment", "findings": [FINDING]}


def paid_server(script: list[Step]) -> MessagesServer:
    """The server, not yet serving; skips the test where this machine has only its loopback."""
    found = [one for one in own_addresses() if not one.startswith("127.")]
    if not found:
        pytest.skip("this machine has no address but its loopback")
    return MessagesServer(script, api_key=KEY, address=found[0], follow="conversation")


@contextlib.asynccontextmanager
async def paid(server: MessagesServer, folder: Path, **changes: Any) -> AsyncIterator[Reviewed]:
    """A review service whose readers use it."""
    base = {"anthropic_api_key": KEY, "anthropic_base_url": server.url, "review_model": MODEL}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reviewing, "READER_POLICY", reader_policy(server, folder))
        async with reviewed(folder, **base | changes) as on:
            yield on


def reader_policy(server: MessagesServer, folder: Path) -> Path:
    """The policy of readers with a rule that opens the server: an address of this machine is never
    open by itself."""
    text = reviewing.READER_POLICY.read_text("utf-8")
    rule = f"allow:\n  - network({server.address}:{server.port})\n"
    file = folder / "reviewer.yaml"
    file.write_text(text.replace("allow:\n", rule, 1))
    return file


def look(number: int, output_tokens: int = 42) -> Turn:
    """A turn that searches for something."""
    return calls(tool_use("search", {"pattern": f"x{number}"}), output_tokens=output_tokens)


def written(**more: Any) -> Turn:
    """The turn with the review."""
    return text(f"<review>{json.dumps(REVIEW | more)}</review>")


def books(server: MessagesServer) -> int:
    """What the server's own books say that its replies cost, in pico-dollars."""
    return sum(used * INPUT + made * OUTPUT for _, used, made in server.served)


async def settled(on: Reviewed) -> dict[str, tuple[int, int]]:
    """What is used and reserved by scope, once nothing is reserved any more."""

    def found() -> dict[str, tuple[int, int]] | None:
        with on.service.engine.connect() as connection:
            rows = connection.exec_driver_sql(
                "select scope, key, period, sum(coalesce(used, 0)),"
                " sum(case when settled_at is null then reserved else 0 end)"
                " from allowances group by 1, 2, 3"
            ).all()
        by_scope: dict[str, tuple[int, int]] = {}
        for scope, _, _, used, reserved in rows:
            have = by_scope.get(scope, (0, 0))
            by_scope[scope] = have[0] + int(used), have[1] + int(reserved)
        return by_scope if by_scope and all(not one[1] for one in by_scope.values()) else None

    return await on.running.until_soon(found, "every run's money to be settled")
