"""Habits of the terminal: no id where one thing waits, names for paths, the word that was meant."""

from tests.doors.conftest import House, one_line

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
