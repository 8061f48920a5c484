"""`gatehouse policy lint`, as a person runs it."""

import json
import subprocess
from pathlib import Path

import msgspec

from supervisor.base.clock import RealClock
from supervisor.core.actions import Exec

ROOT = Path(__file__).resolve().parents[3]
DAY = 86_400.0


def run(
    gatehouse: Path, *words: str | Path, data: Path | None = None
) -> subprocess.CompletedProcess[str]:
    where = ["--data-dir", str(data)] if data else []
    return subprocess.run(
        [str(gatehouse), "policy", "lint", *where, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def record(path: Path, *commands: tuple[str, float]) -> Path:
    """An audit log in which commands were allowed, each so many days ago."""
    now = RealClock().now()
    lines = [
        {
            "seq": number, "at": now - days * DAY, "event": "verdict_given", "session": "s",
            "verdict": "allow", "why": "w",
            "origin": "agent_api", "action": msgspec.to_builtins(Exec(command=command)),
        }
        for number, (command, days) in enumerate(commands, 1)
    ]  # fmt: skip
    return write(path, "".join(json.dumps(line) + "\n" for line in lines))


def test_a_policy_without_findings_is_0(gatehouse: Path, tmp_path: Path) -> None:
    done = run(
        gatehouse,
        "--policy",
        write(tmp_path / "p.yaml", "allow: [exec(ls *)]\n"),
        data=tmp_path / "data",
    )
    assert (done.returncode, done.stdout) == (0, "nothing is wrong with the rules\n")
    assert (
        done.stderr
        == "note: there is no record, so nothing can be said of rules that aren't used\n"
    )


def test_each_finding_is_a_line_with_its_place(gatehouse: Path, tmp_path: Path) -> None:
    policy = write(
        tmp_path / "p.yaml",
        "allow:\n- exec(ls *)\n- exec(ls -l)\n- exec(bash *)\n- {rule: exec(id), expires:"
        " 2020-01-01}\n",
    )
    done = run(gatehouse, "--policy", policy, data=tmp_path / "data")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{policy}:3: covered: allow exec(ls -l) is covered by exec(ls *) ({policy}:2); remove it",
        (
            f"{policy}:4: wide: allow exec(bash *) lets `*` stand for any script; name what is run,"
            " in a rule for each"
        ),
        (
            f"{policy}:5: expired: allow exec(id) ended on 2020-01-01; remove it, or give it"
            " another date"
        ),
    ]


def test_as_json_it_is_one_object(gatehouse: Path, tmp_path: Path) -> None:
    policy = write(tmp_path / "p.yaml", "allow: [exec(bash *)]\n")
    done = run(gatehouse, "--policy", policy, "--json", data=tmp_path / "data")
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert [(one["kind"], one["rule"], one["line"]) for one in report["findings"]] == [
        ("wide", "exec(bash *)", 1)
    ]
    assert len(report["notes"]) == 1


def test_rules_that_decided_nothing_are_named_by_the_record(
    gatehouse: Path, tmp_path: Path
) -> None:
    added = RealClock().now() - 60 * DAY
    policy = write(
        tmp_path / "p.yaml",
        f"allow:\n- {{rule: exec(ls *), added_at: {added}}}\n- {{rule: exec(id), added_at:"
        f" {added}}}\n",
    )
    log = record(tmp_path / "audit.log", ("true", 50), ("ls -l", 3))
    done = run(gatehouse, "--policy", policy, "--audit", log)
    assert (done.returncode, done.stderr) == (1, "")
    assert (
        done.stdout
        == f"{policy}:3: unused: allow exec(id) decided nothing for 30 days; remove it if nobody"
        " misses it\n"
    )
    data = tmp_path / "data"
    data.mkdir()
    log.rename(data / "audit.log")
    assert run(gatehouse, "--policy", policy, data=data).stdout == done.stdout, (
        "this installation's record is the default"
    )


def test_a_record_that_was_named_must_be_there(gatehouse: Path, tmp_path: Path) -> None:
    done = run(gatehouse, "--audit", tmp_path / "nowhere.log")
    assert done.returncode == 1
    assert "there is no audit log" in done.stderr


def test_saved_rules_are_looked_at_with_the_policy_file(gatehouse: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data / "policy.yaml", "deny:\n- network(sentry.io)\n")
    done = run(gatehouse, data=data)
    assert f"{data}/policy.yaml:2: covered: deny network(sentry.io) says the same as" in done.stdout


def test_a_policy_that_cant_be_used_is_one_line(gatehouse: Path, tmp_path: Path) -> None:
    done = run(gatehouse, "--policy", write(tmp_path / "p.yaml", "allow: [exe(x)]\n"))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
