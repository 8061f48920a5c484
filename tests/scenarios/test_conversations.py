"""What an agent was told in one session it knows in a later one on the same workspace, and nothing
else of its home comes back: the real programs, against local models."""

import json
from collections.abc import Callable
from pathlib import Path

from supervisor.sessions import conversations
from tests.fakes.supervised import StartSupervisor
from tests.scenarios.test_named_agents import (  # noqa: F401 (fixtures)
    CODEX_MODEL,
    CONTAINED,
    Named,
    installed,
    named,
    supervising,
    with_claude,
)

WORD = "heron-at-dusk"
# What a later session must not find: settings, hooks, memory, a link in the conversations' folder.
PLANT = (
    "cd; mkdir -p .claude/projects/-workspace-merged/memory .claude/commands .codex/prompts;"
    " for one in .claude/projects/-workspace-merged/memory/MEMORY.md .claude/CLAUDE.md"
    " .claude/settings.local.json .claude/commands/x.md .codex/AGENTS.md"
    " .config/opencode/AGENTS.md; do mkdir -p $(dirname $one); echo PLANTED > $one; done;"
    " for one in .claude/projects/-workspace-merged .codex/sessions .data/opencode; do"
    " ln -s /etc $one/out; ln -s /workspace/lower $one/loop; mkdir $one/shut; chmod 0 $one/shut;"
    " done; echo plan''ted"
)
BEGINS: dict[str, tuple[str, ...]] = {
    "claude": ("claude", "-p", f"The word is {WORD}."),
    "codex": ("codex", "exec", "-m", CODEX_MODEL, f"The word is {WORD}."),
    "opencode": ("opencode", "run", "--model", "anthropic/claude-sonnet-4-5", f"It is {WORD}."),
}
CONTINUES: dict[str, tuple[str, ...]] = {
    "claude": ("claude", "-p", "--continue", "What is it?"),
    "codex": ("codex", "exec", "-m", CODEX_MODEL, "resume", "--last", "What is it?"),
    "opencode": ("opencode", "run", "--continue", "What is it?"),
}


def sent(agent: Named) -> str:
    """All that the model was sent."""
    return json.dumps([getattr(one, "body", one) for one in agent.server.requests])


async def told(
    start: StartSupervisor, workspace: Path, agent: Named, words: tuple[str, ...]
) -> str:
    """Run a session of the agent with these words; what its model was sent."""
    with agent.server:
        async with supervising(start, agent, CONTAINED) as running:
            session = await running.start(
                workspace, *words, agent=agent.name, search_path=agent.search_path
            )
            await running.ended(session)
            assert running.parts.sessions.get(session.id).exit_code == 0, running.story()
    return sent(agent)


async def test_a_conversation_goes_on_in_a_later_session_and_nothing_else_does(
    start_supervisor: StartSupervisor,
    workspace: Path,
    named: Callable[..., Named],  # noqa: F811
) -> None:
    first = named(PLANT)
    assert WORD in await told(start_supervisor, workspace, first, BEGINS[first.name])
    assert "planted" in first.results()[0]
    again = named("true")
    assert WORD in await told(start_supervisor, workspace, again, CONTINUES[again.name])
    other = named()
    fresh = (*BEGINS[other.name][:-1], "Hello.")
    heard = await told(start_supervisor, workspace, other, fresh)
    assert WORD not in heard
    assert "PLANTED" not in heard


async def test_a_conversation_of_claude_code_is_resumed_by_its_id(
    start_supervisor: StartSupervisor,
    workspace: Path,
    tmp_path: Path,
    with_claude: str,  # noqa: F811
) -> None:
    begin = Named("claude", with_claude, "echo o''nce")
    with begin.server:
        async with supervising(start_supervisor, begin, CONTAINED) as running:
            words = (*BEGINS["claude"], "--output-format", "json")
            session = await running.start(
                workspace, *words, agent="claude", search_path=with_claude
            )
            output = running.output(await running.ended(session))
    found = json.loads(output[output.index("{") : output.rindex("}") + 1])["session_id"]
    words = ("claude", "-p", "--resume", found, "What is it?")
    assert WORD in await told(start_supervisor, workspace, Named("claude", with_claude), words)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    agent = Named("claude", with_claude)
    with agent.server:
        async with supervising(start_supervisor, agent, CONTAINED) as running:
            session = await running.start(
                elsewhere, *words, agent="claude", search_path=with_claude
            )
            assert "No conversation found" in running.output(await running.ended(session))
            settings = running.parts.settings
            assert await conversations.forget(settings, "codex") == 0
            assert await conversations.forget(settings, "claude") == 2
            assert not list((settings.data_dir / "conversations").glob("*/claude"))
