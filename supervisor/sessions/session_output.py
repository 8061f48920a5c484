"""Output of an agent, kept beside its session as `output.log`.

Bytes as they came, appended and never rewritten. Output that can't be kept is a line in the log: an
agent is never held up, and its session never ended, because a disk is full.
"""

from pathlib import Path

from supervisor.base import log

CHUNK_BYTES = 256 * 1024


def append(folder: Path, data: bytes) -> None:
    """Keep what came now behind what came before."""
    try:
        with _file(folder).open("ab") as file:
            file.write(data)
    except OSError as error:
        log.error("output not kept", session=folder.name, error=error.strerror)


def read(folder: Path, offset: int) -> tuple[bytes, int]:
    """Return the output from byte `offset` on, at most 256 kB, and the next offset."""
    begin = max(0, offset)
    try:
        with _file(folder).open("rb") as file:
            file.seek(begin)
            data = file.read(CHUNK_BYTES)
    except FileNotFoundError:
        data = b""
    return data, begin + len(data)


def tail(folder: Path, most_bytes: int) -> str:
    """Return the end of the output as text."""
    data, offset = b"", max(0, size(folder) - most_bytes)
    while part := read(folder, offset)[0]:
        data, offset = data + part, offset + len(part)
    return data.decode("utf-8", "replace")


def size(folder: Path) -> int:
    """Return the number of kept bytes."""
    try:
        return _file(folder).stat().st_size
    except FileNotFoundError:
        return 0


def _file(folder: Path) -> Path:
    return folder / "output.log"
