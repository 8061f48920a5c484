"""The schema that the migrations make is that of the tables, and an old database loses nothing
on the way."""

import json
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine

from supervisor.core.models.model_calls import Tokens
from supervisor.settings import ROOT
from supervisor.store import spending
from supervisor.store.engine import open_database
from supervisor.store.tables import metadata

OLD_CALLS = [
    # id, model, cost, tokens, counts, settled_at
    ("a", "model-a", 2**61, 1_000_000_075, Tokens(input=10**9, output=20, cache_read=30,
     cache_write=4, cache_write_long=21, searches=6), 9.5),
    ("b", "model-a", 5, 12, Tokens(input=5, output=7), None),
    ("c", "model-b", 0, 0, None, 10.5),
]  # fmt: skip


def database_at(path: Path, revision: str) -> Engine:
    """One as it was made by the Gatehouse that had this revision for its newest."""
    engine = create_engine(f"sqlite:///{path}")
    config = Config()
    config.set_main_option("script_location", str(ROOT / "supervisor/store/migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    return engine


def test_the_migrations_make_the_tables(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "gatehouse.db")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


@pytest.fixture
def migrated(tmp_path: Path) -> Engine:
    """What a database of before 0007 became, that had spend in it."""
    old = database_at(tmp_path / "gatehouse.db", "0006")
    with old.begin() as connection:
        for name, model, cost, tokens, counts, settled_at in OLD_CALLS:
            said = (
                {}
                if counts is None
                else {kind: getattr(counts, kind) for kind in counts.__struct_fields__}
            )
            values = (
                "one",
                "2026-11-01",
                8.5,
                "h",
                '{"api":"chat"}',
                '{"cost_picousd":7}',
                3,
                '["lost"]',
            )
            connection.exec_driver_sql(
                "INSERT INTO spending (session_id, day, asked_at, host, call, reserved, bytes_out,"
                " flags, id, model, cost, tokens, counts, settled_at) VALUES"
                " (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (*values, name, model, cost, tokens, json.dumps(said), settled_at),
            )
    old.dispose()
    return open_database(tmp_path / "gatehouse.db")


def test_spend_of_before_is_migrated_to_the_token(migrated: Engine) -> None:
    with migrated.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM spending ORDER BY id").mappings().all()
        for row, (name, model, cost, tokens, counts, settled_at) in zip(
            rows, OLD_CALLS, strict=True
        ):
            kinds = counts or Tokens()
            assert {kind: row[kind] for kind in kinds.__struct_fields__} == {
                kind: getattr(kinds, kind) for kind in kinds.__struct_fields__
            }
            kept = {
                "id": name,
                "model": model,
                "cost": cost,
                "tokens": tokens,
                "settled_at": settled_at,
            }
            same = {
                "session_id": "one", "day": "2026-11-01", "asked_at": 8.5, "host": "h",
                "call": '{"api":"chat"}',
                "reserved": '{"cost_picousd":7}', "bytes_out": 3, "flags": '["lost"]',
            }  # fmt: skip
            assert {key: row[key] for key in kept | same} == kept | same
            assert set(row) == {*kept, *same, *kinds.__struct_fields__}
        (one,) = [
            found for found in spending.by_model(connection, "one") if found.model == "model-a"
        ]
        assert (one.calls, one.cost) == (2, 2**61 + 5)
        assert one.tokens == OLD_CALLS[0][4] + OLD_CALLS[1][4]  # type: ignore[operator]
        assert [found.id for found in spending.unsettled(connection)] == ["b"]
    migrated.dispose()


def test_sums_over_time_read_the_index_alone(migrated: Engine) -> None:
    statements = []
    with migrated.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.set_trace_callback(statements.append)
        spending.over_time(connection, since=0, width_s=60, models=5, others="x", session_id=None)
        raw.set_trace_callback(None)
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statements[-1]}").all()
    migrated.dispose()
    assert "USING COVERING INDEX ix_spending_asked" in str(plan)
