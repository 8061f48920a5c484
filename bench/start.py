"""How long the command line takes to start, against `python -c pass` of the same environment.

Verbs that need neither server nor model are wanted within 3 times that. What they import decides it;
`tests/test_start_up.py` holds that part.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import Figure, interleaved_ms

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv" / "bin" / "python"
GATEHOUSE = ROOT / ".venv" / "bin" / "gatehouse"
WANTED = 3.0

_LINE = {"id": "1", "category": "exec", "command": "git log -3", "policy": {"allow": ["exec(git log *)"]}}
VERBS: dict[str, tuple[list[str], str]] = {
    "--version": (["--version"], ""),
    "--help": (["--help"], ""),
    "audit": (["audit"], ""),
    "audit --json": (["audit", "--json"], ""),
    "policy check, one line": (["policy", "check"], json.dumps(_LINE) + "\n"),
    "an unknown verb": (["no-such-verb"], ""),
}


def main() -> list[Figure]:
    """The median of 15 starts each, taken in turns; the first round warms the page cache and is not counted."""
    with tempfile.TemporaryDirectory() as data:
        environment = {**os.environ, "GATEHOUSE_DATA": data}

        def start(*command: str | Path, given: str = "") -> Callable[[], object]:
            return lambda: subprocess.run(
                [str(part) for part in command],
                input=given.encode(),
                capture_output=True,
                check=False,
                env=environment,
                cwd=data,
            )

        work = [
            start(PYTHON, "-c", "pass"),
            *(start(GATEHOUSE, *words, given=given) for words, given in VERBS.values()),
        ]
        interleaved_ms(*work, rounds=1)
        bare_ms, *taken_ms = interleaved_ms(*work)
    return [
        Figure(f"start: gatehouse {name}", took_ms, "ms", bare_ms, "python -c pass", wanted=WANTED)
        for name, took_ms in zip(VERBS, taken_ms, strict=True)
    ]
