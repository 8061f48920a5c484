"""The review agent as its own process: arguments, environment, and who can read it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_image.reviewer import cli
from tests.agent_image.test_reviewer_end_to_end import GOOD
from tests.fakes.agent_api import ASK_ROUTES, AgentApi
from tests.fakes.messages_server import MessagesServer, calls, text, tool_use

MAIN = Path(cli.__file__).with_name("__main__.py")


@pytest.fixture
def start(repo: Path, api: AgentApi) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the agent as the sandbox does: isolated, from its file, with the given environment
    only."""

    def start(
        *arguments: str, isolated: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        known = {
            "PATH": os.environ["PATH"],
            "GATEHOUSE_URL": api.url,
            "GATEHOUSE_TOKEN": api.token,
            "NO_PROXY": "127.0.0.1",
        }
        argv = [
            sys.executable,
            *(["-I"] if isolated else []),
            str(MAIN),
            "--workspace",
            str(repo),
            *arguments,
        ]
        return subprocess.run(
            argv, cwd=repo, env=known | env, capture_output=True, text=True, timeout=60
        )

    return start


type Start = Callable[..., subprocess.CompletedProcess[str]]


def test_the_command_as_the_sandbox_starts_it(start: Start, repo: Path, api: AgentApi) -> None:
    for name in ("json", "msgspec", "anthropic", "agent_image"):
        (repo / f"{name}.py").write_text("raise SystemExit('code under review was imported')")
    with MessagesServer(
        [calls(tool_use("list_files", {}), words="\x1b]0;x\x07hi\u202e"), text(GOOD)]
    ) as server:
        done = start(
            ANTHROPIC_BASE_URL=server.url,
            ANTHROPIC_API_KEY="placeholder",
            GATEHOUSE_REVIEW_MODEL="claude-x",
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "model: claude-x"
    assert "model: \\u{1b}]0;x\\u{7}hi\\u{202e}" in done.stdout.splitlines()
    assert all(line.isprintable() for line in done.stdout.splitlines())
    # Egress replaces the placeholder in this header, and refuses it anywhere else.
    assert server.requests[0].headers["x-api-key"] == "placeholder"
    assert "placeholder" not in str({**server.requests[0].headers, "x-api-key": ""})
    assert api.reviews[0]["model"] == "claude-x"


def test_it_refuses_to_run_where_the_workspace_could_be_imported(start: Start) -> None:
    done = start(isolated=False)
    assert done.returncode == 1
    assert "start it with `python -I`" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "code", "message"),
    [
        ((), {"GATEHOUSE_TOKEN": ""}, 1, "gatehouse review --workspace"),
        (("--base", "nonsense"), {}, 1, "`nonsense` is no revision"),
        (("--base=-x",), {}, 1, "is not a revision"),
        (("--workspace", "/nowhere"), {}, 1, "`/nowhere` is not a folder"),
        ((), {"GATEHOUSE_MODEL": "gpt"}, 1, "must be `recorded` or `anthropic`"),
        ((), {"GATEHOUSE_MODEL": "anthropic"}, 1, "ANTHROPIC_API_KEY is not set"),
        (("--answer-wait", "soon"), {}, 2, "invalid"),
    ],
)
def test_bad_input_is_one_line(
    start: Start, arguments: tuple[str, ...], env: dict[str, str], code: int, message: str
) -> None:
    done = start(*arguments, **env)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_programs_it_starts_never_see_the_token(
    start: Start, api: AgentApi, tmp_path: Path
) -> None:
    """A git in PATH that writes its environment down stands for code under review that gets to
    run."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    spy = bin_ / "git"
    spy.write_text(f"#!/bin/sh\nenv > {tmp_path}/env.txt\nexit 1\n")
    spy.chmod(0o755)
    api.answers = dict.fromkeys(ASK_ROUTES, "denied")
    secrets = {"GATEHOUSE_TOKEN": api.token, "ANTHROPIC_API_KEY": "placeholder-key"}
    start(
        PATH=f"{bin_}:{os.environ['PATH']}",
        GATEHOUSE_MODEL="recorded",
        https_proxy="http://127.0.0.1:9",
        **secrets,
    )
    assert (tmp_path / "env.txt").exists()
    seen = (tmp_path / "env.txt").read_bytes()
    assert b"session-token" not in seen
    assert b"placeholder-key" not in seen


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_a_sibling_in_the_sandbox_cannot_read_its_environment() -> None:
    """Same user, no capabilities, one PID namespace: what a command of the reviewed code would
    see if it ran there."""
    script = (
        "import os, subprocess, sys; sys.path.insert(0, sys.argv[1]);from"
        " agent_image.reviewer.settings import hide_from_siblings; sys.argv[2] == 'hidden' and"
        " hide_from_siblings();print(subprocess.run(['cat', f'/proc/{os.getpid()}/environ'],"
        " capture_output=True).stdout)"
    )
    seen = {}
    for mode in ("open", "hidden"):
        argv = [
            "bwrap",
            "--unshare-user",
            "--unshare-pid",
            "--cap-drop",
            "ALL",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        argv += [
            "--setenv",
            "GATEHOUSE_TOKEN",
            "session-token",
            sys.executable,
            "-I",
            "-c",
            script,
            str(MAIN.parents[2]),
            mode,
        ]
        seen[mode] = subprocess.run(
            argv, capture_output=True, text=True, timeout=30, check=True
        ).stdout
    assert "session-token" in seen["open"]
    assert "session-token" not in seen["hidden"]
