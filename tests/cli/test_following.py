"""What `run` asks of a supervisor that runs already: all that the person said, and nothing else."""

import signal
import sys
from pathlib import Path

import msgspec
import pytest

from supervisor.cli import following
from supervisor.cli.common.client import Client
from supervisor.errors import UserError
from supervisor.sessions.start_session import StartSession
from supervisor.settings import SETTINGS, Settings, from_environment

# For each setting something to say; its default, too, is what the person wants then.
GIVEN = {
    "GATEHOUSE_KEEP_LEFT": "2d",
    "GATEHOUSE_KEPT_COPIES_GB": "5",
    "MAX_UPTIME": "5m",
    "MAX_COST": "1usd",
    "MAX_COST_PER_DAY": "2usd",
    "MAX_COST_TOTAL": "3usd",
    "GATEHOUSE_AT_LIMIT": "deny",
    "GATEHOUSE_PRICES": "/x/prices.yaml",
    "GATEHOUSE_CREDENTIALS": "/x/credentials.yaml",
    "GATEHOUSE_MCP_SERVERS": "/x/mcp-servers.yaml",
    "GATEHOUSE_DATA": "/x/data",
    "GATEHOUSE_PORT": "3800",
    "GATEHOUSE_POLICY": "/x/policy.yaml",
    "GATEHOUSE_KEEP_BODIES": "no",
    "GATEHOUSE_HOLD": "5s",
    "GATEHOUSE_TELL": "desktop",
    "GATEHOUSE_TELL_AFTER": "5s",
    "GATEHOUSE_INCLUDE_IGNORED": "no",
    "GATEHOUSE_BIND": "nvm,/opt/tools/bin",
    "GATEHOUSE_HOST_PORTS": "5432,6379",
    "GATEHOUSE_SHARE_CACHES": "yes",
    "GATEHOUSE_EXEC_RULES": "enforce",
    "GATEHOUSE_AGENT_IMAGE": "claude",
    "GATEHOUSE_SANDBOX": "compose",
    "GATEHOUSE_MEMORY_MB": "256",
    "GATEHOUSE_PROCESSES": "32",
    "GATEHOUSE_CPU": "1m",
    "GATEHOUSE_OUTPUT_MB": "2",
    "GATEHOUSE_COPY": "auto",
    "GATEHOUSE_NETWORK": "proxy",
    "GATEHOUSE_UPSTREAM_CA": "/x/ca.pem",
    "GATEHOUSE_REVIEW_MODEL": "a-model",
    "GATEHOUSE_REVIEW_RUNTIME": "sdk",
    "ANTHROPIC_API_KEY": "sk-ant-not-a-real-one",
    "ANTHROPIC_BASE_URL": "https://model.example.org",
    "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-not-a-real-one",
    "OPENAI_API_KEY": "sk-not-a-real-one-either",
    "OPENAI_BASE_URL": "https://model.example.org/v1",
    "ANTHROPIC_AWS_API_KEY": "not-a-real-one-of-aws",
    "ANTHROPIC_AWS_WORKSPACE_ID": "wrkspc_1",
    "ANTHROPIC_AWS_BASE_URL": "https://aws.example.org",
    "AWS_BEARER_TOKEN_BEDROCK": "not-a-real-one-of-bedrock",
    "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": "https://bedrock.example.org/anthropic",
    "GATEHOUSE_AWS_KEYS": "AKIDNOTAREALONE:not-a-real-secret",
    "AWS_REGION": "us-east-1",
    "GATEHOUSE_MODEL_HOSTS": "model.example.org",
}


OF_REVIEWS = {
    one.name
    for one in SETTINGS
    if one.name.startswith(
        (
            *("GATEHOUSE_FORGE_", "GATEHOUSE_GITHUB_", "GATEHOUSE_BITBUCKET_"),
            *("GATEHOUSE_REVIEW_", "GATEHOUSE_JOB_"),
        )
    )
    or one.name.endswith(("_CHECK", "PR_COST", "REPO_DAY_COST", "OWNER_MONTH_COST", "ALL_DAY_COST"))
} - {"GATEHOUSE_REVIEW_MODEL", "GATEHOUSE_REVIEW_RUNTIME"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS:
        monkeypatch.delenv(setting.name, raising=False)


def asked(settings: Settings, *command: str, port: int = 3700) -> StartSession:
    client = Client(port, "token")
    body = following.wanted(
        settings,
        client,
        workspace=Path("/w"),
        kind="agent",
        command=command or ("sh",),
        agent=None,
        job=None,
        base=None,
        tty=False,
    )
    given = {name: value for name, value in msgspec.to_builtins(body).items() if value is not None}
    return msgspec.convert(given, StartSession, dec_hook=lambda kind, value: kind(value))


def test_who_says_nothing_asks_for_nothing_in_particular() -> None:
    wanted = asked(from_environment())
    plain = StartSession(workspace=Path("/w"), command=("sh",))
    left_out = {"search_path": None, "environment": None}
    assert msgspec.structs.replace(wanted, **left_out) == plain


@pytest.mark.parametrize("setting", [one.name for one in SETTINGS])
def test_no_setting_is_dropped_in_silence(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session has it, the supervisor compares it, or it says which supervisor is meant."""
    if setting in OF_REVIEWS:  # of `up --reviews`, which follows none
        return
    plain = asked(from_environment())
    monkeypatch.setenv(setting, GIVEN[setting])
    if setting == "GATEHOUSE_DATA":  # by it the supervisor was found
        return
    if setting == "GATEHOUSE_PORT":
        with pytest.raises(UserError, match="at port 3700"):
            asked(from_environment())
        assert asked(from_environment(), port=int(GIVEN[setting]))
        return
    assert asked(from_environment()) != plain


def test_a_key_is_compared_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-a-real-one")
    wanted = asked(from_environment())
    assert wanted.expects.keys() == {"ANTHROPIC_API_KEY"}
    assert b"not-a-real-one" not in msgspec.json.encode(wanted.expects)


def test_a_program_beside_the_person_is_named_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent").write_text("#!/bin/sh\n")
    (tmp_path / "agent").chmod(0o755)
    assert asked(from_environment(), "./agent", "x").command == (str(tmp_path / "agent"), "x")
    assert asked(from_environment(), "./in-the-workspace").command == ("./in-the-workspace",)
    assert asked(from_environment(), "agent").command == ("agent",)


def test_an_interrupt_that_comes_in_a_finalizer_is_taken_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python drops what is raised there."""
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    class Ends:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with following._Interrupts() as interrupts:
        interrupts.begin()
        interrupts.check()
        Ends()
        assert dropped
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
