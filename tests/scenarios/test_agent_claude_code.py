"""The real Claude Code CLI as the agent: in the sandbox, through egress, against a local server
that speaks the Messages API.

It edits a file and runs a command in its private copy; the edit reaches the host by the rules
only. The key that the server sees is the real one; nothing in the sandbox holds it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.approvals import status
from supervisor.core.policy.policy_text import parse_policy
from supervisor.core.sessions import Session
from supervisor.settings import ROOT
from tests.fakes.claude_code import FINAL_WORDS, claude_binary, claude_command, claude_script
from tests.fakes.messages_server import MessagesServer
from tests.fakes.supervised import StartSupervisor, Supervised

BINARY = claude_binary()
KEY = "sk-ant-test-4f1d2c7be0a94c3b8e55d0"
MODEL_HOST = "model.test"
NEW_TEXT = "def add(a, b):\n    return a + b  # checked\n"
# What the CLI's shell tool runs: shows all that could hold the key, and looks for it wherever a
# process may look. The key is in two pieces, so that the command's own text, which the CLI keeps,
# is no find.
COMMAND = (
    "echo ran > ran.txt; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n';"
    " grep -rlsa '4f1d2c''7be0a94c' /workspace /home /tmp /etc /run /var /opt /dev/shm 2>/dev/null"
    " | sed 's/^/FO''UND IN /'; echo EN''D"
)
UNTIL_ON_HOST = (
    "timeout 20 sh -c 'until grep -q checked /workspace/lower/src/app.py; do sleep 0.02; done' &&"
    " echo ON THE HO''ST; "
)

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="claude-agent-sdk has no CLI for this platform"),
]


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Iterator[MessagesServer]:
    """The parameter, if any, is run before `COMMAND`."""
    command = getattr(request, "param", "") + COMMAND
    script = claude_script("/workspace/merged/src/app.py", NEW_TEXT, command)
    with MessagesServer(script, follow="conversation", api_key=KEY) as server:
        yield server


def policy(model: MessagesServer, rules: str) -> str:
    return f"""
version: 1
modes: {{network: deny}}
allow:
  - network(POST http://{MODEL_HOST}:{model.port}/v1/messages)
  - network(127.0.0.1:{model.port})
{rules}
"""


def claude(start_supervisor: StartSupervisor, model: MessagesServer, rules: str):  # type: ignore[no-untyped-def]
    return start_supervisor(
        policy(model, rules),
        names={MODEL_HOST: ("127.0.0.1",)},
        anthropic_api_key=KEY,
        anthropic_base_url=f"http://{MODEL_HOST}:{model.port}",
    )


async def start(running: Supervised, workspace: Path) -> Session:
    return await running.start(workspace, *claude_command(str(BINARY)))


def check_the_work(running: Supervised, model: MessagesServer, session: Session) -> str:
    """What holds in every run, whatever became of the edit; the output of the command."""
    output = running.output(session)
    assert session.exit_code == 0, running.story()
    assert json.loads(output[output.index("{") :])["result"] == FINAL_WORDS, output
    assert model.turns_left == 0
    results = [
        block
        for message in model.conversations[-1]["messages"]
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert not any(block.get("is_error") for block in results), results
    seen = {
        request.headers.get("x-api-key")
        for request in model.requests
        if request.path.startswith("/v1/messages")
    }
    assert seen == {KEY}, "egress put the real key in"
    return json.dumps(results[-1]["content"])


@pytest.mark.parametrize("model", [UNTIL_ON_HOST], indirect=True, ids=["waits for the host"])
async def test_an_allowed_edit_reaches_the_host_and_the_key_is_nowhere_inside(
    start_supervisor: StartSupervisor, model: MessagesServer, workspace: Path
) -> None:
    async with claude(
        start_supervisor, model, "  - filesystem(src/*)\ndeny:\n  - filesystem(ran.txt)"
    ) as running:
        session = await running.ended(await start(running, workspace))
        shown = check_the_work(running, model, session)
        assert (workspace / "src/app.py").read_text() == NEW_TEXT
        assert not (workspace / "ran.txt").exists(), "a deny rule speaks of it"
        assert "ANTHROPIC_API_KEY=gatehouse-placeholder-" in shown, (
            "the command saw the environment"
        )
        assert "ON THE HOST" in shown, (
            "the agent could see its edit on the host while it went on working"
        )
        assert "END" in shown
        assert "FOUND IN" not in shown
        assert KEY not in shown + running.output(session)
        verdicts = running.audit(
            "verdict_given", session=session.id, category="network", verdict="allow"
        )
        asked = [
            record for record in verdicts if record["action"]["path"].startswith("/v1/messages")
        ]
        assert len(asked) >= len(model.conversations)
        assert {record["rule"] for record in asked} >= {
            f"network(POST http://{MODEL_HOST}:{model.port}/v1/messages)"
        }
        everything = (running.parts.settings.data_dir / "audit.log").read_text()
        assert KEY not in everything
        for path in (running.parts.settings.sessions_dir / session.id).rglob("*"):
            assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


async def test_an_asked_edit_is_a_card_with_the_diff_and_reaches_the_host_when_approved(
    start_supervisor: StartSupervisor, model: MessagesServer, workspace: Path
) -> None:
    before = (workspace / "src/app.py").read_text()
    async with claude(start_supervisor, model, "deny:\n  - filesystem(ran.txt)") as running:
        session = await start(running, workspace)
        # It writes a file of its own beside it first, which may be seen before it takes the place.
        card = await running.asked(
            "filesystem", where=lambda one: one.subject == "filesystem:src/app.py"
        )
        channel = running.parts.workspace_of(session.id)
        assert channel is not None
        assert "# checked" in str(await channel.card(card)), "the card shows the new line"
        await running.agent_exited(session)
        assert (workspace / "src/app.py").read_text() == before, (
            "nothing is applied before the answer"
        )
        running.approve(card)
        assert (await running.done(card))["ok"]
        session = await running.ended(session)
        assert (workspace / "src/app.py").read_text() == NEW_TEXT
        check_the_work(running, model, session)


async def test_a_denied_edit_stays_away_from_the_host(
    start_supervisor: StartSupervisor, model: MessagesServer, workspace: Path
) -> None:
    before = (workspace / "src/app.py").read_text()
    async with claude(start_supervisor, model, "deny:\n  - filesystem(**)") as running:
        session = await running.ended(await start(running, workspace))
        check_the_work(running, model, session)
        assert (workspace / "src/app.py").read_text() == before
        assert not (workspace / "ran.txt").exists()
        denied = [request for request in running.requests(session) if status(request) == "denied"]
        assert {"src/app.py", "ran.txt"} <= {request.action.path for request in denied}  # type: ignore[union-attr]
        merged = running.parts.settings.sessions_dir / session.id / "merged"
        assert not merged.exists() or (merged / "src/app.py").read_text() == NEW_TEXT


# The session tells the CLI to keep to itself; here it may try what it likes.
TALKATIVE = ("--settings", json.dumps({"env": {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": ""}}))


async def test_it_runs_well_where_its_telemetry_is_denied(
    start_supervisor: StartSupervisor, model: MessagesServer, workspace: Path
) -> None:
    """By the rules that are shipped, and without a question."""
    default = parse_policy((ROOT / "policy/default.yaml").read_text(), "default")
    denied = [rule.text for rule in default.of("network", "deny")]
    rules = "  - filesystem(src/*)\ndeny:\n  - filesystem(ran.txt)\n" + "".join(
        f'  - "{text}"\n' for text in denied
    )
    opened = "  - network(POST https://api.anthropic.com/v1/messages)\n  - network(127.0.0.1:443)\n"
    text = policy(model, opened + rules)
    async with start_supervisor(
        text,
        names={MODEL_HOST: ("127.0.0.1",), "api.anthropic.com": ("127.0.0.1",)},
        anthropic_api_key=KEY,
        anthropic_base_url=f"http://{MODEL_HOST}:{model.port}",
    ) as running:
        session = await running.start(workspace, *claude_command(str(BINARY)), *TALKATIVE)
        session = await running.ended(session)
        check_the_work(running, model, session)
        assert (workspace / "src/app.py").read_text() == NEW_TEXT
        tried = running.audit(
            "verdict_given", session=session.id, category="network", verdict="deny"
        )
        print(
            "TRIED",
            [(r["action"], r["rule"]) for r in tried],
            [r.action for r in running.requests(session)],
        )
        assert {record["rule"] for record in tried} & set(denied)
        assert not [one for one in running.requests(session) if one.origin == "egress"], (
            "nobody was asked"
        )
