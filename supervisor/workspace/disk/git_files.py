"""Ask git about the host's folder: tracked files, ignored files, its own folder.

Git runs programs that a repository's configuration names (hooks, fsmonitor, filters), so it runs
here with none of the user's or the machine's configuration, with those switches off, and never on
the agent's copy. Its user's excludes file is ours (`left_out`). This is the workspace's only use of
git. It must never run a git command that writes to the host's repository.
"""

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from supervisor.base.process import run
from supervisor.settings import search_path
from supervisor.workspace.disk.left_out import GIT_HOME

GIT_TIMEOUT_S = 120.0
LIST_LIMIT_BYTES = 256 << 20
# Each switch closes a way in which a repository makes git run or fetch something (FIELD: git as
# host execution).
_SWITCHES = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "protocol.allow=never",
    "submodule.recurse=false",
    "gc.auto=0",
)
# The keys of a repository's configuration that its copy keeps: what its format and its branches
# need. All else may name a program to run, a file elsewhere or a credential.
_KEPT_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|symlinks|ignorecase|precomposeunicode|autocrlf|eol|safecrlf|sparsecheckout|sparsecheckoutcone)"
    r"|extensions\.(objectformat|refstorage|preciousobjects)"
    r"|user\.(name|email)|init\.defaultbranch|pull\.rebase|push\.default|merge\.conflictstyle|diff\.(algorithm|renames)"
    r"|remote\..+\.(url|fetch)|branch\..+\.(remote|merge|rebase)|submodule\..+\.(url|active|update)",
    re.IGNORECASE | re.DOTALL,
)
# How git says yes in a configuration (git-config(1)).
_YES = ("true", "yes", "on", "1")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
# How `ls-files -s -z` shows a submodule.
_SUBMODULE = b"\x00160000 "
MOST_RESTARTS = 16


def git_environment() -> dict[str, str]:
    """Return the whole environment that git gets."""
    return {
        "PATH": search_path(),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "XDG_CONFIG_HOME": str(GIT_HOME),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def git_command(folder: Path, *words: str, top: Path | None = None) -> list[str]:
    """Return the argument list of a git command in this repository and no other. `top`: the folder
    of the repository that `folder` is a part of, where it isn't one itself; git then speaks of
    `folder` alone, by paths relative to it."""
    repository = top or folder
    switches = [
        word for switch in (*_SWITCHES, f"safe.directory={repository}") for word in ("-c", switch)
    ]
    return [
        "git",
        *switches,
        "-C",
        str(folder),
        f"--git-dir={repository / '.git'}",
        f"--work-tree={repository}",
        *words,
    ]


async def files_of(folder: Path, top: Path | None = None) -> list[str] | None:
    """Tracked and untracked-not-ignored paths relative to the folder, sorted; None where git can't
    read it. `top` is `git_command`'s.

    A submodule or a nested repository is one entry, with or without a trailing slash.
    """
    return await _list(folder, "-c", "-o", "--exclude-standard", top=top)


async def ignored_of(folder: Path, top: Path | None = None) -> list[str]:
    """Return the ignored paths that exist, sorted; a folder that is ignored whole is one entry with
    a slash at its end."""
    return await _list(folder, "-o", "-i", "--exclude-standard", "--directory", top=top) or []


async def hide(copy: Path, names: Sequence[str]) -> None:
    """Have git in a fresh copy not miss these tracked files, so that no commit there deletes them.

    The one command on a copy: nobody else has written to it yet, and its configuration is ours.
    """
    tracked = set(await _list(copy, "-c") or [])
    text = b"".join(os.fsencode(name) + b"\0" for name in names if name in tracked)
    if text:
        command = git_command(copy, "update-index", "-z", "--skip-worktree", "--stdin")
        await run(command, env=git_environment(), cwd=copy, stdin=text, timeout_s=GIT_TIMEOUT_S)


async def _list(folder: Path, *words: str, top: Path | None = None) -> list[str] | None:
    listed = await _ls_files(folder, *words, top=top)
    return (
        None
        if listed is None
        else sorted({os.fsdecode(name) for name in listed.split(b"\0") if name})
    )


async def _ls_files(folder: Path, *words: str, top: Path | None) -> bytes | None:
    command = git_command(folder, "ls-files", "-z", *words, top=top)
    done = await run(
        command,
        env=git_environment(),
        cwd=folder,
        timeout_s=GIT_TIMEOUT_S,
        output_limit_bytes=LIST_LIMIT_BYTES,
    )
    return done.stdout if done.ok else None


class Listed(NamedTuple):
    """Output of `ls-files -s`, `belonging`, and the paths that are left out (a folder as one, with
    a slash)."""

    belonging: bytes
    ignored: list[str]

    @property
    def files(self) -> int:
        """Count the files that belong."""
        return self.belonging.count(b"\0")

    @property
    def nested(self) -> list[str]:
        """Those that may be repositories of their own: submodules, and untracked ones, which end
        with a slash."""
        # Most have neither, and a look for these bytes takes a hundredth of the time that lines do.
        if _SUBMODULE not in b"\0" + self.belonging and b"/\0" not in self.belonging:
            return []
        lines = self.belonging.split(b"\0")
        found = [line for line in lines if line.endswith(b"/") or line.startswith(_SUBMODULE[1:])]
        return [os.fsdecode(line.rpartition(b"\t")[2]) for line in found]

    def holds(self, leaf: str) -> bool:
        """Return whether a file of this name is among those that belong, in any folder."""
        name = os.fsencode(leaf) + b"\0"
        return any(before + name in b"\0" + self.belonging for before in (b"\0", b"\t", b"/"))

    def names(self) -> list[str]:
        """Those that belong."""
        return [
            os.fsdecode(line.rpartition(b"\t")[2]) for line in self.belonging.split(b"\0") if line
        ]


async def listed(folder: Path, top: Path | None = None) -> Listed | None:
    """Return the list of `files_of`, unparsed, and what it leaves out; None where git can't read
    it."""
    # The two walk over the same folders: both at once take as long as one.
    belonging, left_out = await asyncio.gather(
        _ls_files(folder, "-c", "-o", "-s", "--exclude-standard", top=top),
        _list(folder, "-o", "-i", "--exclude-standard", "--directory", top=top),
    )
    return None if belonging is None or left_out is None else Listed(belonging, left_out)


async def ignored(folder: Path, names: Sequence[str], top: Path | None = None) -> set[str]:
    """Those of the paths that the host's ignore files leave out. A folder is asked about with a
    trailing slash.

    A path that git won't answer for (below a symlink, say) counts as not ignored: it is then
    asked about, never dropped.
    """
    out: set[str] = set()
    waiting = list(names)
    for _ in range(MOST_RESTARTS):
        if not waiting:
            break
        words = ("check-ignore", "--no-index", "--verbose", "--non-matching", "-z", "--stdin")
        command = git_command(folder, *words, top=top)
        # With `./` in front no name is taken for a pathspec with magic (`:(glob)x`).
        text = b"".join(b"./" + os.fsencode(name) + b"\0" for name in waiting)
        done = await run(
            command,
            env=git_environment(),
            cwd="/",
            stdin=text,
            timeout_s=GIT_TIMEOUT_S,
            output_limit_bytes=LIST_LIMIT_BYTES,
        )
        # Four fields each: source, line, pattern, path; no source: no pattern matched; `!`: matched
        # to be kept.
        fields = done.stdout.split(b"\0")
        answered = 0
        for at in range(0, len(fields) - 4, 4):
            source, _, pattern, path = fields[at : at + 4]
            answered += 1
            if source and not pattern.startswith(b"!"):
                out.add(os.fsdecode(path.removeprefix(b"./")))
        if done.exit_code in (0, 1):
            break
        waiting = waiting[answered + 1 :]  # it ends at the first path that it refuses
    return out


async def clean_config(config: Path, of_worktree: Path) -> str:
    """Return the text of a repository's configuration with only `_KEPT_KEYS`, credentials in URLs
    removed.

    `of_worktree` counts where `extensions.worktreeConfig` says so (git-worktree(1)): a sparse
    checkout is written down there.
    """
    values = await _config_values(config)
    if any(key == "extensions.worktreeconfig" and value.lower() in _YES for key, value in values):
        values += await _config_values(of_worktree)
    lines: list[str] = []
    for key, value in values:
        if _KEPT_KEYS.fullmatch(key):
            lines += _config_lines(key, _CREDENTIALS.sub("", value))
    return "\n".join(["[core]", "\tbare = false", *lines]) + "\n"


async def _config_values(config: Path) -> list[tuple[str, str]]:
    """Keys, in lower case but for their middle part, and values; none where there is no such
    file."""
    command = ["git", "config", "--file", str(config), "--no-includes", "--list", "-z"]
    done = await run(command, env=git_environment(), cwd=Path("/"), timeout_s=GIT_TIMEOUT_S)
    found = (item.partition("\n") for item in done.stdout.decode("utf-8", "replace").split("\0"))
    return [(key, value) for key, separator, value in found if separator]


async def pack_all(repository: Path, target: Path) -> bool:
    """Write every object that the repository's refs and index reach as packs into `target`;
    whether it worked."""
    command = git_command(
        repository,
        "pack-objects",
        "--all",
        "--reflog",
        "--indexed-objects",
        "-q",
        str(target / "pack"),
    )
    done = await run(
        command, env=git_environment(), cwd=repository, stdin=b"", timeout_s=30 * GIT_TIMEOUT_S
    )
    return done.ok


def _config_lines(key: str, value: str) -> list[str]:
    section, _, rest = key.partition(".")
    subsection, _, name = rest.rpartition(".")
    header = f"[{section} {_quoted(subsection)}]" if subsection else f"[{section}]"
    return [header, f"\t{name} = {_quoted(value)}"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
