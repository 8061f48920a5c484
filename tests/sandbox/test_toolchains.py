"""Tools of a home in a sandbox: which folders are shown, whose programs come first, and that no
known credential file and no home ever is."""

from pathlib import Path

import pytest

from supervisor.errors import UserError
from supervisor.sandbox.base import Spec
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.sandbox.toolchains import ShownTools, tools_of


def made(home: Path, *files: str) -> None:
    for file in files:
        path = home / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {path.parent.parent.name}\n")
        path.chmod(0o755)


def test_the_default_version_comes_first(tmp_path: Path) -> None:
    versions = ".nvm/versions/node"
    made(tmp_path, *(f"{versions}/{one}/bin/node" for one in ("v9.1.0", "v20.2.0", "v22.0.1")))
    made(tmp_path, ".pyenv/versions/3.12.1/bin/python", ".pyenv/versions/3.9.2/bin/python")
    newest = tools_of(("nvm",), tmp_path)
    assert newest.folders == (tmp_path / versions,)
    assert newest.programs == (tmp_path / versions / "v22.0.1/bin",)
    (tmp_path / ".nvm/alias").mkdir()
    (tmp_path / ".nvm/alias/default").write_text("20\n")
    (tmp_path / ".pyenv/version").write_text("3.9.2\n")
    both = tools_of(("nvm", "pyenv"), tmp_path)
    assert both.programs == (
        tmp_path / versions / "v20.2.0/bin",
        tmp_path / ".pyenv/versions/3.9.2/bin",
    )


def test_cargo_is_its_programs_and_toolchains_without_the_credentials_beside_them(
    tmp_path: Path,
) -> None:
    made(tmp_path, ".cargo/bin/ripgrep", ".cargo/credentials.toml", ".cargo/config.toml")
    made(
        tmp_path, ".rustup/toolchains/stable-x/bin/cargo", ".rustup/toolchains/nightly-x/bin/cargo"
    )
    (tmp_path / ".rustup/settings.toml").write_text(
        'version = "12"\ndefault_toolchain = "stable-x"\n'
    )
    shown = tools_of(("cargo",), tmp_path)
    assert shown.programs == (tmp_path / ".rustup/toolchains/stable-x/bin", tmp_path / ".cargo/bin")
    assert shown.folders == (tmp_path / ".rustup/toolchains", tmp_path / ".cargo/bin")
    assert shown.masked == ()


def test_known_credential_files_are_masked(tmp_path: Path) -> None:
    made(tmp_path, "tools/bin/tool", "tools/.npmrc", "tools/etc/auth.json", "tools/a/b/c/d/.netrc")
    shown = tools_of((str(tmp_path / "tools"),), tmp_path / "home")
    assert set(shown.masked) == {
        tmp_path / "tools/.npmrc",
        tmp_path / "tools/etc/auth.json",
        tmp_path / "tools/a/b/c/d/.netrc",
    }


@pytest.mark.parametrize(
    "name", ["~", "/", "/home", "nothing", "relative/bin", "~/.ssh", "~/.local"]
)
def test_a_home_or_what_has_no_programs_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "me"
    made(home, ".ssh/id_rsa", ".local/bin/tool", "bin/tool")
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(UserError, match="can't be shown to an agent"):
        tools_of((name,), home)


def test_what_is_not_installed_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no pyenv in"):
        tools_of(("pyenv",), tmp_path)
    assert tools_of(("gitconfig",), tmp_path) == ShownTools()


async def test_in_a_sandbox_the_program_runs_and_the_credential_is_empty(tmp_path: Path) -> None:
    made(tmp_path, "tools/bin/tool", "tools/.npmrc")
    (tmp_path / "lower").mkdir()
    (tmp_path / "copies/merged").mkdir(parents=True)
    shown = tools_of((str(tmp_path / "tools"),), tmp_path / "home")
    sandbox = Bubblewrap()
    script = f"tool; cat {tmp_path}/tools/.npmrc; touch {tmp_path}/tools/bin/x || echo refused"
    result = await sandbox.run_tool(
        Spec(
            command=("sh", "-c", script),
            workspace_lower=tmp_path / "lower",
            workspace_merged=tmp_path / "copies/merged",
            env={"PATH": f"{shown.programs[0]}:/usr/bin:/bin"},
            masked=shown.masked,
            readonly_binds=tuple((one, str(one)) for one in shown.folders),
        ),
        timeout_s=30,
    )
    await sandbox.close()
    assert result.stdout == b"tools\nrefused\n", result
