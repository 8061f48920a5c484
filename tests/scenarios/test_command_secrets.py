"""An agent that is given a credential gets it, in the real product; nobody else does."""

import hashlib
from pathlib import Path

import pytest

from tests.scenarios.process import Gatehouse, until

pytestmark = pytest.mark.timeout(300)

POLICY = "version: 1\nallow: [filesystem(**)]\nmodes: {exec: ask, network: ask}\n"
SECRET = "Zq7hunter"
AGENT = 'printf %s "$3" | sha256sum | cut -c1-64 > got.txt'


def test_a_session_starts_with_the_words_that_were_given_and_shows_no_credential(
    gatehouse: Path, tmp_path: Path
) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    try:
        product.launch("up", log=tmp_path / "up.log")
        until(
            lambda: "open http://127.0.0.1:" in (tmp_path / "up.log").read_text(), "the page's URL"
        )
        words = ("sh", "-c", AGENT, "agent", "PGPASSWORD=x", "--token", SECRET)
        product.launch("run", "--workspace", str(workspace), "--", *words, log=tmp_path / "run.log")
        expected = hashlib.sha256(SECRET.encode()).hexdigest()
        until(
            lambda: (workspace / "got.txt").is_file() and (workspace / "got.txt").read_text(),
            "what it got",
        )
        assert (workspace / "got.txt").read_text() == f"{expected}\n"
        listed = product.ok("sessions")
        assert "[hidden]" in product.events("session_started")[0]["command"]
        assert SECRET not in listed
        for log in ("up.log", "run.log"):
            assert SECRET not in (tmp_path / log).read_text()
        for path in product.data.iterdir():
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), path
    finally:
        product.end()
