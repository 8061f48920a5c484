"""Facts that the database is to hold and doesn't yet: how often rules matched, and outcomes that
a full disk kept out of it.

Counting in memory keeps a write out of each verdict. An outcome is of an effect that has
happened, so it must not be lost because the disk is full just then. It decides nothing.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.actions import Action
from supervisor.core.secrets import command_secrets
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import StorageError
from supervisor.records.approval_queue import ApprovalQueue

type Outcome = Literal["done", "failed"]


class PendingWrites:
    """`uses` is how often each rule matched, by its id, ever."""

    def __init__(self, queue: ApprovalQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._hits: Counter[str] = Counter()
        self._owed: dict[str, dict[str, Any]] = {}
        self.uses = {rule: hits for rule, (hits, _) in queue.rule_hits().items()}

    def count(self, rule_id: str) -> None:
        """A rule matched."""
        self._hits[rule_id] += 1
        self.uses[rule_id] = self.uses.get(rule_id, 0) + 1

    def settle(self, outcomes: Mapping[str, dict[str, Any]]) -> None:
        """Keep outcomes by request id, each once; where the database can't be written now,
        `write` does it later."""
        new = {
            request_id: facts
            for request_id, facts in outcomes.items()
            if request_id not in self._owed
        }
        if not new:
            return  # what rules alone allowed is no request
        try:
            self._queue.settle_all(new, self._clock.now())
        except StorageError as error:
            self._owed |= new
            log.error("outcomes not stored", error=str(error), requests=list(new))

    def note_taken_back(self, whys: Mapping[str, str | None]) -> None:
        """Say with requests, by id, that the operator took back what they did; None: it is in
        force again."""
        self.write()
        self._queue.note_taken_back(whys)

    def write(self) -> None:
        """Write all of it, now and then and at the end. `StorageError` where that still can't be;
        nothing of it is lost then."""
        self._queue.settle_all(self._owed, self._clock.now())
        self._owed.clear()
        if self._hits:
            self._queue.add_rule_hits(self._hits, self._clock.now())
            self._hits.clear()


def outcome_of(
    action: Action | None, said: Outcome, detail: Mapping[str, Any], redactor: Redactor
) -> dict[str, Any]:
    """Return what came of an effect, without secrets: those of its own command, which programs say
    again, too."""
    known = () if action is None else command_secrets.secrets_in(action)
    texts = {
        name: command_secrets.without(one, known)
        for name, one in detail.items()
        if isinstance(one, str)
    }
    shown = {name: redactor.printed(one) for name, one in texts.items()}
    facts: dict[str, Any] = redactor.data({"ok": said == "done", **detail, **shown})
    return facts
