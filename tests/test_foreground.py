"""What `up`, `run` and `review` do in a terminal, where no running supervisor is needed to see it."""

import os
import stat
import webbrowser
from pathlib import Path

import pytest

from supervisor.foreground import _say_url, private_page

URL = "http://127.0.0.1:3700/login?token=one-time-token&x='"


def test_the_sign_in_link_is_no_argument_of_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    _say_url(URL, tmp_path)
    _say_url(URL, None)
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
