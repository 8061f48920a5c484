"""A push that an agent asks for: its card, and what an answer does."""

import subprocess

from tests.doors.conftest import House

PUSHES = """
git checkout -q -b agent/work; echo more >> README.md
git -c user.name=A -c user.email=a@b.example commit -qam 'one more line'
curl -s -m 20 "$GATEHOUSE_URL/v1/git" -H "Authorization: Bearer $GATEHOUSE_TOKEN" \\
  -H "Content-Type: application/json" -d '{"command": "git push origin agent/work"}'
"""


def test_a_new_branch_shows_its_own_commits_whatever_the_remote_s_head_names(house: House) -> None:
    origin = house.folder / "origin.git"
    subprocess.run(["git", "symbolic-ref", "HEAD", "refs/heads/nowhere"], cwd=origin, check=True)
    house.up()
    house.agent(PUSHES)
    (push,) = house.until_told(
        lambda: [one for one in house.requests() if one["category"] == "git"], "the push"
    )
    card = house.http("GET", f"/api/requests/{push['id']}/push")[1]
    (move,) = card["moves"]
    assert [one["subject"] for one in move["commits"]] == ["one more line"]
    assert [one["path"] for one in move["files"]] == ["README.md"]
    shown = house.page.get(f"/parts/push/{push['id']}").text
    assert "one more line" in shown
    house.ok("approve", push["id"])
    head = subprocess.run(
        ["git", "log", "-1", "--format=%s", "agent/work"],
        cwd=origin,
        capture_output=True,
        text=True,
        check=True,
    )
    assert head.stdout == "one more line\n"
