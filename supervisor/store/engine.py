"""Open the database: pragmas, and migrations to the newest version.

SQLite runs in WAL mode with `synchronous=FULL`: what `commit` returned from survives kill -9 and
a power cut (https://www.sqlite.org/pragma.html#pragma_synchronous). Calls are synchronous: each
takes well under a millisecond.
"""

from pathlib import Path
from urllib.parse import quote

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError

from supervisor.errors import StorageError

MIGRATIONS = Path(__file__).parent / "migrations"


def open_database(path: Path, migrations: Path = MIGRATIONS) -> Engine:
    """Return the engine, migrated. `StorageError` where the file can't be opened, or was written by
    a newer Gatehouse."""
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 10})
    event.listen(engine, "connect", _set_pragmas)
    try:
        migrate(engine, migrations)
    except Exception as error:
        engine.dispose()
        if isinstance(error, CommandError):
            raise StorageError(
                f"{path} was written by a newer Gatehouse", "start that, or give another --data-dir"
            ) from error
        if not isinstance(error, DatabaseError):
            raise
        raise StorageError(f"{path}: {error.orig}", _remedy(str(error.orig))) from error
    event.listen(engine, "handle_error", _as_storage_error)
    path.chmod(0o600)
    return engine


def _remedy(why: str) -> str:
    """Return what to do about a database that can't be opened, by SQLite's words for it."""
    if "full" in why:
        return "free some room, then start again"
    if "readonly" in why or "unable to open" in why:
        return "it and its folder must be yours, and on a disk that can be written"
    if "locked" in why:
        return "end what else has it open"
    return "move the file away to start anew, or give another --data-dir"


def open_read_only(path: Path) -> Engine:
    """Return the engine of a database that is there, as it is: nothing is migrated. `StorageError`
    where it can't be read."""
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
    """Bring the schema up to the newest version, whole or not at all. Does nothing where it is."""
    config = Config()
    config.set_main_option("script_location", str(migrations))
    with engine.begin() as connection:
        # INVARIANT: one transaction. Python begins none before a CREATE or ALTER by itself, so each
        # would be committed alone, and a crash between two of them left a schema that no start
        # could bring up any more.
        connection.exec_driver_sql("BEGIN")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _as_storage_error(context: ExceptionContext) -> StorageError | None:
    """A full disk, a lock that is never given up, a file that is gone: `StorageError`, which
    everybody takes for a denial."""
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
