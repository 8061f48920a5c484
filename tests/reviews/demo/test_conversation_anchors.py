"""Where a remark may stand: what we post by, held against the forge's own count of the lines, over
random changes of real git repositories."""

import os
import random
import subprocess
from pathlib import Path

from supervisor.reviews.core.diffs import changed_files
from supervisor.reviews.demo.conversation import places

DIFF = ("git", "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames", "-U3")
# Changes that a short run tries; `make test-many` tries 10,000.
CHANGES = 10_000 if os.environ.get("EVERYTHING") else 150
FILES = 25
TEXTS = (
    "x = 1",
    "",
    "\tif a:",
    "@@ -1 +1 @@",
    "+++ b/x",
    "diff --git a/x b/x",
    "\r",
    "ü",
    "-",
    "+",
)


def git(folder: Path, *words: str) -> bytes:
    return subprocess.run(
        words, cwd=folder, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout


def changed(chance: random.Random, lines: list[str]) -> list[str]:
    """Some lines more, some fewer, some others."""
    found = list(lines)
    for _ in range(chance.randint(0, 6)):
        at = chance.randint(0, len(found))
        match chance.choice(("add", "drop", "change")):
            case "add":
                found[at:at] = [chance.choice(TEXTS) for _ in range(chance.randint(1, 9))]
            case "drop":
                del found[at : at + chance.randint(1, 9)]
            case "change" if at < len(found):
                found[at] = chance.choice(TEXTS)
    return found


def write(folder: Path, name: str, lines: list[str], end: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("\n".join(lines) + end).encode())


def test_no_remark_that_we_place_is_refused_and_none_that_would_be_taken_is_lost(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    git(tmp_path, "git", "init", "-q")
    git(tmp_path, "git", "config", "user.email", "a@b.c")
    git(tmp_path, "git", "config", "user.name", "A")
    tried = 0
    while tried < CHANGES:
        names = [f"d{number % 3}/file {number}ü.py" for number in range(FILES)]
        before = {
            name: [chance.choice(TEXTS) for _ in range(chance.randint(0, 60))] for name in names
        }
        for name, lines in before.items():
            write(tmp_path, name, lines, chance.choice(("\n", "")))
        git(tmp_path, "git", "add", "-A")
        git(tmp_path, "git", "commit", "-qm", "x", "--allow-empty")
        for name, lines in before.items():
            if chance.random() < 0.1:
                (tmp_path / name).unlink()
                if chance.random() < 0.5:
                    write(tmp_path, f"moved/{name}", changed(chance, lines), "\n")
            else:
                write(tmp_path, name, changed(chance, lines), chance.choice(("\n", "")))
        git(tmp_path, "git", "add", "-A")
        git(tmp_path, "git", "commit", "-qm", "y", "--allow-empty")
        raw = git(tmp_path, *DIFF, "--raw", "--no-abbrev", "-z", "HEAD~1", "HEAD")
        patch = git(tmp_path, *DIFF, "HEAD~1", "HEAD")
        ours = {one.path: one for one in changed_files(raw, patch)}
        theirs = places(patch.decode("utf-8", "surrogateescape"), list(ours))
        for name, file in ours.items():
            shown = set().union(*theirs[name]) if theirs[name] else set()
            tried += 1
            for line in range(80):
                assert file.holds(line, line) == (line in shown and line > 0), (name, line)
            for hunk in theirs[name]:
                for start in hunk:
                    assert file.holds(start, max(hunk))
