"""`python -m tests.fuzz`: search each parser of the core, and that of ClientHellos, for inputs that
break a promise, or run one input again.

    python -m tests.fuzz                        every target, FUZZ_SECONDS each (60)
    python -m tests.fuzz exec hosts             these
    python -m tests.fuzz exec .fuzz/exec/crash-1234    that input again, with its traceback (needs
                                                       no atheris)

What is found is kept in `.fuzz/TARGET/`, with what was learned on the way in
`.fuzz/TARGET/corpus/`. Exit 1 where something was found.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.seeds import ROOT, dictionary, seeds

TARGETS = ("exec", "hosts", "paths", "git", "packages", "policy", "check", "hello")
PLACE = ROOT / ".fuzz"
# Longer than any limit of the parsers matters for; much longer inputs are tests/core's (10,000
# characters).
MAX_BYTES = 2_000
# One input, instrumented: the end of a hang, never a measure, also on a machine that stands still
# for a while. A runaway takes minutes.
MAX_INPUT_S = 60


def missing() -> str | None:
    """Why nothing can be searched here, None where it can."""
    if importlib.util.find_spec("atheris") is None:
        return "atheris isn't installed (it has no build but for Linux on x86_64)"
    return None


def prepare(target: str, place: Path) -> None:
    """Write the dictionary and the seeds below `place`."""
    for folder in ("seeds", "corpus"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    (place / "words.dict").write_text(dictionary(target), encoding="utf-8")
    for index, data in enumerate(seeds(target)):
        (place / "seeds" / f"{index:04}").write_bytes(data)


def search(target: str, place: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run the engine on one target until its options say stop or something is found."""
    prepare(target, place)
    return subprocess.run(
        [
            sys.executable, "-m", "tests.fuzz.engine", target, f"-dict={place / 'words.dict'}",
            f"-max_len={MAX_BYTES}",
            f"-timeout={MAX_INPUT_S}", "-rss_limit_mb=4096", f"-artifact_prefix={place}/", *options,
            str(place / "corpus"), str(place / "seeds"),
        ],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        check=False,
    )  # fmt: skip


def search_all(targets: Sequence[str], seconds: int) -> int:
    """Search each target for some seconds; how many failed."""
    why = missing()
    if why is not None:
        print(f"fuzz: skipped: {why}")
        return 0
    failed = 0
    for target in targets:
        place = PLACE / target
        done = search(target, place, f"-max_total_time={seconds}")
        lines = done.stdout.splitlines()
        last = next((line for line in reversed(lines) if re.match(r"#[0-9]", line)), "no progress")
        print(f"fuzz: {target}: {' '.join(last.split())}", flush=True)
        if done.returncode != 0:
            failed += 1
            print("\n".join(line for line in lines[-100:] if not re.match(r"#[0-9]", line)))
            newest = max(place.glob("*-*"), key=lambda path: path.stat().st_mtime, default=place)
            print(
                f"fuzz: {target}: FOUND. Run it again: {sys.executable} -m tests.fuzz {target}"
                f" {newest}",
                flush=True,
            )
            print(
                f"fuzz: {target}: once it is mended, keep the input in tests/fuzz/found/{target}/",
                flush=True,
            )
    return failed


def again(target: str, files: Sequence[str]) -> None:
    """Run inputs again; the first that breaks the target's promise raises."""
    from tests.fuzz.targets import run

    for name in files:
        run(target, Path(name).read_bytes())
        print(f"fuzz: {target}: nothing wrong with {name}")


def main(words: Sequence[str]) -> int:
    files = [word for word in words if word not in TARGETS]
    targets = [word for word in words if word in TARGETS]
    if files and (len(targets) != 1 or not all(Path(name).is_file() for name in files)):
        print(
            f"fuzz: say one of {', '.join(TARGETS)}, then the files to run again", file=sys.stderr
        )
        return 2
    if files:
        again(targets[0], files)
        return 0
    return 1 if search_all(targets or TARGETS, int(os.environ.get("FUZZ_SECONDS", "60"))) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
