"""Host paths that a sandbox needs, read once: programs, and a small /etc for it.

The /etc is a directory of our own, bound read-only in one mount. It has copies of the few files
that programs need, and users, hosts and name services that know only the sandbox. It must never
copy a file that names this machine or its users, or holds a credential. So it copies only files
that everybody on this machine may read, whoever Gatehouse runs as, and none in which listed
programs keep passwords (`maven/settings.xml`, `npmrc`, `pip.conf`, `gitconfig`, `R/Renviron.site`).
"""

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from supervisor.sandbox.base import HOME

UID = 1000
GID = 1000
# The host's own device files, which bubblewrap binds into /dev.
DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero")

# Public by nature: how programs are linked, time zones, types, fonts, terminal and TLS settings.
ETC = (
    "R/Makeconf",
    "R/Renviron",
    "R/ldpaths",
    "R/repositories",
    "X11/rgb.txt",
    "alternatives",
    "crypto-policies",
    "debian_version",
    "dotnet",
    "fonts",
    "groff",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "magic",
    "manpath.config",
    "maven/logging",
    "maven/m2.conf",
    "mime.types",
    "os-release",
    "perl",
    "protocols",
    "rpc",
    "services",
    "sgml",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xml",
)
ETC_PATTERNS = ("java*", "python3*")
# Where different program families look for authorities: each becomes a link to the one bundle.
CA_PLACES = (
    "ssl/certs/ca-certificates.crt",
    "ssl/cert.pem",
    "pki/tls/certs/ca-bundle.crt",
    "ssl/ca-bundle.pem",
)
CA_TARGET = "gatehouse/ca-bundle.pem"
JAVA_TARGET = "gatehouse/ca-bundle.p12"
# What covers a home's files and folders (`port_opener`).
EMPTY_FILE, EMPTY_FOLDER = "gatehouse/empty", "gatehouse/empty.d"
GIT_TARGET = "gatehouse/gitconfig"

# Kernel files that reveal the host or act on it, and that a sandbox whose owner is root could open.
PROC_MASKED_FILES = (
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "modules",
    "mtrr",
    "sched_debug",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
)
PROC_MASKED_DIRECTORIES = ("acpi", "asound", "driver", "fs", "scsi", "pressure")
# Top-level directories that are links into /usr on most machines (merged /usr), and real
# directories on some.
PROGRAM_DIRECTORIES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


class HostSystem(msgspec.Struct, frozen=True, kw_only=True):
    """The host's paths. `links`: names at the root and their targets; `directories`: real ones at
    the root; `proc_*`: existing paths to cover."""

    etc: Path
    links: tuple[tuple[str, str], ...]
    directories: tuple[str, ...]
    proc_files: tuple[str, ...]
    proc_directories: tuple[str, ...]


def read_host(etc: Path, of: Path = Path("/etc")) -> HostSystem:
    """Read this machine's paths. Fill `etc`, a directory of the caller's that is empty or from an
    earlier call, with what programs need of `of`."""
    _make_etc(etc, of)
    found = [Path("/", name) for name in PROGRAM_DIRECTORIES]
    return HostSystem(
        etc=etc,
        links=tuple((path.name, str(path.readlink())) for path in found if path.is_symlink()),
        directories=tuple(path.name for path in found if path.is_dir() and not path.is_symlink()),
        proc_files=tuple(name for name in PROC_MASKED_FILES if Path("/proc", name).is_file()),
        proc_directories=tuple(
            name for name in PROC_MASKED_DIRECTORIES if Path("/proc", name).is_dir()
        ),
    )


def _make_etc(etc: Path, of: Path) -> None:
    # Made beside it and moved into place, so that a sandbox never sees half of it.
    fresh = etc.with_name(f"{etc.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True, mode=0o755)
    names = set(ETC) | {path.name for pattern in ETC_PATTERNS for path in of.glob(pattern)}
    for name in sorted(names):
        _copy(of / name, fresh / name)
    for name, text in _texts().items():
        (fresh / name).write_text(text)
    bundle = fresh / CA_TARGET
    bundle.parent.mkdir()
    bundle.touch()
    (fresh / JAVA_TARGET).touch()
    (fresh / EMPTY_FILE).touch()
    (fresh / EMPTY_FOLDER).mkdir()
    (fresh / GIT_TARGET).touch()
    for place in CA_PLACES:
        (fresh / place).parent.mkdir(parents=True, exist_ok=True)
        (fresh / place).symlink_to(f"/etc/{CA_TARGET}")
    shutil.rmtree(etc, ignore_errors=True)
    fresh.rename(etc)


def _copy(source: Path, target: Path) -> None:
    """Copy what everybody can read. Links stay links (most point into /usr, which is there too)."""
    if source.name in _closed(str(source.parent), [source.name]):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_symlink() or source.is_file():
            shutil.copy2(source, target, follow_symlinks=False)
        elif source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=_closed)
    except (OSError, shutil.Error):
        return  # a convenience that this machine doesn't let us read


def _closed(folder: str, names: Iterable[str]) -> set[str]:
    """Return a folder's names that not everybody can read, such as Java's `jmxremote.password`."""
    found = set()
    for name in names:
        try:
            mode = Path(folder, name).lstat().st_mode
        except OSError:
            found.add(name)
            continue
        if not (stat.S_ISLNK(mode) or mode & stat.S_IROTH):
            found.add(name)
    return found


def _texts() -> dict[str, str]:
    return {
        "passwd": (
            "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
            f"agent:x:{UID}:{GID}:agent:{HOME}:/bin/bash\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
        "group": f"root:x:0:\ntty:x:5:\nagent:x:{GID}:\nnogroup:x:65534:\n",
        "gitconfig": f"[include]\n\tpath = /etc/{GIT_TARGET}\n",
        "hosts": "127.0.0.1 localhost gatehouse\n::1 localhost\n",
        "nsswitch.conf": (
            "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"
        ),
        # Except with `Spec.redirected`, nothing listens at port 53: the proxy resolves names, and a
        # direct look-up is refused at once. A name server may delay a client that asks for many
        # names; the resolver's default options are patient enough.
        "resolv.conf": "nameserver 127.0.0.1\n",
        "shells": "/bin/sh\n/bin/bash\n",
    }


def devices_of_others() -> frozenset[str]:
    """Return the bound device files that this user doesn't own. Their mounts stay writable, because
    nobody in a sandbox can change them."""
    return frozenset(device for device in DEVICES if not _is_ours(device))


def _is_ours(path: str) -> bool:
    try:
        return Path(path).stat().st_uid == os.geteuid()
    except OSError:
        return False
