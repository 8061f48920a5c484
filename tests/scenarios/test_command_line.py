"""The CLI as a person uses it: verbs beside a running supervisor, and one clear line for
everything that can't be."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.process import Gatehouse, until

pytestmark = pytest.mark.timeout(300)

POLICY = "version: 1\nmodes: {filesystem: ask, exec: ask, network: ask}\n"


@pytest.fixture
def product(gatehouse: Path, tmp_path: Path) -> Iterator[Gatehouse]:
    (tmp_path / "workspace").mkdir()
    made = Gatehouse(gatehouse, tmp_path, POLICY)
    yield made
    made.end()


@pytest.fixture
def up(product: Gatehouse, tmp_path: Path) -> Gatehouse:
    product.launch("up", log=tmp_path / "up.log")
    until(lambda: "open http://127.0.0.1:" in (tmp_path / "up.log").read_text(), "the page's URL")
    return product


def one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("gatehouse: ")
    for word in words:
        assert word in done.stderr


def test_bad_input_gets_one_clear_line(product: Gatehouse, tmp_path: Path) -> None:
    workspace = str(tmp_path / "workspace")
    one_line(
        product.run("run", "--workspace", str(tmp_path / "absent"), "--", "true"),
        "does not exist",
        "--workspace",
    )
    one_line(product.run("run", "--workspace", str(product.policy), "--", "true"), "not a folder")
    one_line(product.run("run", "--workspace", "/", "--", "true"), "whole machine")
    one_line(product.run("run", "--workspace", workspace), "no command")
    one_line(
        product.run("run", "--workspace", workspace, "--", "no-such-program"),
        "`no-such-program` is not on the PATH",
    )
    one_line(
        product.run("review", "--workspace", workspace, "--base", "nonsense"), "no git repository"
    )
    one_line(product.run("frobnicate"), "frobnicate", "--help")
    one_line(product.run("approve"), "nothing waits")
    one_line(product.run("show"), "ID")
    one_line(product.run("url"), "no Gatehouse runs")
    one_line(product.run("approve", "../../x"), "not an id")
    one_line(product.run("up", "--port", "70000"), "not a port")
    one_line(
        product.run("up", "--network", "open"), "--network", "`open`", "choose proxy or transparent"
    )
    one_line(product.run("up", GATEHOUSE_NETWORK="none"), "GATEHOUSE_NETWORK", "`none`")
    one_line(product.run("up", GATEHOUSE_MEMORY_MB="lots"), "GATEHOUSE_MEMORY_MB", "`lots`")
    one_line(
        product.run("up", GATEHOUSE_MODEL_HOSTS="a.test,https://b.test/"),
        "GATEHOUSE_MODEL_HOSTS",
        "`https://b.test/`",
    )
    # As from a file with lines that Windows ends.
    one_line(
        product.run("up", ANTHROPIC_API_KEY="sk-ant-not-a-real-one\r"),
        "`ANTHROPIC_API_KEY` is not",
        "printable",
    )


@pytest.mark.many
def test_the_way_out_is_chosen_on_the_command_line(product: Gatehouse, tmp_path: Path) -> None:
    look_up = (
        "--workspace",
        str(tmp_path / "workspace"),
        "--",
        "getent",
        "ahostsv4",
        "some.example.org",
    )
    transparent = product.run("run", "--network=transparent", *look_up)
    assert (transparent.returncode, transparent.stdout.startswith("198.1")) == (0, True), (
        transparent
    )
    assert product.run("run", *look_up).stdout == ""


def test_a_folder_that_can_not_be_read_is_said(product: Gatehouse, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    if os.geteuid() != 0:  # root may read anything
        one_line(product.run("run", "--workspace", str(closed), "--", "true"), "can't be read")
    (tmp_path / "file").write_text("")
    one_line(
        product.run(
            "run",
            "--data-dir",
            str(tmp_path / "file"),
            "--workspace",
            str(tmp_path / "workspace"),
            "--",
            "true",
        ),
        "data folder",
    )


def test_a_policy_that_does_not_parse_is_named_with_its_line(
    product: Gatehouse, tmp_path: Path
) -> None:
    product.policy.write_text("version: 1\nallow:\n  - exec(git status)\n  - exce(git log)\n")
    done = product.run("run", "--workspace", str(tmp_path / "workspace"), "--", "true")
    one_line(done, f"{product.policy}:4: ", "exec")
    product.policy.unlink()
    one_line(product.run("up"), "No such file", "--policy")


def test_a_taken_port_is_one_line(product: Gatehouse) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one_line(product.run("up", "--port", str(taken.getsockname()[1])), "is taken", "--port")


def test_a_second_supervisor_on_the_same_data_is_refused(up: Gatehouse) -> None:
    one_line(up.run("up"), "another Gatehouse uses")


def test_a_folder_without_git_works(product: Gatehouse, tmp_path: Path) -> None:
    done = product.run(
        "run", "--workspace", str(tmp_path / "workspace"), "--", "sh", "-c", "echo here; exit 7"
    )
    assert done.stdout == "here\n"
    assert done.returncode == 7


def test_the_agents_terminal_tricks_do_not_reach_the_terminal(
    product: Gatehouse, tmp_path: Path
) -> None:
    done = product.run(
        "run",
        "--workspace",
        str(tmp_path / "workspace"),
        "--",
        "printf",
        r"\033]0;owned\007\033[2J\u202e ok",
    )
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "ok" in done.stdout


@pytest.mark.many
def test_the_twins_of_the_page(up: Gatehouse, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    log = tmp_path / "run.log"
    up.launch(
        "run",
        "--workspace",
        str(workspace),
        "--",
        "sh",
        "-c",
        "mkdir src; cd src; echo a > a.txt; echo b > b.txt; echo c > ../c.md; sleep 600",
        log=log,
    )
    waiting = up.until_all_wait("write src/a.txt", "write src/b.txt", "write c.md")
    assert "denied" in up.ok("deny", waiting["write c.md"], "--reason", "no notes")
    said = up.ok("approve", waiting["write src/a.txt"], "--always")
    assert said.startswith(f"{waiting['write src/a.txt']}  filesystem  write src/a.txt\n")
    assert "saved: allow filesystem(" in said
    assert said.endswith("\napproved; applied\n")
    until(
        lambda: (workspace / "src/a.txt").exists() and (workspace / "src/b.txt").exists(),
        "both files: the rule answered the other",
    )
    assert not (workspace / "c.md").exists()
    assert "nothing waits" in up.ok("approvals")

    rules = up.ok("rules", "list")
    assert "filesystem(" in rules
    added = up.ok("rules", "add", "deny", "network(*.example.org)", "--why", "not needed")
    assert added.startswith("no earlier network request to compare with\n")
    rule_id = added.split("id ")[1].split(";")[0]
    assert "network(*.example.org)" in up.ok("rules", "list")
    up.ok("rules", "remove", rule_id)
    assert "network(*.example.org)" not in up.ok("rules", "list")
    one_line(up.run("rules", "add", "allow", "network(*)"), "network(*)")
    one_line(up.run("rules", "remove", "nonsense"), "nonsense")

    (line,) = up.ok("sessions").splitlines()
    assert " running " in line
    assert "login?token=" in up.ok("url")
    up.ok("stop", line.split()[0], "--reason", "enough")
    up.until_event("session_ended")
    assert up.events("session_ended")[0]["reason"] == "enough"
    records = [json.loads(text) for text in up.ok("audit", "--json").splitlines()]
    assert {"rule_added", "request_answered", "session_ended"} <= {
        record["event"] for record in records
    }
    assert "session_ended" in up.ok("audit")
    assert "unbroken" in up.ok("audit", "--verify")


@pytest.mark.many
def test_watching_and_following_go_on_with_what_comes(up: Gatehouse, tmp_path: Path) -> None:
    watched, followed = tmp_path / "watched.log", tmp_path / "followed.log"
    up.launch("approvals", "--watch", log=watched)
    up.launch("audit", "--follow", log=followed)
    agent = "mkdir src; echo a > src/a.txt; sleep 600"
    up.launch(
        "run",
        "--workspace",
        str(tmp_path / "workspace"),
        "--",
        "sh",
        "-c",
        agent,
        log=tmp_path / "run.log",
    )
    request = up.until_all_wait("write src/a.txt")["write src/a.txt"]
    until(
        lambda: f"{request}  filesystem  write src/a.txt" in watched.read_text(),
        "the request in the watching terminal",
    )
    up.ok("deny", request, "--reason", "not now", "--always")
    until(
        lambda: f"{request}  denied (denied by " in watched.read_text(),
        "the answer in the watching terminal",
    )
    until(lambda: "request_answered" in followed.read_text(), "the answer in the followed log")
    assert any(
        line.split()[1:3] == ["deny", "filesystem(src/*)"]
        for line in up.ok("rules", "list").splitlines()
    )


def test_doctor_names_each_need(product: Gatehouse) -> None:
    done = product.run("doctor")
    assert done.returncode == 0, done.stdout
    for need in (
        "bubblewrap",
        "seccomp",
        "user namespaces",
        "certificate authority",
        "port",
        "git",
    ):
        assert need in done.stdout


def test_doctor_says_what_to_do(product: Gatehouse) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = product.run("doctor", GATEHOUSE_PORT=str(taken.getsockname()[1]))
    assert "is taken" in done.stdout
    assert "-> " in done.stdout
