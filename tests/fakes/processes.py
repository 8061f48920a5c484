"""What the kernel says of another process to whoever runs the tests: egress keeps most of itself
from all but root.

It is separate because reading `/proc/PID/fd`, `maps` or `environ` works as root only, and tests
run as an ordinary user, too.
"""

from pathlib import Path


def open_files(pid: int) -> int:
    """How many descriptors it has: the size of the folder, which is shown to everybody (Linux
    6.2); else by listing it."""
    folder = Path(f"/proc/{pid}/fd")
    return folder.stat().st_size or sum(1 for _ in folder.iterdir())


def bytes_if_shown(pid: int, name: str) -> bytes:
    """A file of `/proc/PID`; empty where it is kept from us, which is what an agent that broke
    out would get."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except PermissionError:
        return b""
