"""Bodies of the agent's API as types, and the action that each of them asks for.

Bodies refuse unknown fields, so that a field like `approved` is an error instead of being ignored.
Paths and working folders are data: taken relative to the workspace, never opened here. Pure, so
that the bodies are tested without a door.
"""

import base64
import binascii
import posixpath
import shlex
from typing import Annotated, Any, Literal

import msgspec

from supervisor.core.actions import WORKSPACE, Effect, Git, Packages
from supervisor.core.packages import installed_places, package_commands
from supervisor.core.packages.install_recipes import is_at_home, names_packages_alone
from supervisor.core.policy import git_refs
from supervisor.core.text.words import MAX_CHARS
from supervisor.errors import UserError

COMMAND_CHARS = 64 * 1024
# The longest argument that Linux accepts in a command line (execve(2), MAX_ARG_STRLEN).
COMMAND_BYTES = 128 * 1024
# The longest file that can be written or edited in one request; base64 and JSON escapes make the
# body longer.
FILE_BYTES = 8 * 1024 * 1024
FILE_BODY_BYTES = 3 * FILE_BYTES
LONGEST_COMMAND_S = 3600.0
# Of what is asked of git and package managers, as JSON: the longest line that is read, a reason and
# a folder.
MOST_WORDS_CHARS = MAX_CHARS + 8000

_Reason = Annotated[str, msgspec.Meta(max_length=2000)]
_Path = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
_Command = Annotated[str, msgspec.Meta(min_length=1, max_length=COMMAND_CHARS)]
_Word = Annotated[str, msgspec.Meta(max_length=1024)]
_Words = Annotated[tuple[_Word, ...], msgspec.Meta(max_length=200)]
_Traced = Annotated[str, msgspec.Meta(max_length=4000)]
_Text = Annotated[str, msgspec.Meta(max_length=FILE_BYTES)]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _CommandBody(_Body, frozen=True, kw_only=True):
    command: _Command | None

    def __post_init__(self) -> None:
        """Refuse what no system can start. INVARIANT (law 14): a control character takes six in
        JSON."""
        if self.command and len(msgspec.json.encode(self.command)) > COMMAND_BYTES:
            raise ValueError(f"`command` has more than {COMMAND_BYTES} bytes as JSON")


class _WordsBody(_CommandBody, frozen=True, kw_only=True):
    """What git or a package manager is asked for: a line or words that are read whole, or not at
    all."""

    def __post_init__(self) -> None:
        """INVARIANT (law 14): all of it is searched for secrets, and nothing longer is ever read as
        a command."""
        super().__post_init__()
        if self.command and len(self.command) > MAX_CHARS:
            raise ValueError(f"`command` has more than {MAX_CHARS} characters, and isn't read")
        if length_of(self) > MOST_WORDS_CHARS:
            raise ValueError(f"this has more than {MOST_WORDS_CHARS} characters as JSON")


class ExecBody(_CommandBody, frozen=True, kw_only=True):
    """Run a command line under bash in a tool sandbox. `cwd` is relative to the workspace."""

    command: _Command
    cwd: _Path = "."
    reason: _Reason = ""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_COMMAND_S)] = 120.0


class WriteBody(_Body, frozen=True, kw_only=True):
    """Write a file of the host's workspace. Exactly one of `content` (text) and `content_b64`
    (bytes, base64)."""

    path: _Path
    content: _Text | None = None
    content_b64: Annotated[str, msgspec.Meta(max_length=2 * FILE_BYTES)] | None = None
    reason: _Reason = ""


class EditBody(_Body, frozen=True, kw_only=True):
    """Replace text in a file of the host's workspace: `old` must be in it exactly once, or with
    `replace_all` at least once.

    While an earlier write or edit of the file waits for an answer, this one is made on its
    content, and one request holds both. It is denied as stale, with the hash of what is there,
    where `old` isn't there (any more).
    """

    path: _Path
    old: Annotated[str, msgspec.Meta(min_length=1, max_length=FILE_BYTES)]
    new: _Text
    replace_all: bool = False
    reason: _Reason = ""


class DeleteBody(_Body, frozen=True, kw_only=True):
    """Delete a file, a symbolic link or an empty folder of the host's workspace. Files in a
    folder are named one by one."""

    path: _Path
    reason: _Reason = ""


class MoveBody(_Body, frozen=True, kw_only=True):
    """Give a file of the host's workspace another path, `to`, where nothing may be. Missing
    folders on the way are made."""

    path: _Path
    to: _Path
    reason: _Reason = ""


class PackagesBody(_WordsBody, frozen=True, kw_only=True):
    """Run a package manager: its command line, or `manager` and `operation` with names and
    flags."""

    command: _Command | None = None
    manager: _Word = ""
    operation: _Word = ""
    names: _Words = ()
    flags: _Words = ()
    cwd: _Path = "."
    reason: _Reason = ""


class ManagerBody(_Body, frozen=True, kw_only=True):
    """The words that a program started a package manager with, in the folder `cwd`. `environment`
    is the folder of the virtual environment that pip is meant for."""

    words: Annotated[tuple[_Word, ...], msgspec.Meta(min_length=1, max_length=1000)]
    cwd: _Path
    environment: Annotated[str, msgspec.Meta(max_length=4096)] = ""

    def __post_init__(self) -> None:
        """Refuse what `PackagesBody` refuses."""
        PackagesBody(command=shlex.join(self.words))


class GitBody(_WordsBody, frozen=True, kw_only=True):
    """A git operation that reaches beyond the private copy: its command line, or `operation`
    with the rest."""

    command: _Command | None = None
    operation: _Word = ""
    remote: _Word | None = None
    refspecs: _Words = ()
    force: bool = False
    delete: bool = False
    flags: _Words = ()
    cwd: _Path = "."
    reason: _Reason = ""


class CommandTool(_CommandBody, frozen=True, kw_only=True, tag="command", tag_field="tool"):
    """The agent's own tool is about to run a command line in its sandbox. `cwd` may be any folder
    in it."""

    command: _Command
    cwd: _Path = "."
    reason: _Reason = ""


class EditTool(_Body, frozen=True, kw_only=True, tag="edit", tag_field="tool"):
    """It is about to write, edit or delete a file, which `path` names from `cwd` on."""

    path: _Path
    cwd: _Path = "."


class FetchTool(_Body, frozen=True, kw_only=True, tag="fetch", tag_field="tool"):
    """It is about to read a URL."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=8192)]


class McpTool(_Body, frozen=True, kw_only=True, tag="mcp", tag_field="tool"):
    """It is about to call a tool of an MCP server. `arguments` are JSON, as text."""

    server: _Word
    name: _Word
    arguments: Annotated[str, msgspec.Meta(max_length=COMMAND_CHARS)] = "{}"
    reason: _Reason = ""


class NamedTool(_Body, frozen=True, kw_only=True, tag="named", tag_field="tool"):
    """In quarantine: it is about to call a tool, by the name that the agent has for it."""

    name: _Word
    arguments: dict[str, Any] = {}


type ToolBody = CommandTool | EditTool | FetchTool | McpTool | NamedTool


class QuarantineBody(_Body, frozen=True, kw_only=True):
    """Read, grep or glob in quarantine: `tool` by its name, with its arguments."""

    tool: Annotated[str, msgspec.Meta(max_length=200)]
    arguments: dict[str, Any] = {}


class ProposalBody(_Body, frozen=True, kw_only=True):
    """Propose a rule, as `category(pattern)`. A person always decides."""

    effect: Effect
    rule: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]
    why: _Reason = ""


class ReviewFinding(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """One remark of a review. `path` is relative to the workspace, `line` and `start_line` count
    from 1, `quote` is the code there."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    severity: Literal["critical", "high", "medium", "low", "info"]
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    body: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    suggestion: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    start_line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    quote: Annotated[str, msgspec.Meta(max_length=5_000)] = ""
    confidence: Literal["high", "medium", "low"] = "medium"
    skill: Annotated[str, msgspec.Meta(max_length=100)] = ""


class ReviewUsage(_Body, frozen=True, kw_only=True):
    turns: Annotated[int, msgspec.Meta(ge=0)]
    input_tokens: Annotated[int, msgspec.Meta(ge=0)]
    output_tokens: Annotated[int, msgspec.Meta(ge=0)]


class TracedCall(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a tool, cut: its input as JSON, and the beginning of its result."""

    tool: Annotated[str, msgspec.Meta(max_length=100)]
    input: _Traced
    result: _Traced
    is_error: bool = False


class TracedTurn(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """One reply of the model, cut, and the calls in it; times in seconds."""

    said: _Traced
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    calls_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    input_tokens: Annotated[int, msgspec.Meta(ge=0)]
    output_tokens: Annotated[int, msgspec.Meta(ge=0)]
    calls: Annotated[tuple[TracedCall, ...], msgspec.Meta(max_length=64)] = ()


class ReviewBody(_Body, frozen=True, kw_only=True):
    """The review agent's report. `partial`: why it was concluded early; `left_out`: the paths
    that it didn't look at; `notes` and `confidence` are those of an answer to a prompt."""

    model: _Word
    base: _Word | None
    head: _Word | None
    summary: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    verdict: Literal["approve", "comment", "request_changes"]
    findings: Annotated[tuple[ReviewFinding, ...], msgspec.Meta(max_length=200)]
    usage: ReviewUsage
    turns: Annotated[tuple[TracedTurn, ...], msgspec.Meta(max_length=200)] = ()
    notes: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=2_000)], ...], msgspec.Meta(max_length=50)
    ] = ()
    confidence: Literal["high", "medium", "low", ""] = ""
    partial: Annotated[str, msgspec.Meta(max_length=200)] = ""
    left_out: Annotated[tuple[_Word, ...], msgspec.Meta(max_length=500)] = ()


def length_of(data: msgspec.Struct) -> int:
    """Return how long a body is that is searched for secrets as a command, as JSON. Files have
    limits of their own."""
    return 0 if isinstance(data, (WriteBody, EditBody)) else len(msgspec.json.encode(data))


def in_workspace(path: str) -> str:
    """Return a path as written inside the sandbox, relative to the workspace if it is below that.
    The channel judges the rest."""
    if "\0" in path:
        raise UserError("the path holds a NUL", "send a path without it")
    if path == WORKSPACE or path.startswith(WORKSPACE + "/"):
        return path[len(WORKSPACE) :].lstrip("/") or "."
    return path


def _is_inside(cwd: str) -> bool:
    relative = posixpath.normpath(in_workspace(cwd))
    return relative != ".." and not relative.startswith(("/", "../"))


def folder(cwd: str) -> str:
    """Return a working folder, relative to the workspace. Raise `UserError` where it is outside.
    The sandbox checks that it exists."""
    if not _is_inside(cwd):
        raise UserError(
            f"the folder `{cwd[:200]}` is outside the workspace", f"use one below {WORKSPACE}"
        )
    return posixpath.normpath(in_workspace(cwd))


def content_of(data: WriteBody) -> bytes:
    """Return the bytes to write."""
    if (data.content is None) == (data.content_b64 is None):
        raise UserError(
            "exactly one of `content` and `content_b64` is needed",
            "send the file's text as `content`",
        )
    try:
        content = (
            (data.content or "").encode()
            if data.content_b64 is None
            else base64.b64decode(data.content_b64, validate=True)
        )
    except (UnicodeEncodeError, binascii.Error) as error:
        raise UserError(
            f"the content can't be decoded: {error}", "send base64 as `content_b64`"
        ) from error
    if len(content) > FILE_BYTES:
        raise UserError(
            f"the file has {len(content)} bytes, at most {FILE_BYTES} can be sent",
            "write it in the private copy",
        )
    return content


def packages_action(data: PackagesBody) -> Packages:
    """Return the action of a package request."""
    if data.command is not None:
        if data.manager or data.operation or data.names or data.flags:
            raise UserError(
                "`command` says it all; the other fields are for requests without it",
                "send one of the two",
            )
        return package_commands.parse_command(data.command, folder(data.cwd))
    if not (data.manager and data.operation):
        raise UserError(
            "`command`, or `manager` and `operation`, are needed",
            "send for example `npm install left-pad`",
        )
    return Packages(
        manager=data.manager,
        operation=data.operation,
        names=data.names,
        flags=data.flags,
        cwd=folder(data.cwd),
    )


def manager_action(data: ManagerBody) -> Packages | None:
    """Return the action of a package manager's words; None where they fetch nothing, so that the
    program may do it itself. Raise `UserError` where that can't be told (law 3)."""
    name, *words = data.words
    action = package_commands.parse_command(shlex.join([name, *words]), ".")
    if not action.manager:
        why = action.flags[0].removeprefix(package_commands.UNREAD)
        raise UserError(why, "use fewer words and no line breaks or hidden characters")
    if other := package_commands.fetches_otherwise(action):
        raise UserError(
            f"`{action.manager} {other}` fetches packages, and no request can bring them",
            "install what it needs by a plain install",
        )
    if not package_commands.fetches(action):
        return None
    is_pip = (action.manager, action.operation) == ("pip", "install")
    if is_at_home(action):
        cwd = "."
    elif is_pip and names_packages_alone(action) and not _is_inside(data.cwd):
        cwd = "."  # no file there takes part, nor the project's environment
        if not data.environment:
            words.insert(words.index("install") + 1, "--user")
    else:
        cwd = folder(data.cwd)
    if action.manager == "pip" and data.environment:
        at = posixpath.normpath(data.environment)
        if not at.startswith(installed_places.HOME):
            at = posixpath.relpath(folder(data.environment), cwd)
        option = package_commands.OTHER_ENVIRONMENT
        words = words if at == package_commands.ENVIRONMENTS[0] else [option, at, *words]
    action = package_commands.parse_command(shlex.join([name, *words]), cwd)
    return msgspec.structs.replace(action, by_exec=True)


def git_action(data: GitBody) -> Git:
    """Return the action of a git request."""
    if data.command is not None:
        if (
            data.operation
            or data.remote
            or data.refspecs
            or data.flags
            or data.force
            or data.delete
        ):
            raise UserError(
                "`command` says it all; the other fields are for requests without it",
                "send one of the two",
            )
        return git_refs.parse_command(data.command, folder(data.cwd))
    if not data.operation:
        raise UserError(
            "`command` or `operation` is needed", "send for example `git push origin my-branch`"
        )
    return Git(
        operation=data.operation,
        remote=data.remote,
        refspecs=data.refspecs,
        force=data.force,
        delete=data.delete,
        flags=data.flags,
        cwd=folder(data.cwd),
    )
