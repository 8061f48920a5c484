"""`gatehouse demo` as a person tries it: its review's card, its pages, its verbs and its API."""

import contextlib
import html
import json
import re
import signal
import sqlite3
import urllib.request
from pathlib import Path

import pytest

from tests.doors.conftest import House, Started, no_bug, one_line
from tests.doors.test_every_page import walked


@pytest.fixture
def demo(house: House, tmp_path: Path) -> tuple[House, Started]:
    """A demo whose review waits for an answer, and a person's other terminal beside it."""
    return house, demo_of(house, tmp_path)


def demo_of(house: House, folder: Path, *words: str, **environment: str) -> Started:
    started = house.start("demo", *words, XDG_CACHE_HOME=str(folder / "cache"), **environment)
    printed = started.until_printed("was opened; its review")
    found = re.search(r"GATEHOUSE_DATA=(\S+)", printed)
    assert found is not None, printed
    house.data = Path(found[1])
    return started


def test_the_demo_is_walked_and_its_review_approved(
    demo: tuple[House, Started], tmp_path: Path
) -> None:
    house, started = demo
    request = house.until_told(lambda: _post(house), "the review's card")
    run = house.http("GET", "/api/reviews")[1][0]["id"]
    repository = house.http("GET", "/api/repos")[1][0]

    seen = walked(house, f"/parts/act/{request}", f"/repos/{repository['id']}")
    assert {f"/reviews/{run}", f"/repos/{repository['id']}", f"/parts/act/{request}"} <= seen
    assert house.page.get("/reviews").status_code == 200
    assert house.page.get("/parts/act/" + "0" * 32).status_code == 404

    assert "acme/shop#1" in house.ok("show", request)
    approved = house.run("approve", request)
    assert (approved.returncode, "done" in no_bug(approved)) == (0, True), approved

    assert f"{run}  found" in house.ok("reviews", "list")
    shown = house.ok("reviews", "show", run)
    assert "acme/shop#1" in shown
    assert "shop/orders.py" in shown
    assert "(good)" in house.ok("reviews", "receipt", run)
    assert "turn 1:" in house.ok("reviews", "trace", run)
    assert "acme/shop  on" in house.ok("repos", "list")
    delivered = house.ok("deliveries", "list")
    assert "pull_request opened  acme/shop#1" in delivered
    assert "waits" in house.ok("deliveries", "again", delivered.split("  ")[0])
    for part in ("receipts", "rounds", "trace"):
        status, found = house.http("GET", f"/api/reviews/{run}/{part}")
        assert (status, bool(found)) == (200, True), part
    assert house.http("GET", "/api/deliveries")[0] == 200
    assert house.http("GET", "/api/usage?period=30d")[0] == 200
    assert house.http("GET", f"/api/reviews/{run}")[1]["id"] == run
    assert "gatehouse_" in house.page.get("/metrics").text
    place = f"/api/repos/{repository['id']}"
    assert house.http("GET", f"{place}/configuration")[0] == 200
    assert house.http("PATCH", f"{place}/settings", {"checklist": ["Is it tested?"]})[0] == 200
    said = {"strictness": "strict", "checklist": ["Is it said?"]}
    assert house.http("PATCH", "/api/owners/ACME/settings", said)[0] == 200
    assert house.http("PATCH", "/api/owners/nobody/settings", said)[0] == 404
    rows = house.http("GET", f"{place}/configuration")[1]["rows"]
    assert {
        ("strictness", "strict", "dashboard for acme"),
        ("checklist", "Is it said?", "dashboard for acme"),
        ("checklist", "Is it tested?", "dashboard"),
    } <= {(one["key"], one["value"], one["source"]) for one in rows}
    assert house.http("POST", "/api/reviews/undo", {"of": run})[0] == 200
    assert house.http("POST", "/api/reviews", {"pull": "no/such#1"})[0] == 404

    assert house.http("POST", f"/api/reviews/{run}/requeue") == (200, {"outcome": "wanted"})
    house.until_told(lambda: len(house.http("GET", "/api/reviews")[1]) == 2, "another round")
    assert "wanted" in house.ok("reviews", "requeue", run)
    assert "wanted" in house.ok("review-pr", "acme/shop#1")

    assert "reviews are off" in house.ok("repos", "disable", "ACME/shop")
    assert "acme/shop  off" in house.ok("repos", "list")
    assert "reviews are on" in house.ok("repos", "enable", "acme/shop")
    for words in (("show", "0" * 16), ("receipt", "x"), ("trace", "x"), ("requeue", "x")):
        refused = house.run("reviews", *words)
        assert "no review has the id" in no_bug(refused)
        assert refused.returncode in (1, 2)
    for words in (("repos", "disable", "no/such"), ("review-pr", "no/such#1")):
        assert house.run(*words).returncode in (1, 2)

    walked(house)
    started.signal(signal.SIGINT)
    assert started.ended() in (0, 130), started.printed
    assert "Traceback" not in started.printed
    assert not list((tmp_path / "cache").rglob("*.git")), "it leaves nothing"


@pytest.mark.many
def test_the_demo_is_like_bitbucket_where_that_is_asked(house: House, tmp_path: Path) -> None:
    started = demo_of(house, tmp_path, "--forge", "bitbucket")
    assert "acme/shop, as on Bitbucket Cloud" in started.printed
    request = house.until_told(lambda: _post(house), "the review's card")
    card = house.page.get(f"/parts/act/{request}").text
    (address,) = set(re.findall(r"http://127\.0\.0\.1:\d+/acme/shop/pull-requests/1", card))
    assert "done" in no_bug(house.run("approve", request))
    with urllib.request.urlopen(address, timeout=10) as answer:
        page = html.unescape(answer.read().decode())
    assert "on line" in page, "a finding stands at its line"
    assert "<h2>Review</h2>" in page
    assert "<code>gatehouse:" in page, "marks are code, since HTML is shown as it is written"
    delivered = house.ok("deliveries", "list")
    assert "pullrequest created  " in delivered
    assert "bitbucket:acme/shop#1" in house.ok("show", request)
    house.until_told(lambda: _post(house, "open a pull request"), "the nightly job's card")
    assert "gitlab" in one_line(house.run("demo", "--forge", "gitlab"), "gitlab")
    started.signal(signal.SIGINT)
    assert started.ended() in (0, 130), started.printed
    assert "Traceback" not in started.printed


@pytest.mark.many
def test_a_check_may_block_where_it_is_required(house: House, tmp_path: Path) -> None:
    demo_of(house, tmp_path, GATEHOUSE_CHECK="action_required")
    house.until_told(lambda: "action_required" in house.run("audit", "--json").stdout, "the check")
    assert "maybe" in one_line(house.run("up", "--reviews", GATEHOUSE_CHECK="maybe"), "maybe")


@pytest.mark.many
def test_reviews_as_earlier_versions_stored_them_are_shown(demo: tuple[House, Started]) -> None:
    house, _ = demo
    request = house.until_told(lambda: _post(house), "the review's card")
    (run,) = house.http("GET", "/api/reviews")[1]
    session = house.session(run["session_id"])
    assert (session["name"], session["workspace"]) == ("acme/shop#1 · Review, round 1", "")
    assert "/clones/" not in house.page.get("/sessions").text
    old = {"findings": [{"id": "ab", "finding": {"title": "An old one"}}], "post": ["ab"]}
    with contextlib.closing(sqlite3.connect(house.data / "reviews.db")) as database, database:
        database.execute("update runs set review=?, prompts=?", (json.dumps(old), '[{"id": "a"}]'))
    report = house.data / "sessions" / run["session_id"] / "review.json"
    report.write_text(json.dumps({"turns": [{"calls": [{}]}]}))
    assert "An old one" in house.page.get(f"/reviews/{run['id']}").text
    assert "An old one" in house.ok("reviews", "show", run["id"])
    assert "turn 1: 0 tokens" in house.ok("reviews", "trace", run["id"])
    walked(house)
    assert house.page.get(f"/parts/act/{request}").status_code == 200

    # A request of another kind is no act.
    house.start("run", "--workspace", str(house.workspace), "--", "sh", "-c", "date > new.txt")
    other = house.until_told(lambda: _post(house, "write new.txt"), "a change")
    answer = house.page.get(f"/parts/act/{other}")
    assert (answer.status_code, "no act on a forge" in answer.text) == (404, True)


def _post(house: House, title: str = "post") -> str:
    found = [one["id"] for one in house.requests() if one["title"].startswith(title)]
    return found[0] if found else ""
