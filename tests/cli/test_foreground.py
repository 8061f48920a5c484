"""What `up`, `run` and `review` do in a terminal, where no running supervisor is needed to see
it."""

import os
import signal
import stat
import sys
import webbrowser
from pathlib import Path

import pytest

from supervisor.cli.common.telling import CopyTeller, private_page, say_url
from supervisor.core.sessions import copy_progress
from supervisor.settings import ROOT
from tests.fakes.clock import FakeClock

URL = "http://127.0.0.1:3700/login?token=one-time-token&x='"


def test_the_sign_in_link_is_no_argument_of_the_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    say_url(URL, tmp_path)
    say_url(URL, None)
    assert opened == [(tmp_path / "open.html").as_uri()]


def test_the_page_that_leads_there_is_read_by_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "elsewhere").write_text("kept")
        (tmp_path / "open.html").symlink_to(tmp_path / "elsewhere")
        page = private_page(URL, tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(page.lstat().st_mode) == 0o600
    assert "token=one-time-token&amp;x=&#x27;" in page.read_text()
    assert (tmp_path / "elsewhere").read_text() == "kept"


def test_a_copy_that_takes_long_is_told_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    teller = CopyTeller(clock)
    teller.tell(None)
    for quarter in range(11):
        teller.tell(copy_progress(quarter * 200, 5000, 1 << 20, quarter / 4))
        clock.advance(0.25)
    teller.tell(None)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("gatehouse: ")[-1] for line in lines] == [
        "copying the workspace: 1000 of 5000 files, about 5s left",
        "copying the workspace: 2000 of 5000 files, about 4s left",
    ]


DIES = """
import os, resource
from supervisor.cli.foreground import _in_loop

_, most = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (most, most))

async def dies():
    os.abort()

try:
    _in_loop(dies())
finally:
    os._exit(0)
"""


def test_a_supervisor_that_crashes_leaves_no_core_dump(tmp_path: Path) -> None:
    """It holds the values of named secrets."""
    child = os.posix_spawn(
        sys.executable, [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r})\n{DIES}"],
        os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGABRT
    assert not os.WCOREDUMP(status)
    assert not list(tmp_path.iterdir())
