"""Receipts: signed, stored, and shown as a check on their head."""

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Engine

from supervisor.base.clock import Clock
from supervisor.core.approvals import Request
from supervisor.core.forge_acts import Act, Forge
from supervisor.reviews.core import prompts, receipts
from supervisor.reviews.core.kept_rounds import mark_of, with_mark
from supervisor.reviews.core.receipts import Outcome, ReceiptFacts
from supervisor.reviews.store import queries

# These aren't reported on the forge: the repository's people switched us off, or it is our own pull
# request.
LOCAL = frozenset({"disabled", "own"})


class Receipts:
    """The receipts of one supervisor. `ask` requests an act in the session of a repository; `kept`
    returns the mark at the end of a pull request's check, by its id."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        key_file: Path,
        ask: Callable[[Act, str, str], None],
        neutral: receipts.Neutral = "neutral",
        kept: Callable[[int], str] = lambda pull_id: "",
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._key = _key(key_file)
        self._ask = ask
        self._neutral = neutral
        self._kept = kept

    def leave(
        self,
        pull_id: int,
        head: str,
        *,
        outcome: Outcome,
        reason: str = "",
        run: queries.ReviewRun | None = None,
        findings: dict[str, int] | None = None,
    ) -> queries.Receipt | None:
        """Leave a receipt for a head, and set its check. Return None if the newest receipt says the
        same."""
        now = self._clock.now()
        with self._engine.begin() as connection:
            pull = queries.pull(connection, pull_id)
            repository = queries.repository_of(connection, pull.repository_id)
            known = [
                one for one in queries.receipts_of(connection, [pull_id]) if one.head_sha == head
            ]
            run_id = "" if run is None else run.id
            if run is not None and run.base_ref not in ("", pull.base_ref):
                outcome, reason = "held", receipts.BASE_CHANGED
            said = (outcome, reason, run_id)
            if known and (known[-1].outcome, known[-1].reason, known[-1].run_id) == said:
                return None
            facts = ReceiptFacts(
                forge=repository.forge,
                repository=repository.full_name,
                number=pull.number,
                head=head,
                base="" if run is None else run.base_sha,
                run=run_id,
                outcome=outcome,
                reason=reason,
                model="" if run is None else run.model,
                findings=findings or {},
                files=0 if run is None else len(run.files),
                skipped=() if run is None else run.skipped,
                trust="" if run is None else run.trust,
                config_revision="" if run is None else run.config_revision,
                configuration=() if run is None else (run.review or {}).get("configuration", ()),
                config_notes=() if run is None else run.config_notes,
                prompts=() if run is None else prompts.outcome_words(run.prompts),
                cost=0 if run is None else run.cost,
                partial="" if run is None else run.partial,
                at=now,
            )
            body = receipts.receipt_text(facts)
            receipt = queries.add_receipt(
                connection,
                pull_id=pull_id,
                head_sha=head,
                run_id=run_id,
                outcome=outcome,
                reason=reason,
                body=body,
                signature=base64.b64encode(self._key.sign(body.encode())).decode(),
                at=now,
            )
        self._set(facts, pull_id, repository.session_id, is_fork=pull.fork)
        return receipt

    def set_missing(self, session_id: str, requests: Sequence[Request]) -> None:
        """Request a repository's missing checks: a crash lost them, they were denied while
        everything was stopped, or something else is to be kept by now. `requests`: those of its
        session, newest first."""
        asked = {
            (one.action.number, one.action.head): (
                one.action.conclusion,
                mark_of(one.action.body),
            )
            for one in reversed(requests)
            if isinstance(one.action, Act)
            and one.action.operation == "check"
            and one.decision != "deny"
        }
        with self._engine.connect() as connection:
            newest = queries.receipts_of_heads(connection, session_id)
        for receipt, number, is_fork in newest:
            facts = receipts.receipt_facts(receipt.body)
            wanted = receipts.conclusion(facts, self._neutral), self._kept(receipt.pull_id)
            if asked.get((number, receipt.head_sha)) != wanted:
                self._set(facts, receipt.pull_id, session_id, is_fork=is_fork)

    def _set(self, facts: ReceiptFacts, pull_id: int, session_id: str, *, is_fork: bool) -> None:
        """Request the check that corresponds to a receipt."""
        if facts.reason in LOCAL:
            return
        act = Act(
            operation="check",
            forge=cast("Forge", facts.forge),
            repository=facts.repository,
            number=facts.number,
            head=facts.head,
            title=receipts.CHECK_NAME,
            body=with_mark(receipts.check_summary(facts), self._kept(pull_id)),
            conclusion=receipts.conclusion(facts, self._neutral),
            fork=is_fork,
        )
        self._ask(act, session_id, f"the receipt of {facts.head[:12]}")

    def public_key(self) -> str:
        """Return the key by which anybody can check a signature, in base64."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def is_signed(self, receipt: queries.Receipt) -> bool:
        """Return whether a receipt still matches its signature."""
        wanted = base64.b64encode(self._key.sign(receipt.body.encode())).decode()
        return wanted == receipt.signature


def _key(file: Path) -> Ed25519PrivateKey:
    """Return the key with which receipts are signed; it is made at first use."""
    try:
        return Ed25519PrivateKey.from_private_bytes(file.read_bytes())
    except FileNotFoundError:
        key = Ed25519PrivateKey.generate()
        file.touch(mode=0o600)
        file.write_bytes(key.private_bytes_raw())
        return key
