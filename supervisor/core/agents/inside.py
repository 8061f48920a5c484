"""Inputs for an agent's settings: the addresses and places of its sandbox."""

from typing import NamedTuple

# Where an agent finds its door.
AGENT_PORT = 3701
DOOR = f"http://127.0.0.1:{AGENT_PORT}"
# Our own MCP server there.
SERVER_URL = f"{DOOR}/mcp"
# Where any program of a session finds a door of its own, without a token: for git and package
# managers.
PROGRAMS_PORT = 3702
# What package managers that run beside ours take for their index: it says how to ask.
INDEX_PATH = "/ask-gatehouse-by-the-plain-command"
INDEX = f"http://127.0.0.1:{PROGRAMS_PORT}{INDEX_PATH}"
# Ports of a sandbox that no server of this machine has: name server, proxy, and the doors.
SANDBOX_PORTS = frozenset({53, 3128, 3129, AGENT_PORT, PROGRAMS_PORT})
LOWEST_HOST_PORT = 1024


def can_listen_at(port: int) -> bool:
    """Return whether a sandbox can have a server of this machine at its port."""
    return port >= LOWEST_HOST_PORT and port not in SANDBOX_PORTS


class Inside(NamedTuple):
    """Places in a sandbox. `workspace`: the private copy. `hook`: the command that asks before a
    tool runs, for a shell. `plugin`: the text of OpenCode's hook. `placeholders`: the keys'
    placeholders, by variable. `urls`: providers' other addresses, by provider. `page`: the address
    of the operator's page. The door's token is in GATEHOUSE_TOKEN."""

    workspace: str
    hook: str
    plugin: str
    placeholders: dict[str, str]
    urls: dict[str, str]
    page: str = ""

    @property
    def asking(self) -> str:
        """Return what the agent's screen says while the hook runs."""
        return f"asking Gatehouse; answer at {self.page} or by `gatehouse approve`"
