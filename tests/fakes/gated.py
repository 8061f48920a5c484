"""A gate with everything real but the clock, and what tests of it ask: for those of the gate, of
claims and of repeats."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from supervisor.core.actions import Action, Network
from supervisor.core.approvals import Answer, Request
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import Session, SessionId
from supervisor.gate.answering import Answering
from supervisor.gate.gate import Gate, Grant, Lease, Refused
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit
from supervisor.records.kill_switch import KillSwitch
from supervisor.records.policy_files import PolicyFiles
from supervisor.store.engine import open_database
from tests.fakes.clock import FakeClock

POLICY = """
version: 1
allow: [network(allowed.example.org)]
ask: [network(asked.example.org)]
deny:
  - rule: network(denied.example.org)
    why: it tracks people
"""


def connect(host: str) -> Network:
    return Network(operation="connect", host=host, port=443)


def session(name: str, policy_text: str = "") -> Session:
    return Session(
        id=SessionId(name),
        kind="agent",
        workspace="/w",
        command=("true",),
        token_hash="",
        created_at=0,
        deadline_at=1e12,
        policy_text=policy_text,
    )


class World:
    """A gate with everything real but the clock."""

    def __init__(
        self, folder: Path, policy: Path | None = None, audit: type[Audit] = Audit
    ) -> None:
        self.folder = folder
        self._is_closed = False
        self.clock = FakeClock()
        self.redactor = Redactor(["hunter2hunter2"])
        self.policy = policy or folder / "policy.yaml"
        if not self.policy.exists():
            self.policy.write_text(POLICY)
        self.engine = open_database(folder / "gatehouse.db")
        self.audit = audit(folder / "audit.log", self.clock, self.redactor)
        self.queue = ApprovalQueue(self.engine)
        self.kill_switch = KillSwitch(folder / "stopped")
        self.gate = Gate(
            policies=PolicyFiles(self.policy, folder / "saved.yaml", self.clock),
            queue=self.queue,
            audit=self.audit,
            kill_switch=self.kill_switch,
            clock=self.clock,
            redactor=self.redactor,
            own_files=(self.policy,),
        )
        for name in ("s1", "s2"):
            self.gate.rulings.open_session(session(name))

    def ask(self, action: Action, session_id: str = "s1", **more: Any) -> Request:
        return self.gate.ask(action, session_id=session_id, **more)

    def events(self, *names: str) -> list[dict[str, Any]]:
        records = [
            json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()
        ]
        return [record for record in records if not names or record["event"] in names]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.audit.close()
            self.engine.dispose()


def answer_all(
    gate: Gate, request_ids: Iterable[str], answer: Answer, *, by: str, reason: str = ""
) -> list[Request]:
    """Answer as one step what a person is given in turns."""
    return gate.answers.now([Answering(one, answer, reason) for one in request_ids], by)


def granted(result: Grant | Refused) -> Grant:
    assert isinstance(result, Grant), result
    return result


def refused(result: Grant | Lease | Refused) -> Refused:
    assert isinstance(result, Refused)
    return result
