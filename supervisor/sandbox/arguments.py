"""Translate a Spec to bubblewrap's options: what an agent sees and may touch.

Pure. Mounts are stacked, so their order is the policy. A missing option must never leave a way out:
whatever isn't named isn't there.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from supervisor.sandbox.base import HOME, LOWER, MERGED, Spec, files_in_etc
from supervisor.sandbox.host import GID, UID, HostSystem
from supervisor.sandbox.session_home import CLOSED, FILES, FOLDERS, SCRATCH, top_of

# Scratch folders; their content is lost at the end. The home is one where the session has none.
TMPFS = ("/tmp", "/run", "/var/tmp", HOME)  # noqa: S108
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def arguments(
    spec: Spec, host: HostSystem, *, covers: Sequence[tuple[str, bool]] = ()
) -> list[str]:
    """Return bubblewrap's options for `spec`, in the order in which they take effect. Pure.

    Mounts are stacked, so their order is the policy: (1) programs and /etc, read-only; (2) /proc
    without what identifies the host, a minimal /dev; (3) empty, bounded tmpfs where programs write,
    and the home; (4) the caller's binds and links; (5) the workspace read-only; (6) covers over
    everything that must not show through 1 to 5 (`covers`: path inside, is it a directory); (7) the
    private copy, which may itself lie in a covered place; (8) the root and /dev closed for writing,
    so that every writable place has a bound, or is the copy or the home.
    """
    size = str(spec.limits.tmpfs_bytes)
    scratch = [path for path in TMPFS if spec.home is None or path != HOME]
    tmpfs = [word for path in scratch for word in _memory(path, size)]
    binds = [
        word
        for option, pairs in (("--ro-bind", spec.readonly_binds), ("--bind", spec.writable_binds))
        for source, inside in pairs
        for word in (option, str(source), inside)
    ]
    in_etc = [
        word for file, inside in files_in_etc(spec) for word in ("--ro-bind", str(file), inside)
    ]
    return [
        *_isolation(spec),
        *_programs(host),
        *("--ro-bind", str(host.etc), "/etc"),
        *in_etc,
        *_kernel(host),
        *("--dev", "/dev", "--size", size, "--perms", "0700", "--tmpfs", "/dev/shm"),  # noqa: S108
        *tmpfs,
        *_home(spec, size),
        *binds,
        *(word for link in spec.links for word in ("--symlink", *link)),
        *("--dir", "/workspace", *_lower(spec)),
        *(word for path, is_directory in covers for word in _cover(path, is_directory)),
        *("--bind", str(spec.workspace_merged), MERGED),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", spec.cwd),
        *_environment(spec),
    ]


class Covers(NamedTuple):
    """Paths below a home on disk that are covered once it is mounted: with something new that the
    command may change, `own`, or with what is empty and read-only, `closed`. `links` are made in
    folders of `own`."""

    own: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


def covers_of_home(spec: Spec) -> Covers:
    """Return what is covered: every name that is ours, but those that have content of ours."""
    if spec.home is None:
        return Covers()
    filled = {top_of(path) for path in _filled(spec)}
    names = [name for name in (*FILES, *FOLDERS) if name not in filled]
    if spec.owns_settings:
        return Covers((*names, *spec.forgotten), (), spec.home_links)
    own = [name for name in names if name in SCRATCH]
    closed = [name for name in names if name not in SCRATCH]
    return Covers(
        tuple(own), (*closed, *(path for path in CLOSED if top_of(path) in own)), spec.home_links
    )


def _filled(spec: Spec) -> list[str]:
    """Return the paths below the home where there is content of ours."""
    binds = (*spec.readonly_binds, *spec.writable_binds)
    below = [
        inside.removeprefix(f"{HOME}/")
        for _, inside in binds
        if f"{inside}/".startswith(f"{HOME}/")
    ]
    return [*spec.home_files, *below]


def _home(spec: Spec, size: str) -> Iterator[str]:
    if spec.home is None:
        return
    yield from ("--bind", str(spec.home), HOME)
    for name in sorted({top_of(path) for path in _filled(spec) if "/" in path}):
        yield from _memory(f"{HOME}/{name}", size)


def _memory(path: str, size: str) -> tuple[str, ...]:
    return ("--size", size, "--perms", "0700", "--tmpfs", path)


def _lower(spec: Spec) -> list[str]:
    if spec.workspace_lower is None:
        return ["--dir", LOWER]
    return ["--ro-bind", str(spec.workspace_lower), LOWER]


def _isolation(spec: Spec) -> list[str]:
    options = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
        "--unshare-cgroup",
    ]
    options += [
        "--disable-userns",
        "--uid",
        str(UID),
        "--gid",
        str(GID),
        "--hostname",
        spec.hostname,
    ]
    options += ["--cap-drop", "ALL", "--die-with-parent"]
    # With a terminal, the gate gives the command a session with that terminal. bubblewrap has its
    # own session in any case (process.spawn), so the supervisor's terminal is out of reach either
    # way.
    return options if spec.tty else [*options, "--new-session"]


def _programs(host: HostSystem) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name, target in host.links:
        yield from ("--symlink", target, f"/{name}")
    for name in host.directories:
        yield from ("--ro-bind", f"/{name}", f"/{name}")


def _kernel(host: HostSystem) -> Iterator[str]:
    yield from ("--proc", "/proc")
    for name in host.proc_files:
        yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
    for name in host.proc_directories:
        yield from _cover(f"/proc/{name}", is_directory=True)
    # bubblewrap covers /proc/sys only if its directory is writable. A sandbox whose owner is root
    # could still write to its files.
    yield from ("--remount-ro", "/proc")


def _cover(path: str, is_directory: bool) -> tuple[str, ...]:
    """Hide a path under an empty read-only file or folder."""
    if is_directory:
        return ("--perms", "0555", "--tmpfs", path, "--remount-ro", path)
    return ("--ro-bind", "/dev/null", path)


def _environment(spec: Spec) -> Iterator[str]:
    yield "--clearenv"
    for name, value in {
        "PATH": PATH,
        "HOME": HOME,
        "USER": "agent",
        "LANG": "C.UTF-8",
        **spec.env,
    }.items():
        yield from ("--setenv", name, value)
