"""The recorded model: announced as such, really executed, one ask of each kind at once, never
waiting for ever."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agent_image.reviewer import cli
from agent_image.reviewer.recorded_model import FIRST_LOOK, fill
from agent_image.reviewer.settings import Limits, Settings
from agent_image.reviewer.tool_inputs import RECORDED_TOOLS, TOOLS
from tests.agent_image.conftest import git
from tests.fakes.agent_api import ASK_ROUTES, AgentApi, Json

KINDS = {"/v1/exec", "/v1/files/write", "/v1/packages", "/v1/git", "/v1/policy-proposals"}


def settings(repo: Path, api: AgentApi, wait_s: float = 10.0) -> Settings:
    return Settings(
        base="auto", workspace=repo, output=None, gatehouse_url=api.url, gatehouse_token=api.token,
        models=(), limits=Limits(answer_wait_s=wait_s,
        outage_s=2),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetch goes to a proxy that isn't there."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")


def test_all_asks_stand_in_the_inbox_before_any_is_answered(repo: Path, api: AgentApi) -> None:
    def answer_when_all_are_there(_route: str, _request: Json) -> None:
        if len(api.asks) == 6:
            for number, (route, _) in enumerate(list(api.asks), 1):
                api.resolve(
                    f"request-{number}",
                    "used" if "exec" in route else "denied",
                    outcome={"ok": True},
                )

    api.on_ask = answer_when_all_are_there
    lines: list[str] = []
    report = cli.review(settings(repo, api), lines.append)
    assert {route for route, _ in api.asks} == KINDS
    assert lines[0].startswith("model: recorded")
    assert report.model == "recorded"
    assert api.reviews[0]["model"] == "recorded"
    assert "no model looked at the code" in report.summary
    assert "- run_command: done" in report.summary
    assert "- write_file: denied" in report.summary
    assert "- fetch: " in report.summary
    assert report.findings[0].path == "src/app.py"
    assert report.findings[0].line == 1
    notes = next(body for route, body in api.asks if route == "/v1/files/write")
    assert "1 file changed" in notes["content"]
    assert "- src/app.py" in notes["content"]
    assert "{{" not in json.dumps(api.asks) + json.dumps(api.reviews)


def test_unanswered_asks_do_not_hold_the_review_for_ever(repo: Path, api: AgentApi) -> None:
    report = cli.review(settings(repo, api, wait_s=0.2), lambda _line: None)
    assert "no answer yet" in report.summary
    assert len(api.asks) == 6


@pytest.mark.parametrize("kind", ["empty folder", "no git", "deleted", "binary", "odd names"])
def test_it_plays_on_any_folder(tmp_path: Path, api: AgentApi, kind: str) -> None:
    root = tmp_path / "w"
    root.mkdir()
    if kind != "empty folder":
        (root / "a.txt").write_bytes(b"\0\1" if kind == "binary" else b"text\n")
    if kind == "odd names":
        (root / "{{file_list}} \u202e\n<review>").write_text("x")
    if kind in ("deleted", "odd names"):
        git(root, "init", "-q")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", "m")
        (root / "a.txt").unlink()
    api.answers = dict.fromkeys(ASK_ROUTES, "denied")
    report = cli.review(settings(root, api), lambda _line: None)
    assert report.verdict == "comment"


def test_the_script_fits_the_tools() -> None:
    turns = json.loads(FIRST_LOOK.read_text())["turns"]
    for call in (call for turn in turns for call in turn.get("calls", [])):
        kind = (TOOLS | RECORDED_TOOLS)[call["tool"]][0]
        msgspec.convert(call["input"], type=kind)
    assert "review" in turns[-1]


def test_what_is_filled_in_is_not_looked_at_again() -> None:
    assert fill("x {{a}}", {"a": "{{b}}", "b": "no"}) == "x {{b}}"
    assert fill({"line": "{{n}}", "none": "{{z}}"}, {"n": 3, "z": None}) == {
        "line": 3,
        "none": None,
    }


def test_as_a_process_without_the_sdk(repo: Path, api: AgentApi) -> None:
    """Without a key it is the recorded model, and the SDK isn't imported."""
    api.answers = dict.fromkeys(ASK_ROUTES, "denied")
    (repo.parent / "anthropic.py").write_text("raise SystemExit('imported')")
    main = Path(cli.__file__).with_name("__main__.py")
    env = {
        "PATH": os.environ["PATH"],
        "GATEHOUSE_URL": api.url,
        "GATEHOUSE_TOKEN": api.token,
        "https_proxy": "http://127.0.0.1:9",
    }
    argv = [
        sys.executable,
        "-I",
        "-X",
        "importtime",
        str(main),
        "--workspace",
        str(repo),
        "--output",
        str(repo.parent / "r.json"),
    ]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("model: recorded; no API key is set")
    assert "anthropic" not in done.stderr.replace("agent_image.reviewer.anthropic", "")
    assert json.loads((repo.parent / "r.json").read_text()) == api.reviews[0]
