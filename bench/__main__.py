"""`make bench`: run every measurement in a process of its own and print one table.

    python -m bench [NAME[,NAME...]]

A measurement is a module in this folder with `main() -> list[Figure] | None` (None: it printed its
result itself). A failing one is named and doesn't stop the others. The exit code says whether all
ran, never whether they were fast.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

from bench import Figure
from supervisor.cli.doctor import this_python

HERE = Path(__file__).parent
_MISSED = " !"
HEADINGS = ("what", "ours", "limit", "baseline", "ratio", "wanted", "against")


def names() -> list[str]:
    """Return the measurements, by file name; names with an underscore first are their helpers."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def measure(name: str) -> list[Figure] | None:
    """Run one measurement, and pass its output through. Return None where it failed."""
    print(f"measuring {name} ...", file=sys.stderr, flush=True)
    program = [sys.executable, "-m", "bench", "--one", name]
    # The figures come back on a pipe of their own, apart from whatever is printed.
    done = subprocess.run(
        program, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, timeout=1800, check=False
    )
    printed, mark, figures = done.stdout.rpartition("\n--figures--")
    if done.returncode != 0 or not mark:
        print(done.stdout, end="")
        return None
    print(printed, end="")
    return [Figure(*row) for row in json.loads(figures)]


def run_one(name: str) -> None:
    """Run the measurement in its own process, and print its figures on the last line."""
    figures = importlib.import_module(f"bench.{name}").main() or []
    print(f"\n--figures--{json.dumps([list(figure) for figure in figures])}", flush=True)


def table(figures: list[Figure]) -> str:
    """Return the figures in columns. Pure."""
    rows = [HEADINGS, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 1 <= column <= 5 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(figure: Figure) -> tuple[str, ...]:
    wanted = (
        "" if figure.wanted is None else f"{'>=' if figure.is_rate else '<='} {figure.wanted:g}"
    )
    return (
        figure.name,
        f"{figure.ours:.4g} {figure.unit}{_MISSED if figure.is_within_limit is False else ''}",
        "" if figure.limit is None else f"<= {figure.limit:g}",
        f"{figure.baseline:.4g} {figure.unit}",
        f"{figure.ratio:.2f}{_MISSED if figure.is_as_wanted is False else ''}",
        wanted,
        figure.against,
    )


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--one"]:
        run_one(arguments[1])
        return 0
    chosen = arguments[0].split(",") if arguments else names()
    if unknown := [name for name in chosen if name not in names()]:
        print(
            f"bench: no measurement `{unknown[0]}`; there are: {', '.join(names())}",
            file=sys.stderr,
        )
        return 1
    python = this_python()
    if not python.ok:
        print(f"note: Python {python.detail}: {python.remedy}", file=sys.stderr)
    figures: list[Figure] = []
    failed = []
    for name in chosen:
        measured = measure(name)
        if measured is None:
            failed.append(name)
        else:
            figures += measured
    print(table(figures))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
