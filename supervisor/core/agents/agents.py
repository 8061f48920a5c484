"""The table of agents that `gatehouse NAME` starts, and what each needs in its sandbox.

An agent gets a key's placeholder, its model's host, our MCP server and, if it supports one, a hook
that asks before each of its tools runs (agent_image/hooks).
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, get_args

from supervisor.core.agents import claude, codex, opencode
from supervisor.core.agents.inside import Inside
from supervisor.core.session_names import AGENT_TITLES
from supervisor.core.text.providers import AT_AWS, Provider
from supervisor.errors import UserError

AgentName = Literal["claude", "codex", "opencode"]
NAMES: tuple[AgentName, ...] = get_args(AgentName)


class ModelKey(NamedTuple):
    """A key for a model provider, which a person has in `variable`. In a sandbox `variables` hold
    its placeholder; egress puts the key into one of `headers`. With `signs` it is a pair of AWS's
    keys, and egress signs with it."""

    variable: str
    provider: Provider
    headers: tuple[str, ...]
    variables: tuple[str, ...]
    signs: bool = False

    @property
    def is_of_claude_code(self) -> bool:
        """Return whether no other program can use it."""
        return self.variable == "CLAUDE_CODE_OAUTH_TOKEN"


MODEL_KEYS = (
    ModelKey(
        "ANTHROPIC_API_KEY", "anthropic", ("x-api-key", "authorization"), ("ANTHROPIC_API_KEY",)
    ),
    ModelKey(
        "CLAUDE_CODE_OAUTH_TOKEN", "anthropic", ("authorization",), ("CLAUDE_CODE_OAUTH_TOKEN",)
    ),
    ModelKey("OPENAI_API_KEY", "openai", ("authorization",), ("OPENAI_API_KEY", "CODEX_API_KEY")),
    ModelKey("ANTHROPIC_AWS_API_KEY", "aws", ("x-api-key",), ("ANTHROPIC_AWS_API_KEY",)),
    ModelKey(
        "AWS_BEARER_TOKEN_BEDROCK", "bedrock", ("authorization",), ("AWS_BEARER_TOKEN_BEDROCK",)
    ),
    # No program of AWS's finds it by this name: these keys are for models alone.
    *(
        ModelKey(
            variable="GATEHOUSE_AWS_KEYS",
            provider=provider,
            headers=("authorization",),
            variables=(f"GATEHOUSE_AWS_KEYS_{provider.upper()}",),
            signs=True,
        )
        for provider in AT_AWS
    ),
)
# Pairs of AWS's keys, each part of which is a secret.
SIGNING_KEYS = frozenset(key.variable for key in MODEL_KEYS if key.signs)
# The calls of model clients, relative to the provider's address.
MODEL_CALLS: Mapping[Provider, tuple[str, ...]] = {
    "anthropic": ("POST {url}/v1/messages", "POST {url}/v1/messages/count_tokens"),
    "openai": ("POST {url}/responses", "POST {url}/chat/completions"),
    **dict.fromkeys(AT_AWS, ("POST {url}/v1/messages",)),
}


class Conversations(NamedTuple):
    """Where an agent writes its conversations, by path below the home, and the folders in there
    that are none. `environment` makes it write them there."""

    place: str
    forgotten: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


class AgentProgram(NamedTuple):
    """An agent. `title`: its name for people. `program` is looked up on the search path, then
    `installed`, a glob below the folder in which agent_image/cli is installed. `keys`: the
    variables of the keys that it can use, the best first. `login`: the file in the home that shows
    that somebody logged in with it; `advice`: how they get a key that lasts. `home`: the files that
    it reads from its home, by path below that. `arguments` come before the person's; `headless`
    comes before a prompt that it carries out without a person. `denied`: rules, with reasons, for
    hosts that it calls unasked and that none of its settings switches off. `left_out`: what the
    person has for it in their home and a session's agent hasn't, by path there."""

    title: str
    program: str
    installed: str
    keys: tuple[str, ...]
    login: str
    advice: str
    home: Callable[[Inside], dict[str, str]]
    environment: Mapping[str, str]
    headless: tuple[str, ...]
    conversations: Conversations
    arguments: tuple[str, ...] = ()
    denied: Mapping[str, str] = {}
    left_out: Mapping[str, str] = {}


AGENTS: Mapping[AgentName, AgentProgram] = {
    "claude": AgentProgram(
        title=AGENT_TITLES["claude"],
        program="claude",
        installed="node_modules/@anthropic-ai/claude-code-linux-*/claude",
        keys=("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
        login=".claude/.credentials.json",
        advice="run `claude setup-token` and set CLAUDE_CODE_OAUTH_TOKEN to what it prints",
        home=claude.home,
        environment=claude.ENVIRONMENT,
        headless=("-p",),
        conversations=Conversations(*claude.CONVERSATIONS),
        arguments=claude.ARGUMENTS,
        left_out=claude.LEFT_OUT,
    ),
    "codex": AgentProgram(
        title=AGENT_TITLES["codex"],
        program="codex",
        installed="node_modules/@openai/codex-linux-*/vendor/*/bin/codex",
        keys=("OPENAI_API_KEY",),
        login=".codex/auth.json",
        advice="set OPENAI_API_KEY to a key of the platform's",
        home=codex.home,
        environment={},
        headless=("exec",),
        conversations=Conversations(codex.CONVERSATIONS),
        arguments=codex.ARGUMENTS,
        denied=codex.DENIED,
        left_out=codex.LEFT_OUT,
    ),
    "opencode": AgentProgram(
        title=AGENT_TITLES["opencode"],
        program="opencode",
        installed="node_modules/opencode-linux-*/bin/opencode",
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        login=".local/share/opencode/auth.json",
        advice="set ANTHROPIC_API_KEY or OPENAI_API_KEY",
        home=opencode.home,
        environment=opencode.ENVIRONMENT,
        headless=("run",),
        conversations=Conversations(opencode.CONVERSATIONS, (), opencode.KEEPING),
        left_out=opencode.LEFT_OUT,
    ),
}


def agent_named(name: str) -> AgentName:
    """Return the agent with that name. Raise `UserError` if there is none."""
    for known in NAMES:
        if known == name:
            return known
    raise UserError(f"there is no agent `{name}`", f"those known are {', '.join(NAMES)}")


def model_rules(providers: Mapping[Provider, str]) -> list[str]:
    """Return the rules by which a session reaches these providers, each at its URL."""
    return [
        f"network({call.format(url=url.rstrip('/'))})"
        for provider, url in providers.items()
        for call in MODEL_CALLS[provider]
    ]
