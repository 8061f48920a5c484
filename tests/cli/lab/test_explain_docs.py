"""What docs/policy.md shows of the lab, run as it stands there."""

import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BLOCKS = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8").split("```")[1::2]
COMMANDS = [
    line for block in BLOCKS for line in block.splitlines() if line.startswith("gatehouse policy ")
]
CASES = [block for block in BLOCKS if "- {name: " in block and "category: " in block]


def run(gatehouse: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(gatehouse), *words], capture_output=True, text=True, cwd=ROOT, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_explains_its_action(gatehouse: Path, command: str) -> None:
    words = shlex.split(command)[1:]
    done = run(gatehouse, *words, "--policy", "policy/examples/strict.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.partition(":")[0] in ("allow", "ask", "deny")
    assert "understood as" in done.stdout


def test_the_cases_of_the_page_hold_under_the_strict_policy(
    gatehouse: Path, tmp_path: Path
) -> None:
    assert len(COMMANDS) >= 4
    assert CASES
    for number, text in enumerate(CASES):
        (tmp_path / f"{number}.yaml").write_text(text.strip() + "\n", encoding="utf-8")
    done = run(
        gatehouse, "policy", "test", str(tmp_path), "--policy", "policy/examples/strict.yaml"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ", 0 failed" in done.stdout
