"""What an agent's settings are made from: the addresses and places of its sandbox."""

from typing import NamedTuple


class Inside(NamedTuple):
    """`door`: the URL of the agent's door; its token is in GATEHOUSE_TOKEN. `workspace`: the
    private copy. `hook`: the command that asks before a tool runs, for a shell. `plugin`: the text
    of OpenCode's hook. `placeholders`: by variable, what stands for the keys. `urls`: providers'
    other addresses, by provider."""

    door: str
    workspace: str
    hook: str
    plugin: str
    placeholders: dict[str, str]
    urls: dict[str, str]
