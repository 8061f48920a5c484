"""Queries across pull requests: of a repository's open ones, and of no other's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Table, insert

from supervisor.reviews.core.findings import Finding
from supervisor.reviews.core.slots import Slot
from supervisor.reviews.core.tracking import TrackedFinding
from supervisor.reviews.store import findings, queries
from supervisor.reviews.store.tables import pulls, receipts, repositories, slots
from supervisor.store.engine import open_database

HERE, ELSEWHERE = 1, 2
CLOSED = 3
# Of the first repository, one of them closed, and of the second.
PULLS = ((1, HERE), (2, HERE), (CLOSED, HERE), (4, ELSEWHERE))


def add(connection: Connection, table: Table, **facts: object) -> None:
    connection.execute(insert(table).values(**facts))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    engine = open_database(tmp_path / "reviews.db", Path(queries.__file__).parent / "migrations")
    with engine.begin() as found:
        for at in (HERE, ELSEWHERE):
            name = f"a/{at}"
            add(found, repositories, id=at, forge="github", full_name=name, session_id=f"s{at}")
        for pull, repository in PULLS:
            closed = 1.0 if pull == CLOSED else None
            add(found, pulls, id=pull, repository_id=repository, number=pull, closed_at=closed)
        yield found
    engine.dispose()


def test_what_was_said_for_a_repository_is_remembered_there_until_its_end(
    connection: Connection,
) -> None:
    finding = Finding(path="a.py", line=1, severity="low", title="t", body="b")
    for pull, scope, until in (
        (1, "repository", 20.0),
        (2, "pull", 20.0),
        (CLOSED, "repository", 10.0),
        (4, "repository", 20.0),
    ):
        one = TrackedFinding(
            id=f"{pull}", finding=finding, state="open", said="wont-fix", said_scope=scope,
            said_until=until,
        )  # fmt: skip
        findings.keep(connection, pull, "run", [one])
        findings.said(connection, pull, one, by="b", why="w")
    assert [one.id for one in findings.remembered(connection, HERE, 9.0)] == ["1", f"{CLOSED}"]
    assert [one.id for one in findings.remembered(connection, HERE, 10.0)] == ["1"]
    assert findings.remembered(connection, HERE, 20.0) == []


def test_the_slots_of_a_repository_are_those_of_its_open_pull_requests(
    connection: Connection,
) -> None:
    for pull, _ in PULLS:
        facts = {name: getattr(Slot(), name) for name in Slot.__struct_fields__}
        add(connection, slots, **(facts | {"pull_id": pull, "wanted_sha": f"{pull}"}))
    assert [one.wanted_sha for one in queries.slots_of(connection, HERE)] == ["1", "2"]
    assert [one.wanted_sha for one in queries.slots_of(connection, ELSEWHERE)] == ["4"]


def test_of_each_head_of_an_open_pull_request_the_newest_receipt_counts(
    connection: Connection,
) -> None:
    for pull, head in ((1, "a"), (1, "b"), (1, "a"), (2, "a"), (CLOSED, "a"), (4, "a")):
        facts = {"pull_id": pull, "head_sha": head, "outcome": "success", "body": "{}"}
        add(connection, receipts, **facts, signature="", at=1.0)
    found = queries.receipts_of_heads(connection, "s1")
    assert [(one.id, one.head_sha, number) for one, number, _ in found] == [
        (2, "b", 1),
        (3, "a", 1),
        (4, "a", 2),
    ]
