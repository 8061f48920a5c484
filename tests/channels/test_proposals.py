"""Approved proposals become rules: as shown, on record, or not at all."""

from pathlib import Path

import pytest

from supervisor.channels.proposals import ProposalBroker
from supervisor.core.actions import Proposal
from supervisor.core.approvals import Request
from supervisor.core.secrets.token_shapes import MARK
from supervisor.errors import StorageError
from tests.network.conftest import Office, office

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


async def proposed(at: Office, action: Proposal) -> Request:
    """What became of a proposal that a person approved."""
    at.open("session-1")
    request = at.gate.ask(action, session_id="session-1")
    at.gate.resolve(request.id, "approved", by="tester")
    await ProposalBroker(at.gate).carry_out(at.gate.queue.get(request.id))
    return at.gate.queue.get(request.id)


def saved(at: Office) -> str:
    path = at.folder / "policy.yaml"
    return path.read_text() if path.exists() else ""


async def test_it_is_saved_and_on_record_with_who_approved_it(tmp_path: Path) -> None:
    with office(tmp_path) as at:
        request = await proposed(
            at, Proposal(effect="allow", rule="exec(make test)", why=f"it needs {TOKEN}")
        )
        assert (request.outcome or {})["ok"]
        assert "exec(make test)" in saved(at)
        assert TOKEN not in saved(at)
        assert MARK in saved(at)
        assert len(at.audited("rule_added")) == 1


async def test_a_rule_that_holds_a_secret_is_not_saved(tmp_path: Path) -> None:
    with office(tmp_path) as at:
        request = await proposed(at, Proposal(effect="allow", rule=f"exec(curl {TOKEN})"))
        assert not (request.outcome or {})["ok"]
        assert not saved(at)


async def test_a_rule_that_cannot_be_recorded_is_not_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with office(tmp_path) as at:
        record = at.audit.record

        def full(event: str, **facts: object) -> int:
            if event == "rule_added":
                raise StorageError("the disk is full", "free it")
            return record(event, **facts)  # type: ignore[arg-type]

        monkeypatch.setattr(at.audit, "record", full)
        request = await proposed(at, Proposal(effect="allow", rule="exec(make test)"))
        assert not (request.outcome or {})["ok"]
        assert "exec(make test)" not in saved(at)
