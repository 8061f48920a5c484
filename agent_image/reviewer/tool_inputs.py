"""Tool schemas: inputs of each tool, and its description for the model.

`TOOLS` are offered to every model that reviews, `maintenance_tools` to one that maintains.
`RECORDED_TOOLS` exist for the recorded model only, whose script asks for one action of each kind; a
real model has no need to fetch pages or to push.
"""

from collections.abc import Collection
from typing import Annotated, Any, Literal

import msgspec

WorkspacePath = Annotated[
    str, msgspec.Meta(min_length=1, max_length=4096, description="path relative to the workspace")
]
Reason = Annotated[
    str, msgspec.Meta(max_length=500, description="why it is needed, for the person who is asked")
]


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all tool inputs."""


class ReadFile(Input, frozen=True):
    path: WorkspacePath
    first_line: Annotated[int, msgspec.Meta(ge=1)] = 1
    last_line: Annotated[int, msgspec.Meta(ge=1)] | None = None


class ListFiles(Input, frozen=True):
    path: WorkspacePath = "."
    pattern: Annotated[str, msgspec.Meta(max_length=200, description="glob on path or name")] = ""


class FindFiles(Input, frozen=True):
    pattern: Annotated[
        str, msgspec.Meta(min_length=1, max_length=200, description="glob on the name: *.py")
    ]
    path: WorkspacePath = "."
    max_depth: Annotated[
        int, msgspec.Meta(ge=1, le=15, description="folders are looked into so deep")
    ] = 10


class Search(Input, frozen=True):
    pattern: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=1000, description="regular expression (Rust syntax)"),
    ]
    path: WorkspacePath = "."
    glob: Annotated[str, msgspec.Meta(max_length=200)] = ""
    ignore_case: bool = False


class GitDiff(Input, frozen=True):
    paths: Annotated[list[WorkspacePath], msgspec.Meta(max_length=100)] = []
    since_last: Annotated[
        bool, msgspec.Meta(description="what came since the last review only, where there was one")
    ] = False


class GitLog(Input, frozen=True):
    since_hours: Annotated[int, msgspec.Meta(ge=1, le=87_600)] = msgspec.field(
        default=168, name="sinceHours"
    )
    paths: Annotated[list[WorkspacePath], msgspec.Meta(max_length=100)] = []


class GitDiffRange(Input, frozen=True):
    start: Annotated[str, msgspec.Meta(min_length=1, max_length=250)] = msgspec.field(name="from")
    end: Annotated[str, msgspec.Meta(min_length=1, max_length=250)] = msgspec.field(
        default="HEAD", name="to"
    )
    paths: Annotated[list[WorkspacePath], msgspec.Meta(max_length=100)] = []


class RunCommand(Input, frozen=True):
    command: Annotated[
        str, msgspec.Meta(min_length=1, max_length=20_000, description="a bash command line")
    ]
    reason: Reason
    cwd: WorkspacePath = "."
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 120.0


class WriteFile(Input, frozen=True):
    path: WorkspacePath
    content: Annotated[str, msgspec.Meta(max_length=1_000_000)]
    reason: Reason


class EditFile(Input, frozen=True):
    path: WorkspacePath
    old: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000_000)]
    new: Annotated[str, msgspec.Meta(max_length=1_000_000)]
    reason: Reason
    replace_all: bool = False


class WriteHere(Input, frozen=True):
    path: WorkspacePath
    content: Annotated[str, msgspec.Meta(max_length=1_000_000)]


class EditHere(Input, frozen=True):
    path: WorkspacePath
    old: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000_000)]
    new: Annotated[str, msgspec.Meta(max_length=1_000_000)]
    replace_all: bool = False


class DeleteFile(Input, frozen=True):
    path: WorkspacePath


class ReadReference(Input, frozen=True):
    reference: Annotated[
        str, msgspec.Meta(max_length=20_000, description="typed://..., as grep and glob give it")
    ]
    first_line: Annotated[int, msgspec.Meta(ge=1)] = 1
    last_line: Annotated[int, msgspec.Meta(ge=1)] | None = None


class GrepShown(Input, frozen=True):
    pattern: Annotated[
        str, msgspec.Meta(min_length=1, max_length=1000, description="regular expression (Python)")
    ]
    glob: Annotated[str, msgspec.Meta(max_length=1000)] = "**"
    ignore_case: bool = False


class GlobShown(Input, frozen=True):
    pattern: Annotated[str, msgspec.Meta(max_length=1000, description="src/**/*.py")] = "**"


class Fetch(Input, frozen=True):
    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


class RequestPackages(Input, frozen=True):
    command: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    reason: Reason


class RequestGit(Input, frozen=True):
    command: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    reason: Reason


class ProposeRule(Input, frozen=True):
    effect: Literal["allow", "ask", "deny"]
    rule: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    why: Reason


TOOLS: dict[str, tuple[type[Input], str]] = {
    "read_file": (ReadFile, "Read a text file of the workspace, numbered by line."),
    "list_files": (ListFiles, "List the files below a folder of the workspace."),
    "find_files": (FindFiles, "Find files by their name, below a folder of the workspace."),
    "search": (Search, "Search the workspace with ripgrep; answers path:line:text."),
    "git_diff": (GitDiff, "The diff under review, of some paths only where given."),
    "run_command": (
        RunCommand,
        "Ask to run a command in a separate sandbox over the same files. A person may say no.",
    ),
    "write_file": (WriteFile, "Ask to write a whole file of the workspace. A person may say no."),
    "edit_file": (
        EditFile,
        "Ask to replace text that occurs in a file of the workspace. A person may say no.",
    ),
}
RECORDED_TOOLS: dict[str, tuple[type[Input], str]] = {
    "fetch": (Fetch, "Fetch a page through the proxy."),
    "request_packages": (RequestPackages, "Ask to run a package manager."),
    "request_git": (RequestGit, "Ask for a git operation that reaches beyond the private copy."),
    "propose_rule": (ProposeRule, "Propose a change to the policy."),
}


_EDITING: dict[str, tuple[type[Input], str]] = {
    "write_file": (WriteHere, "Write a whole file of the workspace; folders are made."),
    "edit_file": (
        EditHere,
        "Replace text in a file; it must occur exactly once, or say replace_all.",
    ),
    "delete_file": (DeleteFile, "Delete a file of the workspace."),
}
# Whatever a reader in quarantine calls is answered by the supervisor, these and unknown ones.
QUARANTINE_TOOLS: dict[str, tuple[type[Input], str]] = {
    "read": (ReadReference, "Read a text file, numbered by line, by a reference to it."),
    "grep": (GrepShown, "Search the files; answers with references, and line:text below each."),
    "glob": (GlobShown, "List the files that a glob matches, as references."),
}
_READING = ("read_file", "list_files", "find_files", "search", "git_diff")
READING_TOOLS = {name: TOOLS[name] for name in _READING}
# What looks beyond the change. A clone has some of the history, not always all of it.
HISTORY_TOOLS: dict[str, tuple[type[Input], str]] = {
    "git_log": (GitLog, "The commits of the last hours, with the files of each."),
    "git_diff_range": (GitDiffRange, "The diff between two commits, of some paths only."),
}
# What a category of `.reviewerc` gives to a job.
_OF_CATEGORIES: dict[str, tuple[str, ...]] = {
    "filesystem": ("read_file", "list_files", "find_files", "search", "run_command"),
    "git.history": tuple(HISTORY_TOOLS),
    "repo.write": tuple(_EDITING),
}
PULL_TOOLS = READING_TOOLS | {"run_command": TOOLS["run_command"]}


def maintenance_tools(categories: Collection[str]) -> dict[str, tuple[type[Input], str]]:
    """Return the tools of one that maintains: those of these categories, or without any all but
    those that look into the history."""
    if not categories:
        return TOOLS | _EDITING
    names = {name for one in categories for name in _OF_CATEGORIES.get(one, ())}
    every = TOOLS | _EDITING | HISTORY_TOOLS
    return {name: tool for name, tool in every.items() if name in names}


def definitions(tools: dict[str, tuple[type[Input], str]]) -> list[dict[str, Any]]:
    """Return the tools as the Messages API wants them."""
    return [
        {"name": name, "description": description, "input_schema": _schema(kind)}
        for name, (kind, description) in tools.items()
    ]


def _schema(kind: type[Input]) -> dict[str, Any]:
    whole = msgspec.json.schema(kind)
    schema = dict(whole["$defs"][kind.__name__])
    schema.pop("title", None)
    return schema
