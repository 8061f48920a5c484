"""Which program of a package manager is shown to its sandbox."""

import os
import pwd
import shutil
from pathlib import Path

import pytest

from supervisor.base.process import run
from supervisor.channels.install_sandbox import real_program
from supervisor.settings import for_package_managers


def planted(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(shutil.which("rustup") is None, reason="there is no rustup here")
async def test_the_folder_that_we_are_in_chooses_no_toolchain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests have a home of their own, where rustup knows no toolchain.
    toolchains = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".rustup"
    monkeypatch.setenv("RUSTUP_HOME", os.environ.get("RUSTUP_HOME", str(toolchains)))
    evil = planted(tmp_path / "evil/bin/cargo")
    (tmp_path / "rust-toolchain.toml").write_text(f'[toolchain]\npath = "{tmp_path}/evil"\n')
    monkeypatch.chdir("/")
    found = await real_program("cargo")
    monkeypatch.chdir(tmp_path)
    assert await real_program("cargo") == found != str(evil)


async def test_a_relative_folder_of_path_holds_no_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link called `rustup` in the folder that we are in would be started by its full path."""
    program = planted(tmp_path / "rustup")
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "tinymanager").symlink_to("rustup")
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert await real_program("tinymanager") == "tinymanager"
    assert not (tmp_path / "ran").exists()


async def test_a_shim_installs_no_toolchain_by_being_started() -> None:
    done = await run(["/usr/bin/env"], env=for_package_managers(), timeout_s=10)
    assert b"RUSTUP_AUTO_INSTALL=0\n" in done.stdout
