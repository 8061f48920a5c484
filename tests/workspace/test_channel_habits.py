"""What agents and editors really do to a folder, with the real tools: one clear question comes
of it, or none."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from supervisor.core.approvals import Request, status
from tests.fakes.gated import answer_all
from tests.tables import share
from tests.workspace.conftest import Desk, git

MANY = 200


@pytest.fixture(autouse=True)
def _objects(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overlay's repository borrows its objects from where only a sandbox has them: here they
    are."""
    monkeypatch.setenv("GIT_ALTERNATE_OBJECT_DIRECTORIES", str(host / ".git/objects"))


def files(folder: Path) -> dict[str, bytes]:
    """Every file below but git's own."""
    return {
        name: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not (name := str(path.relative_to(folder))).startswith(".git/")
    }


def git_of(desk: Desk, *words: str) -> str:
    """Real git in the copy."""
    command = desk.program(
        "git", "-c", "user.name=Test", "-c", "user.email=test@example.org", *words
    )
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def tool(place: Desk | Path, *command: str) -> None:
    """Run a real program in the copy or in a folder, to its end, while the session goes on."""
    argv = (
        place.program(*command) if isinstance(place, Desk) else ["env", "-C", str(place), *command]
    )
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(200):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def quiet(desk: Desk) -> dict[str, Request]:
    """What waits once everything that happened has been looked at."""
    await desk.compared()
    return desk.pending()


async def approve_as_one(desk: Desk) -> list[Request]:
    """All that waits, with one answer, carried out."""
    ids = [one.id for one in (await quiet(desk)).values()]
    done = [await desk.settled(one) for one in answer_all(desk.gate, ids, "approved", by="tester")]
    assert all(one.outcome is not None and one.outcome["ok"] for one in done), [
        one.outcome for one in done
    ]
    return done


def differing(desk: Desk) -> set[str]:
    """The files that aren't the same on both sides."""
    host, copy = files(desk.host), files(desk.copy)
    return {name for name in host.keys() | copy.keys() if host.get(name) != copy.get(name)}


@pytest.fixture
def branches(host: Path) -> Path:
    """A second branch that changes, deletes and adds many files."""
    for number in range(MANY):
        (host / f"src/old{number}.py").write_text(f"old = {number}\n")
        (host / f"src/kept{number}.py").write_text(f"kept = {number}\n")
    git(host, "add", "-A")
    git(host, "commit", "-q", "-m", "many")
    git(host, "checkout", "-q", "-b", "feature")
    for number in range(MANY):
        (host / f"src/old{number}.py").unlink()
        (host / f"src/kept{number}.py").write_text(f"kept = {number} * 2\n")
        (host / f"src/deep/new{number}.py").parent.mkdir(exist_ok=True)
        (host / f"src/deep/new{number}.py").write_text(f"new = {number}\n")
    git(host, "add", "-A")
    git(host, "commit", "-q", "-m", "feature")
    git(host, "checkout", "-q", "main")
    return host


# -- git ------------------------------------------------------------------------------------------


async def test_a_checkout_of_another_branch_is_one_question(desk: Desk, branches: Path) -> None:
    head = (desk.host / ".git/HEAD").read_bytes()
    async with desk.running():
        before = files(desk.host)
        await tool(desk, "git", "checkout", "-q", "feature")
        assert (await quiet(desk)).keys() == differing(desk)
        assert len(desk.pending()) == 3 * MANY
        assert files(desk.host) == before
        await approve_as_one(desk)
        assert not differing(desk)
        assert len(list((desk.host / "src/deep").iterdir())) == MANY
        assert not desk.pending()
        # Git's own folder is not synced: to the host's repository these are changed files.
        assert (desk.host / ".git/HEAD").read_bytes() == head
        assert len(git(desk.host, "status", "--porcelain", "-uall").splitlines()) == 3 * MANY
        assert git_of(desk, "status", "--porcelain") == ""


@pytest.mark.many
async def test_a_checkout_there_and_back_leaves_nothing_to_ask(desk: Desk, branches: Path) -> None:
    async with desk.running():
        before = files(desk.host)
        await tool(desk, "git", "checkout", "-q", "feature")
        assert len(await quiet(desk)) == 3 * MANY
        await tool(desk, "git", "checkout", "-q", "main")
        assert await quiet(desk) == {}
        assert files(desk.host) == before
        assert {status(one) for one in desk.requests()} <= {"superseded", "expired"}


async def test_a_rebase_asks_about_what_it_ends_with(desk: Desk, branches: Path) -> None:
    async with desk.running():
        (desk.copy / "src/app.py").write_text("one = 1\ntwo = 22\nthree = 3\n")
        git_of(desk, "commit", "-q", "-a", "-m", "mine")
        (desk.copy / "README.md").write_text("hello again\n")
        git_of(desk, "commit", "-q", "-a", "-m", "mine too")
        await tool(desk, "git", "rebase", "-q", "feature")
        waiting = await quiet(desk)
        assert waiting.keys() == differing(desk)
        assert {"src/app.py", "README.md", "src/deep/new7.py"} <= waiting.keys()
        await approve_as_one(desk)
        assert not differing(desk)


async def test_a_stash_takes_the_cards_back_and_a_pop_brings_them(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "src/app.py").write_text("mine\n")
        (desk.copy / "src/util.py").unlink()
        assert (await quiet(desk)).keys() == {"src/app.py", "src/util.py"}
        await tool(desk, "git", "stash", "-q")
        assert await quiet(desk) == {}
        await tool(desk, "git", "stash", "pop", "-q")
        assert (await quiet(desk)).keys() == {"src/app.py", "src/util.py"}
        await approve_as_one(desk)
        assert not differing(desk)


# -- packages and builds --------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm on this machine")
@pytest.mark.parametrize("is_ignored", share([True, False], False))
async def test_npm_install_of_a_package(desk: Desk, tmp_path: Path, is_ignored: bool) -> None:
    package = tmp_path / "tiny-package"
    (package / "lib").mkdir(parents=True)
    facts = {
        "name": "tiny-package",
        "version": "1.2.3",
        "bin": {"tiny": "lib/cli.js"},
        "main": "lib/index.js",
    }
    (package / "package.json").write_text(json.dumps(facts))
    (package / "lib/cli.js").write_text("#!/usr/bin/env node\nconsole.log('tiny')\n")
    for number in range(30):
        (package / f"lib/part{number}.js").write_text(f"exports.part = {number}\n")
    (package / "lib/index.js").write_text("exports.tiny = true\n")
    await tool(package, "npm", "pack", "--silent")
    (desk.host / "package.json").write_text('{"name": "app", "version": "1.0.0"}\n')
    (desk.host / ".gitignore").write_text("build/\n" if is_ignored else "!node_modules/\nbuild/\n")
    async with desk.running():
        install = ("npm", "install", "--offline", "--no-audit", "--no-fund", "--silent")
        await tool(desk, *install, str(package / "tiny-package-1.2.3.tgz"))
        waiting = await quiet(desk)
        manifests = {"package.json", "package-lock.json"}
        if is_ignored:
            assert waiting.keys() == manifests
            await approve_as_one(desk)
            assert "tiny-package" in (desk.host / "package.json").read_text()
            assert not (desk.host / "node_modules").exists()
            return
        assert manifests < waiting.keys()
        # A link into the package that will be run by its name is a hazard, on a card of its own.
        link = waiting["node_modules/.bin/tiny"].action
        assert "symlink" in link.hazards  # type: ignore[union-attr]
        await approve_as_one(desk)
        assert not differing(desk)
        assert (desk.host / "node_modules/.bin/tiny").is_symlink()
        ran = subprocess.run(
            [desk.host / "node_modules/.bin/tiny"], capture_output=True, text=True, check=True
        )
        assert ran.stdout == "tiny\n"


async def test_a_build_that_writes_5_000_ignored_files_asks_nothing(desk: Desk) -> None:
    script = (
        'mkdir -p build/a && cd build && seq 5000 | while read n; do echo "$n" > a/$n.o; done; echo'
        " done > out.log"
    )
    async with desk.running():
        await tool(desk, "sh", "-c", script)
        assert await quiet(desk) == {}
        assert desk.requests() == []
        assert not (desk.host / "build").exists()
        # What changes beside it is seen as ever.
        (desk.copy / "src/app.py").write_text("built\n")
        assert await desk.asked("src/app.py")


async def test_sed_over_many_files_is_one_answer(desk: Desk) -> None:
    for number in range(MANY):
        (desk.host / f"src/m{number}.py").write_text(f"import old_name\nvalue = {number}\n")
    async with desk.running():
        await tool(desk, "sh", "-c", "sed -i s/old_name/new_name/ src/m*.py")
        waiting = await quiet(desk)
        assert len(waiting) == MANY
        assert {one.action.operation for one in waiting.values()} == {"write"}  # type: ignore[union-attr]
        assert not [name for name in waiting if "sed" in name]
        await approve_as_one(desk)
        assert not differing(desk)


# -- editors --------------------------------------------------------------------------------------


def save_like_vim(path: Path, text: str) -> None:
    """backupcopy=no: the old file becomes the backup, a new one is written, the backup goes; and
    a swap file beside it."""
    swap = path.with_name(f".{path.name}.swp")
    swap.write_bytes(b"b0VIM 8.2")
    probe = path.with_name("4913")
    probe.write_text("")
    probe.unlink()
    backup = path.with_name(f"{path.name}~")
    path.rename(backup)
    path.write_text(text)
    backup.unlink()
    swap.unlink()


def save_like_emacs(path: Path, text: str) -> None:
    """A lock that is a link to nowhere, an auto-save file, then a new file over the old one."""
    lock = path.with_name(f".#{path.name}")
    lock.symlink_to("somebody@machine.4711:1700000000")
    auto = path.with_name(f"#{path.name}#")
    auto.write_text(text)
    spare = path.with_name(f"{path.name}.tmp")
    spare.write_text(text)
    spare.replace(path)
    auto.unlink()
    lock.unlink()


def save_like_vs_code(path: Path, text: str) -> None:
    """A file with a random name is written and renamed over the old one."""
    spare = path.with_name(f"{path.name}.vsctmp-1a2b3c")
    spare.write_text(text)
    spare.chmod(path.stat().st_mode)
    spare.replace(path)


SAVES = [save_like_vim, save_like_emacs, save_like_vs_code]


@pytest.mark.parametrize("save", SAVES)
async def test_an_editors_save_in_the_copy_is_one_card(desk: Desk, save) -> None:  # type: ignore[no-untyped-def]
    async with desk.running():
        for number in range(5):
            save(desk.copy / "src/app.py", f"saved = {number}\n")
        assert (await quiet(desk)).keys() == {"src/app.py"}
        await approve_as_one(desk)
        assert (desk.host / "src/app.py").read_text() == "saved = 4\n"
        assert not differing(desk)


@pytest.mark.parametrize("save", SAVES)
async def test_an_editors_save_on_the_host_reaches_the_copy(desk: Desk, save) -> None:  # type: ignore[no-untyped-def]
    async with desk.running():
        for number in range(5):
            save(desk.host / "src/app.py", f"saved = {number}\n")
        await desk.until(lambda: (desk.copy / "src/app.py").read_text() == "saved = 4\n")
        await desk.until(lambda: not differing(desk))
        assert await quiet(desk) == {}


@pytest.mark.skipif(shutil.which("vim") is None, reason="no vim on this machine")
@pytest.mark.parametrize("side", ["host", "copy"])
async def test_a_save_by_the_real_vim(desk: Desk, side: str) -> None:
    async with desk.running():
        folder = desk.host if side == "host" else desk.copy
        await tool(desk if side == "copy" else folder, "vim", "-es", "-u", "NONE", "-c",
        "set backup backupcopy=no", "-c", "%s/one/uno/", "-c", "wq", "src/app.py")  # fmt: skip
        (folder / "src/app.py~").unlink(missing_ok=True)
        if side == "copy":
            assert (await quiet(desk)).keys() == {"src/app.py"}
            await approve_as_one(desk)
        await desk.until(
            lambda: (desk.copy / "src/app.py").read_text().startswith("uno") and not differing(desk)
        )
        assert await quiet(desk) == {}


# -- what must not be taken for an answer ---------------------------------------------------------


async def test_rm_rf_of_the_copy_asks_and_empties_nothing(desk: Desk) -> None:
    async with desk.running():
        before = files(desk.host)
        await tool(desk, "sh", "-c", "rm -rf ./* ./.[!.]*")
        waiting = await quiet(desk)
        ruled = {name for name in before if name.startswith(("free/", "closed/"))}
        assert waiting.keys() | ruled >= before.keys()
        assert {one.action.operation for one in waiting.values()} == {"delete"}  # type: ignore[union-attr]
        assert files(desk.host) == {
            name: data for name, data in before.items() if not name.startswith("free/")
        }
        for request in waiting.values():
            desk.deny(request)
        # Denied, they are not asked again, and the copy stays as the agent left it.
        assert await quiet(desk) == {}
        assert (desk.host / "README.md").exists()


async def test_the_copy_itself_gone_deletes_nothing(desk: Desk) -> None:
    """Renamed away or removed from outside: there is nothing to compare with, so nothing is
    asked and nothing is done."""
    if desk.is_overlay:
        pytest.skip("a mounted folder can't be renamed or removed")
    async with desk.running():
        before = files(desk.host)
        await tool(desk.copy.parent, "rm", "-rf", str(desk.copy))
        await asyncio.gather(*[quiet(desk) for _ in range(2)], return_exceptions=True)
        after = files(desk.host)
        assert {
            name: data for name, data in before.items() if not name.startswith("free/")
        }.items() <= after.items()


# -- what never rests -----------------------------------------------------------------------------


async def most_waiting(desk: Desk, work: "asyncio.Task[None]") -> int:
    """The most cards that waited at once until the work was done."""
    most = 0
    while not work.done():
        most = max(most, len(desk.pending()))
        await asyncio.sleep(0.02)
    await work
    return most


@pytest.mark.parametrize("script", [
    "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i >> server.txt; sleep 0.01; done",
    "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo state $i > server.txt; sleep 0.01; done",
    "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo state $i > .tmp; mv .tmp server.txt; sleep 0.01; done",  # noqa: E501
])  # fmt: skip
async def test_a_file_that_is_written_100_times_a_second_is_one_card(
    desk: Desk, script: str
) -> None:
    async with desk.running():
        most = await most_waiting(desk, asyncio.create_task(tool(desk, "sh", "-c", script)))
        assert most <= 2  # `.tmp` may be met once
        waiting = await quiet(desk)
        assert waiting.keys() == {"server.txt"}
        # They are gathered: what is written between two looks is one card, which takes the place of
        # the one before.
        before = len(desk.requests("server.txt"))
        async with desk.channel._turn:
            await tool(desk, "sh", "-c", script.replace("sleep 0.01", ":"))
        assert (await quiet(desk)).keys() == {"server.txt"}
        assert len(desk.requests("server.txt")) <= before + 2
        assert {status(one) for one in desk.requests()} <= {"pending", "superseded", "expired"}
        await approve_as_one(desk)
        assert (desk.host / "server.txt").read_bytes() == (desk.copy / "server.txt").read_bytes()


async def test_a_writer_that_keeps_its_log_open_does_not_hold_up_the_rest(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended to all the time: it is asked about as it was at a moment, and other changes come
    through meanwhile."""
    script = (
        "exec 3>>noise.txt; i=0; while [ ! -e stop ]; do i=$((i+1)); echo line $i >&3; [ $((i %"
        " 500)) -gt 0 ] || sleep 0.01; done"
    )
    async with desk.running():
        looks, look = [], desk.channel._now.comparison.run
        monkeypatch.setattr(
            desk.channel._now.comparison,
            "run",
            lambda *given: (looks.append(given), look(*given))[1],
        )
        work = asyncio.create_task(tool(desk, "sh", "-c", script))
        await desk.until(lambda: (desk.copy / "noise.txt").exists())
        (desk.copy / "src/app.py").write_text("while it runs\n")
        request = await desk.asked("src/app.py")
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]
        assert (desk.host / "src/app.py").read_text() == "while it runs\n"
        (desk.copy / "stop").write_text("")
        await work
        assert {"noise.txt", "stop"} <= (await quiet(desk)).keys()
        assert len(desk.requests("noise.txt")) <= len(looks)


async def test_a_repository_that_the_agent_makes_inside(desk: Desk) -> None:
    """`git clone` or `git init` in the copy: the files are asked, the repository's own folder
    stays in the copy."""
    async with desk.running():
        (desk.copy / "vendor/lib/docs").mkdir(parents=True)
        (desk.copy / "vendor/lib/lib.py").write_text("lib = 1\n")
        (desk.copy / "vendor/lib/docs/x.md").write_text("x\n")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
            git_of(desk, "-C", "vendor/lib", *words)
        waiting = await quiet(desk)
        assert waiting.keys() == {"vendor/lib/lib.py", "vendor/lib/docs/x.md"}
        await approve_as_one(desk)
        assert (desk.host / "vendor/lib/lib.py").exists()
        assert not (desk.host / "vendor/lib/.git").exists()
