"""The fuzz targets hold on every known input, and a short search, the same each time, finds
nothing. `make fuzz` searches longer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import targets
from tests.fuzz.__main__ import TARGETS, main, missing, search
from tests.fuzz.seeds import ROOT, dictionary, seeds

needs_atheris = pytest.mark.skipif(missing() is not None, reason=missing() or "")
# How many inputs the short search tries, the seeds among them: some seconds each.
RUNS = {"exec": 1_500, "check": 4_000}
# What decides about commands is searched each time; the rest by `make test-many`.
SHARE = ("exec",)


def test_every_target_can_be_named() -> None:
    assert tuple(targets.TARGETS) == TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_every_known_input_holds(target: str) -> None:
    known = seeds(target)
    assert len(known) > 30
    for data in known:
        targets.run(target, data)


@needs_atheris
@pytest.mark.parametrize("target", TARGETS if os.environ.get("EVERYTHING") else SHARE)
def test_a_short_search_finds_nothing(target: str, tmp_path: Path) -> None:
    done = search(target, tmp_path, f"-runs={RUNS.get(target, 1_000)}", "-seed=1")
    assert done.returncode == 0, done.stdout[-6_000:]
    assert f"Done {RUNS.get(target, 1_000)} runs" in done.stdout


@pytest.mark.many
@needs_atheris
def test_what_breaks_a_promise_is_found_and_kept(tmp_path: Path) -> None:
    """The search itself: a planted fault is found from a seed that doesn't show it, and the
    input is written down."""
    planted = """
import sys
from tests.fuzz import engine, targets
def broken(text):
    targets.canonical_host("a.example")
    assert text[:2] != "Zz", "planted"
targets.TARGETS["hosts"] = broken
engine.main("hosts", *sys.argv[1:])
"""
    done = subprocess.run(
        [sys.executable, "-c", planted, "-seed=1", "-runs=200000", f"-artifact_prefix={tmp_path}/"],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "planted" in done.stdout + done.stderr
    (found,) = tmp_path.glob("crash-*")
    assert found.read_bytes().startswith(b"Zz")


def test_an_input_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "crash-1"
    known.write_bytes(b"git log\xff")
    assert main(["exec", str(known)]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    assert main([str(known)]) == 2
    assert main(["exec", str(tmp_path / "none")]) == 2

    def broken(text: str) -> None:
        raise AssertionError(text)

    monkeypatch.setitem(targets.TARGETS, "exec", broken)
    with pytest.raises(AssertionError, match="git log"):
        main(["exec", str(known)])


def test_where_there_is_no_atheris_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([]) == 0
    assert "skipped: atheris isn't installed" in capsys.readouterr().out


@pytest.mark.parametrize("target", TARGETS)
def test_a_dictionary_is_one_that_libfuzzer_reads(target: str) -> None:
    lines = dictionary(target).splitlines()
    assert len(lines) > 10
    assert all(line.startswith('"\\x') and line.endswith('"') for line in lines)
