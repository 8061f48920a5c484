"""Messages of `up`, `run` and `review` on standard error, and the page's link.

The agent's own output goes to standard output.
"""

import contextlib
import html
import json
import os
import sys
from pathlib import Path
from typing import Any

from supervisor.base.clock import Clock
from supervisor.cli.common import streams
from supervisor.core.quarantine.quarantine_answers import dropped_words
from supervisor.core.sessions import copy_left
from supervisor.core.text.folding import TERMINAL, line
from supervisor.errors import RefusedError
from supervisor.settings import inherited, keep_absolute_path

TELL_EVERY_S = 1.0


class CopyTeller:
    """Reports the progress of a private copy, once a second if it takes longer than one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_at: float | None = None

    def tell(self, progress: dict[str, int] | None) -> None:
        """Report the present progress; None where nothing is copied."""
        if progress is None:
            return
        now = self._clock.monotonic()
        if self._told_at is None:
            self._told_at = now
        elif now - self._told_at > TELL_EVERY_S:
            self._told_at = now
            say(
                f"copying the workspace: {progress['done']} of {progress['total']}"
                f" files{copy_left(progress)}"
            )


class ShownOutput:
    """The agent's output, on standard output. If that can't be written any more, it is dropped: the
    session continues, and its page has everything."""

    def write(self, text: str) -> None:
        """Write it now."""
        self.write_bytes(text.encode(sys.stdout.encoding, "backslashreplace"))

    def write_bytes(self, data: bytes) -> None:
        """Write it now, unchanged."""
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError as error:
            streams.drop_output()
            if not isinstance(error.__cause__, BrokenPipeError):
                say(f"the output can't be written any more: {error.strerror}; the page has it")


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more, or the terminal hung up
        print(f"gatehouse: {line(text, TERMINAL)}", file=sys.stderr, flush=True)


def print_answer(review: dict[str, Any] | None, code: int) -> int:
    """Print the valid part of an answer from quarantine as JSON. Return the exit code, 2 where
    there is no answer."""
    if review is None or not review.get("is_answer"):
        say(str(review["summary"]) if review else "there is no answer")
        return code or RefusedError.exit_code
    shown = ("verdict", "summary", "findings", "notes", "dropped")
    # In ASCII, so that nothing in it can be hidden or control a terminal.
    print(json.dumps({name: review[name] for name in shown}, indent=2), flush=True)
    if said := dropped_words(review["dropped"]):
        say(said)
    return code


def say_url(url: str, open_from: Path | None) -> None:
    """Print the sign-in link; with a folder (the data folder), open it in a browser too."""
    say(f"open {url}")
    if open_from is not None and inherited("DISPLAY", "WAYLAND_DISPLAY"):
        import webbrowser

        keep_absolute_path()
        with contextlib.suppress(webbrowser.Error, OSError):
            webbrowser.open(private_page(url, open_from).as_uri())


def private_page(url: str, folder: Path) -> Path:
    """Write a page that leads to `url` and that only this user can read. Return its path. Every
    user of the machine sees a browser's arguments, and the first user of the link becomes the
    operator."""
    page = folder / "open.html"
    page.unlink(missing_ok=True)
    descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        link = html.escape(url)
        file.write(
            f"<!doctype html><meta http-equiv=refresh content='0;url={link}'><a"
            f" href='{link}'>Gatehouse</a>"
        )
    return page
