"""A session beside a running supervisor has the policy and the limits that its command line
says, or isn't started."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.fakes.supervised import make_repository
from tests.scenarios.process import Gatehouse, until

pytestmark = pytest.mark.timeout(300)

PERMISSIVE = "version: 1\nallow: ['filesystem(**)', 'network(*.example.org)']\n"
STRICT = (
    "version: 1\nmodes: {filesystem: deny, network: deny, git: deny, packages: deny, exec: deny}\n"
    "deny: ['filesystem(**)', 'network(**)', 'git(**)', 'packages(**)', 'exec(**)']\n"
)
WRITES = ("sh", "-c", "echo made > made.txt")


@pytest.fixture
def product(gatehouse: Path, tmp_path: Path) -> Gatehouse:
    return Gatehouse(gatehouse, tmp_path, PERMISSIVE)


def up(product: Gatehouse, tmp_path: Path, **more: str) -> subprocess.Popen[bytes]:
    process = product.launch("up", log=tmp_path / "up.log", **more)
    until(
        lambda: (product.data / "supervisor.json").exists() or process.poll() is not None,
        "the supervisor",
    )
    assert process.poll() is None, (tmp_path / "up.log").read_text()
    return process


def without_own(product: Gatehouse) -> dict[str, str]:
    """What a shell has in which nobody names a policy."""
    return {"GATEHOUSE_POLICY": ""}


def verdicts(product: Gatehouse) -> list[tuple[str, str]]:
    events = product.events("verdict_given", "request_asked")
    return [(one["action"].get("path", ""), one["verdict"]) for one in events]


def test_a_policy_that_denies_everything_denies_beside_a_permissive_supervisor(
    product: Gatehouse, tmp_path: Path
) -> None:
    strict = tmp_path / "strict.yaml"
    strict.write_text(STRICT)
    workspace = make_repository(tmp_path / "project")
    up(product, tmp_path)
    try:
        done = product.run(
            "run", "--policy", str(strict), "--workspace", str(workspace), "--", *WRITES
        )
        assert done.returncode == 0, done.stderr
        assert not (workspace / "made.txt").exists()
        assert ("made.txt", "deny") in verdicts(product)
        (started,) = product.events("session_started")
        digest = hashlib.sha256(strict.read_bytes()).hexdigest()
        assert (started["policy"], started["policy_sha256"]) == (str(strict), digest)
        again = product.run(
            "run", "--workspace", str(workspace), "--", *WRITES, **without_own(product)
        )
        assert again.returncode == 0, again.stderr
        assert (
            workspace / "made.txt"
        ).read_text() == "made\n"  # whoever says nothing has the supervisor's
    finally:
        product.end()


def test_a_permissive_policy_allows_in_its_own_session_alone(
    gatehouse: Path, tmp_path: Path
) -> None:
    product = Gatehouse(gatehouse, tmp_path, STRICT)
    permissive = tmp_path / "permissive.yaml"
    permissive.write_text(PERMISSIVE)
    workspace = make_repository(tmp_path / "project")
    up(product, tmp_path)
    try:
        product.run(
            "run", "--policy", str(permissive), "--workspace", str(workspace), "--", *WRITES
        )
        assert (workspace / "made.txt").read_text() == "made\n"
        (workspace / "made.txt").unlink()
        product.run("run", "--workspace", str(workspace), "--", *WRITES, **without_own(product))
        assert not (workspace / "made.txt").exists()
    finally:
        product.end()


@pytest.mark.many
def test_limits_of_the_command_line_bound_its_session_alone(
    product: Gatehouse, tmp_path: Path
) -> None:
    (tmp_path / "workspace").mkdir()
    words = ("run", "--workspace", str(tmp_path / "workspace"), "--", "/usr/bin/python3", "-c")
    # They stay for a while: where the kernel bounds no user's processes (root's own, by whatever
    # number), the watchdog does.
    many = (
        "import threading as t; e = t.Event(); [t.Thread(target=e.wait, daemon=True).start() for _"
        " in range(60)]; e.wait(3)"
    )
    large = "print(len(bytearray(300 << 20)))"
    up(product, tmp_path)
    try:
        assert product.run(*words, many, GATEHOUSE_PROCESSES="32").returncode != 0
        assert product.run(*words, many).returncode == 0
        bounded = product.run(*words, large, GATEHOUSE_MEMORY_MB="128")
        assert (bounded.returncode != 0, "memory" in bounded.stderr.lower()) == (
            True,
            True,
        ), bounded
        assert product.run(*words, large).stdout == f"{300 << 20}\n"
        started = product.events("session_started")
        kept = {"exec_rules": "asked"}  # of every session, for what is left of it
        assert [one["limits"] for one in started] == [
            {"processes": 32, **kept},
            kept,
            {"memory_bytes": 128 << 20, **kept},
            kept,
        ]
    finally:
        product.end()


def test_what_a_supervisor_has_for_all_its_sessions_is_refused_before_anything_starts(
    product: Gatehouse, tmp_path: Path
) -> None:
    (tmp_path / "workspace").mkdir()
    broken = tmp_path / "broken.yaml"
    broken.write_text("version: 1\nallwo: []\n")
    words = ("run", "--workspace", str(tmp_path / "workspace"), "--", "true")
    up(product, tmp_path, MAX_COST_PER_DAY="9usd")
    try:
        for name, value in (
            ("MAX_COST_PER_DAY", "5usd"),
            ("MAX_COST_TOTAL", "5usd"),
            ("GATEHOUSE_AT_LIMIT", "deny"),
            ("ANTHROPIC_API_KEY", "sk-ant-not-a-real-one"),
            ("ANTHROPIC_BASE_URL", "https://model.example.org"),
            ("GATEHOUSE_CREDENTIALS", str(broken)),
        ):
            done = product.run(*words, **{name: value})
            assert done.returncode == 1, name
            assert done.stderr.count("\n") == 1, done.stderr
            assert f"another {name}" in done.stderr
            assert "stop it first" in done.stderr
        too_long = product.run(*words, GATEHOUSE_HOLD="2h")
        assert (too_long.returncode, "holds nothing longer than 1h" in too_long.stderr) == (
            1,
            True,
        ), too_long
        for more, said in (
            (("--policy", str(broken)), "broken.yaml:2"),
            (("--port", "1"), "runs on"),
        ):
            done = product.run("run", *more, *words[1:])
            assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (
                1,
                True,
                1,
            ), done.stderr
        assert product.events("session_started") == []
        assert product.run(*words, MAX_COST_PER_DAY="9usd").returncode == 0  # the same is no other
    finally:
        product.end()


def test_the_shell_that_a_session_is_started_in_counts_not_the_supervisors(
    product: Gatehouse, tmp_path: Path
) -> None:
    (tmp_path / "workspace").mkdir()
    program = tmp_path / "tools/only-here"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\nprintf \'%s %s %s\' "$TZ" "$ANTHROPIC_MODEL" "$SECRET_OF_THE_SHELL"\n'
    )
    program.chmod(0o755)
    up(product, tmp_path, TZ="Asia/Tokyo")
    try:
        path = f"{program.parent}:{product.environment()['PATH']}"
        shell = {
            "PATH": path,
            "TZ": "Europe/Berlin",
            "ANTHROPIC_MODEL": "a-model",
            "SECRET_OF_THE_SHELL": "hidden",
        }
        done = product.run(
            "run", "--workspace", str(tmp_path / "workspace"), "--", "only-here", **shell
        )
        assert (done.returncode, done.stdout) == (0, "Europe/Berlin a-model ")
    finally:
        product.end()


def test_always_is_saved_beside_the_policy_that_the_session_runs_under(
    product: Gatehouse, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("version: 1\n")
    workspace = make_repository(tmp_path / "project")
    up(product, tmp_path)
    try:
        words = ("--workspace", str(workspace), "--", "sh", "-c", "echo a > a.txt; sleep 600")
        product.launch("run", "--policy", str(own), *words, log=tmp_path / "run.log")
        waiting = product.until_all_wait("write a.txt")
        said = product.ok("approve", waiting["write a.txt"], "--always")
        saved = tmp_path / "saved-own.yaml"
        assert str(saved) in said
        assert "filesystem(" in saved.read_text()
        assert not (product.data / "policy.yaml").exists()
        until((workspace / "a.txt").exists, "the file")
        assert str(saved) in product.ok("rules", "list")
        (added,) = product.events("rule_added")
        assert added["saved_in"] == str(saved)
        loaded = product.events("policy_loaded")[-1]
        assert loaded["saved_rules_sha256"] == hashlib.sha256(saved.read_bytes()).hexdigest()
        product.ok("rules", "remove", added["rule_id"])
        assert "filesystem(" not in saved.read_text()
    finally:
        product.end()


def test_a_session_of_its_own_policy_is_judged_by_it_after_a_crash_of_the_supervisor(
    product: Gatehouse, tmp_path: Path
) -> None:
    """Its changes wait; the next supervisor, of a permissive policy, must not let them through
    by its own rules."""
    own = tmp_path / "own.yaml"
    own.write_text("version: 1\n")
    workspace = make_repository(tmp_path / "project")
    first = up(product, tmp_path)
    try:
        words = ("--workspace", str(workspace), "--", "sh", "-c", "echo a > a.txt; sleep 600")
        product.launch("run", "--policy", str(own), *words, log=tmp_path / "run.log")
        product.until_all_wait("write a.txt")
        first.kill()
        first.wait()
        (product.data / "supervisor.json").unlink()
        up(product, tmp_path)
        waiting = product.until_all_wait("write a.txt")
        product.ok("rules", "add", "allow", "filesystem(a.txt)")
        assert product.waiting() == waiting
        product.ok("approve", waiting["write a.txt"], "--always")
        until((workspace / "a.txt").exists, "the file")
        assert "filesystem(" in (tmp_path / "saved-own.yaml").read_text()
    finally:
        product.end()
