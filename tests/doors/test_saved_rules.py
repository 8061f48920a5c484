"""Where a saved rule goes, and that it holds after a restart."""

import subprocess

from tests.conftest import ROOT
from tests.doors.conftest import House, one_line, until

STRICT = str(ROOT / "policy/examples/strict.yaml")


def test_under_a_shipped_policy_they_go_to_the_data_folder(house: House) -> None:
    house.up()
    house.agent("echo x > notes.txt", "--policy", STRICT)
    (one,) = house.until_told(house.requests, "the change")
    assert f"session: {one['session_id']}" in house.ok("approvals")
    for verb in ("approve", "deny"):
        twice = house.run(verb, one["id"], "--always", "--for", "1h")
        one_line(twice, "--always and --for contradict each other")
    said = house.ok("approve", one["id"], "--for", "1h")
    saved = house.data / "saved-strict.yaml"
    assert str(saved) in said
    assert "notes.txt" in saved.read_text()
    changed = subprocess.run(
        ["git", "status", "--porcelain", "policy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert changed.stdout == ""
    house.end()
    house.up()
    session = house.agent("echo y > notes.txt", "--policy", STRICT)
    until(lambda: (house.workspace / "notes.txt").read_text() == "y\n", "the change, unasked")
    house.run("stop", session)


def test_the_rules_page_shows_saves_and_removes_them(house: House) -> None:
    house.up()
    page = house.page
    added = page.post("/rules", data={"effect": "allow", "rule": "filesystem(notes/**)"})
    assert added.status_code == 200
    assert "filesystem(notes/**)" in page.get("/rules").text
    house.end()
    house.up()
    (rule,) = [one for one in house.http("GET", "/api/rules")[1] if one["can_remove"]]
    assert rule["rule"] == "filesystem(notes/**)"
    removed = house.page.delete(f"/rules/{rule['id']}")
    assert removed.status_code == 200
    assert "Removed" in removed.text
    assert not [one for one in house.http("GET", "/api/rules")[1] if one["can_remove"]]
