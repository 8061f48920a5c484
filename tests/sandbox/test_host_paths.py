"""Which host paths a sandbox may be given, and what must be covered."""

import os
import pwd
from pathlib import Path

import pytest

from supervisor.errors import SandboxError
from supervisor.sandbox.base import Spec
from supervisor.sandbox.host_paths import covers, resolved


def spec(base: Path, **more: object) -> Spec:
    for name in ("w", "m"):
        (base / name).mkdir(exist_ok=True)
    given = {
        "command": ("true",),
        "workspace_lower": base / "w",
        "workspace_merged": base / "m",
        **more,
    }
    return Spec(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wide", ["/", "/usr", "/etc", "/home", "/root", "/proc/self", "/dev", "/sys", "/run", "/var"]
)
def test_a_workspace_that_shows_more_than_a_project_is_refused(tmp_path: Path, wide: str) -> None:
    with pytest.raises(SandboxError, match=r"more than a project|isn't a directory|can't be used"):
        resolved(spec(tmp_path, workspace_lower=Path(wide)))
    (tmp_path / "link").symlink_to(wide)
    with pytest.raises(SandboxError):
        resolved(spec(tmp_path, workspace_lower=tmp_path / "link"))


def test_a_home_directory_is_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        resolved(spec(tmp_path, workspace_lower=Path(pwd.getpwuid(os.getuid()).pw_dir)))


def test_workspace_and_copy_must_be_directories_apart(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for more in (
        {"workspace_lower": tmp_path / "absent"},
        {"workspace_lower": tmp_path / "file"},
        {"workspace_merged": tmp_path / "file"},
        {"workspace_merged": tmp_path},  # holds the workspace
        {"workspace_merged": tmp_path / "w"},  # is the workspace
        {"masked": (tmp_path / "absent",)},
        {"masked": (tmp_path,)},  # hides the workspace
        {"ca_bundle": tmp_path / "absent"},
        {"java_store": tmp_path / "absent"},
    ):
        with pytest.raises(SandboxError):
            resolved(spec(tmp_path, **more))
    inside = tmp_path / "w" / "data"
    inside.mkdir(parents=True)
    with pytest.raises(SandboxError, match="isn't masked"):
        resolved(spec(tmp_path, workspace_merged=inside))
    assert (
        resolved(spec(tmp_path, workspace_merged=inside, masked=(inside,))).workspace_merged
        == inside
    )


@pytest.mark.parametrize(
    "inside",
    ["/", "relative", "/etc/x", "/proc", "/workspace/lower", "/opt/../etc", "/dev/shm", "/usr/bin"],
)
def test_nothing_is_bound_over_the_sandboxs_own_places(tmp_path: Path, inside: str) -> None:
    (tmp_path / "tool").mkdir()
    with pytest.raises(SandboxError, match="can be bound"):
        resolved(spec(tmp_path, readonly_binds=((tmp_path / "tool", inside),)))


@pytest.mark.parametrize("source", ["/", "/proc", "/dev", "/sys", "/run"])
def test_the_kernels_places_are_never_bound(tmp_path: Path, source: str) -> None:
    with pytest.raises(SandboxError, match="can't show"):
        resolved(spec(tmp_path, readonly_binds=((Path(source), "/opt/x"),)))


@pytest.mark.parametrize(
    "more",
    [
        {"command": ()},
        {"command": ("",)},
        {"command": ("-c", "x")},
        {"command": ("a\0b",)},
        {"env": {"A": "\0"}},
        {"env": {"A=B": ""}},
        {"env": {"": ""}},
        {"cwd": "x"},
    ],
)
def test_what_no_program_can_be_given_is_refused(tmp_path: Path, more: dict[str, object]) -> None:
    with pytest.raises(SandboxError):
        resolved(spec(tmp_path, **more))


def test_a_masked_path_is_covered_wherever_it_shows(tmp_path: Path) -> None:
    data, token = tmp_path / "w" / "a" / "data", tmp_path / "w" / "token"
    data.mkdir(parents=True)
    token.touch()
    (tmp_path / "alias").symlink_to(data)
    given = resolved(
        spec(
            tmp_path,
            masked=(tmp_path / "alias", token, tmp_path / "m"),
            readonly_binds=((tmp_path / "w" / "a", "/opt/a"), (tmp_path, "/opt/all")),
        )
    )
    assert set(covers(given)) == {
        ("/opt/a/data", True),
        ("/opt/all/w/a/data", True),
        ("/workspace/lower/a/data", True),
        ("/opt/all/w/token", False),
        ("/workspace/lower/token", False),
        ("/opt/all/m", True),
    }
    assert covers(given, ((tmp_path, "/usr"),))[0] == ("/usr/w/a/data", True)
