"""Runs something hostile in a real sandbox whose private copy is an overlay, and prints what became
of it as JSON.

    python overlay_driver.py attempts | supervise

A program of its own so that the same can be run as root and as an ordinary user (`users.py`).
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from supervisor.sandbox.base import MERGED, Spec
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.workspace.copy.overlay import MadeOverlay, make_overlay

ATTEMPTS = """
import ctypes, json, os, stat
os.chdir("/workspace/merged")
came = {}
libc = ctypes.CDLL(None, use_errno=True)

def attempt(name, work):
    try:
        came[name] = work()
    except OSError as error:
        came[name] = f"error {error.errno}"

def write_by(path, flags):
    fd = os.open(path, flags)
    try:
        return os.write(fd, b"AGENT")
    finally:
        os.close(fd)

def rename_with(flags):
    if libc.renameat2(-100, b"src/util.py", -100, b"src/other.py", flags):
        raise OSError(ctypes.get_errno(), "")
    return "done"

def reopened():
    fd = os.open("src/app.py", os.O_RDONLY)
    write_by(f"/proc/self/fd/{fd}", os.O_WRONLY)
    return os.read(fd, 5).decode()

attempt("hidden file", lambda: open(".env").read())
attempt("hidden folder", lambda: os.listdir("node_modules"))
attempt("whiteout", lambda: os.mknod("wh", stat.S_IFCHR, os.makedev(0, 0)))
attempt("whiteout over a file", lambda: (os.unlink("README.md"), os.mknod("README.md", stat.S_IFCHR, 0))[1])
attempt("device", lambda: os.mknod("dev", stat.S_IFBLK, os.makedev(8, 0)))
attempt("rename that leaves a whiteout", lambda: rename_with(4))
for mark in ("opaque", "redirect", "metacopy", "whiteout", "origin", "upper", "impure", "nlink", "protattr"):
    for path in ("src", "src/app.py"):
        attempt(f"{mark} {path}", lambda: os.setxattr(path, f"user.overlay.{mark}", b"y"))
        attempt(f"trusted {mark} {path}", lambda: os.setxattr(path, f"trusted.overlay.{mark}", b"y"))
attempt("app after marks", lambda: open("src/app.py").read())
attempt("reopened for writing", reopened)
attempt("lower for writing", lambda: write_by("/workspace/lower/src/app.py", os.O_WRONLY))
attempt("link of lower", lambda: os.link("/workspace/lower/src/util.py", "linked"))
attempt("umount", lambda: libc.umount2(b"/workspace/merged", 2) and f"error {ctypes.get_errno()}")
attempt("mount", lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) and f"error {ctypes.get_errno()}")
attempt("user namespace", lambda: libc.unshare(0x10000000) and f"error {ctypes.get_errno()}")
os.symlink("../../../../../../../../..", "up")
attempt("root by link", lambda: sorted(os.listdir("up")))
links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")]
came["descriptors"] = links
came["mounts"] = open("/proc/self/mountinfo").read()
came["flags"] = [bool(os.statvfs(".").f_flag & flag) for flag in (os.ST_NOSUID, os.ST_NODEV)]
came["git"] = os.popen("git log --format=%s 2>&1; git status --short 2>&1").read()
print(json.dumps(came))
"""  # noqa: E501


class World:
    """A workspace with something to hide, and a session's folder beside it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.host, self.folder = base / "project", base / "state" / "sessions" / "s1"
        (self.host / "src").mkdir(parents=True)
        (self.host / "node_modules/x").mkdir(parents=True)
        for name, text in {
            ".gitignore": ".env\nnode_modules/\n",
            ".env": "SECRET",
            "node_modules/x/y": "SECRET",
            "README.md": "readme\n",
            "src/app.py": "app\n",
            "src/util.py": "util\n",
        }.items():
            (self.host / name).write_text(text)
        git = ["git", "-C", str(self.host), "-c", "user.name=T", "-c", "user.email=t@example.org"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *words], check=True)
        self.before = self.seen()

    def seen(self) -> dict[str, Any]:
        """Everything on the host, with what a write to it would change."""
        return {
            str(path.relative_to(self.host)): (path.lstat().st_mode, path.lstat().st_ctime_ns)
            for path in sorted(self.host.rglob("*"))
        }

    def spec(self, made: MadeOverlay, *command: str) -> Spec:
        return Spec(
            command=command,
            workspace_lower=self.host,
            workspace_merged=self.folder / "merged",
            masked=(self.base / "state",),
            within=(made.mount.user_fd, made.mount.mount_fd),
            cwd=MERGED,
        )


async def _made(world: World) -> MadeOverlay:
    world.folder.mkdir(parents=True)
    made = await make_overlay(world.host, world.folder)
    assert made is not None
    return made


async def attempts() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="escape-", ignore_cleanup_errors=True) as base:
        world = World(Path(base))
        made = await _made(world)
        sandbox = Bubblewrap()
        try:
            result = await sandbox.run_tool(
                world.spec(made, "python3", "-c", ATTEMPTS), timeout_s=60
            )
            inside = (
                json.loads(result.stdout)
                if result.exit_code == 0
                else {"error": result.stderr.decode()}
            )
            marks = {
                name
                for path in (world.folder / "upper").rglob("*")
                if ".git" not in path.parts
                for name in os.listxattr(path, follow_symlinks=False)
            }
            return {
                "inside": inside,
                "host is untouched": world.seen() == world.before,
                "marks": sorted(marks),
                "state": str(world.base / "state"),
                "own mounts": str(world.folder) in Path("/proc/self/mountinfo").read_text(),
            }
        finally:
            await sandbox.close()
            made.mount.close()
            subprocess.run(["chmod", "-R", "u+rwx", str(world.folder)], check=False)


async def supervise() -> None:
    """Start a sandbox over an overlay, say where, and wait to be killed."""
    world = World(Path(tempfile.mkdtemp(prefix="escape-")))
    made = await _made(world)
    ready = asyncio.Event()
    script = "touch ran; (setsid sh -c 'sleep 61; :' &); sleep 62 & echo ready; sleep 63; :"
    await Bubblewrap().start(
        world.spec(made, "sh", "-c", script), on_output=lambda block: ready.set()
    )
    await ready.wait()
    print(json.dumps({"base": str(world.base)}), flush=True)
    await asyncio.sleep(60)


if __name__ == "__main__":
    if sys.argv[1] == "supervise":
        asyncio.run(supervise())
    else:
        print(json.dumps(asyncio.run(attempts())))
