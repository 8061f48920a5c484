"""`.gatehouseignore`: the same syntax as git's, held against git itself, and what it means for
both directions."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.workspace.copy.snapshot import make_copy
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.trees.journal import replay
from supervisor.workspace.trees.own_ignores import OwnIgnores
from tests.examples import examples
from tests.workspace.conftest import Desk, git, make_repository
from tests.workspace.copy.test_snapshot import names

PARTS = st.sampled_from(
    ["a", "b", "foo", "*", "**", "?", "[ab]", "*.py", "a*", "\\a", "[!a]", "x.py", "a.py"]
)
ODD = st.sampled_from(
    [
        "!",
        "#a",
        "\\#a",
        "",
        "  ",
        "/",
        "a ",
        "a\\ ",
        "\\!a",
        "!!a",
        "**/",
        "a/**/",
        "/**",
        "**/a/**",
        # Ends of lines to Python, not to git.
        "foo\u2028zz",
        "a.py\x85b",
        "b\x0b",
        "b\x0c",
        "x.py\x1czz",
        "a\t",
        "a\r",
        "a\\  ",
    ]
)
LINES = st.lists(
    ODD
    | st.builds(
        lambda sign, root, parts, end: sign + root + "/".join(parts) + end,
        st.sampled_from(["", "", "!"]),
        st.sampled_from(["", "", "/"]),
        st.lists(PARTS, min_size=1, max_size=3),
        st.sampled_from(["", "", "/"]),
    ),
    max_size=5,
)
LEAVES = ["a", "b", "foo", "x.py", "a.py", "zz", "foo\u2028zz", "b\x0b", "a ", "a\t"]
FILES = st.sets(
    st.lists(st.sampled_from(LEAVES), min_size=1, max_size=4).map(tuple), min_size=1, max_size=15
)


@settings(max_examples=examples(60), deadline=None)
@given(FILES, LINES, LINES)
def test_it_leaves_out_what_git_would(
    files: set[tuple[str, ...]], outer: list[str], inner: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        git(folder, "init", "-q")
        for parts in sorted(files, key=len, reverse=True):
            path = folder.joinpath(*parts)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("x")
        lines = {"": outer, "a": inner} if (folder / "a").is_dir() else {"": outer}
        for at, text in lines.items():
            for name in (".gitignore", ".gatehouseignore"):
                (folder / at / name).write_text("\n".join(text) + "\n")
        listed = git(folder, "ls-files", "-o", "--exclude-standard", "-z").split("\0")
        root = Root(folder)
        own = OwnIgnores(root)
        kept = {
            name
            for name in names(folder)
            if not (folder / name).is_dir() and own.verdict(name) is not True
        }
        root.close()
    assert kept == {name for name in listed if name}


def has(folder: Path) -> set[str]:
    return {name for name in names(folder) if not (folder / name).is_dir()}


async def test_what_either_file_names_stays_out_but_git_keeps_what_it_tracks(
    host: Path, tmp_path: Path
) -> None:
    """A tracked file that .gitignore names is copied; one that .gatehouseignore names isn't, and
    git doesn't miss it."""
    for name in (".env", "secrets/prod.key", "tracked.log"):
        (host / name).parent.mkdir(exist_ok=True)
        (host / name).write_text("x")
    git(host, "add", "-f", ".env", "tracked.log", "secrets/prod.key")
    git(host, "commit", "-q", "-m", "all of it")
    (host / "other.log").write_text("x")
    (host / "src/.env").write_text("x")
    (host / ".gatehouseignore").write_text(".env\n/secrets/\n")
    report = await make_copy(host, tmp_path / "s/merged")
    copy = tmp_path / "s/merged"
    assert report.skipped_count == 0
    assert "tracked.log" in has(copy)
    assert not {".env", "src/.env", "secrets/prod.key", "other.log"} & has(copy)
    assert not {".env", "secrets", "secrets/prod.key"} & replay(copy.parent).baseline.keys()
    assert git(copy, "status", "--porcelain") == "?? .gatehouseignore\n"
    (copy / "src/app.py").write_text("new\n")
    git(copy, "commit", "-q", "-a", "-m", "the agent's")
    assert git(copy, "show", "--name-only", "--format=") == "src/app.py\n"


async def test_an_exclamation_mark_brings_in_what_git_ignores(host: Path, tmp_path: Path) -> None:
    (host / "build/deep").mkdir(parents=True)
    for name in ("build/out.o", "build/deep/out.o", "build/deep/secret.key", "a.log", "b.log"):
        (host / name).write_text("x")
    (host / ".gatehouseignore").write_text("!build/\n!a.log\n*.key\n")
    await make_copy(host, tmp_path / "s/merged")
    copied = has(tmp_path / "s/merged")
    assert {"build/out.o", "build/deep/out.o", "a.log"} <= copied
    assert not {"build/deep/secret.key", "b.log"} & copied
    assert {"build/out.o", "a.log", "build"} <= replay(tmp_path / "s").baseline.keys()


async def test_files_in_folders_count_for_what_is_below_and_the_innermost_wins(
    host: Path, tmp_path: Path
) -> None:
    (host / "src/data").mkdir()
    for name in ("src/data/a.bin", "src/data/keep.bin", "b.bin", "src/notes.txt"):
        (host / name).write_text("x")
    (host / ".gatehouseignore").write_text("*.bin\n")
    (host / "src/.gatehouseignore").write_text("/notes.txt\n")
    (host / "src/data/.gatehouseignore").write_text("!keep.bin\n")
    (host / "src/.gitignore").write_text("util.py\nkeep.bin\n")
    (host / "src/data/.gitignore").write_text("!keep.bin\n")
    await make_copy(host, tmp_path / "s/merged")
    copied = has(tmp_path / "s/merged")
    assert "src/data/keep.bin" in copied
    assert "src/util.py" in copied  # tracked
    assert not {"src/data/a.bin", "b.bin", "src/notes.txt"} & copied


async def test_without_git_it_counts_too(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "big/deep").mkdir(parents=True)
    for name in ("big/deep/x", "a.txt", ".env"):
        (folder / name).write_text("x")
    (folder / ".gatehouseignore").write_text("big\n.env\n")
    await make_copy(folder, tmp_path / "s/merged")
    assert names(tmp_path / "s/merged") == {"a.txt", ".gatehouseignore"}


async def test_an_ignore_file_that_is_a_symlink_or_a_fifo_is_not_read(
    host: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").write_text("*\n")
    (host / ".gatehouseignore").symlink_to(tmp_path / "elsewhere")
    await make_copy(host, tmp_path / "s/merged")
    assert "README.md" in has(tmp_path / "s/merged")


async def test_what_git_ignores_comes_along_where_it_is_wanted_as_the_agents_own(
    host: Path, tmp_path: Path
) -> None:
    (host / "build/deep").mkdir(parents=True)
    library = make_repository(host / "build/library", {"n.txt": "n\n"})
    for name in ("build/deep/out.o", "build/deep/.env", "a.log"):
        (host / name).write_text("x")
    (host / ".gatehouseignore").write_text(".env\n")
    await make_copy(host, tmp_path / "s/merged", include_ignored=True)
    copy = tmp_path / "s/merged"
    assert {"build/deep/out.o", "a.log", "build/library/n.txt"} <= has(copy)
    assert "build/deep/.env" not in has(copy)
    assert not [
        name for name in replay(copy.parent).baseline if name.startswith(("build", "a.log"))
    ]
    assert git(copy / "build/library", "log", "--format=%H") == git(library, "log", "--format=%H")


@pytest.mark.parametrize("include_ignored", [False, True])
async def test_neither_direction_speaks_of_what_was_left_out(
    desk: Desk, include_ignored: bool
) -> None:
    """It isn't taken for deleted, the host's changes to it don't come in, and what the agent
    makes there stays there."""
    (desk.host / ".env").write_text("secret\n")
    (desk.host / "build").mkdir()
    (desk.host / "build/out.o").write_text("host\n")
    (desk.host / ".gatehouseignore").write_text(".env\n")
    async with desk.running(copy=False, start=False):
        await make_copy(desk.host, desk.copy, exclude=(desk.data,), include_ignored=include_ignored)
        await desk.channel.start()
        assert (desk.copy / "build").exists() == include_ignored
        (desk.copy / "build").mkdir(exist_ok=True)
        (desk.copy / "build/out.o").write_text("agent\n")
        (desk.copy / "build/more.o").write_text("agent\n")
        (desk.copy / ".env").write_text("agent\n")
        (desk.host / ".env").write_text("rotated\n")
        (desk.host / "build/host.o").write_text("host\n")
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
        assert (desk.host / ".env").read_text() == "rotated\n"
        assert (desk.copy / ".env").read_text() == "agent\n"
        assert (desk.host / "build/out.o").read_text() == "host\n"
        assert not (desk.copy / "build/host.o").exists()
        assert not (desk.host / "build/more.o").exists()


async def test_lines_that_the_person_adds_count_from_then_on(desk: Desk) -> None:
    async with desk.running():
        (desk.host / ".gatehouseignore").write_text("*.tmp\n")
        await desk.until(lambda: (desk.copy / ".gatehouseignore").exists())
        (desk.copy / "free/x.tmp").write_text("x\n")
        (desk.copy / "free/y.txt").write_text("y\n")
        await desk.until(lambda: (desk.host / "free/y.txt").exists())
        assert not (desk.host / "free/x.tmp").exists()
        # The agent's own line counts for nothing before a person has said yes to it.
        (desk.copy / ".gatehouseignore").write_text("*.txt\n")
        (desk.copy / "free/z.txt").write_text("z\n")
        await desk.until(lambda: (desk.host / "free/z.txt").exists())
