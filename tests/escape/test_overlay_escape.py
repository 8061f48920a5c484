"""An agent over an overlay reaches no more than one over a copy: as root and as an ordinary
user, in the real sandbox."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.escape import users

SCRIPT = Path(__file__).with_name("overlay_driver.py")
WHO = ["self", "ordinary"] if os.geteuid() == 0 else ["self"]


@pytest.mark.parametrize("who", WHO)
def test_nothing_leaves_an_overlay_and_nothing_hidden_shows(who: str) -> None:
    answer: Any = users.drive(who, SCRIPT, "attempts")
    came = answer["inside"]
    assert "error" not in came, came
    assert answer["host is untouched"]
    assert not answer["own mounts"]
    # Of the kernel's own marks only those that change nothing that is shown; ours have been made
    # before it began.
    assert set(answer["marks"]) <= {
        "user.overlay.origin",
        "user.overlay.impure",
        "user.overlay.nlink",
    } | {name for name in answer["marks"] if name.startswith("user.overlay.overlay.")}
    for name in ("hidden file", "hidden folder"):
        assert came[name] == "error 2"
    for name in ("whiteout", "whiteout over a file", "device", "umount", "mount"):
        assert came[name] == "error 1", name
    assert came["rename that leaves a whiteout"] == "error 22"
    assert str(came["user namespace"]).startswith("error")
    assert not any(came[name] is None for name in came if name.startswith("trusted "))
    assert came["app after marks"] == "app\n"
    assert came["lower for writing"] == "error 30"
    assert came["link of lower"] == "error 18"
    assert "state" not in came["root by link"]
    assert came["flags"] == [True, True]
    assert answer["state"] not in came["mounts"]
    assert not any(
        "[" in link and not link.startswith(("pipe:", "socket:")) for link in came["descriptors"]
    )
    assert came["git"].splitlines()[0] == "first"


@pytest.mark.parametrize("who", WHO)
def test_sandbox_and_mount_end_with_the_supervisor(who: str) -> None:
    argv, env = users.command(who, [str(SCRIPT), "supervise"])
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        base = Path(json.loads(supervisor.stdout.readline())["base"])
        assert len(_processes_of(base.name)) >= 4
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()
    deadline = time.monotonic() + 10
    while _processes_of(base.name) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _processes_of(base.name) == []
    assert (base / "state/sessions/s1/upper/ran").exists()
    assert not (base / "project/ran").exists()
    assert list((base / "state/sessions/s1/merged").iterdir()) == []
    subprocess.run(["rm", "-rf", str(base)], check=True)


def _processes_of(world: str) -> list[str]:
    """Every process on this machine that has this world mounted."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if world in (process / "mountinfo").read_text():
                    found.append(process.name)
    return found
