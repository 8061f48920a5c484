"""The fake must be good enough for two real clients: the anthropic SDK and the Claude Code CLI."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.fakes.claude_code import (
    FINAL_WORDS,
    claude_binary,
    claude_command,
    claude_environment,
    claude_script,
)
from tests.fakes.messages_server import Failure, MessagesServer, calls, invalid, text, tool_use

USER: list[Any] = [{"role": "user", "content": "hello"}]


def ask(server: MessagesServer, **options: Any) -> Any:
    with anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as client:
        return client.messages.create(
            model="claude-sonnet-5-5", max_tokens=100, messages=USER, **options
        )


def test_streamed_reply_reassembles_to_the_script() -> None:
    words = "grüße, \U0001f600 and a long enough text to need several pieces"
    arguments = {"path": "a b/ü.py", "nested": {"x": [1, 2, None]}}
    with (
        MessagesServer([calls(tool_use("read_file", arguments), words=words)]) as server,
        anthropic.Anthropic(base_url=server.url, api_key="k") as client,
        client.messages.stream(model="claude-sonnet-5-5", max_tokens=100, messages=USER) as stream,
    ):
        message = stream.get_final_message()
    assert message.content[0].text == words  # type: ignore[union-attr]
    assert message.content[1].input == arguments  # type: ignore[union-attr]
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens == 42


def test_plain_reply_and_count_tokens() -> None:
    with (
        MessagesServer([text("hi")]) as server,
        anthropic.Anthropic(base_url=server.url, api_key="k") as client,
    ):
        assert client.messages.count_tokens(model="m", messages=USER).input_tokens > 0
        assert ask(server).content[0].text == "hi"
    assert [request.path for request in server.requests] == [
        "/v1/messages/count_tokens",
        "/v1/messages",
    ]
    assert server.turns_left == 0


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (429, "rate_limit_error", anthropic.RateLimitError),
        (529, "overloaded_error", anthropic.InternalServerError),
        (400, "invalid_request_error", anthropic.BadRequestError),
    ],
)
def test_failures_reach_the_sdk_as_its_own_errors(
    status: int, kind: str, error: type[Exception]
) -> None:
    with MessagesServer([Failure(status, kind)]) as server, pytest.raises(error):
        ask(server)


def test_wrong_key_is_refused() -> None:
    with (
        MessagesServer([text("hi")], api_key="right") as server,
        pytest.raises(anthropic.AuthenticationError),
    ):
        ask(server)


def test_invalid_requests_are_named() -> None:
    call = tool_use("x", {})
    answered = {"type": "tool_result", "tool_use_id": call["id"], "content": "y"}
    assistant = {"role": "assistant", "content": [call]}
    base = {"model": "m", "max_tokens": 1}
    assert invalid(None)
    assert invalid({"model": "m", "messages": USER}) == "max_tokens: field required"
    assert invalid({**base, "messages": []})
    assert invalid({**base, "messages": [*USER, assistant, *USER]})
    assert invalid({**base, "messages": [*USER, assistant]})
    assert invalid({**base, "messages": [{"role": "user", "content": [answered]}]})
    assert not invalid(
        {**base, "messages": [*USER, assistant, {"role": "user", "content": [answered]}]}
    )


@pytest.mark.skipif(claude_binary() is None, reason="claude-agent-sdk has no bundled CLI here")
@pytest.mark.parametrize("existing", [True, False])
def test_claude_code_writes_a_file_and_runs_a_command(tmp_path: Path, existing: bool) -> None:
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    target = workspace / "greeting.txt"
    if existing:
        target.write_text("hello\n")
    script = claude_script(str(target), "hello from claude\n", "wc -c < greeting.txt > count.txt")
    with MessagesServer(script, follow="conversation", api_key="placeholder") as server:
        env = {"PATH": os.environ["PATH"], **claude_environment(server.url, str(home))}
        command = claude_command(str(claude_binary()))
        done = subprocess.run(
            command,
            cwd=workspace,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["result"] == FINAL_WORDS
    assert not result["is_error"]
    assert target.read_text() == "hello from claude\n"
    assert (workspace / "count.txt").read_text().strip() == "18"
    assert server.turns_left == 0
    assert {
        request.path.split("?")[0] for request in server.requests if request.method == "POST"
    } == {"/v1/messages"}
