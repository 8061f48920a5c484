"""Tries what `make up` makes of what was typed: words, and nothing that a shell or make
evaluates."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def up() -> ModuleType:
    spec = importlib.util.spec_from_file_location("up", ROOT / "scripts" / "up.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("given", "is_terminal", "expected"),
    [
        ({}, True, ["review", "--workspace", ".", "--open", "--stay"]),
        (
            {"WORKSPACE": "/a b", "PORT": "3800"},
            False,
            ["review", "--workspace", "/a b", "--open", "--port", "3800"],
        ),
        (
            {"AGENT": "claude"},
            True,
            ["claude", "--workspace", ".", "--open", "--stay", "--"],
        ),
        (
            {"AGENT": "sh -c 'make && echo \"$HOME\" | tee x'", "MAX_UPTIME": "30m"},
            False,
            [
                "run",
                "--workspace",
                ".",
                "--open",
                "--",
                "sh",
                "-c",
                'make && echo "$HOME" | tee x',
            ],
        ),
        (
            {"AGENT": "aider"},
            True,
            ["run", "--workspace", ".", "--open", "--stay", "--", "aider"],
        ),
        (
            {"AGENT": "claude -p $HOME --open"},
            False,
            ["claude", "--workspace", ".", "--open", "--", "-p", "$HOME", "--open"],
        ),
    ],
)
def test_make_up_turns_words_into_words(
    up: ModuleType, given: dict[str, str], is_terminal: bool, expected: list[str]
) -> None:
    assert (
        up.command(
            {f"GATEHOUSE_UP_{name}": value for name, value in given.items()},
            is_terminal=is_terminal,
        )
        == expected
    )


@pytest.mark.parametrize(
    "line",
    [
        "make && deploy",
        "a; b",
        "a | b",
        "a > b",
        "a &",
        "$(a)",
        "`a`",
        "a\nb",
        "(a)",
        "a 'b' && c",
        "a 'b",
    ],
)
def test_what_needs_a_shell_is_refused(up: ModuleType, line: str) -> None:
    with pytest.raises(ValueError, match="AGENT"):
        up.agent_words(line)


def test_make_evaluates_nothing_of_what_was_typed(tmp_path: Path) -> None:
    """The real make, on a checkout whose set-up and program only note what reaches them."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "up.py", tmp_path / "scripts")
    (tmp_path / "scripts" / "setup").write_text("#!/bin/sh\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / "bin" / "gatehouse").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >got\n')
    for program in ["scripts/setup", ".venv/bin/gatehouse"]:
        (tmp_path / program).chmod(0o755)
    agent = "sh -c 'touch owned; echo $HOME $(id) `id`'"
    make = ["make", "-s", "up", f"AGENT={agent}", "WORKSPACE=/a b;touch owned"]
    subprocess.run(make, cwd=tmp_path, check=True, stdin=subprocess.DEVNULL, timeout=60)
    assert (tmp_path / "got").read_text().splitlines() == [
        *[
            "run",
            "--workspace",
            "/a b;touch owned",
            "--open",
            "--",
            "sh",
            "-c",
            "touch owned; echo $HOME $(id) `id`",
        ]
    ]
    assert not (tmp_path / "owned").exists()
    refused = subprocess.run(
        ["make", "-s", "up", "AGENT=true; touch owned"],
        cwd=tmp_path,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert refused.returncode != 0
    assert (
        "make up: AGENT holds `;`, which needs a shell; write it as AGENT='sh -c \"...\"'"
        in refused.stderr
    )
    assert not (tmp_path / "owned").exists()
