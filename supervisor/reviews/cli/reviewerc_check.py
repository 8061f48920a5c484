"""`gatehouse reviewerc check`: every mistake in a `.reviewerc`, or the values in force.

Needs no supervisor. Standard output has all of it; the exit code is 1 if there are mistakes.
"""

import sys
import zoneinfo
from pathlib import Path

from supervisor.core.text.display import visible
from supervisor.core.text.strict_yaml import MOST_BYTES
from supervisor.errors import UserError
from supervisor.reviews.core.config.effective import ConfigLayer, combine, config_rows
from supervisor.reviews.core.config.reader import fault_words, read_refinery, read_reviewerc


def check(name: str) -> int:
    """Check a file, or `-` for standard input. A file named `.code-refinery.yml` is checked as
    such."""
    data = _read(name)
    shown = "standard input" if name == "-" else name
    if Path(name).name == ".code-refinery.yml":
        found = read_refinery(data)
    else:
        found = read_reviewerc(data, zoneinfo.available_timezones())
    for fault in found.faults:
        print(visible(fault_words(shown, fault), one_line=True))
    if found.config is None:
        return 1
    config = combine([ConfigLayer(shown, found.config, found.lines)])
    for row in config_rows(config):
        print(visible(f"{row.key + ':':<13} {row.value}  ({row.source})", one_line=True))
    for note in config.notes:
        print(visible(f"note: {note}", one_line=True))
    return 0


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    try:
        with Path(name).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"{name}: {error.strerror}", "give a file, or `-` for standard input"
        ) from error
