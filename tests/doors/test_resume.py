"""`gatehouse resume` and the page's button go on with the copy of a session that has ended."""

import pytest

from tests.doors.conftest import House, one_line

HALF = "echo half > work.txt; cat work.txt"


def test_the_same_command_goes_on_with_the_copy_after_a_restart(house: House) -> None:
    house.up()
    first = house.ended(HALF)
    house.end()
    house.up()
    again = house.start("resume", first)
    assert f"it goes on with the copy of session {first}" in again.until_printed("half")
    house.until_told(house.requests, "the change, asked anew")
    house.stop(house.sessions()[0]["id"])
    assert again.ended() == 0, again.printed


@pytest.mark.many
def test_another_command_sees_what_the_first_made(house: House) -> None:
    house.up()
    first = house.ended(HALF)
    again = house.start("resume", first, "--", "sh", "-c", "echo it says $(cat work.txt)")
    again.until_printed("it says half")
    house.stop(house.sessions()[0]["id"])
    assert again.ended() == 0, again.printed


def test_what_can_not_go_on_is_said_in_a_line(house: House) -> None:
    house.up()
    one_line(house.run("resume", "0" * 32), "no session")
    status, said = house.http("POST", "/api/sessions", {"command": ["true"]})
    assert (status, said["why"]) == (400, "no workspace is named")
    first = house.ended("true")
    house.ok("resume", first)
    one_line(house.run("resume", first), "the copy of this session is gone")


@pytest.mark.many
def test_a_command_with_a_secret_is_asked_for_again(house: House) -> None:
    house.up()
    house.ok(
        "run", "--workspace", str(house.workspace), "--", "env", "API_TOKEN=hunter2hunter2", "true"
    )
    first = house.sessions()[0]["id"]
    one_line(house.run("resume", first), "give the command again")
    assert house.run("resume", first, "--", "true").returncode == 0


def test_the_button_of_the_page_does_the_same(house: House) -> None:
    house.up()
    first = house.ended(HALF)
    assert f'hx-post="/sessions/{first}/resume"' in house.page.get(f"/sessions/{first}").text
    answer = house.page.post(f"/sessions/{first}/resume")
    went = answer.headers.get("HX-Redirect", answer.text)
    assert went != f"/sessions/{first}"
    house.until_told(lambda: first in house.page.get(went).text, "whose copy it goes on with")
    house.stop(went.removeprefix("/sessions/"))
    assert "the copy of this session is gone" in house.page.post(f"/sessions/{first}/resume").text
