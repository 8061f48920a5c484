"""A review by each provider's API, its key or its signature put in by egress, and by the second one
where the first is away."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.sessions import Session
from supervisor.errors import UserError
from tests.fakes.aws_origin import AwsOrigin
from tests.fakes.messages_server import Failure, MessagesServer, Step, calls, text, tool_use
from tests.fakes.supervised import StartSupervisor, Supervised
from tests.tables import share

MODEL_HOST = "model.test"
KEY = "key-of-the-provider-7d1e90ab44"
ACCESS, SECRET, TOKEN = "AKIDOFTESTS1234567890", "secret0of0tests0abcdef", "token0of0tests0xyz"
REVIEW = {"summary": "it is fine", "verdict": "approve", "findings": []}
DONE = text(f"Done.\n<review>\n{json.dumps(REVIEW)}\n</review>")
# Of each way: the model, and its settings; {url} is the local server's address.
WAYS: Mapping[str, tuple[str, dict[str, str]]] = {
    "a key of Claude at AWS": (
        "aws:claude-sonnet-5-5",
        {
            "anthropic_aws_api_key": KEY,
            "anthropic_aws_base_url": "{url}",
            "anthropic_aws_workspace": "wrkspc_1",
        },
    ),
    "keys of AWS, at AWS": (
        "aws:claude-sonnet-5-5",
        {"aws_keys": f"{ACCESS}:{SECRET}:{TOKEN}", "anthropic_aws_base_url": "{url}"},
    ),
    "a key of Bedrock's": (
        "bedrock:anthropic.claude-sonnet-5-5",
        {"bedrock_api_key": KEY, "bedrock_base_url": "{url}/anthropic"},
    ),
    "keys of AWS, at Bedrock": (
        "bedrock:anthropic.claude-sonnet-5-5",
        {"aws_keys": f"{ACCESS}:{SECRET}:{TOKEN}", "bedrock_base_url": "{url}/anthropic"},
    ),
    "OpenAI's words": (
        "openai:gpt-5.5",
        {"openai_api_key": KEY, "openai_base_url": "{url}/v1"},
    ),
}


def script() -> list[Step]:
    return [
        calls(tool_use("git_diff", {}), tool_use("list_files", {}), words="I read."),
        calls(tool_use("read_file", {"path": "no/such/file"})),
        DONE,
    ]


async def reviewed(running: Supervised, workspace: Path, **wanted: Any) -> tuple[Session, str]:
    session = await running.ended(await running.start(workspace, kind="review", **wanted))
    return session, running.output(session)


def policy(*ports: int) -> str:
    rules = "".join(f"\n  - network(127.0.0.1:{port})" for port in ports)
    return f"version: 1\nmodes: {{network: deny}}\nallow:{rules}\n"


def settings(given: Mapping[str, str], port: int) -> dict[str, Any]:
    url = f"http://{MODEL_HOST}:{port}"
    return {name: value.replace("{url}", url) for name, value in given.items()}


@pytest.mark.parametrize("way", share(WAYS, "keys of AWS, at Bedrock", "OpenAI's words"))
async def test_a_review_by_each_provider(
    start_supervisor: StartSupervisor, workspace: Path, way: str
) -> None:
    model, given = WAYS[way]
    aws = AwsOrigin(None, ACCESS, SECRET, TOKEN)  # type: ignore[arg-type]  # it only judges
    is_signed = "aws_keys" in given
    with MessagesServer(
        script(), api_key=None if is_signed else KEY, why_not=aws.why_not if is_signed else None
    ) as server:
        async with start_supervisor(
            policy(server.port),
            names={MODEL_HOST: ("127.0.0.1",)},
            review_model=model,
            aws_region="us-east-1",
            **settings(given, server.port),
        ) as running:
            session, printed = await reviewed(running, workspace)
            assert session.exit_code == 0, printed
            assert session.review is not None
            assert session.review["summary"] == REVIEW["summary"]
            assert session.review["usage"]["turns"] == 3
            assert session.model == model
            bare = model.partition(":")[2]
            assert {one["model"] for one in server.conversations} == {bare}
            told = json.dumps(server.conversations)
            log = (running.parts.settings.data_dir / "audit.log").read_text()
            for secret in (KEY, SECRET, TOKEN, "gatehouse-placeholder"):
                assert secret not in told + printed
            for secret in (KEY, SECRET, TOKEN):
                assert secret not in log
            if "workspace" in "".join(given):
                assert server.requests[-1].headers.get("anthropic-workspace-id") == "wrkspc_1", (
                    server.requests[-1]
                )
            # What it cost is known, whoever served it.
            (spent,) = running.parts.spending.summary(session).by_model
            assert spent.tokens.output == 42 * 3, spent


async def test_the_second_is_asked_where_the_first_is_away(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    """In the middle of a review, which goes on."""
    away = Failure(429, "rate_limit_error", "limited", headers=(("retry-after", "7200"),))
    first = [calls(tool_use("git_diff", {}), words="I read."), away]
    with MessagesServer(first, api_key=KEY) as one, MessagesServer([DONE], api_key=KEY) as two:
        async with start_supervisor(
            policy(one.port, two.port),
            names={MODEL_HOST: ("127.0.0.1",)},
            review_model="claude-sonnet-5-5, openai:gpt-5.5",
            anthropic_api_key=KEY,
            anthropic_base_url=f"http://{MODEL_HOST}:{one.port}",
            openai_api_key=KEY,
            openai_base_url=f"http://{MODEL_HOST}:{two.port}/v1",
        ) as running:
            session, printed = await reviewed(running, workspace)
            assert session.exit_code == 0, printed
            assert session.review is not None
            assert session.review["model"] == "gpt-5.5"
            assert "`openai:gpt-5.5` is asked instead" in printed
            # The conversation went along.
            assert "I read." in json.dumps(two.conversations[0])
            assert [one["role"] for one in two.conversations[0]["messages"]] == [
                "system", "user", "assistant", "tool",
            ]  # fmt: skip


async def test_a_model_without_its_key_is_refused(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    async with start_supervisor(
        "version: 1\n", review_model="claude-sonnet-5-5, openai:gpt-5.5", anthropic_api_key=KEY
    ) as running:
        with pytest.raises(UserError, match=r"no key for the model `openai:gpt-5.5`.*OPENAI_API"):
            await running.start(workspace, kind="review")
        # No file of a repository sends code to a provider that the setting doesn't name.
        for model in ("bedrock:x", "anthropic:y, aws:z"):
            with pytest.raises(UserError, match="GATEHOUSE_REVIEW_MODEL doesn't name"):
                await running.start(workspace, kind="review", review_model=model)
    for keys in ({"anthropic_api_key": KEY}, {}):
        async with start_supervisor(
            "version: 1\n", review_model="bedrock:x", aws_region="us-east-1", **keys
        ) as running:
            with pytest.raises(UserError, match="no key for the model `bedrock:x`"):
                await running.start(workspace, kind="review")
    # Claude Code's token is no key of the built-in agent's: the script is played, and that is said.
    async with start_supervisor("version: 1\n", claude_oauth_token=KEY) as running:
        assert (await running.start(workspace, kind="review")).model == "recorded"
    async with start_supervisor(
        "version: 1\n", review_model="bedrock:anthropic.claude-sonnet-5-5", bedrock_api_key=KEY
    ) as running:
        with pytest.raises(UserError, match="AWS_REGION is not set"):
            await running.start(workspace, kind="review")
