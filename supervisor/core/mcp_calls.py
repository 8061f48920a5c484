"""Calls and tool lists of operators' MCP servers: one spelling, and bounds. Pure.

A call's arguments are spelled once. That text is judged, shown on the card and sent (law 13). A
server's list of tools is a stranger's: tools with odd names, or more text than a person can read,
are left out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from supervisor.core.actions import McpCall, ToolChange, content_hash
from supervisor.core.text.display import is_hidden, visible

PREFIX = "mcp__"
# No `_` in a server's name: so no tool of one server has the name of another's.
SERVER_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,28}[a-z0-9])?")
# What the models' APIs take, with room for what clients put before it.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL = re.compile(rf"{PREFIX}({SERVER_NAME.pattern})__({_TOOL_NAME.pattern}) (\{{.*\}})")
MOST_ARGUMENT_CHARS = 32 * 1024
MOST_TOOLS = 1000
MOST_TOOL_CHARS = 16 * 1024
MOST_LIST_CHARS = 128 * 1024


class ServerTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server describes it. `schema` is that of its arguments, spelled as JSON."""

    name: str
    description: str
    schema: str


class ToolList(msgspec.Struct, frozen=True, kw_only=True):
    """The usable tools of a server, by name. `left_out`: why others aren't, in a few words each."""

    tools: tuple[ServerTool, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Return the hash by which a list is known again."""
        return content_hash(msgspec.json.encode(self.tools))


def spelled(value: Mapping[str, Any]) -> str:
    """Return the one spelling of a JSON object: sorted keys, no spaces, hidden characters escaped.
    Raise `ValueError` where it has none."""
    try:
        text = msgspec.json.encode(value, order="sorted").decode()
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"they can't be written as JSON ({type(error).__name__})") from None
    if text.isascii() and "\x7f" not in text:
        return text
    hidden = {one for one in text if one >= "\x7f" and (one == "\x7f" or is_hidden(one))}
    return text.translate({ord(one): _escaped(one) for one in hidden})


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def arguments_of(call: McpCall) -> dict[str, Any]:
    """Return what is sent: the arguments that were judged, and no others."""
    return msgspec.json.decode(call.arguments, type=dict[str, Any])


def call_written(text: str) -> McpCall | None:
    """Return the call that a text names: `mcp__SERVER__TOOL {...}`, as in examples of rules."""
    found = _CALL.fullmatch(text)
    return found and McpCall(server=found[1], tool=found[2], arguments=found[3])


class ListedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it comes from a server. Its schema isn't read before its length is known."""

    name: str
    description: str = ""
    schema: msgspec.Raw = msgspec.Raw(b"{}")


def tool_list(listed: Sequence[ListedTool], clean: Callable[[Any], Any], more: int = 0) -> ToolList:
    """Return the usable tools of what a server listed, which `clean` takes secrets out of. `more`:
    how many weren't even passed on."""
    found: dict[str, ServerTool] = {}
    left_out: list[str] = []
    chars = 0
    for one in listed[:MOST_TOOLS]:
        size = len(one.description) + len(one.schema)
        chars += size
        name = visible(clean(one.name)[:64], one_line=True)
        if not _TOOL_NAME.fullmatch(one.name) or one.name in found or one.name != name:
            left_out.append(f"`{name}` is no name of a tool, or stands there twice")
        elif size > MOST_TOOL_CHARS or chars > MOST_LIST_CHARS:
            left_out.append(f"`{name}`: its description and schema are too long")
        else:
            try:
                schema = spelled(clean(msgspec.json.decode(one.schema, type=dict[str, Any])))
            except (ValueError, msgspec.MsgspecError, RecursionError):
                left_out.append(f"`{name}`: the schema of its arguments can't be read")
            else:
                found[name] = ServerTool(
                    name=name, description=clean(one.description), schema=schema
                )
    if more := more + max(0, len(listed) - MOST_TOOLS):
        left_out.append(f"{more} more tools than can be read")
    return ToolList(tools=tuple(found[name] for name in sorted(found)), left_out=tuple(left_out))


def changes(before: ToolList, after: ToolList) -> tuple[ToolChange, ...]:
    """Return what a list says otherwise than the one before."""
    old, new = ({one.name: _text(one) for one in each.tools} for each in (before, after))
    return tuple(
        ToolChange(name=name, before=old.get(name, ""), after=new.get(name, ""))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def _text(tool: ServerTool) -> str:
    return f"{spelled({'description': tool.description})} {tool.schema}"
