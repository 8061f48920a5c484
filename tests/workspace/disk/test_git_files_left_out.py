"""`node_modules` and `.venv` stay out of sync, both ways and at any depth, though nothing
ignores them."""

from pathlib import Path

import pytest

from supervisor.workspace.copy.private_copy import make_private_copy
from supervisor.workspace.copy.snapshot import make_copy
from supervisor.workspace.disk.git_files import LEFT_OUT, is_left_out
from supervisor.workspace.trees.journal import replay
from tests.workspace.conftest import Desk, git, make_repository
from tests.workspace.copy.test_overlay import made_of, tree_of, view
from tests.workspace.copy.test_snapshot import names

INSTALLED = (
    "node_modules/pkg/index.js",
    "web/node_modules/x.js",
    ".venv/bin/python",
    "web/deep/.venv/pyvenv.cfg",
)


def with_installed(folder: Path) -> Path:
    for name in (*INSTALLED, "web/app.js", "venv.txt", "new/node_modules.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("host\n")
    return folder


def test_they_are_just_these_two_and_only_as_folders() -> None:
    assert frozenset({"node_modules", ".venv"}) == LEFT_OUT
    assert is_left_out("a/node_modules/")
    assert is_left_out("a/.venv/bin/x")
    assert not is_left_out("a/node_modules")
    assert not is_left_out("a/my_node_modules/x")


@pytest.mark.parametrize("is_git", [True, False])
@pytest.mark.parametrize("include_ignored", [True, False])
async def test_copy_and_overlay_leave_them_out_or_have_them_as_the_agents_own(
    tmp_path: Path, is_git: bool, include_ignored: bool
) -> None:
    host = make_repository(tmp_path / "host", {"a.txt": "a"}) if is_git else tmp_path / "host"
    with_installed(host)
    await make_private_copy(host, tmp_path / "c", "copy", include_ignored=include_ignored)
    made = await made_of(host, tmp_path / "o", include_ignored=include_ignored)
    try:
        there = {
            name
            for name in tree_of(tmp_path / "c/merged")
            if (tmp_path / "c/merged" / name).is_file()
        }
        shown = view(made)
        assert {name for name in tree_of(shown) if (shown / name).is_file()} == there
    finally:
        made.mount.close()
    assert there & set(INSTALLED) == (set(INSTALLED) if include_ignored else set())
    assert {"web/app.js", "venv.txt", "new/node_modules.txt"} <= there
    assert not set(INSTALLED) & replay(tmp_path / "c").baseline.keys()


async def test_what_git_tracks_below_them_comes_along(tmp_path: Path) -> None:
    host = make_repository(
        tmp_path / "host", {"node_modules/kept/patched.js": "tracked\n", "a.txt": "a"}
    )
    with_installed(host)
    await make_copy(host, tmp_path / "c/merged")
    assert "node_modules/kept/patched.js" in names(tmp_path / "c/merged")
    assert not set(INSTALLED) & names(tmp_path / "c/merged")
    assert git(tmp_path / "c/merged", "status", "--porcelain", "-uno") == ""
    made = await made_of(host, tmp_path / "o")
    try:
        assert (view(made) / "node_modules/kept/patched.js").read_text() == "tracked\n"
        assert not (view(made) / "node_modules/pkg").exists()
    finally:
        made.mount.close()


@pytest.mark.parametrize(
    ("file", "is_git"),
    [(".gitignore", True), (".gatehouseignore", True), (".gatehouseignore", False)],
)
async def test_an_exclamation_mark_brings_them_back(
    tmp_path: Path, file: str, is_git: bool
) -> None:
    host = make_repository(tmp_path / "host", {"a.txt": "a"}) if is_git else tmp_path / "host"
    with_installed(host)
    (host / file).write_text("!node_modules/\n")
    await make_copy(host, tmp_path / "c/merged")
    made = await made_of(host, tmp_path / "o")
    try:
        for shown in (names(tmp_path / "c/merged"), tree_of(view(made))):
            assert {name for name in INSTALLED if "node_modules" in name} <= shown
            assert not {name for name in INSTALLED if ".venv" in name} & shown
    finally:
        made.mount.close()
    assert "node_modules/pkg/index.js" in replay(tmp_path / "c").baseline


@pytest.mark.parametrize("is_git", [True, False])
async def test_neither_direction_speaks_of_them(desk: Desk, is_git: bool) -> None:
    """What the agent installs stays in its copy, what the person installs doesn't come, nothing
    is taken for deleted."""
    if not is_git:
        (desk.host / ".git").rename(desk.data / "moved-away")
    with_installed(desk.host)
    async with desk.running():
        assert not (desk.copy / "node_modules").exists()
        for name in (*INSTALLED, "new/.venv/made"):
            (desk.copy / name).parent.mkdir(parents=True, exist_ok=True)
            (desk.copy / name).write_text("agent\n")
            (desk.host / name).parent.mkdir(parents=True, exist_ok=True)
            (desk.host / name).write_text("person\n")
        (desk.copy / "free/said.txt").write_text("x\n")
        (desk.host / "src/heard.txt").write_text("x\n")
        await desk.until(lambda: (desk.host / "free/said.txt").exists())
        await desk.until(lambda: (desk.copy / "src/heard.txt").exists())
        await desk.compared()
        changes = desk.channel.host_changes()
        assert changes is not None
        async with desk.channel._turn:
            await changes.run(None)
        await desk.channel.final_pass("the end")
        assert [request.action.path for request in desk.requests()] == ["free/said.txt"]  # type: ignore[union-attr]
        for name in (*INSTALLED, "new/.venv/made"):
            assert ((desk.host / name).read_text(), (desk.copy / name).read_text()) == (
                "person\n",
                "agent\n",
            )


@pytest.mark.parametrize("is_of_home", [False, True])
async def test_a_repositorys_own_excludes_file_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_of_home: bool
) -> None:
    """What it names may be secrets: ours must never stand in its way."""
    monkeypatch.setenv("HOME", str(tmp_path))
    host = make_repository(tmp_path / "host", {"a.txt": "a"})
    (tmp_path / "mine").write_text("*.secret\n")
    git(host, "config", "core.excludesFile", "~/mine" if is_of_home else str(tmp_path / "mine"))
    (host / "x.secret").write_text("x")
    await make_copy(host, tmp_path / "c/merged")
    assert "x.secret" not in names(tmp_path / "c/merged")
