"""Three-way merge of one file's content, by `git merge-file`.

Undo merges with the person's later edits, and conflicts merge both sides. Git gets three temporary
files outside of everybody's folders, no configuration, and a bounded time. It must never return
content with conflict markers: the caller is told of a conflict, and nothing is written.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple

from supervisor.git.run_git import run_git

MOST_MERGED_BYTES = 8 << 20
MERGE_S = 20.0
# From here on, git's exit code isn't a number of conflicts (git-merge-file(1)).
_FAILED = 128


class Merged(NamedTuple):
    """Result of a merge. `content` is None where there is none; `why` then says so to a person."""

    content: bytes | None
    why: str = ""


async def merge_file(base: bytes, ours: bytes, theirs: bytes) -> Merged:
    """Return `ours` with the changes from `base` to `theirs`. Raise UserError where git can't be
    started."""
    if ours == theirs or base == theirs:
        return Merged(ours)
    if base == ours:
        return Merged(theirs)
    if max(map(len, (base, ours, theirs))) > MOST_MERGED_BYTES:
        return Merged(None, f"it is larger than {MOST_MERGED_BYTES >> 20} MB, which is not merged")
    with tempfile.TemporaryDirectory(prefix="gatehouse-merge-") as folder:
        names = await asyncio.to_thread(
            _write, Path(folder), {"ours": ours, "base": base, "theirs": theirs}
        )
        done = await run_git(None, "merge-file", "-p", "-q", *names, cwd=folder, timeout_s=MERGE_S)
    if done.ok:
        return Merged(done.stdout)
    if done.timed_out or done.truncated or done.exit_code >= _FAILED:
        return Merged(None, "it is not text that can be merged")
    places = "1 place in it was" if done.exit_code == 1 else f"{done.exit_code} places in it were"
    return Merged(None, f"{places} changed both ways")


def _write(folder: Path, contents: dict[str, bytes]) -> list[str]:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return list(contents)
