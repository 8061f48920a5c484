"""Log a failure by type and place, never by its text: that may quote a client.

Parts without mitmproxy use the same format, and mitmproxy's own logs all pass through it. It
decides nothing.
"""

import logging
import traceback

from supervisor.base import log


def where(error: BaseException) -> str:
    """Return the type and place of an exception."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(
        f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames)
    )
    return f"{type(error).__name__} at {places}"


class OthersLog(logging.Handler):
    """Logs that libraries (mitmproxy, asyncio) failed."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one line, without the record's text."""
        error = record.exc_info[1] if record.exc_info else None
        log.error("a library failed", logger=record.name, error=where(error) if error else "")
