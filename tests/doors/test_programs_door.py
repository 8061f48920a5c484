"""The door where any program of a session asks, without a token: what it gives, and who has one."""

import json
import re
import shlex
from typing import Any

import pytest

from tests.doors.conftest import House, Started

COMMITS = """
git checkout -q -b agent/work; echo more >> README.md
git -c user.name=A -c user.email=a@b.example commit -qam 'one more line'
"""
ASKS = """
exec /opt/gatehouse/python -I -S - <<'END'
import sys
sys.path.append("/opt/gatehouse")
from agent_image.programs.door import ask
last = list(ask("/v1/git", {"command": "git push origin agent/work"}))[-1]
print("ANSWER", last)
sys.exit(last["exit"])
END
"""


def begun(house: House, script: str) -> Started:
    return house.start("run", "--workspace", str(house.workspace), "--", "bash", "-c", script)


def push_of(house: House) -> dict[str, Any]:
    """The one push that waits."""
    (push,) = house.until_told(
        lambda: [one for one in house.requests() if one["category"] == "git"], "the push"
    )
    return dict(push)


def until_it_is(house: House, push: dict[str, Any], status: str) -> dict[str, Any]:
    """The same push, once it has this status."""

    def found() -> dict[str, Any] | None:
        now = house.http("GET", f"/api/requests/{push['id']}")[1]["request"]
        return dict(now) if now["status"] == status else None

    return house.until_told(found, f"a push that is {status}")


def test_a_program_asks_without_a_token_and_waits_for_the_answer(house: House) -> None:
    house.up()
    started = begun(house, COMMITS + ASKS)
    push = push_of(house)
    started.until_printed("gatehouse: waiting for an answer: git push origin agent/work")
    assert f"(gatehouse approve {push['id'][:8]})" in started.printed
    house.ok("deny", push["id"], "--reason", "not now")
    started.until_printed("'why': 'denied by operator (cli): not now'")
    house.stop(push["session_id"])
    assert started.ended() == 1, started.printed


def test_a_program_that_goes_withdraws_its_request(house: House) -> None:
    house.up()
    leaves = (
        "until grep -q waiting /tmp/said; do sleep 0.1; done; kill $!; echo still here; sleep 100"
    )
    started = begun(house, f"{COMMITS}({ASKS}) 2> /tmp/said & {leaves}")
    push = until_it_is(house, push_of(house), "expired")
    assert push["why"] == "the program that asked has gone"
    started.until_printed("still here")
    house.stop(push["session_id"])


def test_a_session_s_end_leaves_the_push_of_a_program_to_be_answered(house: House) -> None:
    house.up()
    started = begun(house, COMMITS + ASKS)
    push = push_of(house)
    house.stop(push["session_id"])
    started.ended()
    house.ok("approve", push["id"])
    assert until_it_is(house, push, "used")["settled"]
    assert "refs/heads/agent/work" in house.git("ls-remote", "origin")


FLOODS = """
cat > /tmp/flood.py <<'END'
import json, os, urllib.error, urllib.request
def code(url, body, **headers):
    sent = urllib.request.Request(url, json.dumps(body).encode(), headers)
    sent.add_header("Content-Type", "application/json")
    try:
        return urllib.request.urlopen(sent).status
    except urllib.error.HTTPError as error:
        return error.code
own, token = os.environ["GATEHOUSE_URL"], os.environ["GATEHOUSE_TOKEN"]
short, long = {"operation": "clone"}, {"command": "git clone " + "x " * 4900}
asked = 0
while code(f"{own}/v1/git", short, Authorization=f"Bearer {token}") != 429 and asked < 1000:
    asked += 1
print("ASKED", asked, "THEN", code("http://127.0.0.1:3702/v1/git", long))
END
exec /opt/gatehouse/python -I -S /tmp/flood.py
"""


@pytest.mark.many
def test_both_doors_of_a_session_share_one_budget(house: House) -> None:
    house.up()
    started = begun(house, FLOODS)
    started.until_printed("ASKED")
    assert started.ended() == 0, started.printed
    found = re.search(r"ASKED (\d+) THEN (\d+)", started.printed)
    assert found is not None
    assert int(found[1]) >= 200
    assert found[2] == "429"


@pytest.mark.many
def test_a_granted_command_finds_the_door_too(house: House) -> None:
    house.up()
    command = ASKS.replace("git push origin agent/work", "git clone elsewhere")
    body = json.dumps({"command": f"[ -z ${{GATEHOUSE_TOKEN-}} ] || exit 9{command}"})
    token = '-H "Authorization: Bearer $GATEHOUSE_TOKEN" -H "Content-Type: application/json"'
    sent = f'curl -s "$GATEHOUSE_URL/v1/exec" {token} -d {shlex.quote(body)}'
    known = """sed 's/.*"id":"\\([0-9a-f]*\\)".*/\\1/'"""
    started = begun(
        house, f'id=$({sent} | {known}); curl -s "$GATEHOUSE_URL/v1/requests/$id?wait=30" {token}'
    )
    started.until_printed("`elsewhere` is not a remote that is configured")
    assert started.ended() == 0
