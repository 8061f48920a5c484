"""Write the schema.sql beside each folder of migrations, from what the migrations make."""

import contextlib
import sqlite3
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

SUPERVISOR = Path(__file__).parents[1] / "supervisor"
FOLDERS = [SUPERVISOR / "store/migrations", SUPERVISOR / "reviews/store/migrations"]
HEADER = "-- Written from the migrations by scripts/database_schema.py.\n"


def schema(migrations: Path) -> str:
    """Return the statements that make what all of the migrations make; the last one says which of
    them is the newest."""
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/made.db")
        config = Config()
        config.set_main_option("script_location", str(migrations))
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        engine.dispose()
        with contextlib.closing(sqlite3.connect(f"{folder}/made.db")) as made:
            rows = made.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
            ((newest,),) = made.execute("SELECT version_num FROM alembic_version")
    stamp = f"INSERT INTO alembic_version (version_num) VALUES ('{newest}')"
    return HEADER + ";\n\n".join([*(sql for (sql,) in rows), stamp]) + "\n"


if __name__ == "__main__":
    for one in FOLDERS:
        (one / "schema.sql").write_text(schema(one))
        print(f"wrote {one / 'schema.sql'}")
