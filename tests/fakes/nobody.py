"""A user who isn't root, for tests of what may not be read or written; as root they would show
nothing."""

import contextlib
import os
import sqlite3.dbapi2  # noqa: F401  # what is loaded late is loaded now: nobody may not enter root's home, where Python may be
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def as_nobody() -> Iterator[Path]:
    """A folder that anybody may use, and until the end of the block this process is somebody who
    isn't root."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        become_nobody()
        try:
            yield Path(place)
        finally:
            if os.getuid() == 0:
                os.seteuid(0)


def become_nobody() -> None:
    """Where this process is root's; for good, in one that ends soon."""
    if os.geteuid() == 0:
        os.seteuid(65534)


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """Within `as_nobody`: who this process was before, for what must be found and started as
    that."""
    nobody = os.geteuid()
    os.seteuid(os.getuid())
    try:
        yield
    finally:
        os.seteuid(nobody)
