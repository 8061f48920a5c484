"""Times as a person says them: for how long a session may last, and when a named job is due."""

import os
import time

import pytest

from tests.doors.conftest import Door, no_bug, one_line, until

pytestmark = [pytest.mark.timeout(300)]

RUN = ("run", "--workspace", "workspace")


def test_a_time_limit_needs_a_unit(door: Door) -> None:
    """5 was 5 milliseconds."""
    one_line(door.run(*RUN, "--max-uptime", "5", "--", "true"), "`5` has no unit", "30m")
    one_line(door.run(*RUN, "--", "true", MAX_UPTIME="5"), "MAX_UPTIME: `5` has no unit")
    one_line(door.run(*RUN, "--", "true", GATEHOUSE_HOLD="60"), "GATEHOUSE_HOLD: `60` has no unit")


@pytest.mark.parametrize(("words", "env"), [(("--max-uptime", "2s"), ""), ((), "2000")])
def test_a_time_limit_ends_a_session(door: Door, words: tuple[str, ...], env: str) -> None:
    more = {"MAX_UPTIME": env} if env else {}
    done = door.run(*RUN, *words, "--", "sleep", "1000", **more)
    assert "MAX_UPTIME" in no_bug(done)
    assert done.returncode == 0, done


def test_a_job_that_can_not_be_used_stops_no_other(door: Door) -> None:
    door.data.mkdir()
    (door.data / "jobs.yaml").write_text(f"""
version: 1
jobs:
  broken: {{cron: "0 25 * * *", workspace: {door.workspace}, prompt: Do this.}}
  nightly: {{cron: "* * * * *", workspace: {door.workspace}, prompt: Do that.}}
""")
    ago = time.time() - 120
    os.utime(door.data / "jobs.yaml", (ago, ago))
    up = door.up()
    printed = up.until_printed("the job `broken` was not started")
    assert "`0 25 * * *` is no cron line" in printed
    (session,) = until(door.sessions, "the other job's session")
    assert session["job"]["name"] == "nightly"
