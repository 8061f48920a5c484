"""Folders left out of the copy by default: `node_modules` and `.venv`.

Package managers install them. They are the weakest of all ignore lines: `!node_modules/` in a
`.gitignore` or a `.gatehouseignore` brings them back, and what git tracks below them belongs. Git
gets them as a user's excludes file (`git_files`), so that it ranks them itself; the code here is
for folders that git doesn't know. A repository that names an excludes file in its own configuration
uses that instead.
"""

from pathlib import Path

# Git looks for `git/ignore` in it (gitignore(5), core.excludesFile).
GIT_HOME = Path(__file__).parent / "git_home"
NAMES = frozenset(
    line.rstrip("/")
    for line in (GIT_HOME / "git" / "ignore").read_text().splitlines()
    if line.endswith("/")
)


def is_left_out(name: str) -> bool:
    """Return whether a path is such a folder, or lies in one. A folder's name ends with a slash."""
    return not NAMES.isdisjoint(name.split("/")[:-1])
