"""Puts a pull request's rounds back into an empty database, and says what to keep for the next one.

For a job of a workflow, which has no database of an earlier job: our check on the last reviewed
head has it (`core.kept_rounds`).
"""

from msgspec.structs import replace
from sqlalchemy import Engine

from supervisor.base.clock import Clock
from supervisor.reviews.core.allowances import Caps, Layer, Payer, layers
from supervisor.reviews.core.kept_rounds import KeptRounds, kept_mark
from supervisor.reviews.core.receipts import receipt_facts
from supervisor.reviews.core.slots import Slot
from supervisor.reviews.forges.base import PullFacts
from supervisor.reviews.store import allowances, findings, queries
from supervisor.reviews.store.allowances import Attempt

# The name of everything that an earlier job did, whose own ids are of no use any more.
EARLIER = "earlier"


def restore(
    engine: Engine, clock: Clock, repository: queries.Repository, pull: PullFacts, kept: KeptRounds
) -> None:
    """Store what an earlier job knew of a pull request."""
    now = clock.now()
    with engine.begin() as connection:
        pull_id = queries.put_pull(
            connection,
            repository.id,
            pull.number,
            draft=pull.is_draft,
            fork=pull.is_fork,
            head_sha=pull.head_sha,
            paused_by=kept.paused_by,
        )
        slot = Slot(last_reviewed_sha=kept.head, rounds=kept.rounds)
        queries.put_slot(connection, pull_id, slot)
        if kept.head:
            queries.put_run(
                connection,
                EARLIER,
                pull_id=pull_id,
                kind="review",
                attempt=1,
                claimed_attempt=1,
                wanted_at=0.0,
                ended_at=0.0,
                outcome=kept.outcome,
                partial=kept.partial,
                skipped=list(kept.skipped),
                session_id=EARLIER,
                review={},
                head_sha=kept.head,
                base_sha=kept.base,
                base_ref=kept.base_ref,
                full=False,
            )
        if kept.receipt:
            outcome = receipt_facts(kept.receipt)
            queries.add_receipt(
                connection,
                pull_id=pull_id,
                head_sha=kept.receipt_head,
                run_id=EARLIER,
                outcome=outcome.outcome,
                reason=outcome.reason,
                body=kept.receipt,
                signature="",
                at=outcome.at,
            )
        findings.keep(connection, pull_id, EARLIER, kept.findings)
        findings.posted(connection, pull_id, [one.id for one in kept.findings if one.is_posted], 0)
        if kept.was_called:
            called = queries.MentionKey(repository.forge, 0, is_inline=False)
            facts = {"pull_id": pull_id, "author": EARLIER, "command": "review", "at": 0.0}
            queries.add_mention(connection, called, **facts)
            queries.end_mention(connection, called, "done")
        layer = _layer(repository, pull.number)
        allowances.reserve(connection, EARLIER, 1, layers=[layer], amount=kept.cost, now=0.0)
        allowances.settle(connection, Attempt(EARLIER, 1, kept.cost), kept.cost, now)


def mark_to_keep(engine: Engine, pull_id: int) -> str:
    """Return the mark with all that the next job has to know of a pull request."""
    with engine.connect() as connection:
        slot = queries.slot(connection, pull_id)
        pull = queries.pull(connection, pull_id)
        runs = queries.runs_of(connection, pull_id)
        receipts = queries.receipts_of(connection, [pull_id])
        known = findings.of_pull(connection, pull_id)
        was_called = queries.was_called(connection, pull_id, "review")
        repository = queries.repository_of(connection, pull.repository_id)
        (use,) = allowances.uses(connection, [_layer(repository, pull.number)])
    last = [
        one for one in runs if one.head_sha == slot.last_reviewed_sha and one.review is not None
    ]
    kept = KeptRounds(
        rounds=slot.rounds,
        paused_by=pull.paused_by,
        was_called=was_called,
        cost=use.used + use.reserved,
        findings=tuple(known),
        receipt=receipts[-1].body if receipts else "",
        receipt_head=receipts[-1].head_sha if receipts else "",
    )
    if last:
        run = last[-1]
        kept = replace(
            kept,
            head=run.head_sha,
            base=run.base_sha,
            base_ref=run.base_ref,
            outcome=run.outcome,
            partial=run.partial,
            skipped=tuple(run.skipped),
        )
    return kept_mark(kept)


def _layer(repository: queries.Repository, number: int) -> Layer:
    payer = Payer(
        forge=repository.forge, repository=repository.full_name, number=number, run_id=EARLIER
    )
    return layers(Caps(run=0), payer, 0.0)[1]
