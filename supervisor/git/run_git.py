"""Start git outside sandboxes. No other module may.

Git runs programs that a configuration, an attribute, an environment or a folder names. So it gets
an explicit repository of ours (`repository_view` makes one out of the host's), configuration of
ours, and `/` as its folder; nothing is discovered, fetched lazily or read from a tree's attributes.
Only with `as_person` it has the person's own configuration and credentials: their `~/.gitconfig`,
never a repository's.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from supervisor import settings
from supervisor.base.process import Completed, Printed, run
from supervisor.core.text.numbers import whole_number

GIT_S = 60.0
OUTPUT_LIMIT_BYTES = 16 << 20
# No attribute of a tree counts: this file ranks above them in each version of git.
_NO_ATTRIBUTES = (
    "* !text !eol !crlf !working-tree-encoding !ident !filter !diff !merge !whitespace"
    " !export-ignore !export-subst !delta !encoding !conflict-marker-size\n"
)
# Each closes a way in which a repository or the person's configuration makes git run, fetch or
# write more than was asked for (git-config(1)).
_SWITCHES = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    # Of a repository that ours borrows objects from, whose own configuration would count.
    "core.alternateRefsCommand=true",
    # From 2.43 on the attributes come from this tree: it is the empty one.
    "attr.tree=4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "safe.bareRepository=explicit",
    "protocol.allow=never",
    "protocol.version=2",  # the first that says which refs are symbolic
    "submodule.recurse=false",
    "fetch.recurseSubmodules=no",
    "fetch.writeCommitGraph=false",
    "core.commitGraph=false",  # a summary that git believes: it may hide commits
    "push.recurseSubmodules=no",
    "push.followTags=false",
    "push.gpgSign=false",
    "log.showSignature=false",
    "core.bigFileThreshold=64m",  # a larger one isn't held in memory, nor compared with others
    "pack.windowMemory=256m",
    "gc.auto=0",
    "maintenance.auto=false",
)
# A diff of two commits: no filter of the working tree's is run, no converter and no other differ.
# Since no attribute counts, git calls binary what has a NUL near its start, or is so long that
# nobody reads it. It isn't `--text`: a picture's bytes would crowd out the code beside it.
SAFE_DIFF = (
    *("-c", "core.quotePath=false", "-c", "core.bigFileThreshold=4m", "diff", "--no-color"),
    *("--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
    *("--submodule=short", "--find-renames"),
)
_ENVIRONMENT = {
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
}
_NOBODY = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


class GitPlace(NamedTuple):
    """A repository for git: `folder` is its git folder, which we made. Its objects and index may
    lie elsewhere."""

    folder: Path
    work_tree: Path | None = None
    objects: Path | None = None
    index_file: Path | None = None


async def run_git(
    place: GitPlace | None,
    *words: str,
    config: Sequence[str] = (),
    hidden_config: Mapping[str, str] | None = None,
    protocols: Sequence[str] = (),
    as_person: bool = False,
    cwd: Path | str = "/",
    stdin: bytes | None = None,
    timeout_s: float = GIT_S,
    limit_bytes: int = OUTPUT_LIMIT_BYTES,
    memory_bytes: int | None = None,
    pass_fds: Sequence[int] = (),
    printed: Printed | None = None,
) -> Completed:
    """Run a git command in a repository of ours; None: one that needs no repository.

    `config` is more configuration; `hidden_config` isn't seen in the list of processes. `protocols`
    may be spoken, and no other. `printed`: as in `process.run`. Raises UserError where there is no
    git.
    """
    switches = [*_SWITCHES, *(f"protocol.{one}.allow=always" for one in protocols), *config]
    argv = ["git", *(word for one in switches for word in ("-c", one))]
    env = (settings.for_own_git() if as_person else {"PATH": settings.search_path(), **_NOBODY}) | (
        _ENVIRONMENT
    )
    if words[0] == "check-ignore":  # it knows no literal names
        env["GIT_LITERAL_PATHSPECS"] = "0"
    if place is None:
        env["GIT_DIR"] = os.devnull  # none is looked for
    else:
        argv.append(f"--git-dir={place.folder}")
        if place.work_tree is not None:
            argv.append(f"--work-tree={place.work_tree}")
        if place.objects is not None:
            env["GIT_OBJECT_DIRECTORY"] = str(place.objects)
        if place.index_file is not None:
            env["GIT_INDEX_FILE"] = str(place.index_file)
    _add_hidden(env, hidden_config or {})
    return await run(
        [*argv, *words],
        env=env,
        cwd=cwd,
        stdin=stdin,
        timeout_s=timeout_s,
        output_limit_bytes=limit_bytes,
        memory_bytes=memory_bytes,
        pass_fds=pass_fds,
        printed=printed,
    )


def without_attributes(git_dir: Path) -> None:
    """Have no attribute of a tree count in a repository of ours."""
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text(_NO_ATTRIBUTES)


def _add_hidden(env: dict[str, str], hidden: Mapping[str, str]) -> None:
    """Add configuration after what the person's environment has of it (git-config(1),
    GIT_CONFIG_COUNT)."""
    count = env.get("GIT_CONFIG_COUNT", "")
    first = whole_number(count) or 0
    for number, (key, value) in enumerate(hidden.items(), first):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    if hidden:
        env["GIT_CONFIG_COUNT"] = str(first + len(hidden))
