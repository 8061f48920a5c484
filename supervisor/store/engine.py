"""Open the database: pragmas, and migrations to the newest version.

SQLite runs in WAL mode with `synchronous=FULL`: a committed transaction survives kill -9 and a
power cut (https://www.sqlite.org/pragma.html#pragma_synchronous). Calls are synchronous: each takes
well under a millisecond.

`schema.sql` beside the migrations makes a new database; a test holds it equal to the result of all
migrations. Only a database of an older Gatehouse needs Alembic.
"""

from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError

from supervisor.errors import StorageError

MIGRATIONS = Path(__file__).parent / "migrations"


def open_database(path: Path, migrations: Path = MIGRATIONS) -> Engine:
    """Return the engine, migrated. Raise `StorageError` where the file can't be opened, or was
    written by a newer Gatehouse."""
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 10})
    event.listen(engine, "connect", _set_pragmas)
    try:
        migrate(engine, migrations)
    except DatabaseError as error:
        engine.dispose()
        raise StorageError(f"{path}: {error.orig}", _remedy(str(error.orig))) from error
    except Exception:
        engine.dispose()
        raise
    event.listen(engine, "handle_error", _as_storage_error)
    path.chmod(0o600)
    return engine


def _remedy(why: str) -> str:
    """Return a remedy for a database that can't be opened, by SQLite's message."""
    if "full" in why:
        return "free some room, then start again"
    if "readonly" in why or "unable to open" in why:
        return "it and its folder must be yours, and on a disk that can be written"
    if "locked" in why:
        return "end what else has it open"
    return "move the file away to start anew, or give another --data-dir"


def open_read_only(path: Path) -> Engine:
    """Return the engine of an existing database, without migrating it. Raise `StorageError` where
    it can't be read."""
    address = f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true"
    engine = create_engine(address, connect_args={"timeout": 10})
    event.listen(engine, "handle_error", _as_storage_error)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA schema_version")
    except DatabaseError as error:
        engine.dispose()
        raise StorageError(f"{path}: {error.orig}", "restore it, or move it away") from error
    except StorageError:
        engine.dispose()
        raise
    return engine


def migrate(engine: Engine, migrations: Path = MIGRATIONS) -> None:
    """Bring the schema up to the newest version, completely or not at all. Does nothing where it
    is."""
    statements = (migrations / "schema.sql").read_text().split(";\n\n")
    newest = statements[-1].split("'")[1]
    with engine.begin() as connection:
        # INVARIANT: one transaction. Python begins none before a CREATE or ALTER by itself. Each
        # would be committed alone, and a crash between two would leave a schema that no start could
        # migrate any more.
        connection.exec_driver_sql("BEGIN")
        tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())
        if not tables:
            for statement in statements:
                connection.exec_driver_sql(statement)
        elif "alembic_version" not in tables or _version(connection) != newest:
            _upgrade(connection, migrations)


def _version(connection: Connection) -> str | None:
    version: str | None = connection.exec_driver_sql("SELECT * FROM alembic_version").scalar()
    return version


def _upgrade(connection: Connection, migrations: Path) -> None:
    """Run the migrations that an older Gatehouse lacked."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(migrations))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StorageError(
            f"{connection.engine.url.database} was written by a newer Gatehouse",
            "start that, or give another --data-dir",
        ) from error


def _as_storage_error(context: ExceptionContext) -> StorageError | None:
    """Return a full disk, a lock that is never released or a missing file as a `StorageError`,
    which every caller treats as a denial."""
    if not isinstance(context.sqlalchemy_exception, OperationalError):
        return None
    return StorageError(
        f"the database can't be used: {context.original_exception}",
        "free or repair the data folder; nothing is allowed until it can be written",
    )


def _set_pragmas(connection, _record) -> None:  # type: ignore[no-untyped-def]
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
