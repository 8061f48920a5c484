"""The schema that the migrations make is that of the tables and of a new database, and an old
database loses nothing on the way."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, event

from supervisor.core.models.model_calls import Tokens
from supervisor.reviews.store import tables as reviews
from supervisor.settings import ROOT
from supervisor.store import requests, spending
from supervisor.store.engine import open_database
from supervisor.store.tables import metadata

OLD_CALLS = [
    # id, model, cost, tokens, counts, settled_at
    ("a", "model-a", 2**61, 1_000_000_075, Tokens(input=10**9, output=20, cache_read=30,
     cache_write=4, cache_write_long=21, searches=6), 9.5),
    ("b", "model-a", 5, 12, Tokens(input=5, output=7), None),
    ("c", "model-b", 0, 0, None, 10.5),
]  # fmt: skip


FOLDERS = {
    "supervisor/store/migrations": metadata,
    "supervisor/reviews/store/migrations": reviews.metadata,
}


def database_at(
    path: Path, revision: str, migrations: str = "supervisor/store/migrations"
) -> Engine:
    """One as it was made by the Gatehouse that had this revision for its newest."""
    engine = create_engine(f"sqlite:///{path}")
    config = Config()
    config.set_main_option("script_location", str(ROOT / migrations))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    return engine


def contents(path: Path) -> list[str]:
    """Every table, index and row of a database."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_migrations_make_the_tables(tmp_path: Path, folder: str) -> None:
    engine = database_at(tmp_path / "gatehouse.db", "head", folder)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), FOLDERS[folder]) == []
    engine.dispose()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_new_database_is_what_the_migrations_make(tmp_path: Path, folder: str) -> None:
    open_database(tmp_path / "new.db", ROOT / folder).dispose()
    database_at(tmp_path / "migrated.db", "head", folder).dispose()
    assert contents(tmp_path / "new.db") == contents(tmp_path / "migrated.db"), (
        "write it anew: .venv/bin/python scripts/database_schema.py"
    )


def test_only_an_older_database_needs_alembic(tmp_path: Path) -> None:
    database_at(tmp_path / "older.db", "0013").dispose()
    code = (
        "import sys; from pathlib import Path; from supervisor.store.engine import open_database;"
        " open_database(Path(sys.argv[1])).dispose(); print('alembic' in sys.modules)"
    )
    for name, needed in [("new", False), ("new", False), ("older", True), ("older", False)]:
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path / f"{name}.db"],
            capture_output=True, text=True, cwd=ROOT, check=True,
        )  # fmt: skip
        assert done.stdout == f"{needed}\n", name
    assert contents(tmp_path / "older.db") == contents(tmp_path / "new.db")


@contextlib.contextmanager
def power_cut(at: str) -> Iterator[None]:
    """The first statement that begins so is never run."""

    def break_off(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if " ".join(statement.split()).startswith(at):
            raise RuntimeError("the power is cut")

    event.listen(Engine, "before_cursor_execute", break_off)
    try:
        with pytest.raises(RuntimeError, match="the power is cut"):
            yield
    finally:
        event.remove(Engine, "before_cursor_execute", break_off)


@pytest.mark.parametrize(
    "at", ["CREATE TABLE sessions", "CREATE TABLE spending", "INSERT INTO alembic_version"]
)
def test_a_schema_that_breaks_off_half_made_is_not_there_at_all(tmp_path: Path, at: str) -> None:
    with power_cut(at):
        open_database(tmp_path / "gatehouse.db")
    assert contents(tmp_path / "gatehouse.db") == ["BEGIN TRANSACTION;", "COMMIT;"]
    open_database(tmp_path / "gatehouse.db").dispose()
    assert any("CREATE TABLE spending" in one for one in contents(tmp_path / "gatehouse.db"))


@pytest.mark.parametrize(
    "at", ["CREATE TABLE audit_head", "ALTER TABLE spending DROP", "UPDATE alembic_version"]
)
def test_a_migration_that_breaks_off_changed_nothing(tmp_path: Path, at: str) -> None:
    database_at(tmp_path / "gatehouse.db", "0006").dispose()
    before = contents(tmp_path / "gatehouse.db")
    with power_cut(at):
        open_database(tmp_path / "gatehouse.db")
    assert contents(tmp_path / "gatehouse.db") == before
    open_database(tmp_path / "gatehouse.db").dispose()
    assert any("CREATE TABLE audit_head" in one for one in contents(tmp_path / "gatehouse.db"))


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


OLD_REQUESTS = [
    # id, origin, rule, why, reason, answer, answer_reason -> by_policy, held_up, in_part
    ("plain", "agent_api", None, "no rule matches; exec asks", "r", None, "", True, False, False),
    ("stopped", "agent_api", None, "everything is stopped: fire\nand smoke", "", None, "",
     False, False, False),
    ("failing", "agent_api", None, "the rules could not be evaluated: KeyError", "", None, "",
     False, False, False),
    ("listener", "egress", None,
     "`127.0.0.1` port 3700 is Gatehouse itself, which is never reached", "", None, "",
     False, False, False),
    ("ended", "agent_api", None, "the session has ended", "", None, "", False, False, False),
    ("full", "agent_api", None, "too many requests of this session wait already", "", None, "",
     False, False, False),
    ("own file", "workspace", None, "Gatehouse itself reads this file (its policy, code or pages):"
     " a change of it is always asked", "", "denied", "in part, no", False, False, False),
    ("unread", "agent_api", None, "no policy could be read, so everything is denied", "", None, "",
     False, False, False),
    ("rule", "agent_api", "exec(x)", "the session has ended", "", None, "", True, False, False),
    ("alike", "agent_api", None, "The session has ended", "", None, "", True, False, False),
    ("held up", "workspace", None, "no rule matches; filesystem asks",
     "could not be carried out before: `a` is a folder", None, "", True, True, False),
    ("said so", "agent_api", None, "no rule matches; filesystem asks",
     "could not be carried out before: `a` is a folder", None, "", True, False, False),
    ("part", "workspace", None, "no rule matches; filesystem asks", "", "approved",
     "in part, 1 of 2 changes; the other waits", True, False, True),
    ("whole", "workspace", None, "no rule matches; filesystem asks", "", "approved",
     "I read it in part, and trust the rest", True, False, False),
    ("large", "workspace", None, "no rule matches; filesystem asks", "", "approved",
     "In part, I trust it", True, False, False),
]  # fmt: skip


def test_requests_of_before_tell_by_columns_what_their_texts_told(tmp_path: Path) -> None:
    old = database_at(tmp_path / "gatehouse.db", "0009")
    with old.begin() as connection:
        for at, (name, origin, rule, why, reason, answer, said, *_) in enumerate(OLD_REQUESTS):
            connection.exec_driver_sql(
                "INSERT INTO requests (id, session_id, origin, category, action, fingerprint,"
                " subject, asked_at, decision, why, reason, rule, answer, answer_reason) VALUES"
                " (?, 's', ?, 'exec', ?, 'f', ?, ?, 'ask', ?, ?, ?, ?, ?)",
                (name, origin, '{"category":"exec","command":"ls"}', name, float(at), why, reason,
                 rule, answer, said),
            )  # fmt: skip
    old.dispose()
    engine = open_database(tmp_path / "gatehouse.db")
    with engine.connect() as connection:
        found = [requests.get(connection, one[0]) for one in OLD_REQUESTS]
    engine.dispose()
    assert [
        (one.id, one.why, one.reason, one.by_policy, one.held_up, one.in_part)
        for one in found
        if one is not None
    ] == [(one[0], one[3], one[4], *one[7:]) for one in OLD_REQUESTS]
