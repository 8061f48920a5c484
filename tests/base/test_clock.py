"""The tick of the kernel's clock for files."""

import time
from pathlib import Path

import pytest

from supervisor.base.clock import LONGEST_TICK_NS, REALTIME_COARSE, wait_out_tick
from supervisor.workspace.disk import scan
from supervisor.workspace.disk.beneath import Root


def test_after_the_wait_the_tick_is_over(tmp_path: Path) -> None:
    stamp_ns = time.clock_gettime_ns(REALTIME_COARSE)
    wait_out_tick(stamp_ns)
    assert time.clock_gettime_ns(REALTIME_COARSE) > stamp_ns
    (tmp_path / "later").touch()
    assert (tmp_path / "later").stat().st_ctime_ns > stamp_ns


@pytest.mark.parametrize("ahead_ns", [LONGEST_TICK_NS * 100, -1, -(10**18)])
def test_a_time_of_another_clock_is_not_waited_for(
    ahead_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    wait_out_tick(time.clock_gettime_ns(REALTIME_COARSE) + ahead_ns)


def test_a_file_is_read_only_once_the_tick_of_its_last_change_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    waited: list[int] = []
    monkeypatch.setattr(scan, "wait_out_tick", waited.append)
    root = Root(tmp_path)
    scan.look(root, "a", digest_of=lambda fd, status: str(waited == [status.st_ctime_ns]))
    seen = scan.look(root, "a", digest_of=lambda fd, status: str(len(waited)))
    root.close()
    assert seen is not None
    assert seen.digest == "2"
