"""`gatehouse policy test`, as a person runs it."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PASSING = (
    '- {name: reads, category: exec, command: "ls", policy: {allow: [exec(ls *)]}, verdict:'
    " allow}\n"
)
UNJUDGED = '- {name: lists, category: exec, command: "ls -l", verdict: allow}\n'


def run(gatehouse: Path, *words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(gatehouse), "policy", "test", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cases"
    (made / "deep").mkdir(parents=True)
    (made / "a.yaml").write_text(PASSING)
    (made / "deep" / "b.yml").write_text(PASSING)
    (made / "notes.md").write_text("no cases here")
    return made


def test_the_golden_cases_pass(gatehouse: Path) -> None:
    done = run(gatehouse, "tests/golden/policy_cases")
    assert (done.returncode, done.stderr) == (0, "")
    assert ", 0 failed" in done.stdout


def test_every_file_below_the_folder_counts(gatehouse: Path, folder: Path) -> None:
    done = run(gatehouse, folder)
    assert (done.returncode, done.stdout) == (0, "2 cases in 2 files, 0 failed\n")


def test_one_file_may_be_named(gatehouse: Path, folder: Path) -> None:
    assert run(gatehouse, folder / "a.yaml").stdout == "1 case in 1 file, 0 failed\n"


def test_a_failing_case_is_printed_and_fails(gatehouse: Path, folder: Path) -> None:
    (folder / "a.yaml").write_text("\n" + PASSING.replace("verdict: allow", "verdict: deny"))
    done = run(gatehouse, folder)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{folder}/a.yaml:2: reads: wanted deny, got allow: allowed by exec(ls *)",
        "2 cases in 2 files, 1 failed",
    ]


def test_a_file_that_cant_be_used_fails_and_the_others_still_run(
    gatehouse: Path, folder: Path
) -> None:
    (folder / "bad.yaml").write_text("- {name: x, category: exec, comand: ls, verdict: ask}\n")
    (folder / "worse.yaml").write_bytes(b"\xff\xfe")
    done = run(gatehouse, folder)
    assert done.returncode == 1
    assert "bad.yaml:1: unknown key `comand` in a case; did you mean `command`?" in done.stderr
    assert "worse.yaml: is not UTF-8 text" in done.stderr
    assert done.stdout == "2 cases in 4 files, 0 failed, 2 can't be used\n"


def test_no_cases_are_no_success(gatehouse: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no case files" in run(gatehouse, empty).stderr
    assert run(gatehouse, empty).returncode == 1
    assert "there is no such folder" in run(gatehouse, tmp_path / "nowhere").stderr
    (empty / "a.yaml").write_text("[]\n")
    assert run(gatehouse, empty).returncode == 1


def test_a_case_without_a_policy_is_judged_by_the_one_that_is_named(
    gatehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(UNJUDGED)
    (tmp_path / "p").write_text("allow: [exec(ls *)]\n")
    assert run(gatehouse, "--policy", tmp_path / "p", tmp_path / "a.yaml").returncode == 0
    (tmp_path / "p").write_text("deny: [exec(ls *)]\n")
    assert run(gatehouse, "--policy", tmp_path / "p", tmp_path / "a.yaml").returncode == 1


def test_a_case_without_a_policy_is_else_judged_by_the_one_in_force(
    gatehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(UNJUDGED)
    assert run(gatehouse, tmp_path / "a.yaml").returncode == 0, "by default commands run contained"


def test_a_policy_that_cant_be_used_is_one_line(
    gatehouse: Path, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "p").write_text("allow: [exe(ls)]\n")
    done = run(gatehouse, "--policy", tmp_path / "p", folder)
    assert done.returncode == 1
    assert done.stderr.startswith(f"gatehouse: {tmp_path}/p:1: unknown category `exe`")
    assert len(done.stderr.splitlines()) == 1


def test_what_a_case_holds_cant_move_the_cursor(gatehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        '- {name: "\\e[2Jx", category: exec, command: "a\\nb", verdict: deny}\n'
    )
    assert "\x1b" not in run(gatehouse, tmp_path / "a.yaml").stdout
