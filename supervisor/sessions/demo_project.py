"""A throw-away project to try Gatehouse on: a small repository with a change in it.

The bugs in the change are planted.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from supervisor.errors import UserError
from supervisor.git.run_git import GitPlace, run_git

FOLDER_PREFIX, PROJECT = "gatehouse-demo-", "shop"
FILES = {
    "README.md": "# Shop\n\nA small shop, to try reviews on.\n",
    "shop/cart.py": "def total(items):\n    return sum(item.price for item in items)\n",
    "shop/orders.py": (
        "import sqlite3\n\n\n"
        "def all_orders(database):\n"
        "    with sqlite3.connect(database) as connection:\n"
        '        return connection.execute("select * from orders").fetchall()\n'
    ),
}
CHANGED = {
    "shop/cart.py": (
        FILES["shop/cart.py"] + "\n\ndef average(items):\n    return total(items) / len(items)\n"
    ),
    "shop/orders.py": (
        FILES["shop/orders.py"] + "\n\n"
        "def find_order(database, number):\n"
        "    with sqlite3.connect(database) as connection:\n"
        '        found = connection.execute(f"select * from orders where number = {number}")\n'
        "        return found.fetchone()\n"
    ),
}
_AUTHOR = ("user.name=Ada", "user.email=ada@example.org")


async def make_project(below: Path, used: Collection[str]) -> Path:
    """Make the project in a new folder below that one, and return it. Remove those of earlier
    demos, except the workspaces that are in use."""
    await asyncio.to_thread(_remove_others, below, used)
    folder = await asyncio.to_thread(_written, below, FILES)
    place = GitPlace(folder / ".git", folder)
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "First commit")):
        done = await run_git(place, *words, config=_AUTHOR)
        if not done.ok:
            said = done.stderr.decode(errors="replace").strip()
            raise UserError(f"git can't make the project: {said}", "look at the disk, and at git")
    await asyncio.to_thread(_write, folder, CHANGED)
    return folder


def is_demo(workspace: str) -> bool:
    """Return whether a folder is one that `make_project` made."""
    return Path(workspace).parent.name.startswith(FOLDER_PREFIX)


def _remove_others(below: Path, used: Collection[str]) -> None:
    for one in below.glob(f"{FOLDER_PREFIX}*"):
        if str(one / PROJECT) not in used:
            shutil.rmtree(one, ignore_errors=True)


def _written(below: Path, files: Mapping[str, str]) -> Path:
    below.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=below)) / PROJECT
    _write(folder, files)
    return folder


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
