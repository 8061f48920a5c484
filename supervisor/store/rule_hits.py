"""Queries for rule hits: when each rule last matched, and how often."""

from collections.abc import Mapping

from sqlalchemy import Connection, select
from sqlalchemy.dialects.sqlite import insert

from supervisor.store.tables import rule_hits as table


def add(connection: Connection, counts: Mapping[str, int], at: float) -> None:
    """Add to the counts of rules, by their text or id."""
    for rule, count in counts.items():
        statement = insert(table).values(rule=rule, hits=count, last_at=at)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["rule"], set_={"hits": table.c.hits + count, "last_at": at}
            )
        )


def read(connection: Connection) -> dict[str, tuple[int, float]]:
    """Rule -> (hits, last match in seconds since the epoch)."""
    return {row.rule: (row.hits, row.last_at) for row in connection.execute(select(table))}
