"""Helper that mounts an overlay in its own namespaces, run as a script.

Run as `python -I -S overlay_mounter.py FD`. The supervisor has threads and no right to mount. This
process makes a user and a mount namespace, in which it has the right, mounts there, passes on what
holds the mount (both namespaces and the mounted folder, as descriptors) and exits. When the
supervisor dies, the last descriptor closes, and the kernel removes namespaces and mount. It never
runs anything.

A request is one packet of JSON, `{"lower": PATH, "identity": [DEVICE, INODE], "folder": PATH}`: the
folder to show, its identity, and the session's folder, which has `lower`, `upper`, `work` and
`merged`. The answer is one packet, JSON `{"error": null}` with three descriptors (user namespace,
mount namespace, `merged`) or `{"error": "...", "step": "..."}`.

`overlay_mounter.py USER_FD MOUNT_FD PLACE` enters these namespaces and remounts the overlay at
PLACE in place; a kernel error goes to stderr, with exit code 1. `nsenter` and `mount` can't do it:
a user who isn't root in the namespace has the rights there only until they start a program
(capabilities(7)).
"""

import ctypes
import json
import os
import socket
import sys

REQUEST_BYTES = 16384
# linux/mount.h; mount_setattr(2) has the same number on every architecture; linux/fcntl.h.
MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 32, 4096, 16384, 1 << 19
MOUNT_SETATTR = 442
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
AT_FDCWD = -100
# Options are off that would let a name in the upper folder refer to something elsewhere:
# `redirect_dir` and `metacopy` take content from a path in an attribute, `index` ties hard links
# and survives in `work`.
OPTIONS = b"userxattr,redirect_dir=nofollow,metacopy=off,index=off,xino=off,lowerdir=lower,upperdir=upper,workdir=work"  # noqa: E501

_libc = ctypes.CDLL(None, use_errno=True)


class StepError(Exception):
    """A failed step, with the kernel's error."""

    def __init__(self, step: str, error: OSError) -> None:
        super().__init__(step, error)
        self.step, self.error = step, error


def mount(
    source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None
) -> None:
    """Call mount(2)."""
    if _libc.mount(source, target, kind, ctypes.c_ulong(flags), options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def remount(place: bytes) -> None:
    """Remount an overlay in place: the kernel drops its unused caches."""
    mount(b"overlay", place, None, MS_REMOUNT | MS_NOSUID | MS_NODEV)


def close_for_writing(path: bytes) -> None:
    """Add read-only, nosuid and nodev to a mount, and keep its other flags (mount_setattr(2))."""
    attributes = (ctypes.c_uint64 * 4)(
        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, 0, 0
    )
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    if _libc.syscall(MOUNT_SETATTR, AT_FDCWD, path, 0, ctypes.byref(attributes), size):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def map_users(pid: int) -> None:
    """Map the users of this namespace into the one of `pid`, each to itself: all of them where we
    may, else only our own."""
    for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
        ranges = [line.split() for line in _read(f"/proc/self/{kind}_map").splitlines()]
        everybody = "\n".join(f"{inside} {inside} {count}" for inside, _, count in ranges)
        try:
            _write(f"/proc/{pid}/{kind}_map", everybody)
        except PermissionError:
            # A map of one group is allowed only if groups can't be dropped (user_namespaces(7)).
            if kind == "gid":
                _write(f"/proc/{pid}/setgroups", "deny")
            _write(f"/proc/{pid}/{kind}_map", f"{own} {own} 1")


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, REQUEST_BYTES).decode()
    finally:
        os.close(fd)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def enter(channel: socket.socket) -> None:
    """Enter a user and a mount namespace of our own. The maps are written from outside, where the
    right to do so is."""
    ready, made = os.pipe()
    mapped, done = os.pipe()
    pid = os.fork()
    if pid:
        try:
            os.close(made)
            channel.close()
            if os.read(ready, 1):
                map_users(pid)
                os.write(done, b".")
        finally:
            os.close(done)
            os.waitpid(pid, 0)
            os._exit(0)
    os.close(done)
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
    os.write(made, b".")
    os.close(made)
    if not os.read(mapped, 1):
        raise PermissionError(1, "the namespace's users can't be set")


def build(lower: bytes, identity: list[int], folder: bytes) -> None:
    """Mount, by names that reveal nothing about the host: every process inside can read its mounts'
    options."""
    _try("keep mounts apart", mount, b"", b"/", None, MS_REC | MS_SLAVE)
    os.chdir(folder)
    # Without MS_REC: other mounts below the workspace aren't part of it, and the kernel refuses to
    # uncover files below such a mount.
    _try("show the workspace", mount, lower, b"lower", None, MS_BIND)
    shown = os.open("lower", os.O_PATH | os.O_CLOEXEC)
    status = os.fstat(shown)
    os.close(shown)
    if [status.st_dev, status.st_ino] != identity:
        raise StepError("show the workspace", OSError(116, "another folder is there by now"))
    _try("close the workspace for writing", close_for_writing, b"lower")
    _try(
        "mount the overlay", mount, b"overlay", b"merged", b"overlay", MS_NOSUID | MS_NODEV, OPTIONS
    )
    _try("refresh the overlay", remount, b"merged")


def _try(step: str, work: object, *arguments: object) -> None:
    try:
        work(*arguments)  # type: ignore[operator]
    except OSError as error:
        raise StepError(step, error) from None


def answer(channel: socket.socket) -> None:
    """Enter, wait for the one request, and answer it, even if entering failed: an answer that comes
    before the request is lost with the channel."""
    failure: StepError | None = None
    try:
        _try("make a user namespace", enter, channel)
    except StepError as error:
        failure = error
    request = channel.recv(REQUEST_BYTES)
    if not request:
        return
    try:
        if failure is not None:
            raise failure
        wanted = json.loads(request)
        build(os.fsencode(wanted["lower"]), wanted["identity"], os.fsencode(wanted["folder"]))
        held = ("/proc/self/ns/user", "/proc/self/ns/mnt", "merged")
        descriptors = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in held]
    except StepError as error:
        told = {"error": error.error.strerror or str(error.error), "step": error.step}
        channel.send(json.dumps(told).encode())
    except Exception as error:  # it is all told to the one who asked, and this process ends
        channel.send(
            json.dumps({"error": f"{type(error).__name__}: {error}", "step": "prepare"}).encode()
        )
    else:
        socket.send_fds(channel, [b'{"error": null}'], descriptors)


def refresh(user_fd: int, mount_fd: int, place: bytes) -> None:
    """Remount the overlay at `place` in these namespaces."""
    os.setns(user_fd, os.CLONE_NEWUSER)
    os.setns(mount_fd, os.CLONE_NEWNS)
    remount(place)


def main() -> None:
    """Mount or refresh."""
    channel_or_user_fd, *more = sys.argv[1:]
    if not more:
        answer(socket.socket(fileno=int(channel_or_user_fd)))
        return
    mount_fd, place = more
    try:
        refresh(int(channel_or_user_fd), int(mount_fd), os.fsencode(place))
    except OSError as error:
        sys.exit(error.strerror or str(error))


if __name__ == "__main__":
    main()
