"""A reader whose model is a local Messages server with books of its own, for tests of money.

A sandbox has a loopback of its own, so the server has a name, which only egress looks up.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.fakes.messages_server import Json, MessagesServer, Step, Turn, calls, text, tool_use
from tests.fakes.reviewed import Reviewed, reviewed

KEY = "sk-ant-test-1c2f7be0a94c3b8e55d04f"
HOST = "model.test"
NAMES = {HOST: ("127.0.0.1",)}
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
    """The server, not yet serving."""
    return MessagesServer(script, api_key=KEY, follow="conversation")


def url_of(server: MessagesServer) -> str:
    """Its address as readers are told it."""
    return f"http://{HOST}:{server.port}"


@contextlib.asynccontextmanager
async def paid(server: MessagesServer, folder: Path, **changes: Any) -> AsyncIterator[Reviewed]:
    """A review service whose readers use it."""
    base = {"anthropic_api_key": KEY, "anthropic_base_url": url_of(server), "review_model": MODEL}
    async with reviewed(folder, names=NAMES, **base | changes) as on:
        yield on


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
