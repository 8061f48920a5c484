"""Queries of the review service. Each takes a connection: the caller controls the transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, func, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from supervisor.reviews.core.slots import Slot
from supervisor.reviews.store.tables import (
    deliveries,
    mentions,
    owners,
    pulls,
    receipts,
    repositories,
    runs,
    slots,
)


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """A repository. `full_name` is `OWNER/REPO`; `session_id` is its standing session."""

    id: int
    forge: str
    full_name: str
    external_id: int | None
    installation_id: int | None
    default_branch: str
    clone_url: str
    enabled: bool
    removed_at: float | None
    may_resolve: bool
    settings: dict[str, Any]
    session_id: str


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request as the forge last described it."""

    id: int
    repository_id: int
    number: int
    title: str
    author: str
    author_permission: str
    fork: bool
    draft: bool
    base_ref: str
    base_sha: str
    head_ref: str
    head_sha: str
    closed_at: float | None
    labels: list[str]
    body: str
    paused_by: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as received; `payload` is its bytes, compressed with zstd."""

    forge: str
    delivery_id: str
    event: str
    action: str
    repository: str
    number: int | None
    received_at: float
    payload: bytes
    handled_at: float | None
    outcome: str
    attempts: int
    error: str


class ReviewRun(msgspec.Struct, frozen=True, kw_only=True):
    """One review of one head. `review` is its result: verdict, summary, placed findings."""

    id: str
    pull_id: int
    kind: str
    head_sha: str
    base_ref: str
    base_sha: str
    attempt: int
    full: bool
    wanted_at: float
    claimed_at: float | None
    claimed_attempt: int
    ended_at: float | None
    outcome: str
    reason: str
    session_id: str
    model: str
    review: dict[str, Any] | None
    files: list[str]
    skipped: list[str]
    cost: int
    setup_ms: float | None
    duration_ms: float | None
    since_sha: str
    trust: str
    config_revision: str
    config_digest: str
    config_notes: list[str]
    partial: str
    prompts: list[dict[str, Any]]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one head: `body` is the signed text."""

    id: int
    pull_id: int
    head_sha: str
    run_id: str
    outcome: str
    reason: str
    body: str
    signature: str
    at: float


class WaitingMention(NamedTuple):
    """A comment that called for a prompt, by somebody who may."""

    comment_id: int
    author: str
    command: str
    arguments: str
    is_inline: bool

    @property
    def name(self) -> str:
        """Return its id among comments of both kinds."""
        return f"review-{self.comment_id}" if self.is_inline else str(self.comment_id)


def repository(connection: Connection, forge: str, full_name: str) -> Repository | None:
    """Return a repository by its name, in any letter case."""
    query = select(repositories).where(
        repositories.c.forge == forge,
        func.lower(repositories.c.full_name) == full_name.lower(),
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else Repository(**row._mapping)


def repository_of(connection: Connection, repository_id: int) -> Repository:
    row = connection.execute(select(repositories).where(repositories.c.id == repository_id)).one()
    return Repository(**row._mapping)


def all_repositories(connection: Connection) -> list[Repository]:
    rows = connection.execute(select(repositories).order_by(repositories.c.full_name))
    return [Repository(**row._mapping) for row in rows]


def add_repository(connection: Connection, **facts: object) -> Repository:
    row = connection.execute(insert(repositories).values(facts).returning(repositories)).one()
    return Repository(**row._mapping)


def change_repository(connection: Connection, repository_id: int, **facts: object) -> None:
    connection.execute(update(repositories).where(repositories.c.id == repository_id).values(facts))


def owner_settings(connection: Connection, forge: str, name: str) -> dict[str, Any]:
    """Return the operator's settings for all repositories of an owner, in any letter case."""
    query = select(owners.c.settings).where(owners.c.forge == forge, owners.c.name == name.lower())
    found: dict[str, Any] | None = connection.execute(query).scalar_one_or_none()
    return found or {}


def put_owner(connection: Connection, forge: str, name: str, settings: dict[str, Any]) -> None:
    facts = {"forge": forge, "name": name.lower(), "settings": settings}
    wanted = insert_or(owners).values(facts)
    connection.execute(wanted.on_conflict_do_update(set_={"settings": settings}))


def add_delivery(connection: Connection, **facts: object) -> bool:
    """Store a delivery. Return whether to handle it: it is new, or an earlier attempt with the same
    id failed."""
    done = connection.execute(insert_or(deliveries).values(facts).on_conflict_do_nothing())
    if done.rowcount:
        return True
    query = select(deliveries.c.handled_at).where(*_is_delivery(facts))
    return connection.execute(query).scalar_one() is None


def delivery(connection: Connection, forge: str, delivery_id: str) -> Delivery | None:
    key = {"forge": forge, "delivery_id": delivery_id}
    row = connection.execute(select(deliveries).where(*_is_delivery(key))).one_or_none()
    return None if row is None else Delivery(**row._mapping)


def unhandled(connection: Connection, most_attempts: int, limit: int = 100) -> list[Delivery]:
    """Return the oldest unhandled deliveries."""
    query = select(deliveries).where(
        deliveries.c.handled_at.is_(None), deliveries.c.attempts < most_attempts
    )
    rows = connection.execute(query.order_by(deliveries.c.received_at).limit(limit))
    return [Delivery(**row._mapping) for row in rows]


def newest_deliveries(connection: Connection, limit: int = 100) -> list[Delivery]:
    rows = connection.execute(
        select(deliveries).order_by(deliveries.c.received_at.desc()).limit(limit)
    )
    return [Delivery(**row._mapping) for row in rows]


def change_delivery(connection: Connection, one: Delivery, **facts: object) -> None:
    key = {"forge": one.forge, "delivery_id": one.delivery_id}
    connection.execute(update(deliveries).where(*_is_delivery(key)).values(facts))


def tidy_deliveries(connection: Connection, *, bodies_before: float, lines_before: float) -> None:
    """Remove the bodies of deliveries that were handled before `bodies_before`, and deliveries that
    were handled before `lines_before` completely; both in seconds since the epoch."""
    handled = deliveries.c.handled_at
    connection.execute(delete(deliveries).where(handled < lines_before))
    old = (handled < bodies_before, deliveries.c.payload != b"")
    connection.execute(update(deliveries).where(*old).values(payload=b""))


def _is_delivery(facts: Mapping[str, object]) -> tuple[Any, ...]:
    return (
        deliveries.c.forge == facts["forge"],
        deliveries.c.delivery_id == facts["delivery_id"],
    )


def put_pull(connection: Connection, repository_id: int, number: int, **facts: object) -> int:
    """Store a pull request's facts; return its id."""
    key = {"repository_id": repository_id, "number": number}
    query = insert_or(pulls).values({**key, **facts})
    done = connection.execute(
        query.on_conflict_do_update(
            index_elements=["repository_id", "number"], set_=facts
        ).returning(pulls.c.id)
    )
    return int(done.scalar_one())


def pull(connection: Connection, pull_id: int) -> PullRequest:
    row = connection.execute(select(pulls).where(pulls.c.id == pull_id)).one()
    return PullRequest(**row._mapping)


def pulls_with(connection: Connection, ids: Sequence[int]) -> dict[int, PullRequest]:
    """Return pull requests by their ids."""
    rows = connection.execute(select(pulls).where(pulls.c.id.in_(ids)))
    return {row.id: PullRequest(**row._mapping) for row in rows}


def pull_numbered(connection: Connection, repository_id: int, number: int) -> PullRequest | None:
    query = select(pulls).where(pulls.c.repository_id == repository_id, pulls.c.number == number)
    row = connection.execute(query).one_or_none()
    return None if row is None else PullRequest(**row._mapping)


def open_pulls(connection: Connection, repository_id: int) -> list[PullRequest]:
    query = select(pulls).where(pulls.c.repository_id == repository_id, pulls.c.closed_at.is_(None))
    return [PullRequest(**row._mapping) for row in connection.execute(query)]


def slot(connection: Connection, pull_id: int) -> Slot:
    """Return a slot's facts; those of an idle slot if there is none yet."""
    row = connection.execute(select(slots).where(slots.c.pull_id == pull_id)).one_or_none()
    if row is None:
        return Slot()
    facts = dict(row._mapping)
    del facts["pull_id"]
    return Slot(**facts)


def slots_of(connection: Connection, repository_id: int) -> list[Slot]:
    """Return the slots of a repository's open pull requests."""
    query = (
        select(slots)
        .join(pulls, slots.c.pull_id == pulls.c.id)
        .where(pulls.c.repository_id == repository_id, pulls.c.closed_at.is_(None))
    )
    found = []
    for row in connection.execute(query):
        facts = dict(row._mapping)
        del facts["pull_id"]
        found.append(Slot(**facts))
    return found


def put_slot(connection: Connection, pull_id: int, facts: Slot) -> None:
    values = msgspec.structs.asdict(facts)
    query = insert_or(slots).values(pull_id=pull_id, **values)
    connection.execute(query.on_conflict_do_update(index_elements=["pull_id"], set_=values))


def slots_to_look_at(connection: Connection, now: float) -> list[int]:
    """Return the pull requests whose debounce or lease may be over."""
    query = select(slots.c.pull_id).where(or_(slots.c.due_at <= now, slots.c.lease_until <= now))
    return list(connection.execute(query).scalars())


def end_leases(connection: Connection, now: float) -> None:
    """End every lease: its holder is gone."""
    connection.execute(
        update(slots).where(slots.c.lease_until.is_not(None)).values(lease_until=now)
    )


def put_run(connection: Connection, run_id: str, **facts: object) -> None:
    """Add a run, or begin a further attempt of it."""
    query = insert_or(runs).values(id=run_id, **facts)
    again = {name: facts[name] for name in ("attempt", "head_sha", "full")} | {"ended_at": None}
    connection.execute(query.on_conflict_do_update(index_elements=["id"], set_=again))


def claim(connection: Connection, run_id: str, now: float) -> ReviewRun | None:
    """Take a run, once for each attempt; return None if it is taken or over."""
    query = (
        update(runs)
        .where(
            runs.c.id == run_id,
            runs.c.ended_at.is_(None),
            runs.c.claimed_attempt < runs.c.attempt,
        )
        .values(claimed_at=now, claimed_attempt=runs.c.attempt)
        .returning(runs)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else ReviewRun(**row._mapping)


def run(connection: Connection, run_id: str) -> ReviewRun | None:
    row = connection.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
    return None if row is None else ReviewRun(**row._mapping)


def change_run(connection: Connection, run_id: str, **facts: object) -> None:
    connection.execute(update(runs).where(runs.c.id == run_id).values(facts))


def unclaimed(connection: Connection) -> list[ReviewRun]:
    """Return the wanted runs that aren't claimed yet."""
    query = select(runs).where(runs.c.ended_at.is_(None), runs.c.claimed_attempt < runs.c.attempt)
    return [
        ReviewRun(**row._mapping) for row in connection.execute(query.order_by(runs.c.wanted_at))
    ]


def newest_runs(connection: Connection, limit: int = 100) -> list[ReviewRun]:
    # Ids first: sorting whole rows would read every stored review.
    newest = select(runs.c.id).order_by(runs.c.wanted_at.desc()).limit(limit)
    query = select(runs).where(runs.c.id.in_(newest)).order_by(runs.c.wanted_at.desc())
    return [ReviewRun(**row._mapping) for row in connection.execute(query)]


def runs_of(connection: Connection, pull_id: int) -> list[ReviewRun]:
    """Return a pull request's runs, oldest first."""
    query = select(runs).where(runs.c.pull_id == pull_id).order_by(runs.c.wanted_at)
    return [ReviewRun(**row._mapping) for row in connection.execute(query)]


def is_for_other_base(of_pull: Sequence[ReviewRun], head: str, base_ref: str) -> bool:
    """Return whether a head was last reviewed against another base branch."""
    good = ("clean", "found", "skipped")
    reviewed = [one for one in of_pull if one.head_sha == head and one.outcome in good]
    return bool(reviewed) and reviewed[-1].base_ref not in ("", base_ref)


def runs_since(connection: Connection, repository_id: int, since: float) -> int:
    """Return how many runs of a repository were requested since then."""
    query = (
        select(func.count())
        .select_from(runs.join(pulls, runs.c.pull_id == pulls.c.id))
        .where(pulls.c.repository_id == repository_id, runs.c.wanted_at >= since)
    )
    return int(connection.execute(query).scalar_one())


def add_receipt(connection: Connection, **facts: object) -> Receipt:
    row = connection.execute(insert(receipts).values(facts).returning(receipts)).one()
    return Receipt(**row._mapping)


def receipts_of(connection: Connection, pull_ids: Sequence[int]) -> list[Receipt]:
    """Return the receipts of pull requests, oldest first."""
    query = select(receipts).where(receipts.c.pull_id.in_(pull_ids)).order_by(receipts.c.at)
    return [Receipt(**row._mapping) for row in connection.execute(query)]


def change_pull(connection: Connection, pull_id: int, **facts: object) -> None:
    connection.execute(update(pulls).where(pulls.c.id == pull_id).values(facts))


class MentionKey(NamedTuple):
    """The key of a comment: comments beside the code have separate ids."""

    forge: str
    comment_id: int
    is_inline: bool


def add_mention(connection: Connection, key: MentionKey, **facts: object) -> bool:
    """Store a comment that mentioned us. Return whether it still has to be answered: it is new, or
    a crash left it."""
    values = {**key._asdict(), **facts}
    connection.execute(insert_or(mentions).values(values).on_conflict_do_nothing())
    query = select(mentions.c.outcome).where(*_is_mention(key))
    return not connection.execute(query).scalar_one()


def end_mention(connection: Connection, key: MentionKey, outcome: str) -> None:
    query = update(mentions).where(*_is_mention(key))
    connection.execute(query.values(outcome=outcome))


def waiting_mentions(connection: Connection, pull_id: int) -> list[WaitingMention]:
    """Return a pull request's unanswered mentions, oldest first."""
    query = select(
        mentions.c.comment_id,
        mentions.c.author,
        mentions.c.command,
        mentions.c.arguments,
        mentions.c.is_inline,
    ).where(mentions.c.pull_id == pull_id, mentions.c.outcome == "")
    rows = connection.execute(query.order_by(mentions.c.at, mentions.c.comment_id))
    return [WaitingMention(*row) for row in rows]


def pulls_called(connection: Connection) -> list[int]:
    """Return the open pull requests with unanswered mentions."""
    query = (
        select(pulls.c.id)
        .distinct()
        .join(mentions, mentions.c.pull_id == pulls.c.id)
        .where(mentions.c.outcome == "", pulls.c.closed_at.is_(None))
    )
    return list(connection.execute(query).scalars())


def was_called(connection: Connection, pull_id: int, command: str) -> bool:
    """Return whether somebody who may write requested this on a pull request."""
    query = select(mentions.c.comment_id).where(
        mentions.c.pull_id == pull_id, mentions.c.command == command, mentions.c.outcome == "done"
    )
    return connection.execute(query.limit(1)).first() is not None


def _is_mention(key: MentionKey) -> tuple[Any, ...]:
    return tuple(mentions.c[name] == value for name, value in key._asdict().items())


def receipts_of_heads(connection: Connection, session_id: str) -> list[tuple[Receipt, int, bool]]:
    """Return the newest receipt of each head in the open pull requests of the repository with this
    session, with the pull request's number and whether it comes from a fork."""
    last = (
        select(func.max(receipts.c.id))
        .join(pulls, receipts.c.pull_id == pulls.c.id)
        .join(repositories, pulls.c.repository_id == repositories.c.id)
        .where(repositories.c.session_id == session_id, pulls.c.closed_at.is_(None))
        .group_by(receipts.c.pull_id, receipts.c.head_sha)
    )
    query = (
        select(receipts, pulls.c.number, pulls.c.fork)
        .join(pulls, receipts.c.pull_id == pulls.c.id)
        .where(receipts.c.id.in_(last))
        .order_by(receipts.c.id)
    )
    found = []
    for row in connection.execute(query):
        *facts, number, is_fork = row
        found.append((Receipt(**dict(zip(receipts.c.keys(), facts, strict=True))), number, is_fork))
    return found
