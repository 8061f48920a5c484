"""Queries of findings, over the rounds of their pull requests."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from supervisor.reviews.core.findings import Finding
from supervisor.reviews.core.tracking import TrackedFinding
from supervisor.reviews.store.tables import findings, pulls

_OF_FINDING = ("severity", "confidence", "path", "title", "body", "quote", "suggestion", "skill")


def of_pull(connection: Connection, pull_id: int) -> list[TrackedFinding]:
    """Return the findings of a pull request, in the order in which they were found."""
    query = select(findings).where(findings.c.pull_id == pull_id).order_by(findings.c.id)
    return [_tracked(row) for row in connection.execute(query)]


def remembered(connection: Connection, repository_id: int, now: float) -> list[TrackedFinding]:
    """Return the findings that a person decided for the whole repository, if the decision still
    holds."""
    query = (
        select(findings)
        .join(pulls, findings.c.pull_id == pulls.c.id)
        .where(
            pulls.c.repository_id == repository_id,
            findings.c.said != "",
            findings.c.said_scope == "repository",
            findings.c.said_until > now,
        )
        .order_by(findings.c.id)
    )
    return [_tracked(row) for row in connection.execute(query)]


def keep(
    connection: Connection, pull_id: int, run_id: str, tracked: Sequence[TrackedFinding]
) -> None:
    """Store a round's outcome."""
    query = select(findings.c.identity, findings.c.state).where(findings.c.pull_id == pull_id)
    known = {row.identity: row.state for row in connection.execute(query)}
    for one in tracked:
        is_gone = one.state in ("fixed", "stale")
        facts = _facts(one)
        if one.id not in known:
            connection.execute(
                insert(findings).values(
                    pull_id=pull_id, identity=one.id, first_run=run_id, last_run=run_id, **facts
                )
            )
            continue
        if not is_gone:
            facts |= {"last_run": run_id, "gone_run": ""}
        elif known[one.id] != one.state:
            facts["gone_run"] = run_id
        connection.execute(update(findings).where(*_is(pull_id, one.id)).values(facts))


def posted(connection: Connection, pull_id: int, ids: Collection[str], now: float) -> None:
    """Mark findings as posted."""
    query = update(findings).where(findings.c.pull_id == pull_id, findings.c.identity.in_(ids))
    connection.execute(query.values(posted_at=now, unconfirmed=0))
    connection.execute(query.where(findings.c.state == "new").values(state="open"))


def said(connection: Connection, pull_id: int, one: TrackedFinding, *, by: str, why: str) -> None:
    """Store a person's decision on a finding."""
    facts = {
        "state": one.state,
        "said": one.said,
        "said_by": by[:256],
        "said_why": why[:2000],
        "said_scope": one.said_scope,
        "said_until": one.said_until,
    }
    connection.execute(update(findings).where(*_is(pull_id, one.id)).values(facts))


def history(connection: Connection, pull_id: int) -> list[dict[str, Any]]:
    """Return the findings of a pull request with every fact, for its page."""
    query = select(findings).where(findings.c.pull_id == pull_id).order_by(findings.c.id)
    return [dict(row._mapping) for row in connection.execute(query)]


def _is(pull_id: int, identity: str) -> tuple[Any, ...]:
    return (findings.c.pull_id == pull_id, findings.c.identity == identity)


def _facts(one: TrackedFinding) -> dict[str, Any]:
    facts = {name: getattr(one.finding, name) for name in _OF_FINDING}
    return facts | {
        "state": one.state,
        "line": one.line,
        "start_line": one.start_line,
        "said": one.said,
        "said_scope": one.said_scope,
        "said_until": one.said_until,
        "unconfirmed": one.unconfirmed,
    }


def _tracked(row: Row[Any]) -> TrackedFinding:
    facts = row._mapping
    finding = Finding(
        line=facts["line"] or None,
        start_line=facts["start_line"] or None,
        **{name: facts[name] for name in _OF_FINDING},
    )
    return TrackedFinding(
        id=facts["identity"],
        finding=finding,
        state=facts["state"],
        line=facts["line"],
        start_line=facts["start_line"],
        is_posted=facts["posted_at"] is not None,
        said=facts["said"],
        said_scope=facts["said_scope"],
        said_until=facts["said_until"],
        unconfirmed=facts["unconfirmed"],
    )
