"""Log lines on standard error: what failed, for the person who started Gatehouse.

`TIME LEVEL WHAT NAME=VALUE ...`, of supervisor and egress alike. It is our own, since the libraries
for it take a third of egress's time to start.
"""

import sys
import traceback
from datetime import UTC, datetime

from supervisor.base.clock import RealClock


def warning(what: str, **facts: object) -> None:
    """Say that something is worse than wanted."""
    _write("warning", what, facts)


def error(what: str, **facts: object) -> None:
    """Say that something failed."""
    _write("error", what, facts)


def exception(what: str, **facts: object) -> None:
    """Say that something failed by the exception that is handled, with its traceback."""
    _write("error", what, facts | {"exception": traceback.format_exc()})


def _write(level: str, what: str, facts: dict[str, object]) -> None:
    """INVARIANT: one line (law 6). What an agent wrote is a value, and shown by `repr`; a runner of
    workflows would find a command in it (`##[add-mask]`)."""
    at = datetime.fromtimestamp(RealClock.now(), UTC).isoformat(timespec="milliseconds")
    words = "".join(f" {name}={value!r}" for name, value in facts.items()).replace("##[", "## [")
    sys.stderr.write(f"{at} {level} {what}{words}\n")
