"""How verbs find the supervisor of a data folder: one that starts, one that stands still, and what
a dead one left."""

import json
import re
import signal
import socket

import pytest

from tests.doors.conftest import Door, no_bug, one_line, until

pytestmark = [pytest.mark.timeout(300)]

RUN = ("run", "--workspace", "workspace", "--")


def test_a_stale_port_that_accepts_and_stays_silent_holds_nobody_up(door: Door) -> None:
    """It is another program's by now, that is never even called."""
    no_bug(door.run(*RUN, "true"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        contact = {"pid": 1, "port": silent.getsockname()[1]}
        (door.data / "supervisor.json").write_text(json.dumps(contact))
        one_line(door.run("url"), "no Gatehouse runs on")
        assert door.run(*RUN, "true").returncode == 0
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_verbs_agree_on_a_supervisor_that_starts(door: Door) -> None:
    """One said that none runs, the other that another uses the folder."""
    up = door.start("up")
    until((door.data / "lock").exists, "the start")
    up.signal(signal.SIGSTOP)
    listed, ran = door.start("approvals"), door.start(*RUN, "echo", "beside it")
    up.signal(signal.SIGCONT)
    assert listed.ended() == 0, listed.printed
    assert listed.printed == "nothing waits\n"
    assert ran.ended() == 0, ran.printed
    assert "beside it" in ran.printed
    assert len(door.sessions()) == 1, "it has that session"


@pytest.mark.many
def test_a_supervisor_that_stands_still_is_said(door: Door) -> None:
    up = door.up()
    up.signal(signal.SIGSTOP)
    try:
        said = one_line(door.run("approvals"), "didn't answer within 10 s", "let it go on")
    finally:
        up.signal(signal.SIGCONT)
    assert re.search(rf"process {up.process.pid} stands still", said)
    assert door.run("approvals").stdout == "nothing waits\n"
