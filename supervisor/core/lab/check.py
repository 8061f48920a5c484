"""`gatehouse policy check`: one JSON line in, one answer out.

Decides what action a line describes, and answers with its verdict. Pure: the command line tool
reads and writes. It must never skip a line or let an error through: a line that isn't understood is
answered `deny`, with the reason.
"""

import difflib
import posixpath
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, cast, get_args

import msgspec

from supervisor.core.actions import (
    RULE_CATEGORIES,
    WORKSPACE,
    Action,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    PathOperation,
)
from supervisor.core.forge_acts import Act
from supervisor.core.mcp_calls import call_written
from supervisor.core.packages import package_commands
from supervisor.core.policy import git_refs
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.text.paths import canonical
from supervisor.core.text.urls import split_authority, split_url
from supervisor.core.verdicts import combine
from supervisor.errors import PolicyError

# Gatehouse's default listeners: a check knows no running supervisor.
OWN_LISTENERS = frozenset(
    (host, port) for host in ("127.0.0.1", "::1") for port in (3128, 3700, 3701, 3702)
)
_COMMON = frozenset({"id", "category", "policy", "workspace"})
_KEYS: dict[str, frozenset[str]] = {
    "exec": frozenset({"command", "cwd", "timeout_s"}),
    "filesystem": frozenset(
        {"operation", "path", "path_b64", "to", "to_b64", "mode", "link_target", "hazards"}
    ),
    "network": frozenset(
        {"method", "url", "has_body", "connect", "sni", "host_header", "resolved"}
    ),
    "git": frozenset(
        {
            "command",
            "cwd",
            "operation",
            "remote",
            "ref",
            "refspecs",
            "force",
            "delete",
            "flags",
            "remotes",
        }
    ),
    "packages": frozenset({"command", "cwd", "manager", "operation", "names", "flags"}),
    "review": frozenset(
        {"operation", "forge", "repository", "number", "verdict", "severity", "confidence"}
        | {"fork", "links", "title", "body"}
    ),
}
_MISSING: Any = object()


def keys_of(category: str) -> frozenset[str]:
    """Return every key that a line of the category may have."""
    return _COMMON | _KEYS[category]


class OnDisk(NamedTuple):
    """A path as it is on the disk: why it leaves the workspace through a link, its name without
    links if that differs, and whether it is itself a link."""

    why: str | None = None
    path: str | None = None
    is_link: bool = False


# Looks at the disk for the caller: workspace, canonical path.
type LookUp = Callable[[str, str], OnDisk]


class _Misunderstood(ValueError):  # noqa: N818 (never seen outside)
    """Raised if the rules can't answer a line; the text says why."""


def answer_line(
    line: bytes,
    policy: Policy | None,
    workspace: str | None,
    now: float,
    *,
    look: LookUp | None = None,
) -> dict[str, Any]:
    """Answer one line: `id` as given, `verdict`, `rule` (None if none decided), `why`; and `mode`
    if a command is allowed because it is contained. Never raises.

    `policy` and `workspace` are the tool's; a line's own take precedence. `look` may look at the
    disk.
    """
    fields: Any = None
    try:
        fields = msgspec.json.decode(line)
        if not isinstance(fields, dict):
            raise _Misunderstood("the line is not a JSON object")
        verdict = _verdict(fields, policy, workspace, now, look)
    except msgspec.DecodeError as error:
        verdict = Verdict("deny", f"the line is not JSON: {error}")
    except RecursionError:
        verdict = Verdict("deny", "the line is nested too deeply")
    except (_Misunderstood, PolicyError, ValueError) as error:
        verdict = Verdict("deny", str(error))
    except Exception as error:  # law 3
        verdict = Verdict("deny", f"the line could not be judged: {type(error).__name__}")
    given = fields.get("id") if isinstance(fields, dict) else None
    answer = {"id": given, "verdict": verdict.decision, "rule": verdict.rule, "why": verdict.why}
    return answer | ({"mode": "contained"} if verdict.is_contained else {})


def answer(
    line: bytes,
    policy: Policy | None,
    workspace: str | None,
    now: float,
    *,
    look: LookUp | None = None,
) -> bytes:
    """Return `answer_line` as one line of JSON, without its line break."""
    return msgspec.json.encode(answer_line(line, policy, workspace, now, look=look))


def _verdict(
    fields: dict[str, Any],
    policy: Policy | None,
    workspace: str | None,
    now: float,
    look: LookUp | None,
) -> Verdict:
    root, remotes = surroundings(fields, workspace)
    own = fields.get("policy")
    in_force = policy if own is None else _own_policy(msgspec.json.encode(own))
    action = action_of(fields)
    if in_force is None:
        return Verdict("deny", "no policy: neither `--policy` nor the line's own")
    judge = partial(
        evaluate,
        in_force,
        now=now,
        workspace=root,
        forbidden_endpoints=OWN_LISTENERS,
        configured_remotes=remotes,
        uses={},
        # Outside a session: as if commands were contained.
        is_contained=True,
        with_parts=True,
    )
    verdict = judge(action)
    if look is not None and isinstance(action, FileChange) and verdict.decision != "deny":
        return _with_links(action, verdict, judge, partial(look, root))
    if look is not None and isinstance(action, Exec) and verdict.decision == "allow":
        why = next(
            (
                why
                for folder in _folders(action, root)
                if (why := look(root, folder).why) is not None
            ),
            None,
        )
        return (
            Verdict("ask", f"{why}: no rule allows a command there", sticky=True)
            if why is not None
            else verdict
        )
    return verdict


def surroundings(
    fields: Mapping[str, Any], workspace: str | None
) -> tuple[str, frozenset[str] | None]:
    """Return the workspace and the git remotes that a line is about. Raise `ValueError` (a complete
    reason) if the line gives them wrongly."""
    root = _get(fields, "workspace", str, None) or workspace or WORKSPACE
    return root, frozenset(_list(fields, "remotes")) if "remotes" in fields else None


def _folders(action: Exec, root: str) -> set[str]:
    """Return the folders, relative to the workspace, in which an allowed command line may run."""
    from supervisor.core.shell.shell import parse

    root = posixpath.normpath(root)
    sure = {posixpath.normpath(posixpath.join(root, action.cwd))}
    maybe = set(sure)
    # INVARIANT: these are few, or the judge would not have allowed the line.
    for command in parse(action.command).commands:
        sure = sure if command.is_joined else set(maybe)
        if command.words[0].text == "cd":
            sure = {
                posixpath.normpath(posixpath.join(place, command.words[-1].text)) for place in sure
            }
            maybe |= sure
    return {place.removeprefix(f"{root}/") for place in maybe if place != root}


def _with_links(
    action: FileChange,
    verdict: Verdict,
    judge: Callable[[Action], Verdict],
    look: Callable[[str], OnDisk],
) -> Verdict:
    """Return the verdict once links are known, never looser: a path is also judged by its name
    without links."""
    path, to = look(canonical(action.path, action.path_b64).text), OnDisk()
    if action.to is not None:
        to = look(canonical(action.to, action.to_b64).text)
    why = path.why or to.why
    if why is not None:
        return Verdict("deny", why)
    if not (path.path or to.path or path.is_link or to.is_link):
        return verdict
    meant = msgspec.structs.replace(
        action,
        path=path.path or action.path,
        path_b64=None if path.path else action.path_b64,
        to=to.path or action.to,
        to_b64=None if to.path else action.to_b64,
        hazards=(*action.hazards, "symlink") if path.is_link or to.is_link else action.hazards,
    )
    return combine([verdict, judge(meant)])


@lru_cache(maxsize=256)
def _own_policy(encoded: bytes) -> Policy:
    """Parse a line's own policy. The result is cached, since most lines of a file share a few."""
    return policy_from_data(msgspec.json.decode(encoded), "policy")


def action_of(fields: Mapping[str, Any]) -> Action:
    """Return the action that a line describes. Raise `ValueError` (a complete reason) if it
    describes none."""
    category = fields.get("category", _MISSING)
    if category not in RULE_CATEGORIES or not isinstance(category, str):
        raise _Misunderstood(
            f"unknown category `{category}`"
            if category is not _MISSING
            else "the line has no `category`"
        )
    for key in fields:
        if key not in _COMMON and key not in _KEYS[category]:
            near = difflib.get_close_matches(key, [*_KEYS[category], *_COMMON], 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise _Misunderstood(f"unknown key `{key}` for {category}{hint}")
    return _ACTIONS[category](fields)


def _exec(fields: Mapping[str, Any]) -> Action:
    command = _get(fields, "command", str)
    return call_written(command) or Exec(command=command, cwd=_get(fields, "cwd", str, "."))


def _filesystem(fields: Mapping[str, Any]) -> Action:
    operation = _get(fields, "operation", str)
    if operation not in get_args(PathOperation):
        raise _Misunderstood(
            f"unknown operation `{operation}`; known are {', '.join(get_args(PathOperation))}"
        )
    mode = _mode(fields.get("mode"))
    hazards = tuple(_list(fields, "hazards"))
    if operation in ("write", "edit") and mode is not None and mode & 0o111:
        # The line doesn't say whether the file was executable before.
        hazards = (*hazards, "new-executable")
    encoded = _get(fields, "path_b64", str, None)
    to_encoded = _get(fields, "to_b64", str, None)
    to = _get(fields, "to", str, "" if to_encoded is not None else None)
    return FileChange(
        operation=cast("PathOperation", operation),
        path=_get(fields, "path", str, "" if encoded is not None else _MISSING),
        path_b64=encoded,
        to=None if operation == "symlink" else to,
        mode=mode,
        link_target=_get(fields, "link_target", str, to if operation == "symlink" else None),
        hazards=hazards,
        to_b64=to_encoded,
    )


def _mode(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    try:
        return int(str(value), 8)
    except ValueError:
        raise _Misunderstood(f"`mode` is `{value}`, neither a number nor octal digits") from None


def _network(fields: Mapping[str, Any]) -> Action:
    seen: dict[str, Any] = {
        "sni": _get(fields, "sni", str, None),
        "host_header": _get(fields, "host_header", str, None),
        "resolved": tuple(_list(fields, "resolved")),
    }
    if ("connect" in fields) == ("url" in fields):
        raise _Misunderstood("a network line has either `url` or `connect`")
    if "connect" in fields:
        target = _get(fields, "connect", str)
        try:
            host, port = split_authority(target)
        except ValueError as error:
            raise _Misunderstood(f"`connect` {error}") from None
        if port is None:
            raise _Misunderstood("`connect` names no port")
        return Network(operation="connect", host=host, port=port, **seen)
    try:
        url = split_url(_get(fields, "url", str))
    except ValueError as error:
        raise _Misunderstood(f"`url` {error}") from None
    scheme = cast("Literal['http', 'https']", url.scheme)
    method = _get(fields, "method", str)
    return Network(
        operation="request",
        host=url.host,
        port=url.port,
        scheme=scheme,
        method=method,
        path=url.path,
        has_body=_get(fields, "has_body", bool, False),
        **seen,
    )


def _git(fields: Mapping[str, Any]) -> Action:
    cwd = _get(fields, "cwd", str, ".")
    if "command" in fields:
        _only_command(
            fields, ("operation", "remote", "ref", "refspecs", "force", "delete", "flags")
        )
        return git_refs.parse_command(_get(fields, "command", str), cwd)
    refspecs = _list(fields, "refspecs")
    if "ref" in fields and fields["ref"] is not None:
        refspecs = [_get(fields, "ref", str), *refspecs]
    return Git(
        operation=_get(fields, "operation", str),
        remote=_get(fields, "remote", str, None),
        refspecs=tuple(refspecs),
        force=_get(fields, "force", bool, False),
        delete=_get(fields, "delete", bool, False),
        flags=tuple(_list(fields, "flags")),
        cwd=cwd,
    )


def _packages(fields: Mapping[str, Any]) -> Action:
    cwd = _get(fields, "cwd", str, ".")
    if "command" in fields:
        _only_command(fields, ("manager", "operation", "names", "flags"))
        return package_commands.parse_command(_get(fields, "command", str), cwd)
    return Packages(
        manager=_get(fields, "manager", str),
        operation=_get(fields, "operation", str),
        names=tuple(_list(fields, "names")),
        flags=tuple(_list(fields, "flags")),
        cwd=cwd,
    )


def _review(fields: Mapping[str, Any]) -> Action:
    given = {key: fields[key] for key in _KEYS["review"] if fields.get(key) is not None}
    try:
        return msgspec.convert({"forge": "github", "category": "review", **given}, Act)
    except msgspec.ValidationError as error:
        raise _Misunderstood(f"the line is no act: {error}") from error


def _only_command(fields: Mapping[str, Any], others: tuple[str, ...]) -> None:
    both = [key for key in others if key in fields]
    if both:
        raise _Misunderstood(f"a line has either `command` or `{both[0]}`")


_ACTIONS: dict[str, Callable[[Mapping[str, Any]], Action]] = {
    "exec": _exec,
    "filesystem": _filesystem,
    "network": _network,
    "git": _git,
    "packages": _packages,
    "review": _review,
}


def _get(fields: Mapping[str, Any], key: str, kind: type, default: Any = _MISSING) -> Any:
    """Return a field, which must have this type; `null` counts as not given."""
    value = fields.get(key)
    if value is None:
        if default is _MISSING:
            raise _Misunderstood(f"the line has no `{key}`")
        return default
    if not isinstance(value, kind):
        raise _Misunderstood(f"`{key}` is not {'text' if kind is str else 'true or false'}")
    return value


def _list(fields: Mapping[str, Any], key: str) -> list[str]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _Misunderstood(f"`{key}` is not a list of texts")
    return value
