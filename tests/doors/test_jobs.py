"""Scheduled jobs as a person has them: the demo's nightly job, its pull request in the inbox, its
runs by verb, by the API and on the page."""

from pathlib import Path

import pytest

from tests.doors.conftest import House, no_bug, one_line
from tests.doors.test_demo import demo_of
from tests.doors.test_every_page import walked
from tests.fakes.supervised import git

JOB = ("acme/shop", "docs-drift")


def test_the_settings_of_jobs_are_heeded(house: House, tmp_path: Path) -> None:
    said = one_line(house.run("demo", GATEHOUSE_JOB_PULLS="none"), "GATEHOUSE_JOB_PULLS")
    assert "100" in said
    who = {"GATEHOUSE_JOB_AUTHOR": "Jo Doe <jo@example.org>", "GATEHOUSE_JOB_SIGN_OFF": "yes"}
    demo_of(house, tmp_path, **who, GATEHOUSE_JOB_PULLS="1")

    def run() -> dict[str, str] | None:
        found = [one["last"] for one in house.http("GET", "/api/jobs")[1]]
        return next((one for one in found if one and one["request_id"]), None)

    made = house.until_told(run, "the job's pull request")
    assert "done" in house.ok("approve", made["request_id"])
    forge = house.data.parent / "forge/acme/shop.git"
    shown = ("show", "--no-patch", "--format=%an <%ae>%n%b", made["head"])
    (author, *body) = git(forge, *shown).splitlines()
    assert author == who["GATEHOUSE_JOB_AUTHOR"]
    assert f"Signed-off-by: {author}" in body


@pytest.mark.many
def test_the_demos_nightly_job_is_let_out_run_again_paused_and_resumed(
    house: House, tmp_path: Path
) -> None:
    demo_of(house, tmp_path)

    def proposed() -> bool:
        return "proposed, pending" in house.run("jobs", "log", *JOB).stdout

    house.until_told(proposed, "the job's pull request")
    (job,) = house.http("GET", "/api/jobs")[1]
    assert (job["repository"], job["name"], job["cron"]) == (*JOB, "0 3 * * *")
    (run,) = house.http("GET", f"/api/jobs/{job['id']}/runs")[1]
    assert run == job["last"]
    assert (run["scope"], run["tests"], run["wanted_by"]) == (
        *("1 file, all within docs/**", "none"),
        "the demo",
    )
    assert "update the branch" not in house.ok("show", run["request_id"])

    page = house.page.get(f"/job-runs/{run['id']}")
    assert page.status_code == 200
    for words in (
        "What was asked",
        "all_orders(database)",
        "1 file, all within docs/**",
        "turn 1:",
    ):
        assert words in page.text
    repository = house.http("GET", "/api/repos")[1][0]
    shown = house.page.get(f"/repos/{repository['id']}").text
    assert f"/jobs/{job['id']}/run" in shown

    approved = house.run("approve", run["request_id"])
    assert (approved.returncode, "done" in no_bug(approved)) == (0, True), approved
    assert "proposed, done" in house.ok("jobs", "log", *JOB)

    assert house.ok("jobs", "run", *JOB).endswith("  waiting\n")
    house.until_told(
        lambda: house.run("jobs", "log", *JOB).stdout.count("nothing") > 0, "a second run"
    )
    assert "is paused" in house.ok("jobs", "pause", *JOB, "--why", "later")
    assert "paused by" in house.ok("jobs", "list")
    assert ": later" in house.ok("jobs", "list")
    assert "runs again" in house.ok("jobs", "resume", *JOB)
    assert "  next 20" in house.ok("jobs", "list")

    job_line = "{id: notes, prompt: Look., output: {mode: issue, issue: {}}}"
    text = f"version: 1\nschedule:\n  jobs:\n    - {job_line}\n"
    settings = f"/api/repos/{repository['id']}/settings"
    assert house.http("PATCH", settings, {"reviewerc": text})[0] == 200
    house.until_told(lambda: "acme/shop notes  next" in house.ok("jobs", "list"), "the page's job")
    status, said = house.http("PATCH", settings, {"reviewerc": text.replace("prompt", "promt")})
    assert (status, "line:4: " in str(said)) == (400, True), said
    assert "acme/shop notes" in house.ok("jobs", "list")

    place = f"/api/jobs/{job['id']}"
    assert house.http("POST", f"{place}/pause", {"why": "x"})[1][0]["paused_why"] == "x"
    assert house.http("POST", f"{place}/resume")[1][0]["paused_by"] == ""
    assert house.http("POST", f"{place}/run")[0] == 200
    assert house.http("POST", f"{place}/run")[0] == 400
    assert house.http("GET", "/api/jobs/77/runs")[0] == 404
    for words in (("run", "acme/shop", "other"), ("log", "no/such", "docs-drift")):
        refused = house.run("jobs", *words)
        assert (refused.returncode, "has no job" in no_bug(refused)) == (1, True)
    walked(house, f"/job-runs/{run['id']}", f"/repos/{repository['id']}")
