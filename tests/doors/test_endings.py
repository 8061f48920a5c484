"""How it ends: ^C, SIGTERM, a terminal that hangs up; with cards that wait, with an agent that
waits for an answer, beside a supervisor, in a terminal of its own."""

import contextlib
import os
import pty
import signal
import subprocess

import pytest

from tests.doors.conftest import PATIENCE_S, Door, Started, until
from tests.tables import share

pytestmark = [pytest.mark.timeout(300)]

# An agent whose changes wait for an answer, and that itself waits for one by its JSON door and by
# its tools.
WAITING_AGENT = """
auth="Authorization: Bearer $GATEHOUSE_TOKEN" json="Content-Type: application/json"
curl -sS "$GATEHOUSE_URL/mcp" -H "$auth" -H "$json" \
  -H 'Accept: application/json, text/event-stream' \
  -d '{"jsonrpc":"2.0","id":1,"method":"tools/call",
       "params":{"name":"write_file","arguments":{"path":"tool.txt","content":"x"}}}' &
id=$(curl -sS "$GATEHOUSE_URL/v1/files/write" -H "$auth" -H "$json" \
  -d '{"path":"door.txt","content":"x"}' | grep -o '[0-9a-f]\\{32\\}' | head -n 1)
curl -sS "$GATEHOUSE_URL/v1/requests/$id?wait=60" -H "$auth" &
echo now > seen.txt
sleep 1000
"""
AGENT = ("run", "--workspace", "workspace", "--", "sh", "-c", WAITING_AGENT)
TITLES = ("write tool.txt", "write door.txt", "write seen.txt")


def in_peace(started: Started, code: int = 0) -> str:
    """Wait for its end; all that it printed, which tells of no exception."""
    assert started.ended() == code, started.printed
    assert "Traceback" not in started.printed, started.printed
    assert "Exception" not in started.printed, started.printed
    return started.printed


def asking(door: Door) -> Started:
    """The agent, once all that it asks for waits."""
    run = door.start(*AGENT)
    for title in TITLES:
        door.until_waiting(title)
    return run


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", share(SIGNALS, signal.SIGINT))
def test_a_run_ends_in_order_and_keeps_what_waits(door: Door, number: signal.Signals) -> None:
    run = asking(door)
    run.signal(number)
    printed = in_peace(run)
    assert "the session has ended: Gatehouse was stopped" in printed
    assert "left to answer: 3 changes" in printed
    door.up()
    assert set(TITLES) <= door.waiting().keys(), "kept, not denied"


@pytest.mark.parametrize("number", share(SIGNALS, signal.SIGTERM))
def test_a_supervisor_ends_in_order(door: Door, number: signal.Signals) -> None:
    up, run = door.up(), asking(door)
    up.signal(number)
    assert in_peace(up).splitlines()[-1] == "gatehouse: stopping"
    assert '"event":"supervisor_stopped"' in door.run("audit", "--json").stdout.splitlines()[-1]
    run.ended()
    assert "Traceback" not in run.printed
    assert run.printed.splitlines()[-1].startswith("gatehouse: the supervisor")


def test_a_supervisor_whose_address_somebody_removed_ends_in_order(door: Door) -> None:
    up = door.up()
    (door.data / "supervisor.json").unlink()
    up.signal(signal.SIGTERM)
    assert in_peace(up).splitlines()[-1] == "gatehouse: stopping"


@pytest.mark.many
@pytest.mark.parametrize("number", share(SIGNALS, signal.SIGHUP))
def test_a_run_beside_a_supervisor_takes_its_session_along(
    door: Door, number: signal.Signals
) -> None:
    """And says what is left of it."""
    door.up()
    run = asking(door)
    run.signal(number)
    printed = in_peace(run)
    assert "the session has ended: it was ended in the terminal that started it" in printed
    assert "left to answer: 3 changes" in printed
    assert [one["state"] for one in door.sessions()] == ["ended"]


def test_a_run_beside_a_supervisor_says_what_is_left(door: Door) -> None:
    door.up()
    run = door.start("run", "--workspace", "workspace", "--", "sh", "-c", "echo now > seen.txt")
    request = door.until_waiting("write seen.txt")
    (session,) = door.sessions()
    assert door.run("stop", session["id"]).stdout == f"ended: {session['id']}\n"
    assert "left to answer: 1 change" in in_peace(run)
    assert door.waiting() == {"write seen.txt": request}


@pytest.mark.many
def test_nohup_is_kept(door: Door) -> None:
    words = ["nohup", str(door.program), "run", "--workspace", "workspace", "--", "sleep", "1000"]
    log = door.folder / "log"
    with log.open("wb") as file:
        run = Started(
            subprocess.Popen(
                words, stdout=file, stderr=file, cwd=door.folder, env=door.environment()
            ),
            log,
        )
    try:
        run.until_printed("open http")
        run.signal(signal.SIGHUP)
        until(lambda: door.sessions()[0]["state"] == "running", "its agent, in spite of SIGHUP")
    finally:
        run.signal(signal.SIGTERM)
        run.ended()


@pytest.mark.parametrize("is_beside", share([False, True], False))
def test_interrupt_before_there_is_an_agent_ends_a_run_in_a_terminal(
    door: Door, *, is_beside: bool
) -> None:
    """A terminal in raw mode makes no signal of ^C."""
    if is_beside:
        door.up()
    words = ("run", "--workspace", "workspace", "--", "sleep", "1000")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", str(door.program), *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=door.folder,
        env=door.environment(),
    )
    os.close(slave)
    printed, is_typed = b"", False
    with contextlib.suppress(OSError):  # at its end
        while part := os.read(master, 4096):
            printed += part
            if not is_typed and b"open http" in printed:
                is_typed = bool(os.write(master, b"\x03"))
    os.close(master)
    assert process.wait(PATIENCE_S) == 0, printed
    assert b"Traceback" not in printed, printed
    assert b"the session has ended" in printed, printed
    if is_beside:
        assert [one["state"] for one in door.sessions()] == ["ended"]
