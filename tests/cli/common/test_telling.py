"""Opening a browser starts no program of the folder that the person is in."""

from pathlib import Path

import pytest

from supervisor.cli.common.telling import say_url


def test_a_browser_of_the_current_folder_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, data = tmp_path / "workspace", tmp_path / "data"
    workspace.mkdir()
    data.mkdir()
    for name in ("xdg-open", "x-www-browser", "firefox", "chromium", "www-browser", "w3m"):
        program = workspace / name
        program.write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/ran\n")
        program.chmod(0o755)
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f":{tmp_path}/nothing")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("BROWSER", raising=False)
    say_url("http://127.0.0.1:1/", data)
    assert not (tmp_path / "ran").exists()
