"""Queries for requests and rule hits. Each is one transaction or takes part in its caller's.

INVARIANT: every change of a fact is a compare-and-swap on the facts it relies on. So of two callers
one wins and the other is told (a repeated answer, a grant claimed twice, a superseded request
approved).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    case,
    distinct,
    false,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from supervisor.core import approval_states
from supervisor.core.actions import MOVES, Action, Category, FileChange, category_of, targets
from supervisor.core.approval_states import (
    FACTS,
    KNOWN,
    Event,
    Status,
    Value,
    cases_for,
    cases_of,
)
from supervisor.core.approvals import Answer, Request, RequestTally
from supervisor.core.files.change_tree import Waiting
from supervisor.core.session_timeline import ChangeFacts, RequestFacts
from supervisor.errors import ChangedError
from supervisor.store.tables import requests as table
from supervisor.store.tables import rule_hits

MOST_PARAMETERS = 500
# Characters of a waiting request's JSON that count as one request.
CHARS_OF_ONE = 4096
_IS_CHANGE = and_(table.c.origin == "workspace", table.c.category == "filesystem")
_FIELDS = tuple(name for name in Request.__struct_fields__ if name != "action")
_COLUMNS = tuple(column.name for column in table.columns)
_ANSWER = ("answer", "answered_at", "answered_by", "answer_reason", "in_part", "rule")
_decode_action = msgspec.json.Decoder(Action).decode


@cache
def in_status(*statuses: Status) -> ColumnElement[bool]:
    """Return the condition that a request has one of these statuses."""
    return _any(case for status in statuses for case in cases_of(status))


@cache
def may_come(event: Event) -> ColumnElement[bool]:
    """Return the condition that a request's state permits this event."""
    return _any(cases_for(event))


def _any(cases: Iterable[Mapping[str, frozenset[Value]]]) -> ColumnElement[bool]:
    return or_(*(_all(case) for case in cases))


def _all(case: Mapping[str, frozenset[Value]]) -> ColumnElement[bool]:
    named = {fact: case[fact] for fact in FACTS if case.get(fact, FACTS[fact]) != FACTS[fact]}
    return and_(*(_is_among(fact, values) for fact, values in named.items()))


def _is_among(fact: str, values: frozenset[Value]) -> ColumnElement[bool]:
    # Literals, not parameters: only then is the index of waiting requests used
    # (https://www.sqlite.org/partialindex.html).
    column = table.c[fact]
    conditions: list[ColumnElement[bool]] = []
    if None in values:
        conditions.append(column.is_(None))
    if KNOWN in values:
        conditions.append(column.is_not(None))
    texts = sorted(one for one in values if isinstance(one, str))
    return or_(*conditions, *(column == literal_column(f"'{text}'") for text in texts))


_PENDING = in_status("pending")
_READY = in_status("allowed", "approved")
_UNSETTLED = and_(in_status("used"), table.c.settled_at.is_(None))
_FAILED = func.coalesce(table.c.outcome["ok"].as_boolean() == false(), false())
_UNDONE = table.c.outcome["taken_back"].as_string().is_not(None)


def add_all(connection: Connection, requests: Sequence[Request]) -> None:
    """Record new requests. Raise `IntegrityError` where a subject already has a pending one."""
    rows = []
    for request in requests:
        row = {name: getattr(request, name) for name in _FIELDS}
        row["action"] = msgspec.json.encode(request.action).decode()
        row["category"] = category_of(request.action)
        rows.append(row)
    if rows:
        connection.execute(insert(table), rows)


def get(connection: Connection, request_id: str) -> Request | None:
    row = connection.execute(select(table).where(table.c.id == request_id)).one_or_none()
    return _request(row) if row else None


def get_all(connection: Connection, request_ids: Collection[str]) -> list[Request]:
    """Return the existing requests among these, in the order of the ids given."""
    found: dict[str, Request] = {}
    for part in _parts(list(request_ids)):
        for row in connection.execute(select(table).where(table.c.id.in_(part))):
            found[row.id] = _request(row)
    return [found[one] for one in request_ids if one in found]


def ids_from(connection: Connection, start: str, limit: int) -> list[str]:
    """Return the first ids that begin with a text."""
    begins = and_(table.c.id >= start, table.c.id < f"{start}\U0010ffff")
    return list(connection.execute(select(table.c.id).where(begins).limit(limit)).scalars())


def pending_ids(connection: Connection) -> list[str]:
    """Return the ids of all waiting requests, oldest first."""
    return list(
        connection.execute(select(table.c.id).where(_PENDING).order_by(table.c.asked_at)).scalars()
    )


def pending(connection: Connection, session_id: str | None = None) -> list[Request]:
    """Return the requests that wait for an answer, oldest first."""
    return _select(connection, _PENDING, session_id)


def pending_in(connection: Connection, category: Category, limit: int) -> list[Request]:
    """Return the first waiting requests of a category, oldest first."""
    return _select(connection, and_(_PENDING, table.c.category == category), None, limit)


def ready(connection: Connection, session_id: str | None = None) -> list[Request]:
    """Return the requests that may be carried out and haven't been."""
    return _select(connection, _READY, session_id)


def unsettled(connection: Connection) -> list[Request]:
    """Return begun requests without a known outcome: after a crash, the effect may or may not have
    happened."""
    return _select(connection, _UNSETTLED, None)


def ended_since(connection: Connection, at: float) -> list[Request]:
    """Return requests that were answered or closed since then, oldest first."""
    ended = or_(table.c.answered_at >= at, table.c.closed_at >= at)
    query = select(table).where(ended).order_by(table.c.asked_at)
    return list(map(_request, connection.execute(query)))


def of_session(
    connection: Connection, session_id: str, limit: int = 1000, offset: int = 0
) -> list[Request]:
    """Return a session's requests, newest first, from the one at `offset` on."""
    query = (
        select(table)
        .where(table.c.session_id == session_id)
        .order_by(table.c.asked_at.desc(), table.c.id)
        .limit(limit)
        .offset(offset)
    )
    return [_request(row) for row in connection.execute(query)]


def timeline_of(
    connection: Connection,
    session_id: str,
    before: tuple[float, str] | None,
    limit: int,
    *,
    with_allowed: bool,
) -> list[RequestFacts]:
    """Return the short facts of a session's requests, newest first, only those after the one
    `before` (when it was asked, and its id). Without `with_allowed`, those that rules allowed and
    nothing failed of are left out."""
    names = [name for name in RequestFacts._fields if name in table.c]
    query = (
        select(*(table.c[name] for name in names), _FAILED, _UNDONE)
        .where(table.c.session_id == session_id)
        .order_by(table.c.asked_at.desc(), table.c.id)
        .limit(limit)
    )
    if not with_allowed:
        query = query.where(or_(table.c.decision != "allow", _FAILED))
    if before is not None:
        at, request_id = before
        same = and_(table.c.asked_at == at, table.c.id > request_id)
        query = query.where(or_(table.c.asked_at < at, same))
    return [RequestFacts._make(row) for row in connection.execute(query)]


def changed_of(connection: Connection, session_id: str) -> list[ChangeFacts]:
    """Return the short facts of a session's changed files, newest first."""
    names = [name for name in ChangeFacts._fields if name in table.c]
    query = (
        select(*(table.c[name] for name in names), _FAILED, _UNDONE)
        .where(table.c.session_id == session_id, table.c.category == "filesystem")
        .order_by(table.c.asked_at.desc(), table.c.id)
    )
    return [ChangeFacts._make(row) for row in connection.execute(query)]


def newest(
    connection: Connection, limit: int = 100, category: Category | None = None
) -> list[Request]:
    """Return the last `limit` requests of all sessions, newest first; only of `category` if
    given."""
    query = select(table).order_by(table.c.asked_at.desc()).limit(limit)
    if category is not None:
        query = query.where(table.c.category == category)
    return [_request(row) for row in connection.execute(query)]


def last_answered(connection: Connection, limit: int) -> list[Request]:
    """Return the requests that a person answered last, newest first."""
    answered = select(table).where(
        table.c.answered_at.is_not(None), table.c.superseded_by.is_(None)
    )
    query = answered.order_by(table.c.answered_at.desc()).limit(limit)
    return [_request(row) for row in connection.execute(query)]


def count_pending(connection: Connection, session_id: str, *, of_workspace: bool) -> int:
    """Count a session's waiting requests, either of changed files or of everything else. A long
    request counts as several, because all of it is shown; pushes and installs, which are always
    long, are exempt."""
    is_change = table.c.origin == "workspace" if of_workspace else table.c.origin != "workspace"
    long = 1 + func.length(table.c.action) // CHARS_OF_ONE
    counted = case((table.c.category.in_(("packages", "git")), 1), else_=long)
    query = select(func.sum(counted)).where(_PENDING, table.c.session_id == session_id, is_change)
    return int(connection.execute(query).scalar_one() or 0)


def count_waiting(connection: Connection) -> int:
    """Count the waiting requests of all sessions."""
    return int(
        connection.execute(select(func.count()).select_from(table).where(_PENDING)).scalar_one()
    )


def waiting_between(connection: Connection, after: float, until: float) -> list[tuple[str, str]]:
    """Return id and session of what waits and was asked after one time, until the other; oldest
    first."""
    asked = and_(_PENDING, table.c.asked_at > after, table.c.asked_at <= until)
    query = select(table.c.id, table.c.session_id).where(asked).order_by(table.c.asked_at)
    return [(row.id, row.session_id) for row in connection.execute(query)]


def tallies(
    connection: Connection, session_ids: Sequence[str], *, now: float
) -> dict[str, RequestTally]:
    """Count the requests of these sessions, by session."""
    is_changed = and_(table.c.category == "filesystem", table.c.used_at.is_not(None))
    is_answered = and_(table.c.answer.is_not(None), table.c.answered_by != "gatehouse")

    def counted(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((condition, 1), else_=0))

    query = select(
        table.c.session_id,
        counted(_PENDING),
        counted(and_(_PENDING, table.c.hold_until > now)),
        func.count(distinct(case((is_changed, table.c.subject)))),
        counted(table.c.decision != "ask"),
        counted(is_answered),
        func.count(),
        func.count(distinct(case((table.c.category == "filesystem", table.c.subject)))),
    ).group_by(table.c.session_id)
    found = connection.execute(query.where(table.c.session_id.in_(session_ids)))
    counts = {row[0]: RequestTally(*map(int, row[1:])) for row in found}
    return {one: counts.get(one, RequestTally()) for one in session_ids}


def waiting_changes(connection: Connection) -> dict[str, int]:
    """Return how many changed files wait, by session."""
    query = (
        select(table.c.session_id, func.count())
        .where(_PENDING, _IS_CHANGE)
        .group_by(table.c.session_id)
    )
    return {row[0]: int(row[1]) for row in connection.execute(query)}


def pending_but(
    connection: Connection,
    without_changes_of: Sequence[str],
    session_id: str | None = None,
    *,
    limit: int,
    now: float,
) -> list[Request]:
    """Return the first waiting requests, without the changed files of these sessions. First come
    those whose caller still waits, then the others; each oldest first."""
    condition = and_(_PENDING, not_(and_(_IS_CHANGE, table.c.session_id.in_(without_changes_of))))
    return _select(connection, condition, session_id, limit, (_left_by(now),))


def pending_ids_but(
    connection: Connection,
    without_changes_of: Sequence[str],
    session_id: str | None = None,
    *,
    now: float,
) -> list[str]:
    """Return the ids of all of these, in the same order."""
    condition = and_(_PENDING, not_(and_(_IS_CHANGE, table.c.session_id.in_(without_changes_of))))
    if session_id is not None:
        condition = and_(condition, table.c.session_id == session_id)
    query = select(table.c.id).where(condition).order_by(_left_by(now), table.c.asked_at)
    return list(connection.execute(query).scalars())


def changes_of(connection: Connection, session_id: str) -> list[Waiting]:
    """Return a session's waiting file changes: only the columns that a combined card needs, since
    there can be 20,000."""
    columns = (
        table.c.id, table.c.fingerprint, table.c.asked_at, table.c.action, table.c.sticky,
        table.c.reason, table.c.held_up
    )  # fmt: skip
    rows = connection.execute(
        select(*columns)
        .where(_PENDING, _IS_CHANGE, table.c.session_id == session_id)
        .order_by(table.c.asked_at)
    )
    decode = msgspec.json.Decoder(FileChange).decode
    return [
        Waiting(
            one.id,
            one.fingerprint,
            one.asked_at,
            decode(one.action),
            one.sticky,
            one.reason if one.held_up else "",
        )
        for one in rows
    ]


def open_changes(connection: Connection, session_id: str) -> list[str]:
    """Return the stored actions of a session's file changes that wait, may be carried out, or were
    begun without a known outcome."""
    is_open = or_(_PENDING, _READY, _UNSETTLED)
    query = select(table.c.action).where(
        table.c.session_id == session_id, table.c.category == "filesystem", is_open
    )
    return list(connection.execute(query).scalars())


def denied(connection: Connection, session_id: str) -> list[Request]:
    """Return a session's requests that a person denied, oldest first, without changed files and
    lifted denials."""
    return _select(connection, and_(may_come("lift"), not_(_IS_CHANGE)), session_id)


def lift_all(
    connection: Connection, request_ids: Sequence[str], why: str, at: float
) -> list[Request]:
    """End the effect of these denials on later requests; the requests stay denied."""
    values = {"closed_at": at, "closed_why": why}
    return _change_all(connection, may_come("lift"), request_ids, values)


def last_answered_changes(
    connection: Connection, session_id: str
) -> list[tuple[Answer, dict[str, object] | None]]:
    """Return answer and outcome of the file changes that a person last answered together in a
    session."""
    answered = and_(
        _IS_CHANGE,
        table.c.session_id == session_id,
        table.c.answer.is_not(None),
        table.c.superseded_by.is_(None),
    )
    last = select(func.max(table.c.answered_at)).where(answered).scalar_subquery()
    query = select(table.c.answer, table.c.outcome).where(answered, table.c.answered_at == last)
    return [(row.answer, row.outcome) for row in connection.execute(query)]


def pending_about(
    connection: Connection, session_id: str, subjects: Collection[str]
) -> list[Request]:
    """Return a session's waiting requests about one of these subjects; a move has two.

    For all waiting moves only the subjects are read, which lie side by side in the index; matching
    requests are then read completely.
    """
    found: list[Request] = []
    of_session = and_(_PENDING, table.c.session_id == session_id)
    for part in _parts(list(subjects)):
        found += map(
            _request, connection.execute(select(table).where(of_session, table.c.subject.in_(part)))
        )
    is_move = and_(table.c.subject >= MOVES, table.c.subject < MOVES + "\U0010ffff")
    moves = connection.execute(select(table.c.id, table.c.subject).where(of_session, is_move))
    return found + get_all(
        connection, [row.id for row in moves if not _disjoint(row.subject, subjects)]
    )


def _disjoint(subject: str, subjects: Collection[str]) -> bool:
    return not any(about in subjects for about in targets(subject))


def latest_for_fingerprints(
    connection: Connection, session_id: str, fingerprints: Sequence[str]
) -> dict[str, Request]:
    """Return, by fingerprint, the newest asked request of this session for exactly this action."""
    found: dict[str, Request] = {}
    for part in _parts(fingerprints):
        query = (
            select(table)
            .where(
                table.c.session_id == session_id,
                table.c.fingerprint.in_(part),
                table.c.decision == "ask",
            )
            .order_by(table.c.asked_at)
        )
        found |= {row.fingerprint: _request(row) for row in connection.execute(query)}
    return found


def ask_again(connection: Connection, request_id: str, hold_until: float | None) -> list[Request]:
    """Count a repetition of the same ask. Its time limit, if it has one, replaces the earlier."""
    values: dict[str, object] = {"asked_times": table.c.asked_times + 1}
    if hold_until is not None:
        values["hold_until"] = hold_until
    return _change_all(connection, true(), [request_id], values)


def hold_until(connection: Connection, request_id: str, until: float) -> list[Request]:
    """Record when its caller stops waiting, if it still waits."""
    waits_longer = and_(_PENDING, table.c.hold_until > until)
    return _change_all(connection, waits_longer, [request_id], {"hold_until": until})


def answer_all(connection: Connection, answered: Sequence[Request]) -> list[Request]:
    """Record the answers that these requests carry, if they are still pending. Return those."""
    waiting: set[str] = set()
    for part in _parts([one.id for one in answered]):
        waiting.update(
            connection.execute(select(table.c.id).where(_PENDING, table.c.id.in_(part))).scalars()
        )
    done = [one for one in answered if one.id in waiting]
    answer_exactly(connection, done)
    return done


def answer_exactly(connection: Connection, answered: Sequence[Request]) -> None:
    """Answer all of them. INVARIANT: raise `ChangedError` where one is no longer pending; the
    caller then rolls everything back."""
    if answered:
        # One statement for all, whatever their outcomes.
        rows = [{"of": one.id} | {name: getattr(one, name) for name in _ANSWER} for one in answered]
        changed = connection.execute(
            update(table).where(may_come("approve"), table.c.id == bindparam("of")), rows
        ).rowcount
        if changed != len(answered):
            raise ChangedError.several()


def supersede_all(
    connection: Connection, pairs: Sequence[tuple[Request, Request]], why: str
) -> list[Request]:
    """Deny pending requests, each in favour of the newer one beside it."""
    same = {"answer": "denied", "answered_by": "gatehouse", "answer_reason": why}
    changes = [
        {"superseded_by": newer.id, "answered_at": newer.asked_at} | same for _, newer in pairs
    ]
    if pairs:
        changing = update(table).where(may_come("supersede"), table.c.id == bindparam("of"))
        connection.execute(
            changing,
            [{"of": older.id} | one for (older, _), one in zip(pairs, changes, strict=True)],
        )
    return [
        msgspec.structs.replace(older, **one)
        for (older, _), one in zip(pairs, changes, strict=True)
    ]


def close_all(
    connection: Connection, request_ids: Sequence[str], why: str, at: float
) -> list[Request]:
    """End the pending and ready requests among these."""
    values = {"closed_at": at, "closed_why": why}
    return _change_all(connection, may_come("close"), request_ids, values)


def use_all(connection: Connection, requests: Sequence[Request], at: float) -> list[Request]:
    """Mark the ready requests among these, which were read just now, as used. INVARIANT: each
    request is returned once only."""
    given: set[str] = set()
    for part in _parts([one.id for one in requests]):
        using = (
            update(table)
            .where(may_come("claim"), table.c.id.in_(part))
            .values(used_at=at)
            .returning(table.c.id)
        )
        given.update(connection.execute(using).scalars())
    return [msgspec.structs.replace(one, used_at=at) for one in requests if one.id in given]


def settle_all(
    connection: Connection, outcomes: Mapping[str, dict[str, object]], at: float
) -> list[Request]:
    """Record outcomes by id, for requests without a known outcome."""
    given = get_all(connection, list(outcomes))
    open_ones = [one for one in given if approval_states.may_come("settle", partial(getattr, one))]
    if open_ones:
        changing = update(table).where(may_come("settle"), table.c.id == bindparam("of"))
        rows = [{"of": one.id, "outcome": outcomes[one.id], "settled_at": at} for one in open_ones]
        connection.execute(changing, rows)
    return [
        msgspec.structs.replace(one, settled_at=at, outcome=outcomes[one.id]) for one in open_ones
    ]


def note_taken_back(connection: Connection, whys: Mapping[str, str | None]) -> list[Request]:
    """Note in the outcomes of settled requests, by id, why they were taken back; None removes the
    note."""
    changed = []
    for request in get_all(connection, list(whys)):
        if request.outcome is not None:
            outcome = {
                name: value for name, value in request.outcome.items() if name != "taken_back"
            }
            why = whys[request.id]
            outcome = outcome if why is None else outcome | {"taken_back": why}
            changed.append(msgspec.structs.replace(request, outcome=outcome))
    if changed:
        changing = update(table).where(table.c.id == bindparam("of"))
        connection.execute(changing, [{"of": one.id, "outcome": one.outcome} for one in changed])
    return changed


def _left_by(now: float) -> ColumnElement[int]:
    """Return the condition (as a number) that the caller has stopped waiting."""
    return case((table.c.hold_until <= now, 1), else_=0)


def _select(
    connection: Connection,
    condition: ColumnElement[bool],
    session_id: str | None,
    limit: int | None = None,
    first_by: Sequence[ColumnElement[int]] = (),
) -> list[Request]:
    query = select(table).where(condition).order_by(*first_by, table.c.asked_at).limit(limit)
    if session_id is not None:
        query = query.where(table.c.session_id == session_id)
    return [_request(row) for row in connection.execute(query)]


def _parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield pieces that fit into a statement's parameters, whatever the database's limit."""
    return (values[at : at + MOST_PARAMETERS] for at in range(0, len(values), MOST_PARAMETERS))


def _change_all(
    connection: Connection,
    condition: ColumnElement[bool],
    request_ids: Sequence[str],
    values: dict[str, object],
) -> list[Request]:
    """Change the requests for which the condition holds. Return these in the order of their ids."""
    found: dict[str, Request] = {}
    for part in _parts(request_ids):
        changing = (
            update(table).where(condition, table.c.id.in_(part)).values(values).returning(table)
        )
        found |= {row.id: _request(row) for row in connection.execute(changing)}
    return [found[one] for one in request_ids if one in found]


def _request(row: Row) -> Request:  # type: ignore[type-arg]
    # Thousands at once: SQLAlchemy's row mapping and a new decoder per row would take longer than
    # all the rest.
    values = dict(zip(_COLUMNS, row, strict=True))
    del values["category"]
    values["action"] = _decode_action(values["action"])
    return Request(**values)


def add_rule_hits(connection: Connection, counts: Mapping[str, int], at: float) -> None:
    """Add to the counts of rules, by their text or id."""
    for rule, count in counts.items():
        statement = insert(rule_hits).values(rule=rule, hits=count, last_at=at)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["rule"], set_={"hits": rule_hits.c.hits + count, "last_at": at}
            )
        )


def read_rule_hits(connection: Connection) -> dict[str, tuple[int, float]]:
    """Return by rule its hits and its last match in seconds since the epoch."""
    return {row.rule: (row.hits, row.last_at) for row in connection.execute(select(rule_hits))}
