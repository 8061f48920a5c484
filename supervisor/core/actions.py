"""Actions: what an agent can ask for, frozen, each with a fingerprint.

There are eight categories. An action holds everything that would take effect. The gate judges it, a
person reads it, and a grant is bound to its fingerprint. Before a channel acts, it builds the
action again from what it is about to do. So a field that changes the effect belongs here, and
nowhere else.
"""

import hashlib
from typing import Literal

import msgspec

from supervisor.core.budget import SCOPE_WORDS, Kind, Scope, amount
from supervisor.core.forge_acts import Act, act_subject, act_title

Category = Literal[
    "exec", "filesystem", "network", "git", "packages", "review", "sandbox", "budget"
]
CATEGORIES: tuple[Category, ...] = (
    "exec",
    "filesystem",
    "network",
    "git",
    "packages",
    "review",
    "sandbox",
    "budget",
)
# The categories that rules and modes can name: a proposal (`sandbox`) and a raise of the budget
# (`budget`) are always asked.
RULE_CATEGORIES: tuple[Category, ...] = (
    "exec",
    "filesystem",
    "network",
    "git",
    "packages",
    "review",
)

# Place of the private copy in a sandbox, and the default folder of commands.
WORKSPACE = "/workspace/merged"

# Operations that a caller can ask for. A swap is not among them: only a comparison finds one.
PathOperation = Literal["write", "edit", "delete", "mkdir", "chmod", "symlink", "rename"]
FileOperation = Literal[PathOperation, "swap"]
Effect = Literal["allow", "ask", "deny"]
# Prefix of a move's subject, and of no other.
MOVES = "filesystem-move:"
_READS = ("GET", "HEAD")


def content_hash(data: bytes) -> str:
    """Return the BLAKE2b-256 of some content, in hex. Actions refer to long content by it."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


class ShownScript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A script that a command names, with its content when the command was asked for. `hash` is its
    `content_hash`."""

    path: str
    hash: str


class Exec(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="exec",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """Run a command line under bash in a tool sandbox. `cwd` is relative to the workspace's root.
    `scripts`: the scripts that it names in the private copy (`exec_operands`). `by_agent`: the
    agent's own tool runs it, in the agent's sandbox; there `cwd` may also be an absolute path."""

    command: str
    cwd: str = "."
    timeout_s: float = 120.0
    scripts: tuple[ShownScript, ...] = ()
    by_agent: bool = False


class McpCall(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="mcp",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """Call a tool of an MCP server, of category `exec`: `mcp__SERVER__TOOL ARGUMENTS`. `arguments`
    is a JSON object, spelled in one way (`mcp_calls.spelled`). `by_agent`: the server is the
    agent's own, in its sandbox; else it is one that the operator named, outside of it."""

    server: str
    tool: str
    arguments: str
    by_agent: bool = False


class ToolChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool that an MCP server describes otherwise than before: its description and schema, as
    JSON; empty where it wasn't, or isn't, there."""

    name: str
    before: str
    after: str


class McpTools(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="mcp_tools",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """Use the tools that an MCP server lists now, of category `sandbox`: they aren't those that
    were used last. `digest` is of the new list."""

    server: str
    digest: str
    changes: tuple[ToolChange, ...]


class FileStep(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One of the changes below a swapped path; the fields are those of `FileChange`."""

    operation: Literal["write", "delete", "mkdir", "symlink"]
    path: str
    path_b64: str | None = None
    before: str | None = None
    after: str | None = None
    mode: int | None = None
    link_target: str | None = None
    hazards: tuple[str, ...] = ()


class NewFolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder above a path that is created with it. `path` is as `FileChange.path`; `mode` holds
    permissions only."""

    path: str
    mode: int


class FileChange(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="filesystem",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """Change one path of the host's workspace.

    `path` and `to` are relative to the workspace's root, `/`-separated. A name that isn't UTF-8 is
    carried in `path_b64` or `to_b64`; `path` or `to` is then only for show. `before` and `after`
    are `content_hash` of the file as it must be on the host now (None: absent) and as it will be
    (None: deleted, or no content); `dir` for a folder, `symlink:HASH` for a link. A `rename` moves
    the file to `to`, where nothing may exist: `after` is its state there. A `swap` replaces
    something else by a folder, or the reverse: `steps` are all changes below it, and `hazards`
    includes those of every step. `hazards` names what no rule may allow: `symlink`, `hardlink`,
    `fifo`, `socket`, `device`, `setuid`, `new-executable`, `wider` (others than the owner gain
    access), `secret` (the new text holds what looks like a secret that the old text hadn't), and
    `conflict`: the person changed the path on the host since the copy was made. `folders` are those
    above the path (for a rename, above `to`) that don't exist yet and get other permissions than a
    umask leaves. `repositories` are the folders around any of the paths that git takes for a
    repository's own, as the host has them or with this change (`.`: the workspace itself):
    everything in them counts as `.git`.
    """

    operation: FileOperation
    path: str
    path_b64: str | None = None
    to: str | None = None
    before: str | None = None
    after: str | None = None
    mode: int | None = None
    link_target: str | None = None
    hazards: tuple[str, ...] = ()
    to_b64: str | None = None
    steps: tuple[FileStep, ...] = ()
    folders: tuple[NewFolder, ...] = ()
    repositories: tuple[str, ...] = ()


class Network(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="network",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """Open a connection (`connect`: host and port only) or send one request (`request`: method,
    scheme, path too).

    `host` is as the client wrote it; the engine canonicalises it. `path` includes the query. `sni`,
    `host_header` and `resolved` are as seen, None or empty if not seen. `body_hash` is
    `content_hash` of the body. `has_body`: more follows the head, or may follow.
    """

    operation: Literal["connect", "request"]
    host: str
    port: int
    scheme: Literal["http", "https", "tcp"] = "tcp"
    method: str | None = None
    path: str | None = None
    sni: str | None = None
    host_header: str | None = None
    resolved: tuple[str, ...] = ()
    body_hash: str | None = None
    has_body: bool = False


class RefUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One ref that a push moves at the remote: `old` and `new` are object ids in hex, empty if the
    ref doesn't exist before or after."""

    ref: str
    old: str
    new: str


class Git(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="git",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """A git operation that reaches beyond the private copy. `command` is the line it was parsed
    from, if any.

    `refspecs` are the words after the remote, as written; `flags` every option word that isn't
    harmless. `updates` are exactly the refs that a push moves, and `url` is its destination: we
    find both when the push is asked for; the agent never gives them. `by_exec`: it was asked for as
    a command line, so rules of `exec` apply, too.
    """

    operation: str
    remote: str | None = None
    refspecs: tuple[str, ...] = ()
    force: bool = False
    delete: bool = False
    flags: tuple[str, ...] = ()
    command: str | None = None
    cwd: str = "."
    url: str = ""
    updates: tuple[RefUpdate, ...] = ()
    by_exec: bool = False


class PlannedPackage(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One package that an install would add, change or remove.

    `version` is empty for a removed package, `before` for a new one. `published_at` is in seconds
    since the epoch, `size` in bytes; None means unknown, here and for `licence` and `has_scripts`.
    `notes` are facts that must not be overlooked. `link`: its own page, where the registry names
    one.
    """

    name: str
    version: str
    before: str = ""
    published_at: float | None = None
    size: int | None = None
    licence: str | None = None
    has_scripts: bool | None = None
    notes: tuple[str, ...] = ()
    link: str = ""


class Packages(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="packages",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """Run a package manager. `names` are the packages with their versions, as written; `flags`
    every option word. `by_exec`: as for `Git`. The other fields come from our own plan when the
    action is asked for, never from the agent: `plan` is what it would do, `index` where packages
    come from, `hosts` what it may reach (`host:port`), `notes` what must not be overlooked about
    the whole, `unknown` what couldn't be found out, `doubt` why no rule may allow it as planned."""

    manager: str
    operation: str
    names: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    command: str | None = None
    cwd: str = "."
    by_exec: bool = False
    index: str = ""
    hosts: tuple[str, ...] = ()
    plan: tuple[PlannedPackage, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    doubt: str = ""


class Proposal(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="sandbox",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """A change to the policy itself, proposed by the agent: always asked. `rule` is
    `category(pattern)`."""

    effect: Effect
    rule: str
    why: str = ""


class BudgetRaise(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="budget",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """Raise a limit that a model call would exceed: always asked. `of` is the session or the day,
    empty for the total.

    `limit` is the one in force and `by` the amount to add, in units of `kind` (money in
    pico-dollars): each raise is an action of its own.
    """

    scope: Scope
    of: str
    kind: Kind
    limit: int
    by: int


_BY_AGENT = Exec.__struct_fields__.index("by_agent")
_SCOPE = Act.__struct_fields__.index("scope")
_SCRIPTS = Exec.__struct_fields__.index("scripts")
_RESOLVED = Network.__struct_fields__.index("resolved")
_HAS_BODY = Network.__struct_fields__.index("has_body")
_TO_B64 = FileChange.__struct_fields__.index("to_b64")
_STEPS = FileChange.__struct_fields__.index("steps")
_FOLDERS = FileChange.__struct_fields__.index("folders")
_REPOSITORIES = FileChange.__struct_fields__.index("repositories")

# Categories of the actions whose tag is another word.
_CATEGORIES: dict[str, Category] = {"mcp": "exec", "mcp_tools": "sandbox"}

type Action = (
    Exec | McpCall | McpTools | FileChange | Network | Git | Packages | Act | Proposal | BudgetRaise
)


def is_read_with_body(action: Network) -> bool:
    """Return whether it is a GET or HEAD with a body: a person who allows reading expects none."""
    return action.has_body and (action.method or "").upper() in _READS


def category_of(action: Action) -> Category:
    """Return the action's category, one of `CATEGORIES`."""
    tag: Category = action.__struct_config__.tag  # type: ignore[assignment]
    return _CATEGORIES.get(tag, tag)


def fingerprint(action: Action) -> str:
    """Return BLAKE2b-256 over the kind of action and every field, in hex.

    INVARIANT: two actions that would do different things never share a fingerprint (law 2): the
    encoding below is injective, because MessagePack marks the type and length of every value.
    `Network.resolved` is left out: the addresses of a name are evidence for the rules, checked anew
    each time; a person approves the name. Some fields are left out while they have their default,
    so that actions approved before these fields existed keep their fingerprint: `Network.has_body`,
    `Exec.by_agent`, `Exec.scripts`, `FileChange.to_b64`, `repositories`, `folders` and `steps`
    (each of these three only if the one before it is left out too). Leaving them out is
    unambiguous: a field less is another encoding, the first of them is a text, and of the lists
    `steps` comes first. So are `Act.scope` and `Act.secrets`, both or none.
    """
    fields = list(
        msgspec.structs.astuple(action)
    )  # at once: it is asked for several times in each verdict
    if isinstance(action, Network):
        if not action.has_body:
            del fields[_HAS_BODY]
        del fields[_RESOLVED]
    elif isinstance(action, Exec):
        if not action.by_agent:
            del fields[_BY_AGENT]
        if not action.scripts:
            del fields[_SCRIPTS]
    elif isinstance(action, FileChange):
        if not action.repositories:
            del fields[_REPOSITORIES]
            if not action.folders:
                del fields[_FOLDERS]
                if not action.steps:
                    del fields[_STEPS]
        if action.to_b64 is None:
            del fields[_TO_B64]
    elif isinstance(action, Act) and not action.scope and not action.secrets:
        del fields[_SCOPE:]
    return content_hash(msgspec.msgpack.encode([action.__struct_config__.tag, *fields]))


def subject(action: Action) -> str:
    """Return an action's subject: at most one request per session and subject is pending; a newer
    one supersedes it.

    Two different requests for one file share their subject, and so do two reviews of one pull
    request; for everything else the subject is the action itself. A move is about two paths: its
    subject names both, and `targets` splits it.
    """
    if isinstance(action, FileChange):
        path = _subject_of(action.path_b64 or action.path)
        return (
            path
            if action.to is None
            else MOVES
            + msgspec.json.encode((path, _subject_of(action.to_b64 or action.to))).decode()
        )
    if isinstance(action, Act):
        return act_subject(action)
    if isinstance(action, McpTools):
        return f"sandbox:mcp:{action.server}"
    if (
        isinstance(action, Exec) and action.scripts
    ):  # the same command with another script takes the older one's place
        action = msgspec.structs.replace(action, scripts=())
    return f"{category_of(action)}:{fingerprint(action)}"


def _subject_of(path: str) -> str:
    return f"filesystem:{path}"


def targets(subject: str) -> tuple[str, ...]:
    """Return the subjects that a newer request must not share with a waiting one: for a move, those
    of both its paths."""
    if not subject.startswith(MOVES):
        return (subject,)
    return msgspec.json.decode(subject.removeprefix(MOVES), type=tuple[str, str])


def title(action: Action) -> str:
    """Return the exact action in one line, for a person. Not escaped: the caller escapes it."""
    match action:
        case Exec():
            return action.command
        case McpCall() | McpTools():
            return _title_of_mcp(action)
        case FileChange(operation="swap"):
            return f"swap {action.path}: {_swapped(action)}"
        case FileChange():
            arrow = (
                f" -> {action.to or action.link_target}" if action.to or action.link_target else ""
            )
            mode = (
                f" {action.mode & 0o7777:o}"
                if action.operation == "chmod" and action.mode is not None
                else ""
            )
            return f"{action.operation}{mode} {action.path}{arrow}"
        case Network(operation="connect", port=0):
            return f"connect {action.host}"  # egress tells so of what names none
        case Network(operation="connect"):
            return f"connect {action.host}:{action.port}"
        case Network():
            default = {"http": 80, "https": 443}.get(action.scheme)
            port = "" if action.port == default else f":{action.port}"
            body = " (with a body)" if is_read_with_body(action) else ""
            return f"{action.method} {action.scheme}://{action.host}{port}{action.path}{body}"
        case Git():
            words = ["git", action.operation, *action.flags, action.remote or "", *action.refspecs]
            notes = [
                note
                for note, is_so in (("forces", action.force), ("deletes", action.delete))
                if is_so
            ]
            text = action.command or " ".join(word for word in words if word)
            return f"{text} ({', '.join(notes)})" if notes else text
        case Packages():
            return action.command or " ".join(
                [action.manager, action.operation, *action.flags, *action.names]
            )
        case Act():
            return act_title(action)
        case BudgetRaise():
            whose = SCOPE_WORDS[action.scope]
            return f"raise the budget of {whose} by {amount(action.kind, action.by)} to {
                amount(action.kind, action.limit + action.by)
            }"
    return f"{action.effect} {action.rule}"


def _title_of_mcp(action: McpCall | McpTools) -> str:
    if isinstance(action, McpCall):
        return f"mcp__{action.server}__{action.tool} {action.arguments}"
    names = [one.name for one in action.changes]
    more = [f"{len(names) - 8} more"] if len(names) > 8 else []
    listed = ", ".join([*names[:8], *more])
    return f"use the changed tools of the MCP server {action.server}: {listed}"


def _swapped(action: FileChange) -> str:
    """Describe what is removed and what appears in one swap."""
    gone = sum(step.operation == "delete" for step in action.steps)
    made = len(action.steps) - gone
    old = f"the folder with {_paths(gone)} in it" if action.before == "dir" else "the file"
    if action.before is not None and action.before.startswith("symlink:"):
        old = "the link"
    if action.link_target is not None:
        return f"{old} for a link -> {action.link_target}"
    return (
        f"{old} for a folder with {_paths(made)} in it"
        if action.after == "dir"
        else f"{old} for a file"
    )


def _paths(number: int) -> str:
    return f"{number} path{'' if number == 1 else 's'}"


def encode(action: Action) -> str:
    """Return the action as JSON, for records."""
    return msgspec.json.encode(action).decode()


def decode(text: str | bytes) -> Action:
    """Return the action that `encode` wrote. Raise `msgspec.ValidationError`, which names the
    field, for anything else."""
    return msgspec.json.decode(text, type=Action)  # type: ignore[no-any-return]
