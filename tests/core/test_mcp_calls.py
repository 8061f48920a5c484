"""Calls of MCP servers: one spelling of arguments, and what a list of tools may hold."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import McpCall
from supervisor.core.mcp_calls import (
    MOST_LIST_CHARS,
    MOST_TOOL_CHARS,
    MOST_TOOLS,
    ListedTool,
    ToolList,
    arguments_of,
    call_written,
    changes,
    spelled,
    tool_list,
)
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.display import first_hidden

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(), one, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _JSON, max_size=4))
def test_one_spelling_shows_all_and_says_the_same(value: dict[str, Any]) -> None:
    try:
        text = spelled(value)
    except ValueError:
        assert "\\ud" in json.dumps(value).lower()  # half of a pair, which no text may hold
        return
    assert first_hidden(text) is None
    assert json.loads(text) == value
    assert spelled(json.loads(text)) == text
    assert arguments_of(McpCall(server="s", tool="t", arguments=text)) == value


def test_keys_are_sorted_and_hidden_characters_are_escaped() -> None:
    assert spelled({"b": 1, "a": "\u202e\U000e0041é\x7f"}) == (
        '{"a":"\\u202e\\udb40\\udc41é\\u007f","b":1}'
    )


def test_what_is_no_json_has_no_spelling() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for value in ({"a": "\ud800"}, {"a": object()}, deep):
        with pytest.raises(ValueError, match="can't be written"):
            spelled(value)


def test_a_call_is_read_from_the_text_of_an_example() -> None:
    assert call_written('mcp__notes__add {"a":1}') == McpCall(
        server="notes", tool="add", arguments='{"a":1}'
    )
    for text in ("mcp__notes__add", "mcp__Notes__add {}", "mcp__notes__a.b {}", "add {}"):
        assert call_written(text) is None


def _tool(name: str, description: str = "", schema: bytes = b"{}") -> ListedTool:
    return ListedTool(name=name, description=description, schema=msgspec.Raw(schema))


def _as_is(value: Any) -> Any:
    return value


def test_odd_tools_are_left_out_and_the_rest_is_sorted() -> None:
    found = tool_list(
        [
            _tool("b", "second", b'{"z": 1, "a": 2}'),
            _tool("a"),
            _tool("a", "again"),
            _tool("a-long-secret"),
            _tool("said", "the long-secret", b'{"b": "long-secret"}'),
            _tool("x.y"),
            _tool("\x1b[2J"),
            _tool("long", "d" * (MOST_TOOL_CHARS + 1)),
            _tool("no-schema", "", b"[1]"),
        ],
        Redactor(["long-secret"]).data,
        more=2,
    )
    assert [one.name for one in found.tools] == ["a", "b", "said"]
    assert found.tools[1].schema == '{"a":2,"z":1}'
    assert "long-secret" not in repr(found)
    assert found.tools[2].schema == '{"b":"[redacted]"}'
    assert len(found.left_out) == 7
    assert first_hidden("".join(found.left_out)) is None
    assert "\x1b" not in "".join(found.left_out)
    assert "2 more" in found.left_out[-1]


def test_a_list_has_a_bound_of_tools_and_of_text() -> None:
    many = tool_list([_tool(f"t{number}") for number in range(MOST_TOOLS + 5)], _as_is)
    assert (len(many.tools), many.left_out) == (MOST_TOOLS, ("5 more tools than can be read",))
    long = tool_list([_tool(f"t{number}", "d" * MOST_TOOL_CHARS) for number in range(100)], _as_is)
    assert sum(len(one.description) for one in long.tools) <= MOST_LIST_CHARS
    assert long.left_out


def test_changes_name_what_is_new_gone_and_described_otherwise() -> None:
    before = tool_list([_tool("same"), _tool("gone"), _tool("other", "kind")], _as_is)
    after = tool_list([_tool("same"), _tool("new"), _tool("other", "hostile")], _as_is)
    assert before.digest != after.digest
    found = {one.name: (one.before, one.after) for one in changes(before, after)}
    assert found.keys() == {"gone", "new", "other"}
    assert found["gone"][1] == found["new"][0] == ""
    assert "kind" in found["other"][0]
    assert "hostile" in found["other"][1]
    assert not changes(after, after)
    assert ToolList().digest == ToolList().digest
