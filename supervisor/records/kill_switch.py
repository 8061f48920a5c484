"""Stop everything: while it is on, the gate denies every action of every session, whatever the
rules say.

It is a file, so that it survives a crash and can be set by hand (`touch data/stopped`) when nothing
else answers.
"""

import os
from collections.abc import Callable
from pathlib import Path


class KillSwitch:
    """The file's presence is the state; its text is the reason. `on_stop` is called by `stop`, not
    when the file is made by hand.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self.on_stop: Callable[[], None] | None = None

    def reason(self) -> str | None:
        """Return why everything is stopped; None while it isn't. A file that can't be read
        counts as on (law 3)."""
        try:
            os.stat(self._name)  # noqa: PTH116  # asked before every verdict: a file that isn't there costs least so
            return self._path.read_text(errors="replace").strip() or "stopped by hand"
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"the stop file can't be read: {error.strerror}"

    def stop(self, reason: str) -> None:
        """Deny everything from now on."""
        self._path.write_text(reason)
        if self.on_stop is not None:
            self.on_stop()

    def resume(self) -> None:
        """Go back to the rules."""
        self._path.unlink(missing_ok=True)
