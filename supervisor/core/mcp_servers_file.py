"""Parser of `mcp-servers.yaml`: the MCP servers that an operator lets agents use.

    version: 1
    servers:
      github:
        command: [/opt/github-mcp-server, stdio]   # runs in a sandbox of its own
        network: [api.github.com]                  # as in `network(...)` rules; nothing else
        credentials: [github]                      # names of credentials.yaml, no agent's then
      tracker:
        url: https://tracker.example.org/mcp       # reached by egress
        transport: http                            # or sse
        credentials: [tracker]
        shared: [tracker]                          # agents have this one, too

It decides what the file may say. `channels.mcp_servers` starts the servers.
"""

import re
from collections.abc import Iterable
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from supervisor.core.mcp_calls import SERVER_NAME
from supervisor.core.text import strict_yaml
from supervisor.core.text.duration import parse_duration
from supervisor.core.text.mistyped import nearest
from supervisor.core.text.urls import DEFAULT_PORTS
from supervisor.errors import PolicyError, UserError

# Our own, also that of Bitbucket's tools.
OURS = ("gatehouse", "bitbucket")
_ROOT_KEYS = ("version", "servers")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,80}")
MOST_TIMEOUT_S = 3600.0


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: a `command` (stdio), or a `url`. `env` are its variables, `folders` what of this
    machine it sees, read-only, besides the folder of its program. `shared` are those of its
    `credentials` that agents have, too."""

    command: tuple[str, ...] = ()
    url: str = ""
    transport: Literal["http", "sse"] = "http"
    env: dict[str, str] = {}
    folders: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    timeout: str = "60s"

    @property
    def timeout_s(self) -> float:
        """Return the most seconds of one call."""
        return min(parse_duration(self.timeout, "timeout"), MOST_TIMEOUT_S)

    @property
    def place(self) -> tuple[str, int] | None:
        """Return host and port of its URL."""
        parts = urlsplit(self.url)
        if not parts.hostname or parts.scheme not in DEFAULT_PORTS:
            return None
        return parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme]

    @property
    def rules(self) -> tuple[str, ...]:
        """Return what it may reach, as rules: what `network` names, and its own URL."""
        found = [f"network({one})" for one in self.network]
        if place := self.place:
            host = f"[{place[0]}]" if ":" in place[0] else place[0]
            found.append(f"network({host}:{place[1]})")
        return tuple(found)


def only_for_servers(servers: Iterable[McpServer]) -> frozenset[str]:
    """Return the credentials that agents don't have, since a server has them for itself."""
    return frozenset(name for one in servers for name in one.credentials if name not in one.shared)


def parse_mcp_servers(text: str, source: str) -> dict[str, McpServer]:
    """Parse the file's servers, by name. Raise `UserError` with file, line and a remedy."""
    root = strict_yaml.load(text, source)
    if not isinstance(root, strict_yaml.Fields) or root.get("version") != "1":
        raise _fault(source, root, "`version: 1` is missing", "write it as the first line")
    for key in root:
        if key not in _ROOT_KEYS:
            raise _fault(source, root, f"unknown key `{key}`", nearest(str(key), _ROOT_KEYS))
    servers = root.get("servers")
    if not isinstance(servers, strict_yaml.Fields):
        why = "`servers` is not a mapping of names"
        raise _fault(source, root, why, "write `servers:` and a name below it")
    return {str(name): _server(source, str(name), one) for name, one in servers.items()}


def _server(source: str, name: str, fields: Any) -> McpServer:
    if not SERVER_NAME.fullmatch(name) or name in OURS:
        why = f"`{name}` is no name of an MCP server"
        remedy = f"write lower-case letters, digits and -; not {' or '.join(OURS)}"
        raise _fault(source, fields, why, remedy)
    if not isinstance(fields, strict_yaml.Fields):
        raise _fault(source, fields, f"`{name}` is not a mapping", "write `command:` or `url:`")
    for key in fields:
        if key not in McpServer.__struct_fields__:
            remedy = nearest(str(key), McpServer.__struct_fields__)
            raise _fault(source, fields, f"unknown key `{key}` in `{name}`", remedy)
    try:
        server = msgspec.convert(_plain(fields), McpServer)
        _check(server)
    except msgspec.ValidationError as error:
        why = f"`{name}`: {str(error).partition(' - at ')[0]}"
        raise _fault(source, fields, why, "see docs/mcp.md") from None
    except UserError as error:
        raise _fault(source, fields, f"`{name}`: {error.message}", error.remedy) from None
    return server


def _check(server: McpServer) -> None:
    if bool(server.command) == bool(server.url):
        raise UserError("it has not exactly one of `command` and `url`", "write one of them")
    try:
        parts = urlsplit(server.url)
        is_place = server.place is not None and parts.username is None
    except ValueError:
        is_place = False
    if server.url and not is_place:
        remedy = "write http or https, a host, and no user: a secret goes in `credentials`"
        raise UserError(f"`{server.url[:200]}` is no URL of a server", remedy)
    if server.command and not server.command[0].startswith("/"):
        raise UserError(f"`{server.command[0]}` is no absolute path", "write the program's own")
    for folder in server.folders:
        if not folder.startswith("/") or folder == "/":
            raise UserError(f"`{folder}` in `folders` is no absolute path", "write the whole path")
    if unknown := next((one for one in server.shared if one not in server.credentials), None):
        raise UserError(f"`{unknown}` in `shared` is none of `credentials`", "name it there, too")
    for variable in server.env:
        if not _VARIABLE.fullmatch(variable):
            raise UserError(f"`{variable}` in `env` is no variable", "write letters, digits and _")
    _ = server.timeout_s


def _plain(value: Any) -> Any:
    if isinstance(value, strict_yaml.Fields):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, strict_yaml.Items):
        return [_plain(one) for one in value]
    return value if value is None else str(value)


def _fault(source: str, value: Any, why: str, remedy: str) -> PolicyError:
    line = strict_yaml.line_of(value)
    return PolicyError(f"{source}:{line}: {why}" if line else f"{source}: {why}", remedy)
