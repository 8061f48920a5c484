"""Verbs that need no running supervisor: what an ended session left is looked at and taken, rules
are saved, another tool's lists are read."""

import json
import re
import signal

import pytest

from tests.doors.conftest import House, no_bug, one_line

pytestmark = [pytest.mark.timeout(300)]


def test_what_maintain_says_at_its_end_works(house: House) -> None:
    """`take it with: gatehouse take ID`: the supervisor was there for that job alone."""
    job = ("--workspace", "workspace", "--prompt", "Keep it in order.", "--branch")
    done = house.run("maintain", *job)
    found = re.search(r"take it with: gatehouse (take [0-9a-f]+)$", done.stderr, re.MULTILINE)
    assert found, no_bug(done)
    assert found[1].split()[1] in house.ok("sessions")
    branch, _, commits = house.ok(*found[1].split()).partition(": ")
    assert commits.startswith("1 commits")
    assert branch in house.git("branch", "--format=%(refname:short)").splitlines()


def test_a_request_that_was_left_is_shown(house: House) -> None:
    up = house.up()
    house.ended("echo now > seen.txt")
    request = house.waiting()["write seen.txt"]
    up.signal(signal.SIGTERM)
    up.ended()
    shown = house.ok("show", request)
    assert "write seen.txt" in shown
    assert "+now" in shown


@pytest.mark.many
def test_rules_are_saved_and_removed(house: House) -> None:
    added = house.ok("rules", "add", "deny", "network(*.example.org)", "--why", "not needed")
    (rule,) = re.findall(r"saved with id (\S+);", added)
    assert f"{rule}  deny   network(*.example.org)" in house.ok("rules", "list")
    house.ok("rules", "remove", rule)
    assert rule not in house.ok("rules", "list")
    one_line(house.run("rules", "remove", rule), rule)
    house.up()
    assert rule not in house.ok("rules", "list")


def test_nothing_is_begun_where_there_never_was_a_session(house: House) -> None:
    assert house.ok("sessions") == "no sessions yet\n"
    one_line(house.run("show", "0" * 32), "no Gatehouse runs on")
    assert not house.data.exists()


def test_the_persons_own_lists_of_claude_code_are_found(house: House) -> None:
    home = house.folder / "home"
    one_line(house.run("policy", "import", "claude", HOME=str(home)), "settings.json", "give a")
    (home / ".claude").mkdir(parents=True)
    lists = {"permissions": {"deny": ["WebFetch(domain:example.org)"]}}
    (home / ".claude/settings.json").write_text(json.dumps(lists))
    policy = house.ok("policy", "import", "claude", HOME=str(home))
    assert "network(example.org)" in policy
