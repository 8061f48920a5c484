"""kill -9 at random moments while an agent asks and a person answers: whatever the moment, the
record and the host agree.

`make test` plays two rounds, always the same; `make chaos` plays CHAOS_ROUNDS with another seed
each. What is checked after each round: the chain of the audit log holds; no effect began without
a rule or a person saying so; none began twice, but where a start after a crash finishes it and
says so, or the kill came after the line of the first start and before its grant; and in the end
every file that was approved is on the host, and no other.
"""

import itertools
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.common.client import find
from supervisor.errors import GatehouseError
from tests.scenarios.process import Gatehouse, descendants, is_alive, until

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "2"))
SEED = os.environ.get("CHAOS_SEED", "1")
FILES = 12
# What the next life writes first.
FIRST = ("audit_recovered", "egress_started", "supervisor_started")
pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(120 + 60 * ROUNDS)]

POLICY = (
    "version: 1\nmodes: {filesystem: ask, exec: ask}\nallow: [filesystem(allowed/*), exec(true"
    " *)]\n"
)
AGENT = f"""
mkdir -p asked allowed
ask() {{ curl -s -m 5 -X POST -H "Authorization: Bearer $GATEHOUSE_TOKEN" -H 'Content-Type: application/json' "$@" >/dev/null; }}
for i in $(seq {FILES}); do
  echo "$i" > "asked/$i.txt"; echo "$i" > "allowed/$i.txt"
  ask "$GATEHOUSE_URL/v1/exec" -d "{{\\"command\\": \\"true $i\\", \\"reason\\": \\"chaos\\"}}"
  ask "$GATEHOUSE_URL/v1/exec" -d "{{\\"command\\": \\"echo $i\\", \\"reason\\": \\"chaos\\"}}"
done
sleep 600
"""  # noqa: E501


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_kill_at_any_moment(gatehouse: Path, tmp_path: Path, number: int) -> None:
    chance = random.Random(f"{SEED}-{number}")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    try:
        process = product.launch(
            "run", "--workspace", str(workspace), "--", "sh", "-c", AGENT, log=tmp_path / "run.log"
        )
        acknowledged = _answer_until_the_kill(product, process, chance)
        _check_record(product)
        product.launch("up", log=tmp_path / "up.log")
        product.until_event("session_found_dead")
        _check_host(product, workspace, acknowledged)
        _check_record(product)
    finally:
        product.end()


def _answer_until_the_kill(
    product: Gatehouse, process: subprocess.Popen[bytes], chance: random.Random
) -> dict[str, str]:
    """Answer at random what waits; kill everything after a random number of answers. Title ->
    what was acknowledged."""
    until(lambda: find(product.data), "the supervisor to answer")
    client = find(product.data)
    assert client is not None
    acknowledged: dict[str, str] = {}
    left = chance.randint(1, 2 * FILES)
    while left:
        for request in client.get("/api/requests"):
            answer = chance.choice(["approve", "deny"])
            try:
                client.post(
                    f"/api/requests/{request['id']}/{answer}", fingerprint=request["fingerprint"]
                )
            except GatehouseError:
                continue  # superseded meanwhile: nothing was acknowledged
            acknowledged[request["title"]] = answer
            left -= 1
            if not left:
                break
    below = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(is_alive(pid) for pid in below), "everything to die with the supervisor")
    return acknowledged


def _check_record(product: Gatehouse) -> None:
    """Nothing begins but what was allowed or approved before. Looked at once, since the product
    may be at work meanwhile."""
    assert product.run("audit", "--verify").returncode == 0
    records = product.events()
    may_begin: set[str] = set()
    begun: set[str] = set()
    for at, record in enumerate(records):
        match record:
            case {"event": "request_asked", "verdict": "allow"} | {
                "event": "request_answered",
                "answer": "approved",
            }:
                may_begin.add(record["request"])
            case {"event": "effect_started"}:
                assert record["request"] in may_begin
                if record["resumed"] or _is_without_grant(records[at:]):
                    continue
                assert record["request"] not in begun
                begun.add(record["request"])


def _is_without_grant(records: list[dict[str, Any]]) -> bool:
    """Whether the kill came between this start's line and the grant, which is given after it:
    that life wrote nothing more."""
    after = itertools.dropwhile(lambda record: record["event"] == "effect_started", records)
    return next(after, {"event": None})["event"] in FIRST


def _check_host(product: Gatehouse, workspace: Path, acknowledged: dict[str, str]) -> None:
    """What was approved reaches the host after the restart, with its own content; what was
    denied never does."""
    files = {
        title.removeprefix("write "): answer
        for title, answer in acknowledged.items()
        if title.startswith("write ")
    }
    wanted = {name for name, answer in files.items() if answer == "approve"}
    until(
        lambda: all((workspace / name).exists() for name in wanted), f"{sorted(wanted)} on the host"
    )
    for path in (workspace / "asked").glob("*"):
        assert files[f"asked/{path.name}"] == "approve"
        assert path.read_text() == f"{path.stem}\n"
