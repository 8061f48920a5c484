"""Readers that say what a test wants, in place of a session with a model."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from supervisor.core.sessions import Session
from tests.fakes.reviewed import Reviewed

# What a reader says of a folder: its path, the base, and the order as JSON.
type Says = Callable[[Path, str, str], dict[str, Any]]


def remark(**more: Any) -> dict[str, Any]:
    """A finding, as a reader reports it."""
    base = {"severity": "high", "title": "A title", "body": "Why.", "skill": "bug-detection"}
    return base | more


def said(findings: list[dict[str, Any]], verdict: str = "comment") -> dict[str, Any]:
    """A review with these findings."""
    return {"verdict": verdict, "summary": "Read.", "findings": findings, "model": "scripted"}


def read_by(on: Reviewed, reader: "SaidReader") -> None:
    """Have the runs of a service read by it, for nothing."""
    on.service.runs._sessions = reader
    on.service.budgets._spent = lambda session_id: 0


class SaidReader:
    """Implements `runs.Readers`. `orders` are those that it was given."""

    def __init__(self, says: Says) -> None:
        self._says = says
        self._reviews: dict[str, dict[str, Any]] = {}
        self.orders: list[dict[str, Any]] = []

    async def start(
        self, folder: Path, base: str, *, may_run: bool, order: str, **more: Any
    ) -> str:
        """See `runs.Readers.start`."""
        self.orders.append(msgspec.json.decode(order) | {"may_run": may_run})
        name = f"reader-{len(self._reviews)}"
        self._reviews[name] = self._says(folder, base, order)
        return name

    async def wait(self, session_id: str) -> Session:
        """See `runs.Readers.wait`."""
        await asyncio.sleep(0)
        facts = {
            "id": session_id,
            "kind": "review",
            "workspace": "/",
            "command": [],
            "token_hash": "",
            "created_at": 0.0,
            "deadline_at": 0.0,
            "review": self._reviews[session_id],
        }
        return msgspec.convert(facts, Session)

    def stop(self, session_id: str) -> None:
        """Nothing runs."""

    def refusal(self, session_id: str) -> str:
        """See `runs.Readers.refusal`."""
        return ""

    def cost(self, session_id: str) -> int:
        """See `runs.Readers.cost`."""
        return 0
