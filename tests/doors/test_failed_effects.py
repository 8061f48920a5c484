"""What a failed effect printed last is told wherever its failure is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.doors.conftest import House

# Asks for a command as an agent does, and prints what it is told in the end.
ASKS = """
call() { curl -s "$GATEHOUSE_URL$1" -H "Authorization: Bearer $GATEHOUSE_TOKEN" \\
  -H "Content-Type: application/json" "${@:2}"; }
asked=$(call /v1/exec -d '{"command": "python3 /nowhere.py"}')
id=$(printf %s "$asked" | sed 's/.*"id":"\\([0-9a-f]*\\)".*/\\1/')
until call "/v1/requests/$id?wait=60" | tee /dev/stderr | grep -q '"settled":true'; do sleep 1; done
"""


@pytest.fixture
def house(gatehouse: Path, tmp_path: Path) -> Iterator[House]:
    made = House(gatehouse, tmp_path, ROOT / "policy/examples/strict.yaml")
    yield made
    made.end()


def test_the_reason_is_told_everywhere(house: House) -> None:
    house.up()
    place = str(house.workspace)
    run = house.start("run", "--workspace", place, "--", "bash", "-c", ASKS)
    (one,) = house.until_told(
        lambda: [one for one in house.requests() if one["category"] == "exec"], "the command"
    )
    done = house.run("approve", one["id"])
    assert done.returncode == 2
    assert "failed: exit code 2" in done.stdout
    assert "No such file" in done.stdout
    assert "No such file" in house.run("show", one["id"]).stdout
    shown = house.page.get(f"/parts/sessions/{one['session_id']}/timeline").text
    assert "failed" in shown
    assert "No such file" in shown
    assert "No such file" in run.until_printed('"settled":true')
    assert "No such file" in house.ok("audit")
