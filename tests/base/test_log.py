"""Each line says when, how bad and what, and stays one whatever its values hold."""

import re

import pytest

from supervisor.base import log

WHEN = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"


def test_values_are_no_lines_and_no_terminal_controls(capsys: pytest.CaptureFixture[str]) -> None:
    log.warning("few open files", most=256)
    log.error("hook failed", name="a\n2026 error forged", path="\x1b[2J")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"{WHEN} warning few open files most=256", first)
    said = r"hook failed name='a\\n2026 error forged' path='\\x1b\[2J'"
    assert re.fullmatch(rf"{WHEN} error {said}", second)


def test_values_are_no_commands_for_a_runner_of_workflows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.warning("not posted", why="##[set-output name=verdict]approve")
    assert "##[" not in capsys.readouterr().err


def test_an_exception_is_told_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("of the test")
    except ValueError:
        log.exception("a step failed", step=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(rf"{WHEN} error a step failed step=1 exception='Traceback ", line)
    assert "ValueError: of the test" in line
