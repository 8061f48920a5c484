"""What is done with a session: `sessions`, `pause`, `unpause`, `take`, `stop`, by command line and
by HTTP, while it runs, after its end and after the next start of the supervisor."""

import re

import pytest

from tests.doors.conftest import House, one_line, until

pytestmark = [pytest.mark.timeout(300)]

COMMITS = """
git checkout -q -b night
echo work > work.txt
git add -A
git -c user.name=A -c user.email=a@b.example commit -qm 'Work at night'
"""


def counting(house: House) -> str:
    """A session that prints numbers for as long as it runs; its id."""
    known = {one["id"] for one in house.sessions()}
    script = "n=0; while true; do n=$((n+1)); echo said-$n; sleep 0.1; done"
    place = ("--workspace", str(house.workspace))
    house.start("run", *place, "--", "sh", "-c", script).until_printed("said-3")
    return str(next(one["id"] for one in house.sessions() if one["id"] not in known))


def said(house: House, session: str) -> str:
    text: str = house.http("GET", f"/api/sessions/{session}/output?offset=0")[1]["text"]
    return text


def test_a_session_is_paused_goes_on_and_is_stopped(house: House) -> None:
    house.up()
    session = counting(house)
    assert session in house.ok("sessions")
    assert "unpause" in house.ok("pause", session)
    assert "paused" in house.ok("sessions")
    one_line(house.run("pause", session))
    stood = said(house, session)
    assert house.http("POST", f"/api/sessions/{session}/unpause")[0] == 200
    until(lambda: len(said(house, session)) > len(stood), "more output")
    assert house.http("POST", f"/api/sessions/{session}/pause")[0] == 200
    assert house.ok("unpause", session) == "it goes on\n"
    one_line(house.run("unpause", session))
    house.ok("pause", session)
    house.ok("stop", session, "--reason", "enough")
    house.until_told(
        lambda: house.session(session)["state"] == "ended", "the end of a paused session"
    )
    assert "enough" in house.ok("audit")
    assert house.ok("stop", session) == f"ended: {session}\n"
    for verb in ("pause", "unpause"):
        one_line(house.run(verb, session))
        one_line(house.run(verb, "0" * 32), "no session")
        assert house.http("POST", f"/api/sessions/{session}/{verb}", {})[0] == 400


@pytest.mark.many
def test_a_session_has_a_name_that_a_person_may_change(house: House) -> None:
    house.up()
    ids = [house.ended("echo one"), house.ended("echo two")]
    first, second = (house.session(one) for one in ids)
    assert re.fullmatch(rf"{house.workspace.name} · sh · \d\d:\d\d", first["name"])
    assert (first["icon"], second["hue"]) == ("exec", first["hue"] + 1)
    assert house.ok("rename", ids[0], "the", "first one") == "the first one\n"
    assert "the first one" in house.ok("sessions")
    status, renamed = house.http("POST", f"/api/sessions/{ids[1]}/name", {"name": "two"})
    assert (status, renamed["name"]) == (200, "two")
    house.end()
    house.up()
    assert [house.session(one)["name"] for one in ids] == ["the first one", "two"]
    assert [house.session(one)["hue"] for one in ids] == [first["hue"], second["hue"]]
    assert "session_renamed" in house.ok("audit", "--json")
    assert house.ok("rename", ids[0]).strip() == first["name"]
    one_line(house.run("rename", ids[0], "x" * 121), "120")
    one_line(house.run("rename", "0" * 32, "x"), "no session")
    assert house.http("POST", f"/api/sessions/{ids[1]}/name", {"name": "a\x1bb"})[0] == 400
    assert house.session(ids[1])["name"] == "two"


def branches(house: House) -> str:
    return house.git("branch", "--format", "%(refname:short) %(subject)")


@pytest.mark.many
def test_a_branch_is_taken_while_it_runs_after_its_end_and_after_a_restart(house: House) -> None:
    house.up()
    running = house.agent(COMMITS)
    assert "night" in house.ok("take", running)
    assert "night Work at night" in branches(house)
    ended = house.ended(COMMITS.replace("night", "late"))
    status, taken = house.http("POST", f"/api/sessions/{ended}/take", {"branch": "late"})
    assert (status, taken["commits"]) == (200, 1)
    later = house.ended(COMMITS.replace("night", "dawn"))
    house.end()
    house.up()
    assert "dawn" in house.ok("take", later, "--branch", "dawn")
    assert "dawn Work at dawn" in branches(house)
    assert (house.workspace / "work.txt").exists() is False
    one_line(house.run("take", later, "--branch", "nowhere"), "nowhere")
    one_line(house.run("take", "0" * 32), "no session")
