"""How long the command line takes to start, against `python -c pass` of the same environment.

Verbs that need neither server nor model are wanted within 3 times that. What they import decides
it; `tests/test_start_up.py` holds that part. A verb has started when it does its own work:
`policy check` when it reads lines (the engine, whose import has a limit of its own in `policy`,
comes with the first), `doctor` when its first finding is printed.
"""

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

# What is shown -> arguments, standard input, and the exit codes that a working program may give.
VERBS: dict[str, tuple[list[str], str, set[int]]] = {
    "--version": (["--version"], "", {0}),
    "--help": (["--help"], "", {0}),
    "audit": (["audit"], "", {0, 1}),
    "audit --json": (["audit", "--json"], "", {0, 1}),
    "policy check": (["policy", "check"], "", {0}),
    "an unknown verb": (["no-such-verb"], "", {1}),
}


def main() -> list[Figure]:
    """The median of 15 starts each, taken in turns; the first round warms the page cache and is
    not counted."""
    with tempfile.TemporaryDirectory() as data:
        environment = {**os.environ, "GATEHOUSE_DATA": data}

        def start(
            *command: str | Path, given: str = "", codes: frozenset[int] = frozenset({0})
        ) -> Callable[[], object]:
            return lambda: _run([str(part) for part in command], given, codes, environment, data)

        verbs = (
            start(GATEHOUSE, *words, given=given, codes=frozenset(codes))
            for words, given, codes in VERBS.values()
        )
        work = [
            start(PYTHON, "-c", "pass"),
            *verbs,
            lambda: _first_line([str(GATEHOUSE), "doctor"], environment),
        ]
        interleaved_ms(*work, rounds=1)
        bare_ms, *taken_ms = interleaved_ms(*work)
    return [
        Figure(f"start: gatehouse {name}", took_ms, "ms", bare_ms, "python -c pass", wanted=WANTED)
        for name, took_ms in zip([*VERBS, "doctor, its first finding"], taken_ms, strict=True)
    ]


def _run(
    command: list[str], given: str, codes: frozenset[int], environment: dict[str, str], folder: str
) -> None:
    """One start. A program that crashes is quick, so what comes out is looked at: RuntimeError
    when it isn't right."""
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        check=False,
        text=True,
        env=environment,
        cwd=folder,
    )
    if done.returncode not in codes or "Traceback" in done.stderr:
        raise RuntimeError(f"{command} gave {done.returncode}: {done.stderr[-500:]}")


def _first_line(command: list[str], environment: dict[str, str]) -> None:
    """A start that is over with the first line; what the program would do then is another thing."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as started:
        assert started.stdout is not None
        line = started.stdout.readline()
        started.kill()
    if not line.startswith("ok  "):
        raise RuntimeError(f"{command} began with {line!r}")
