"""The standard streams and texts that every verb relies on.

A program may be started with a closed standard stream, in a locale with another encoding than
UTF-8, or with nobody reading its output. This must run before anything is opened, since the next
file would get the number of a closed stream.
"""

from __future__ import annotations

import io
import os
import sys

from supervisor.core.text.utf8 import is_text
from supervisor.errors import UserError

# A constant that type checkers know: see `verbs`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TextIO

# Opened the wrong way round for input and output, so that using a closed one stays a clear error.
# Without a standard error, messages are dropped.
_CLOSED = ((0, "stdin", os.O_WRONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY))


class InputError(OSError):
    """Standard input was closed when Gatehouse was started."""


class OutputError(OSError):
    """Standard output can't be written."""


class _NoInput(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, _buffer: object) -> int:
        raise InputError("standard input is closed")


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from error


class _Complaints(io.FileIO):
    """Drops messages that can't be written: nobody reads them, or the terminal hung up."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def make_ready() -> None:
    """Provide all three streams, and UTF-8 for texts and file names, as everything here expects."""
    if sys.getfilesystemencoding() != "utf-8":
        from supervisor.base import process

        process.start_over("-X", "utf8")  # only at its start can Python be told
    for number, name, flags in _CLOSED:
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_NoInput()), "utf-8")
    sys.stderr = _text(_Complaints(2, "w", closefd=False), sys.stderr, is_by_line=True)
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout, is_by_line=is_terminal)


def _text(raw: io.FileIO, before: TextIO | None, *, is_by_line: bool) -> io.TextIOWrapper:
    encoding = "utf-8" if before is None else before.encoding
    # If a terminal lacks a character, its number is shown.
    errors = "backslashreplace"
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=is_by_line)


def drop_output() -> None:
    """Drop unwritable output, and everything printed from now on: Python would retry at its exit,
    and complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


def must_be_text(words: Iterable[str]) -> None:
    """Raise `UserError` where a word isn't UTF-8: it would be recorded and shown on pages."""
    for word in words:
        if not is_text(word):
            raise UserError(f"`{word}` is not UTF-8 text", "give another name or text")
