"""From the host to the copy: what the person does there, by whatever habit, the agent has a
moment later."""

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.approvals import Request
from supervisor.core.files.changes import Known, Seen, Signature, want
from supervisor.core.files.host_changes import incoming
from supervisor.workspace.disk import scan
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.watch import Watcher
from supervisor.workspace.incoming import incoming as module
from tests.workspace.conftest import Desk, git, make_repository


def tree(folder: Path) -> dict[str, object]:
    """Everything but git's own folder: content, permissions and targets."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = os.fsencode(path.relative_to(folder)).decode("latin-1")
        if name == ".git" or name.startswith(".git/"):
            continue
        try:
            if path.is_symlink():
                found[name] = ("link", path.readlink())
            elif path.is_dir():
                found[name] = "dir"
            else:
                found[name] = (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        except OSError:  # it is being synced while we look, maybe into another kind of thing
            continue
    return found


def _ok(request: Request) -> bool:
    return request.outcome is not None and bool(request.outcome["ok"])


async def same(desk: Desk) -> None:
    await desk.until(lambda: tree(desk.copy) == tree(desk.host))


def save_by_rename(path: Path, text: str) -> None:
    """As vim and most editors do it."""
    draft = path.with_name(f".{path.name}.swp")
    draft.write_text(text)
    draft.rename(path)


async def test_what_only_the_host_changed_reaches_the_copy(desk: Desk) -> None:
    async with desk.running():
        (desk.host / "src/app.py").write_text("in place\n")
        save_by_rename(desk.host / "src/util.py", "by rename\n")
        (desk.host / "free/a.txt").unlink()
        (desk.host / "deep/er/est").mkdir(parents=True)
        (desk.host / "deep/er/est/new.txt").write_text("new\n")
        (desk.host / "empty/inner").mkdir(parents=True)
        (desk.host / "README.md").chmod(0o600)
        (desk.host / "tool").write_text("#!/bin/sh\n")
        (desk.host / "tool").chmod(0o755)
        (desk.host / "link").symlink_to("src/app.py")
        await same(desk)
        await desk.compared()
        assert desk.requests() == []  # nothing of it is taken for the agent's
        shutil.rmtree(desk.host / "deep")
        (desk.host / "link").unlink()
        (desk.host / "link").symlink_to("elsewhere")
        (desk.host / "src").rename(desk.host / "lib")
        await same(desk)
        await desk.compared()
        assert desk.requests() == []


async def test_our_own_effects_are_not_echoed(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/a.txt").write_text("agent\n")
        (desk.copy / "free/sub").mkdir()
        (desk.copy / "free/sub/b.txt").write_text("agent\n")
        await desk.until(lambda: (desk.host / "free/sub/b.txt").exists())
        await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "agent\n")
        await desk.until(lambda: all(one.settled_at for one in desk.requests()))
        async with desk.channel._turn:
            await desk.channel._now.incoming.run(None)
        changes = desk.channel.host_changes()
        assert changes is not None
        assert list(changes.recent) == []
        assert changes.conflicts() == []


async def test_a_swap_of_kinds_on_the_host(desk: Desk) -> None:
    async with desk.running():
        (desk.host / "README.md").unlink()
        (desk.host / "README.md").mkdir()
        (desk.host / "README.md/inner").write_text("x\n")
        shutil.rmtree(desk.host / "src")
        (desk.host / "src").write_text("a file now\n")
        (desk.host / "free/a.txt").unlink()
        (desk.host / "free/a.txt").symlink_to("../src")
        await same(desk)
        await desk.compared()
        assert desk.requests() == []


async def test_what_the_host_ignores_stays_out(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/today.log").write_text("x")
    async with desk.running():
        (desk.host / "build").mkdir()
        (desk.host / "build/out.o").write_text("x")
        (tmp_path / "logs").rename(
            desk.host / "logs"
        )  # whole at once: an empty folder would be a change of its own
        (desk.host / "seen.txt").write_text("x")
        await desk.until(lambda: (desk.copy / "seen.txt").exists())
        # An overlay shows what is new on the host until it was looked at.
        await desk.until(
            lambda: (
                not (desk.copy / "build").exists() and not (desk.copy / "logs/today.log").exists()
            )
        )
        (desk.host / ".gitignore").write_text("*.log\n")
        await desk.until(lambda: (desk.copy / "build/out.o").exists())
        assert not (desk.copy / "logs/today.log").exists()
        assert desk.is_overlay or not (desk.copy / "logs").exists()


async def test_what_repositories_inside_a_plain_folder_ignore_stays_out(tmp_path: Path) -> None:
    host = tmp_path / "host"
    make_repository(host / "web", {"app.js": "1\n", ".gitignore": "built_modules/\n"})
    (host / "web/built_modules").mkdir()
    (host / "web/built_modules/big.js").write_text("x")
    (host / "built_modules").mkdir()
    (host / "built_modules/mine.js").write_text("x")
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        (host / "web/new.js").write_text("2\n")
        (host / "other.txt").write_text("2\n")
        await desk.until(
            lambda: (desk.copy / "web/new.js").exists() and (desk.copy / "other.txt").exists()
        )
        assert not (desk.copy / "web/built_modules").exists()
        assert (desk.copy / "built_modules/mine.js").exists()
        (desk.copy / "web/built_modules/built").mkdir(parents=True)
        (desk.copy / "web/built_modules/built/x.js").write_text("x")
        await desk.compared()
        assert desk.requests() == []
    desk.close()


async def test_a_checkout_of_another_branch_while_the_agent_works(tmp_path: Path) -> None:
    files = {f"pkg{n // 50}/m{n}.py": f"value = {n}\n" for n in range(1000)}
    host = make_repository(tmp_path / "host", {**files, "mine.py": "old\n", "shared.py": "old\n"})
    git(host, "checkout", "-q", "-b", "other")
    for number in range(0, 1000, 2):
        (host / f"pkg{number // 50}/m{number}.py").write_text(f"value = {-number}\n")
    for number in range(1, 1000, 100):
        (host / f"pkg{number // 50}/m{number}.py").unlink()
    for number in range(500):
        (host / f"new{number}.py").write_text("new\n")
    git(host, "add", "-A")
    git(host, "commit", "-q", "-m", "other")
    git(host, "checkout", "-q", "main")
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        (desk.copy / "mine.py").write_text("agent\n")
        request = await desk.asked("mine.py")
        git(host, "checkout", "-q", "other")
        there = {**tree(host), "mine.py": 0}
        async with asyncio.timeout(200):
            while {**tree(desk.copy), "mine.py": 0} != there:
                await asyncio.sleep(
                    0.5
                )  # looking is work, too: a look at 1,500 files each moment would be most of it
        await desk.compared()
        assert [one.id for one in desk.requests()] == [request.id]
        assert (
            git(desk.copy, "rev-parse", "--abbrev-ref", "HEAD") == "main\n"
        )  # the copy's repository is the agent's own
        desk.approve(request)
        assert _ok(await desk.settled(request))
    desk.close()


async def test_a_checkout_that_deletes_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IMPATIENT_S", 0.05)
    files = {f"gone/{n}.py": f"{n}\n" for n in range(100)} | {
        f"stays/{n}.py": f"{n}\n" for n in range(150)
    }
    desk = Desk(tmp_path / "data", make_repository(tmp_path / "host", files))
    async with desk.running():
        git(desk.host, "rm", "-rq", "gone")
        await same(desk)
        assert not (desk.copy / "gone").exists()
    desk.close()


async def test_a_workspace_deleted_as_a_whole_leaves_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IMPATIENT_S", 0.05)
    host = make_repository(tmp_path / "host", {f"d{n % 7}/{n}.py": f"{n}\n" for n in range(300)})
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        before = tree(desk.copy)
        changes = desk.channel.host_changes()
        assert changes is not None
        shutil.rmtree(host)
        await desk.until(
            lambda: any("was deleted on the host" in line for line in changes.notices())
        )
        (desk.copy / "d1/new.py").write_text("agent\n")
        request = await desk.asked("d1/new.py")
        desk.approve(request)
        assert not _ok(await desk.settled(request))
        (desk.copy / "d1/new.py").unlink()
        assert tree(desk.copy) == before
    desk.close()


async def test_most_files_gone_is_said_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IMPATIENT_S", 0.05)
    host = make_repository(
        tmp_path / "host", {f"d{n % 7}/{n}.py": f"{n}\n" for n in range(300)} | {"last": "x"}
    )
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        before = tree(desk.copy)
        changes = desk.channel.host_changes()
        assert changes is not None
        for number in range(7):
            shutil.rmtree(host / f"d{number}")
        await desk.until(
            lambda: any("300 of 301 files are gone" in line for line in changes.notices())
        )
        assert tree(desk.copy) == before
        git(host, "checkout", "-q", "--", ".")
        (host / "last").write_text("y\n")
        await same(desk)
    desk.close()


async def test_names_of_any_bytes_and_odd_things(desk: Desk, tmp_path: Path) -> None:
    names = [
        b"free/caf\xe9.txt",
        b"free/new\nline",
        b"free/" + b"n" * 255,
        b"free/:(glob)*",
        b"caf\xe9/x",
    ]
    async with desk.running():
        (desk.host / os.fsdecode(b"caf\xe9")).mkdir()
        for name in names:
            (desk.host / os.fsdecode(name)).write_bytes(name)
        (desk.host / "odd-link").symlink_to(os.fsdecode(b"caf\xe9-target"))
        os.mkfifo(desk.host / "fifo")
        (desk.host / "set").write_text("x")
        (desk.host / "set").chmod(0o4755)
        (desk.host / "sub/.git").mkdir(parents=True)
        (desk.host / "sub/.git/config").write_text("[core]\n")
        (desk.host / "sub/file").write_text("x")
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/secret").write_text("secret")
        (desk.host / "out").symlink_to(tmp_path / "outside")
        for name in names:
            there = desk.copy / os.fsdecode(name)
            await desk.until(there.exists)
            assert there.read_bytes() == name
        await desk.until(
            lambda: os.path.lexists(desk.copy / "out") and (desk.copy / "set").exists()
        )
        await desk.until((desk.copy / "sub/file").exists)
        if not desk.is_overlay:  # its mount honours no such bit
            assert stat.S_IMODE((desk.copy / "set").stat().st_mode) == 0o755
        assert (desk.copy / "out").is_symlink()
        await desk.until(lambda: not os.path.lexists(desk.copy / "fifo"))
        await desk.until(lambda: not os.path.lexists(desk.copy / "sub/.git"))
        changes = desk.channel.host_changes()
        assert changes is not None
        await desk.until(lambda: any("fifo is never copied" in line for line in changes.notices()))
        await desk.compared()
        assert desk.requests() == []


async def test_a_folder_swapped_for_a_symlink_leads_nowhere(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("secret\n")
    (outside / "more.py").write_text("secret\n")
    async with desk.running():
        (desk.host / "src").rename(tmp_path / "away")
        (desk.host / "src").symlink_to(outside)
        await desk.until(lambda: (desk.copy / "src").is_symlink())
        await same(desk)
        assert sorted(path.name for path in outside.iterdir()) == ["app.py", "more.py"]
        assert (outside / "app.py").read_text() == "secret\n"
        for blob in (desk.folder / "blobs").iterdir():
            assert b"secret" not in blob.read_bytes()


async def test_a_folder_swapped_all_the_time(desk: Desk, tmp_path: Path) -> None:
    """The copy's folder is swapped for a way out by the agent while the host's file changes."""
    outside = tmp_path / "outside"
    outside.mkdir()
    async with desk.running():
        for number in range(60):
            (desk.host / "src/util.py").write_text(f"{number}\n")
            (desk.host / f"src/{number}.py").write_text("x\n")
            # A step fails where sync has just made the missing folder anew: the next round goes on
            # from there.
            for step in (
                lambda: shutil.move(desk.copy / "src", desk.copy / "away"),
                lambda: (desk.copy / "src").symlink_to(outside),
                lambda: (desk.copy / "src").unlink(),
                lambda: shutil.move(desk.copy / "away", desk.copy / "src"),
            ):
                with contextlib.suppress(OSError):
                    step()
                await asyncio.sleep(0.002)
        assert list(outside.iterdir()) == []
        if (desk.copy / "src").is_symlink():
            (desk.copy / "src").unlink()
        async with desk.channel._turn:
            await desk.channel._now.incoming.run(None)
        assert list(outside.iterdir()) == []


async def test_a_file_that_grows_all_the_time_does_not_hold_up_the_others(desk: Desk) -> None:
    async with desk.running():
        with (desk.host / "growing").open("ab") as file:
            for number in range(40):
                file.write(b"x" * 200_000)
                file.flush()
                (desk.host / f"free/{number}.txt").write_text(f"{number}\n")
                await asyncio.sleep(0.01)
            await desk.until(lambda: all((desk.copy / f"free/{n}.txt").exists() for n in range(40)))
        await same(desk)


async def test_a_file_too_large_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.workspace.disk.scan.LARGEST_FILE_BYTES", 1000)
    async with desk.running():
        (desk.host / "big").write_bytes(b"x" * 2_000_000)
        changes = desk.channel.host_changes()
        assert changes is not None
        await desk.until(
            lambda: any("`big` (the file is too large)" in line for line in changes.notices())
        )
        assert (
            desk.copy / "big"
        ).exists() == desk.is_overlay  # it shines through, which costs nothing


async def test_a_copy_without_room_is_said_and_comes_right(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    real = os.link

    def link(*args: object, **kwargs: object) -> None:
        if full:
            raise OSError(28, "No space left on device")
        real(*args, **kwargs)  # type: ignore[arg-type]

    if desk.is_overlay:
        pytest.skip("what is new on the host shines through and needs no room")
    async with desk.running():
        monkeypatch.setattr(os, "link", link)
        (desk.host / "free/new.txt").write_text("x\n")
        changes = desk.channel.host_changes()
        assert changes is not None
        await desk.until(lambda: any("No space left" in line for line in changes.notices()))
        full = False
        async with desk.channel._turn:
            await changes.run(None)
        assert (desk.copy / "free/new.txt").read_text() == "x\n"
        assert changes.notices() == []


async def test_a_folder_that_cannot_be_read_is_not_empty(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = scan.each_entry

    def each_entry(root: Root, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        if folder == "src":
            raise PermissionError(13, "Permission denied")
        return real(root, folder)

    async with desk.running():
        monkeypatch.setattr(module, "each_entry", each_entry)
        changes = desk.channel.host_changes()
        assert changes is not None
        async with desk.channel._turn:
            await changes.run(None)
        assert (desk.copy / "src/app.py").exists()
        assert any("`src` (the folder can't be read" in line for line in changes.notices())


async def test_without_watches_passes_come_often(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "supervisor.workspace.disk.watch.Watcher.add",
        lambda self, folder: setattr(self, "is_partial", True),
    )
    monkeypatch.setattr(module, "IMPATIENT_S", 0.05)
    async with desk.running():
        (desk.host / "src/app.py").write_text("person\n")
        await same(desk)


def test_watches_are_bounded(tmp_path: Path) -> None:
    async def look() -> None:
        root = Root(tmp_path)
        watcher = Watcher(root, most=3)
        for number in range(5):
            (tmp_path / str(number)).mkdir()
            watcher.add(str(number))
        assert watcher.is_partial
        assert [watcher.is_watched(str(n)) for n in range(5)] == [True] * 3 + [False] * 2
        watcher.close()
        root.close()

    asyncio.run(look())


def states() -> list[Seen | None]:
    """A few states of a path that differ in everything that matters."""
    found: list[Seen | None] = [None]
    for number, (kind, digest, target, mode) in enumerate(
        [("file", "a", None, 0o644), ("file", "b", None, 0o644), ("file", "a", None, 0o755), ("dir",
         None, None, 0o755),
         ("symlink", None, "x", 0o777), ("fifo", None, None, 0o644), ("file", "a", None, 0o4755)]
    ):  # fmt: skip
        signature: Signature = (1, number, number, number, mode)
        found.append(Seen(kind, mode, signature, digest, target))  # type: ignore[arg-type]
    return found


def knowns() -> list[Known | None]:
    out: list[Known | None] = [None]
    for seen in states():
        if seen is not None and seen.kind != "fifo":
            mode = seen.mode & 0o777
            out.append(
                Known(seen.kind, mode, seen.digest, seen.target, seen.signature, seen.signature)
            )
            out.append(Known(seen.kind, mode, None, seen.target, seen.signature, seen.signature))
    return out


def test_the_two_directions_never_both_ask() -> None:
    brought = 0
    for known in knowns():
        for mine in states():
            for host in states():
                verdict = incoming(known, mine, host)
                wanted = want(known, mine, host)
                assert not (verdict.steps and wanted), (known, mine, host)
                assert (verdict.verdict == "bring") == bool(verdict.steps)
                if verdict.verdict == "conflict" and wanted is not None:
                    assert "conflict" in wanted.hazards
                brought += bool(verdict.steps)
    assert brought
