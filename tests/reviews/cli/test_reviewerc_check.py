"""`gatehouse reviewerc check`: every mistake, or what holds."""

import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def gatehouse() -> Path:
    return Path(".venv/bin/gatehouse").absolute()


def check(gatehouse: Path, *words: str, text: str = "", cwd: Path | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [str(gatehouse), "reviewerc", "check", *words],
        input=text, capture_output=True, text=True, check=False, timeout=60, cwd=cwd,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_every_mistake_is_told_with_its_line_and_what_to_do(
    gatehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / ".reviewerc").write_text("version: 2\nrevew: {}\nschedule: {timezone: Mars}\n")
    code, said = check(gatehouse, cwd=tmp_path)
    assert code == 1
    assert said.splitlines() == [
        ".reviewerc:1: `version: 2` is not the number 1; write `1`, without quotes",
        ".reviewerc:2: unknown key `revew`; did you mean `review`?",
        ".reviewerc:3: `schedule.timezone: Mars` is no time zone; write e.g. `Europe/Berlin` or"
        " `UTC`",
    ]


def test_what_holds_is_told_with_its_source(gatehouse: Path) -> None:
    text = "version: 1\nreview: {strictness: strict, prompts: [{id: p, prompt: x}]}\n"
    code, said = check(gatehouse, "-", text=text)
    assert code == 0
    assert "strictness:   strict  (standard input, line 2)" in said
    assert "prompt:       p: separate_comment, issue" in said
    assert "timezone:     UTC  (built-in)" in said


def test_what_is_narrowed_is_a_note(gatehouse: Path) -> None:
    text = "version: 1\ncommands: [{id: c, prompt: x, tools: {allow: [repo.write]}}]\n"
    code, said = check(gatehouse, "-", text=text)
    assert code == 0
    assert "note: command `c` (standard input, line 2): no `repo.write`" in said


def test_the_smaller_file_is_known_by_its_name(gatehouse: Path, tmp_path: Path) -> None:
    file = tmp_path / ".code-refinery.yml"
    file.write_text("strictness: lenient\n")
    assert check(gatehouse, str(file))[0] == 0
    file.write_text("version: 1\n")
    code, said = check(gatehouse, str(file))
    assert (code, "unknown key `version`" in said) == (1, True)


def test_a_file_that_is_not_there(gatehouse: Path, tmp_path: Path) -> None:
    code, said = check(gatehouse, cwd=tmp_path)
    assert code == 1
    assert "No such file" in said
