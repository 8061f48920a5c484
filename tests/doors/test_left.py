"""What a session left to answer is shown and answered by every door, after its end and after the
next start of the supervisor."""

import json
from typing import Any

import pytest

from tests.doors.conftest import House, no_bug, one_line, until

pytestmark = [pytest.mark.timeout(300)]

# A PNG of one pixel, texts changed in two places, and three files that the person changes, too: two
# while the session runs, one of them elsewhere, and one after its end.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
ASKS = f"""
echo {PIXEL} | base64 -d > dot.png
sed -i 's/^line 5$/LINE 5/; s/^line 30$/LINE 30/' long.txt
sed -i 's/^line 6$/LINE 6/; s/^line 31$/LINE 31/' other.txt
sed -i 's/^line 7$/LINE 7/' both.txt
echo agent >> README.md
echo agent > later.txt
"""
MORE = "mkdir many; for n in $(seq 30); do echo $n > many/$n.txt; done\n"


def prepared(house: House) -> None:
    for name in ("long.txt", "other.txt", "both.txt"):
        text = "".join(f"line {number}\n" for number in range(40))
        (house.workspace / name).write_text(text)
    house.up()


def by_path(house: House, session: str) -> dict[str, str]:
    """What waits of a session's changed files: path to id."""
    return {
        one["action"]["path"]: one["id"]
        for one in house.requests()
        if one["session_id"] == session and one["category"] == "filesystem"
    }


def left_at(house: House, session: str) -> dict[str, Any]:
    status, left = house.http("GET", "/api/left")
    assert status == 200
    return {one["session_id"]: one for one in left}[session]


def all_is_shown(house: House, session: str, number: int) -> dict[str, str]:
    """Every door shows what is left; path to id."""
    assert left_at(house, session)["counts"] == f"{number} changes"
    waiting = by_path(house, session)
    assert len(waiting) == number
    listed = no_bug(house.run("approvals"))
    as_json = json.loads(house.ok("approvals", "--json"))
    for path, request_id in waiting.items():
        if path.startswith("many/") and path != "many/9.txt":
            continue
        shown = house.ok("show", request_id)
        assert path in shown
        assert "can't be shown" not in shown
        assert house.page.get(f"/parts/change/{request_id}").status_code == 200
        if number <= 10:
            assert request_id in listed
            assert request_id in {one["id"] for one in as_json["requests"]}
    if number > 10:
        assert f"approve {session} --changes" in listed
        assert [one["session_id"] for one in as_json["changes"]] == [session]
        status, sets = house.http("GET", "/api/changes")
        assert status == 200
        assert session in json.dumps(sets)
        assert house.page.get(f"/changes/{session}").status_code == 200
        status, below = house.http("GET", f"/api/sessions/{session}/changes?below=many")
        assert status == 200
        assert "1.txt" in json.dumps(below)
    image = house.page.get(f"/api/requests/{waiting['dot.png']}/image/new")
    assert image.content.startswith(b"\x89PNG")
    return waiting


def merged(house: House, session: str) -> None:
    """Where both changed a file in two places, the merge is shown and applied."""
    path = f"/api/requests/{by_path(house, session)['both.txt']}"
    shown = {"fingerprint": house.http("GET", path)[1]["request"]["fingerprint"]}
    merge = house.http("GET", f"{path}/conflict")[1]["merged"]
    assert house.http("POST", f"{path}/merge", shown | {"merged": "0" * 64})[0] == 409
    assert house.http("POST", f"{path}/merge", shown | {"merged": merge})[0] == 200
    both = house.workspace / "both.txt"
    until(lambda: "LINE 7\n" in both.read_text(), "the merge")
    assert "mine 35\n" in both.read_text()


def all_is_answered(house: House, session: str, number: int) -> None:
    """Conflicts, hunks, an approval, a denial, all of the rest."""
    waiting = all_is_shown(house, session, number)
    status, conflict = house.http("GET", f"/api/requests/{waiting['README.md']}/conflict")
    assert status == 200, conflict
    assert house.page.get(f"/parts/conflict/{waiting['README.md']}").status_code == 200
    assert "conflict" in house.ok("show", waiting["README.md"])
    if number > 10:
        assert "applied" in house.ok("approve", waiting["README.md"])
        assert (house.workspace / "README.md").read_text() == "# Shop\nagent\n"
    else:
        path = f"/api/requests/{waiting['README.md']}"
        shown = {"fingerprint": house.http("GET", path)[1]["request"]["fingerprint"]}
        assert house.http("POST", f"{path}/give-host", shown)[0] == 200
        assert (house.workspace / "README.md").read_text() == "# Mine\n"
    (house.workspace / "later.txt").write_text("mine\n")
    assert "out of date" in house.ok("show", waiting["later.txt"])
    assert house.run("approve", waiting["later.txt"]).returncode == 2
    assert (house.workspace / "later.txt").read_text() == "mine\n"
    assert "1 of 2 changes" in house.ok("approve", waiting["long.txt"], "--hunks", "1")
    long = (house.workspace / "long.txt").read_text()
    assert ("LINE 5\n" in long, "LINE 30\n" in long) == (True, False)
    done = house.ok("approve", waiting["other.txt"], "--hunks", "2", "--drop-rest")
    assert "the rest is denied" in done
    assert "LINE 31\n" in (house.workspace / "other.txt").read_text()
    assert "applied" in house.ok("approve", waiting["dot.png"])
    assert (house.workspace / "dot.png").read_bytes().startswith(b"\x89PNG")
    house.ok("deny", by_path(house, session)["long.txt"], "--reason", "not now")
    if number > 10:
        house.ok("deny", by_path(house, session)["many/7.txt"])
        house.ok("approve", session, "--changes", "--below", "many")
        there = {one.name for one in (house.workspace / "many").iterdir()}
        assert there == {f"{n}.txt" for n in range(1, 31)} - {"7.txt"}
    assert set(by_path(house, session)) <= {"README.md", "later.txt"}


@pytest.mark.parametrize(
    ("number", "is_restarted"),
    [
        pytest.param(6, False, id="few-ended", marks=pytest.mark.many),
        pytest.param(6, True, id="few-restarted", marks=pytest.mark.many),
        pytest.param(36, False, id="many-ended", marks=pytest.mark.many),
        pytest.param(36, True, id="many-restarted"),
    ],
)
def test_what_is_left_is_shown_and_answered(house: House, number: int, is_restarted: bool) -> None:
    prepared(house)
    session = house.agent(ASKS + (MORE if number > 10 else ""))
    house.until_told(lambda: len(by_path(house, session)) == number, "all that is asked")
    (house.workspace / "README.md").write_text("# Mine\n")
    both = house.workspace / "both.txt"
    both.write_text(both.read_text().replace("line 35", "mine 35"))

    def conflicts() -> bool:
        known = [one["action"].get("hazards", ()) for one in house.requests()]
        return sum("conflict" in one for one in known) == 2

    house.until_told(conflicts, "both conflicts")
    merged(house, session)
    house.stop(session)
    if is_restarted:
        house.end()
        house.up()
    all_is_answered(house, session, number - 1)


def test_drop_denies_what_is_left_also_after_a_restart(house: House) -> None:
    prepared(house)
    first, second = house.ended("echo a > a.txt"), house.ended(MORE)
    running = house.agent("echo b > b.txt")
    one_line(house.run("drop", running))
    assert house.ok("drop", first) == "1 requests denied\n"
    house.end()
    house.up()
    assert house.ok("drop", second) == "30 requests denied\n"
    assert by_path(house, first) == by_path(house, second) == {}
    status, left = house.http("GET", "/api/left")
    assert (status, [one["session_id"] for one in left]) == (200, [running])
    assert house.http("POST", f"/api/sessions/{running}/drop") == (200, {"dropped": 1})
    assert sorted(path.name for path in house.workspace.iterdir() if path.suffix == ".txt") == [
        "both.txt",
        "long.txt",
        "other.txt",
    ]
