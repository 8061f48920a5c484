"""Habits of the terminal: no id where one thing waits, names for paths, the word that was meant."""

import re

import pytest

from tests.doors.conftest import House, one_line
from tests.doors.terminal import Terminal
from tests.tables import share

ASKS = "echo 1 > 1.txt"


def test_what_one_types_first(house: House) -> None:
    begun = house.ok()
    assert "doesn't run here" in begun
    assert "gatehouse demo" in begun
    assert house.ok("status") == begun
    said = one_line(house.run("aprove"), "there is no `aprove` here")
    assert "did you mean `approve`?" in said
    assert "did you mean `list`?" in one_line(house.run("rules", "lst"), "there is no `lst` here")


def test_the_only_request_that_waits_needs_no_id(house: House) -> None:
    house.up()
    for verb in ("approve", "deny"):
        assert "approvals --watch" in one_line(house.run(verb), "nothing waits")
    session = house.agent(ASKS)
    request = house.until_waiting("write 1.txt")
    assert "1 sessions run, 1 requests wait" in house.ok()
    assert request in house.ok("approve")
    house.until_told(lambda: house.session(session)["state"] == "ended", "the session's end")
    house.agent("echo 2 > 2.txt; echo 3 > 3.txt")
    house.until_waiting("write 2.txt")
    house.until_waiting("write 3.txt")
    said = one_line(house.run("deny", "--reason", "no"), "more than one thing waits")
    assert "say which" in said
    assert house.run("approve", "--changes").returncode == 0
    assert (house.workspace / "3.txt").is_file()


def test_a_shipped_policy_has_a_name(house: House) -> None:
    house.up()
    session = house.ended("true", "--policy", "strict")
    assert house.session(session)["policy_file"].endswith("/policy/examples/strict.yaml")
    assert "strct" in one_line(house.run("run", "--policy", "strct", "--", "true"), "strct")


@pytest.mark.parametrize("is_beside", share([False, True], True))
def test_after_a_shell_the_prompt_is_back_and_what_waits_is_answered(
    house: House, *, is_beside: bool
) -> None:
    if is_beside:
        house.up()
    shell = Terminal(house, "run", "--", "bash", "--norc")
    shell.types("test -t 0 && echo 1 > 1.txt; exit\n")
    assert "left to answer: 1 change" in shell.ended()
    listed = Terminal(house, "approvals").ended()
    (start,) = re.findall(r"^([0-9a-f]{8})  filesystem  write 1.txt$", listed, re.MULTILINE)
    whole = house.ok("approvals").split()[0]
    assert whole.startswith(start)
    assert len(whole) == 32
    assert "approved; applied" in house.ok("approve", start[:4])
    assert (house.workspace / "1.txt").read_text() == "1\n"
    assert "1.txt" in house.ok("undo", start, "--yes")
    assert not (house.workspace / "1.txt").exists()


@pytest.mark.many
def test_an_id_is_as_long_as_it_must_be(house: House) -> None:
    house.up()
    session = house.ended("true")
    assert house.ok("rename", session[:12], "first").strip() == "first"
    one_line(house.run("pause", session[:12]), "doesn't run")
    one_line(house.run("show", session[:12]), "no request")
    saved = house.ok("rules", "add", "allow", "network(a.example.org)")
    (rule,) = re.findall(r"saved with id (\w+)", saved)
    assert rule in house.ok("rules", "remove", rule[:5])
    for words in (("approve", "9a1"), ("pause", "9a1"), ("rules", "remove", "9a1")):
        one_line(house.run(*words), "too short for an id")


def test_a_shell_completes_by_the_parser(house: House) -> None:
    asked = """
    eval "$(gatehouse completion bash)"
    for COMP_LINE in "gatehouse appro" "gatehouse rules " "gatehouse doctor --agent c"; do
      COMP_POINT=${#COMP_LINE} COMP_TYPE=9 _python_argcomplete gatehouse; echo "${COMPREPLY[@]}"
    done
    """
    done = house.sh(f"{asked}", PATH=f"{house.program.parent}:/usr/bin:/bin")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["approvals", "approve"], done
    assert {"list", "add", "remove"} <= {*lines[1].split()}
    assert lines[2].split() == ["claude", "codex"]
    for shell in ("zsh", "fish"):
        assert "gatehouse" in house.ok("completion", shell)


def test_doctor_says_what_an_agent_would_lack(house: House) -> None:
    home = house.folder / "home"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude/CLAUDE.md").write_text("Be brief.\n")
    done = house.run("doctor", "--agent", "claude", HOME=str(home))
    assert "~/.claude/CLAUDE.md isn't in a session's home" in done.stdout
    assert "there is no key for Claude Code" in done.stdout
    assert done.returncode == 1
    assert "there is no `cluade` here" in house.run("doctor", "--agent", "cluade").stderr


def test_verbs_are_listed_by_what_one_wants(house: House) -> None:
    listed = house.ok("--help")
    for one in ("start an agent:", "answer what it asks:", "look:"):
        assert one in listed
