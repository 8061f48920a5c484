"""What the file that names MCP servers may say."""

import pytest

from supervisor.core.mcp_servers_file import McpServer, only_for_servers, parse_mcp_servers
from supervisor.errors import PolicyError
from tests.tables import each_row

GOOD = """
version: 1
servers:
  github:
    command: [/opt/mcp/github, stdio]
    folders: [/opt/share]
    env: {LOG_LEVEL: warn}
    network: [api.github.com]
    credentials: [github]
  tracker:
    url: https://[2001:db8::1]/mcp
    transport: sse
    timeout: 2m
  local: {url: "http://127.0.0.1:8931/mcp"}
"""


def test_a_file_names_servers() -> None:
    found = parse_mcp_servers(GOOD, "f")
    assert found["github"].command == ("/opt/mcp/github", "stdio")
    assert found["github"].env == {"LOG_LEVEL": "warn"}
    assert found["github"].rules == ("network(api.github.com)",)
    assert found["github"].timeout_s == 60
    assert found["tracker"].rules == ("network([2001:db8::1]:443)",)
    assert found["tracker"].timeout_s == 120
    assert found["local"].rules == ("network(127.0.0.1:8931)",)


@each_row(
    ("text", "says"),
    [
        ("servers: {}", "`version: 1`"),
        ("- 1", "`version: 1`"),
        ("version: 1\nserver: {}", "did you mean `servers`"),
        ("version: 1\nservers: [a]", "mapping of names"),
        ("version: 1\nservers: {a_b: {url: 'https://h'}}", "no name"),
        ("version: 1\nservers: {gatehouse: {url: 'https://h'}}", "no name"),
        ("version: 1\nservers: {a: x}", "not a mapping"),
        ("version: 1\nservers: {a: {comand: [/x]}}", "did you mean `command`"),
        ("version: 1\nservers: {a: {command: /x}}", "`a`: Expected `array`"),
        ("version: 1\nservers: {a: {url: 'https://h', transport: ws}}", "`a`: Invalid enum"),
        ("version: 1\nservers: {a: {env: {A: b}}}", "exactly one of"),
        ("version: 1\nservers: {a: {url: 'https://h', command: [/x]}}", "exactly one of"),
        ("version: 1\nservers: {a: {url: 'ftp://h'}}", "no URL"),
        ("version: 1\nservers: {a: {url: 'https://u:p@h'}}", "no URL"),
        ("version: 1\nservers: {a: {url: 'https://[h'}}", "no URL"),
        ("version: 1\nservers: {a: {command: [x]}}", "no absolute path"),
        ("version: 1\nservers: {a: {command: [/x], folders: [y]}}", "no absolute path"),
        ("version: 1\nservers: {a: {command: [/x], env: {a-b: c}}}", "no variable"),
        ("version: 1\nservers: {a: {command: [/x], timeout: soon}}", "timeout"),
        ("version: 1\nservers: {a: {command: [/x], shared: [b]}}", "none of `credentials`"),
    ],
)
def test_a_fault_is_named_with_what_to_do(text: str, says: str) -> None:
    with pytest.raises(PolicyError) as told:
        parse_mcp_servers(text, "f")
    assert says in f"{told.value.message} {told.value.remedy}"
    assert told.value.message.startswith("f")
    assert told.value.remedy


def test_a_credential_is_no_agents_where_one_server_has_it_for_itself() -> None:
    servers = [
        McpServer(credentials=("a", "b", "c"), shared=("b", "c")),
        McpServer(credentials=("c", "d")),
    ]
    assert only_for_servers(servers) == {"a", "c", "d"}
