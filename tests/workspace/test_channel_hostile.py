"""What an agent may try with its copy, and what must come of it on the host: nothing, or a card
of its own."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import status
from supervisor.core.files.changes import name_of
from supervisor.core.files.undo_steps import HeldContent
from supervisor.errors import GatehouseError, RefusedError
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.apply.restore import Restorer
from supervisor.workspace.disk.beneath import PathError, Root, is_git_name, split
from supervisor.workspace.disk.blobs import BlobStore
from supervisor.workspace.disk.scan import look
from supervisor.workspace.trees.history import History
from supervisor.workspace.trees.journal import Forgotten, Journal, Replayed
from tests.workspace.conftest import Desk


async def test_a_symlink_is_asked_and_never_followed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret\n")
    async with desk.running():
        (desk.copy / "free/link").symlink_to(outside)
        (desk.copy / "free/file").symlink_to(outside / "secret.txt")
        (desk.copy / "free/inner").symlink_to("a.txt")
        inner = await desk.asked("free/inner")
        assert (inner.action.hazards, inner.action.link_target) == (("symlink",), "a.txt")
        await desk.until(lambda: desk.requests("free/link") and desk.requests("free/file"))
        assert (
            status(desk.requests("free/link")[0])
            == status(desk.requests("free/file")[0])
            == "denied"
        )
        (outside / "new.txt").write_text("x")
        await desk.compared()
        assert len(desk.requests()) == 3  # nothing below the links was looked at
        assert b"secret" not in b"".join(
            path.read_bytes() for path in (desk.folder / "blobs").iterdir()
        )
        desk.approve(inner)
        await desk.settled(inner)
        assert (desk.host / "free/inner").readlink() == Path("a.txt")


async def test_links_that_lead_out_together_never_reach_the_host(desk: Desk) -> None:
    """Each stays inside by its letters; what stands behind a name may be the other link."""
    async with desk.running():
        (desk.copy / "x/y").mkdir(parents=True)
        (desk.copy / "x/y/A").symlink_to("../..")
        (desk.copy / "B").symlink_to("x/y/A/../..")
        (desk.copy / "free/C").symlink_to("../x/y/A/..")
        await desk.approve_all()
        assert (desk.host / "x/y/A").readlink() == Path("../..")
        for refused in ("B", "free/C"):
            assert not (desk.host / refused).is_symlink()
            (denied,) = desk.requests(refused)
            assert "points out of the workspace" in denied.why


async def test_a_write_through_a_folder_that_is_a_symlink_on_the_host(
    desk: Desk, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (desk.host / "free/way").symlink_to(outside)
    async with desk.running():
        (desk.copy / "free/way").unlink()
        (desk.copy / "free/way").mkdir()
        (desk.copy / "free/way/x.txt").write_text("x\n")
        with pytest.raises(RefusedError, match="a folder on the way is a symlink"):
            await desk.channel.write("free/way/y.txt", b"y", "")
        await desk.until(lambda: "free/way" in desk.pending())
        assert list(outside.iterdir()) == []
        request = desk.pending()["free/way"]
        desk.approve(request)
        await desk.settled(request)
        assert not (desk.host / "free/way").is_symlink()
        assert (desk.host / "free/way/x.txt").read_text() == "x\n"
        await desk.settled(await desk.channel.write("free/way/y.txt", b"y", ""))
        assert (desk.host / "free/way/y.txt").read_text() == "y"
        assert list(outside.iterdir()) == []


RACER = """
import contextlib, os, sys
host, outside, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
folder, aside = f"{host}/dir", f"{host}/aside"
print("racing", flush=True)
for number in range(most):
    # A step fails where `apply` has just made the missing folder anew: the next round goes on from there.
    for step in (
        lambda: os.rename(folder, aside),
        lambda: os.symlink(outside, folder),
        lambda: os.unlink(folder),
        lambda: os.rename(aside, folder),
        lambda: os.rename(aside, f"{host}/{number}"),
    ):
        with contextlib.suppress(OSError):
            step()
        for _ in range(number % 3):
            os.sched_yield()
"""  # noqa: E501


@contextlib.contextmanager
def racing(host: Path, outside: Path) -> Iterator[None]:
    """Another process swaps `host/dir` for a symlink to `outside` and back, all the time."""
    command = [sys.executable, "-I", "-c", RACER, str(host), str(outside), "1000000"]
    racer = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert racer.stdout is not None
        assert racer.stdout.readline() == b"racing\n"
        yield
    finally:
        racer.kill()
        racer.communicate()


@pytest.mark.parametrize("kind", ["write", "delete", "rename", "mkdir", "undo"])
def test_a_folder_that_a_process_swaps_for_a_symlink(tmp_path: Path, kind: str) -> None:
    """Between any check and any use: nothing outside is ever written, removed, or moved."""
    host, outside = tmp_path / "host", tmp_path / "outside"
    (host / "dir").mkdir(parents=True)
    outside.mkdir()
    for number in range(50):
        (outside / f"{number}").write_text("theirs\n")
    blobs = BlobStore(tmp_path / "blobs")
    after = blobs.keep(b"content")
    session = tmp_path / "session"
    session.mkdir()
    history = History(session, Journal(session), Replayed({}, {}, [], Forgotten(0, ""), {}))
    held = HeldContent("file", 0o644, history.kept.keep_bytes(b"content"))
    root = Root(host)
    applier, restorer = Applier(root, blobs, None), Restorer(root, history)
    theirs = content_hash(b"theirs\n")

    def act(number: int) -> None:
        path = f"dir/{number % 50}" if kind == "delete" else f"dir/new{number}"
        match kind:
            case "write":
                action = FileChange(operation="write", path=path, after=after, mode=0o644)
            case "delete":  # what is asked for is exactly what lies outside
                (
                    (host / "dir" / f"{number % 50}").write_text("theirs\n")
                    if not (host / "dir").is_symlink()
                    else None
                )
                action = FileChange(operation="delete", path=path, before=theirs)
            case "rename":
                (host / f"from{number}").write_text("content")
                action = FileChange(
                    operation="rename", path=f"from{number}", to=path, before=after, after=after
                )
            case "mkdir":
                action = FileChange(operation="mkdir", path=path, after="dir", mode=0o755)
            case _:
                restorer.restore("undo", path, held, None)
                return
        applier.apply(action, "r", lambda rebuilt: None)

    done = failed = number = 0
    with racing(host, outside):
        while (number < 300 or not done or not failed) and number < 20_000:
            number += 1
            try:
                act(number)
                done += 1
            except (GatehouseError, OSError):
                failed += 1
    found = {path.name: path.read_text() for path in outside.iterdir()}
    assert {name: text for name, text in found.items() if text != "theirs\n"} == {}
    assert len(found) == 50
    assert done
    assert failed
    root.close()
    blobs.close()
    history.close()


def test_a_symlink_in_place_of_the_file_is_replaced_not_followed(tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (tmp_path / "victim").write_text("victim\n")
    blobs = BlobStore(tmp_path / "blobs")
    root = Root(host)
    action = FileChange(operation="write", path="x", after=blobs.keep(b"new"), mode=0o644)

    def swap(step: str) -> None:
        if step == "checked":
            (host / "x").symlink_to(tmp_path / "victim")

    with pytest.raises(GatehouseError, match="changed on the host"):
        Applier(root, blobs, None, at=swap).apply(action, "r", lambda rebuilt: None)
    assert (tmp_path / "victim").read_text() == "victim\n"
    assert [path.name for path in host.iterdir()] == ["x"]  # no temporary file is left
    root.close()
    blobs.close()


async def test_a_hard_link_on_the_host_keeps_its_content(desk: Desk, tmp_path: Path) -> None:
    os.link(desk.host / "free/a.txt", tmp_path / "elsewhere")
    async with desk.running():
        assert desk.is_overlay or (desk.copy / "free/a.txt").stat().st_nlink == 1
        (desk.copy / "free/a.txt").write_text("changed\n")
        await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "changed\n")
        assert (tmp_path / "elsewhere").read_text() == "a\n"
        (desk.copy / "free/a.txt").chmod(0o600)
        await desk.until(lambda: stat.S_IMODE((desk.host / "free/a.txt").stat().st_mode) == 0o600)
        assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) != 0o600


async def test_hard_links_set_id_and_executables_in_the_copy_are_cards(desk: Desk) -> None:
    async with desk.running():
        os.link(desk.copy / "src/app.py", desk.copy / "free/linked.py")
        (desk.copy / "free/tool").write_text("#!/bin/sh\n")
        (desk.copy / "free/tool").chmod(0o755)
        (desk.copy / "free/root").write_text("#!/bin/sh\n")
        (desk.copy / "free/root").chmod(0o4755)
        assert (await desk.asked("free/linked.py")).action.hazards == ("hardlink",)
        assert (await desk.asked("free/tool")).action.hazards == ("new-executable",)
        assert (await desk.asked("free/root")).action.hazards == ("setuid", "new-executable")
        await desk.approve_all()
        assert stat.S_IMODE((desk.host / "free/root").stat().st_mode) == 0o755
        assert stat.S_IMODE((desk.host / "free/tool").stat().st_mode) == 0o755
        assert (desk.host / "free/linked.py").stat().st_ino != (
            desk.host / "src/app.py"
        ).stat().st_ino


async def test_a_grant_for_a_plain_file_does_not_make_an_executable(desk: Desk) -> None:
    """The host's file lost its bit in between: what was a change of content would now also make
    it executable."""
    (desk.host / "free/tool").write_text("1\n")
    (desk.host / "free/tool").chmod(0o755)
    async with desk.running():
        async with desk.channel._turn:
            action = FileChange(
                operation="write",
                path="free/tool",
                before=content_hash(b"1\n"),
                after=desk.channel._now.sides.blobs.keep(b"2\n"),
                mode=0o755,
            )
            request = desk.gate.ask(action, session_id=desk.channel.session_id, origin="workspace")
            (desk.host / "free/tool").chmod(0o644)
        done = await desk.settled(request)
        assert not done.outcome["ok"]
        assert (desk.host / "free/tool").read_text() == "1\n"


async def test_fifos_and_sockets_never_leave(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk.running():
        os.mkfifo(desk.copy / "free/fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(desk.copy)  # a socket's path is short
            listener.bind("free/sock")
            await desk.until(lambda: {"free/fifo", "free/sock"} <= desk.refusals().keys())
            await desk.compared()
        assert desk.refusals()["free/fifo"] == "a fifo never leaves the copy"
        assert desk.refusals()["free/sock"] == "a socket never leaves the copy"
        told = {
            "free/fifo": "a fifo never leaves the copy",
            "free/sock": "a socket never leaves the copy",
        }
        assert desk.channel.refused() == told
        assert desk.requests() == []
        assert not {"fifo", "sock"} & {path.name for path in (desk.host / "free").iterdir()}


async def test_names_of_any_bytes(desk: Desk) -> None:
    names = [
        b"free/caf\xe9.txt",
        b"free/new\nline",
        b"free/" + b"n" * 255,
        "free/\u202egnp.exe".encode(),
        b"free/:(glob)*",
    ]
    async with desk.running():
        for name in names:
            (desk.copy / os.fsdecode(name)).write_bytes(name)
        await desk.compared()
        await desk.approve_all()
        for name in names:
            assert (desk.host / os.fsdecode(name)).read_bytes() == name
        assert {os.fsencode(name_of(request.action)) for request in desk.requests()} == set(names)
        latin = next(request for request in desk.requests() if request.action.path_b64)
        assert latin.action.path == "free/caf\\xe9.txt"


async def test_case_twins_are_two_files(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/A.txt").write_text("twin\n")
        await desk.until(lambda: (desk.host / "free/A.txt").exists())
        assert (desk.host / "free/a.txt").read_text() == "a\n"


async def test_our_own_data_is_out_of_bounds(host: Path) -> None:
    """The data folder inside the workspace: not copied, and nothing is written to it under any
    name."""
    desk = Desk(host / "data", host)
    try:
        async with desk.running():
            assert not (desk.copy / "data").exists()
            (desk.copy / "data").mkdir()
            (desk.copy / "data/base.yaml").write_text("version: 1\nmodes: {exec: allow}\n")
            await desk.compared()
            await desk.approve_all()
            with pytest.raises(RefusedError, match="supervisor's own data"):
                await desk.channel.write("data/base.yaml", b"x", "")
            assert "version: 1" in (host / "data/base.yaml").read_text()
            assert "supervisor's own data" in desk.refusals()["data/base.yaml"]
            assert not [r for r in desk.requests() if r.outcome and r.outcome["ok"]]
    finally:
        desk.close()


async def test_a_very_large_file_is_refused_with_a_reason(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.workspace.disk.scan.LARGEST_FILE_BYTES", 1000)
    async with desk.running():
        (desk.copy / "free/big").write_bytes(b"x" * 2_000_000)
        await desk.until(lambda: "free/big" in desk.refusals())
        assert "too large" in desk.refusals()["free/big"]
        assert not (desk.host / "free/big").exists()
        assert "too large" in desk.channel.refused()["free/big"]
        (desk.copy / "free/big").write_bytes(b"small now")
        await desk.until(lambda: (desk.host / "free/big").exists())
        assert desk.channel.refused() == {}


async def test_a_link_whose_target_no_request_can_name_is_refused_with_a_reason(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/link").symlink_to(os.fsdecode(b"bad-\xff"))
        await desk.until(lambda: "free/link" in desk.refusals())
        assert "isn't UTF-8" in desk.channel.refused()["free/link"]
        assert desk.requests() == []
        (desk.copy / "free/link").unlink()
        (desk.copy / "free/link").symlink_to("good")
        request = await desk.asked("free/link")
        assert desk.channel.refused() == {}
        desk.approve(request)
        await desk.settled(request)
        assert (desk.host / "free/link").readlink() == Path("good")


async def test_a_big_binary_travels_and_its_card_says_so(desk: Desk) -> None:
    data = os.urandom(3 << 20)
    async with desk.running():
        (desk.copy / "image.bin").write_bytes(data)
        (desk.copy / "small.bin").write_bytes(b"\0\1\2")
        request, small = await desk.asked("image.bin"), await desk.asked("small.bin")
        card = await desk.channel.card(request)
        assert (card.content, card.new_size, card.truncated) == ("large", len(data), True)
        assert (await desk.channel.card(small)).content == "binary"
        desk.approve(request)
        await desk.settled(request)
        assert (desk.host / "image.bin").read_bytes() == data


@pytest.mark.parametrize(
    ("name", "is_git"),
    [
        (".git", True), (".GIT", True), (".g\u200cit", True), ("git~1", True), (".git.", True),
        (".git ", True),
        (".git::$INDEX_ALLOCATION", True), (".gi\uff54", True), (".gitignore", False), ("git",
         False), (".github", False),
    ],
)  # fmt: skip
def test_names_that_some_file_system_takes_for_git(name: str, is_git: bool) -> None:
    assert is_git_name(name) is is_git


@pytest.mark.parametrize(
    "name",
    ["", "/", "a//b", "../a", "a/..", "./a", "a/./b", "/etc", "a\0b", "x/" * 300 + "y", "a/.git/b"],
)
def test_paths_that_are_no_plain_paths(name: str) -> None:
    with pytest.raises(PathError):
        split(name)


def test_a_root_stays_the_folder_that_was_opened(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/x").write_text("a")
    root = Root(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "a").symlink_to("b")
    seen = look(root, "x")
    assert seen is not None
    assert seen.digest == content_hash(b"a")
    root.close()


async def test_a_rule_for_content_gives_nobody_else_permissions(desk: Desk) -> None:
    """`free/**` is allowed: what others get with a content is asked all the same."""
    async with desk.running():
        (desk.copy / "free/a.txt").write_text("more\n")
        (desk.copy / "free/a.txt").chmod(0o666)
        (desk.copy / "free/new.txt").write_text("new\n")
        (desk.copy / "free/new.txt").chmod(0o646)
        (desk.copy / "free/plain.txt").write_text("plain\n")
        await desk.compared()
        asked = {"free/a.txt", "free/new.txt"}
        await desk.until(lambda: asked <= desk.pending().keys())
        await desk.until(lambda: (desk.host / "free/plain.txt").exists())
        assert "wider is never allowed by a rule" in desk.pending()["free/a.txt"].why
        assert not (desk.host / "free/new.txt").exists()


async def test_a_rule_for_content_opens_no_folder(desk: Desk) -> None:
    """Whoever may write in a folder replaces what is in it."""
    (desk.host / "free/own").mkdir(mode=0o700)
    (desk.host / "free/own/in.txt").write_text("in\n")
    async with desk.running():
        (desk.copy / "free/own").chmod(0o777)
        for name in ("empty", "way"):
            (desk.copy / f"free/{name}").mkdir()
            (desk.copy / f"free/{name}").chmod(0o777 if name == "empty" else 0o773)
        (desk.copy / "free/way/in.txt").write_text("in\n")
        (desk.copy / "free/plain").mkdir()
        (desk.copy / "free/plain/in.txt").write_text("in\n")
        await desk.compared()
        asked = {"free/own", "free/empty", "free/way/in.txt"}
        await desk.until(lambda: asked <= desk.pending().keys())
        await desk.until(lambda: (desk.host / "free/plain/in.txt").exists())
        whys = {desk.pending()[one].why for one in asked}
        assert whys == {"wider is never allowed by a rule"}
        assert stat.S_IMODE((desk.host / "free/own").stat().st_mode) == 0o700
        await desk.approve_all()
        assert stat.S_IMODE((desk.host / "free/own").stat().st_mode) == 0o777
        assert stat.S_IMODE((desk.host / "free/way").stat().st_mode) == 0o773
