"""`gatehouse demo`: beside another Gatehouse, what it asks as a person reads it, and that nothing
of it stays."""

import re
import signal

import pytest

from tests.doors.conftest import Door, until

pytestmark = [pytest.mark.timeout(300)]


def test_a_demo_shows_a_review_to_answer_and_leaves_nothing(door: Door) -> None:
    temporary, cache = door.folder / "tmp", door.folder / "cache"
    temporary.mkdir()
    cache.mkdir()
    places = {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache), "GATEHOUSE_PORT": ""}
    demo = door.start("demo", **places)
    printed = demo.until_printed("was opened")
    assert "open http://127.0.0.1:3700/" not in printed, "that is the port of `make up`"
    (data,) = temporary.glob("gatehouse-demo-*/data")
    there = ("--data-dir", str(data))

    def asked() -> str:
        listed = door.run("approvals", *there).stdout
        found = re.search(r"^([0-9a-f]{32})  review ", listed, re.MULTILINE)
        return found[1] if found else ""

    shown = door.run("show", until(asked, "its review"), *there).stdout
    assert re.search(r"\n    comments:\n      finding: \S+\n      path: \S+\n", shown), shown
    assert "[{" not in shown, "no Python"
    assert list(cache.rglob("HEAD")), "its clone is in the cache while it runs"
    demo.signal(signal.SIGINT)
    assert demo.ended() == 0, demo.printed
    assert "Traceback" not in demo.printed
    left = [path for path in (*temporary.rglob("*"), *cache.rglob("*")) if path.is_file()]
    assert left == []
