"""Queries for the newest signed head of the audit log: one row."""

import sqlite3
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, delete, insert, inspect, select
from sqlalchemy.exc import DatabaseError

from supervisor.errors import StorageError
from supervisor.store.tables import audit_head


class AuditHead(NamedTuple):
    """A head: the number of a record, the hash of its line, and the signature over both."""

    seq: int
    hash: str
    signature: str


def read(connection: Connection) -> AuditHead | None:
    """Return the head, or None before the first was stored."""
    row = connection.execute(
        select(audit_head.c.seq, audit_head.c.hash, audit_head.c.signature)
    ).first()
    return AuditHead(*row) if row is not None else None


def write(connection: Connection, head: AuditHead) -> None:
    """Replace the stored head."""
    connection.execute(delete(audit_head))
    connection.execute(insert(audit_head).values(head._asdict()))


def peek(path: Path) -> AuditHead | None:
    """Return the head in a database file without creating or migrating it, or None where there is
    none."""
    if not path.exists():
        return None
    uri = f"file:{quote(str(path))}?mode=ro"
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(uri, uri=True, timeout=10))
    try:
        with engine.connect() as connection:
            return read(connection) if inspect(connection).has_table(audit_head.name) else None
    except DatabaseError as error:
        raise StorageError(f"{path}: {error.orig}", "put a copy of it back") from error
    finally:
        engine.dispose()
