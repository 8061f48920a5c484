"""Screens of sessions, for the page and the API: a session's output as its terminal shows it.

The newest screens are kept and only fed what came since. A screen that is behind by more than
`REPLAY_BYTES` begins anew near the end. Work is done in a thread, one screen at a time for each
session, since an agent chooses what is drawn (law 14).
"""

import asyncio
import codecs
from collections import OrderedDict

import msgspec

from supervisor.core.sessions import state
from supervisor.core.text.terminal_screen import (
    COLUMNS,
    ROWS,
    ScreenRow,
    ScreenSpan,
    TerminalScreen,
    addresses_screen,
)
from supervisor.parts import Parts
from supervisor.sessions import session_output
from supervisor.sessions.session_output import TerminalSize

REPLAY_BYTES = 128 * 1024
MOST_SCREENS = 4
# Rows above the screen that are read with it, so that a key of many lines is known as one.
EDGE_ROWS = 60


class ScreenView(msgspec.Struct, frozen=True, kw_only=True):
    """A session's screen. `is_drawn`: the program draws on a screen; else its output is lines, and
    `lines` is empty. `gone` are the lines that left the screen at its top. `looks` of a span are
    words such as `red`, `on-blue`, `bold`. `next_offset`: how many bytes are in it; `is_cut`: it
    was begun after the output's beginning. `is_final` when nothing follows."""

    is_drawn: bool
    is_alternate: bool
    rows: int
    columns: int
    lines: list[ScreenRow]
    gone: list[ScreenRow]
    next_offset: int
    is_cut: bool
    is_final: bool


class _Kept:
    """One session's screen, up to a byte of its output."""

    def __init__(self, offset: int) -> None:
        self.start = self.offset = offset
        self.screen = TerminalScreen(ROWS, COLUMNS)
        self.is_drawn = False
        self.has_returns = False
        self.lock = asyncio.Lock()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, data: bytes) -> None:
        self.is_drawn = self.is_drawn or addresses_screen(data)
        self.has_returns = self.has_returns or b"\r\n" in data
        text = self._decode(data)
        # Without a terminal of its own nothing puts a return before a line feed.
        self.screen.feed(text if self.has_returns else text.replace("\n", "\r\n"))
        self.offset += len(data)


class Screens:
    """The screens of one operator's app."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def view(self, session_id: str, *, with_gone: bool = False) -> ScreenView:
        """Return a session's screen as it is now."""
        session = self._parts.sessions.get(session_id)
        size = self._parts.sessions.output_size(session_id)
        kept = self._kept.get(session_id)
        if kept is None or size - kept.offset > REPLAY_BYTES or size < kept.offset:
            kept = self._kept[session_id] = _Kept(max(0, size - REPLAY_BYTES))
        self._kept.move_to_end(session_id)
        while len(self._kept) > MOST_SCREENS:
            self._kept.popitem(last=False)
        async with kept.lock:
            has_ended = state(session) == "ended"
            return await asyncio.to_thread(self._view, session_id, kept, has_ended, with_gone)

    def _view(self, session_id: str, kept: _Kept, has_ended: bool, with_gone: bool) -> ScreenView:
        folder = self._parts.sessions.folder(session_id)
        data = session_output.read(folder, kept.offset)[0][:REPLAY_BYTES]
        _catch_up(kept, data, session_output.sizes(folder, kept.offset))
        rows, columns = kept.screen.size
        gone, lines = self._without_secrets(
            kept.screen.history() if with_gone else kept.screen.history(EDGE_ROWS),
            kept.screen.rows(),
            is_one=not kept.screen.is_alternate,
        )
        return ScreenView(
            is_drawn=kept.is_drawn,
            is_alternate=kept.screen.is_alternate,
            rows=rows,
            columns=columns,
            lines=lines if kept.is_drawn else [],
            gone=gone if with_gone else [],
            next_offset=kept.offset,
            is_cut=kept.start > 0,
            is_final=has_ended,
        )

    def _without_secrets(
        self, gone: list[ScreenRow], rows: list[ScreenRow], *, is_one: bool
    ) -> tuple[list[ScreenRow], list[ScreenRow]]:
        """Return both without secrets, read as one text: a secret may go on from one row to the
        next, over the screen's top edge too. Lines with one lose their looks, and are one row;
        that of the edge is the screen's. `is_one`: the last row that is gone may go on here."""
        lines = _lines([*gone, *rows]) if is_one else [*_lines(gone), *_lines(rows)]
        texts = ["".join(row.text for row in line) for line in lines]
        clean = self._parts.redactor.printed("\n".join(texts)).split("\n")
        if not lines or clean == texts:
            return gone, rows
        if len(clean) != len(texts):  # a secret of several lines
            here = max(0, len(clean) - len(_lines(rows)))
            return list(map(_plain, clean[:here])), list(map(_plain, clean[here:]))
        above: list[ScreenRow] = []
        below: list[ScreenRow] = []
        left = len(gone)
        for line, text, now in zip(lines, texts, clean, strict=True):
            if text == now:
                above += line[: max(0, left)]
                below += line[max(0, left) :]
            else:
                (above if len(line) <= left else below).append(_plain(now))
            left -= len(line)
        return above, below


def _plain(text: str) -> ScreenRow:
    return ScreenRow((ScreenSpan(text),))


def _lines(rows: list[ScreenRow]) -> list[list[ScreenRow]]:
    """Return the lines that the program wrote, each in its rows."""
    found: list[list[ScreenRow]] = []
    goes_on = False
    for row in rows:
        if not goes_on:
            found.append([])
        found[-1].append(row)
        goes_on = row.continues
    return found


def _catch_up(kept: _Kept, data: bytes, sizes: list[TerminalSize]) -> None:
    """Feed what came since, in parts of one terminal size each."""
    start = kept.offset
    for size in sizes:
        if size.offset > start + len(data):
            break
        kept.feed(data[kept.offset - start : max(0, size.offset - start)])
        kept.screen.resize(size.rows, size.columns)
    kept.feed(data[kept.offset - start :])
