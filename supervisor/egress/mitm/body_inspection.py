"""Inspect bodies piece by piece, before each piece goes on.

It decides when a piece is inspected, and keeps others from waiting long for it. A coded body is
decoded once for all readers, and the loop gets its turn after each step. A few bytes may stand for
megabytes; only their own connection waits. INVARIANT: in one turn of the loop a session takes one
step, however many connections it has. It changes no piece.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mitmproxy import http
from mitmproxy.proxy import commands

from supervisor.egress.admission.egress_sessions import EgressSession
from supervisor.egress.admission.rooms import Room
from supervisor.egress.protocols.codings import STEP_BYTES, TOO_MANY, TOO_MUCH, Decoder

# Pieces, and bytes, inspected in one go. Each is inspected together with the end of the pieces
# before it. A piece may be one byte, and a single read may bring thousands.
MOST_AT_ONCE = 64
MOST_AT_ONCE_BYTES = 16 * 1024
# A possible start of an escape (`core.text.encodings`) costs as much as this many bytes of ordinary
# text; steps with many of them are shorter.
_BEGIN_ESCAPES = (b"\\", b"%", b"&")
_ESCAPE_BYTES = 8
SHORT_STEP_BYTES = STEP_BYTES // _ESCAPE_BYTES
# Their output begins with bytes that no text begins with (RFC 1952 2.3.1, RFC 8878 3.1.1).
_MARKED = {"gzip", "x-gzip", "zstd"}


class Inspection:
    """Inspects one body. The steps of a session take turns by `turn`. `why` is empty, or why the
    body couldn't be read from some point on."""

    def __init__(self, decoder: Decoder, turn: asyncio.Lock) -> None:
        self._decoder = decoder
        self._turn = turn
        self._at_once = self._at_once_bytes = 0
        self._raw: list[Callable[[bytes], None]] = []
        self._read: list[Callable[[bytes], None]] = []

    @property
    def why(self) -> str:
        return self._decoder.why

    @property
    def is_coded(self) -> bool:
        """Return whether the body is coded."""
        return self._decoder.is_coded

    def add(
        self, read: Callable[[bytes], None], *, raw: Callable[[bytes], None] | None = None
    ) -> None:
        """Pass the decoded body to `read`, and the coded one to `raw` where it differs."""
        self._read.append(read)
        if raw is not None and self._decoder.is_coded:
            self._raw.append(raw)

    def try_at_once(self, piece: bytes) -> bool:
        """Inspect the next piece immediately if possible. Return whether it was: a piece that, with
        those before it, would keep others waiting is left to `in_steps`."""
        self._at_once += 1
        self._at_once_bytes += max(len(piece), _ESCAPE_BYTES * _escapes(piece))
        if (
            self._decoder.is_coded
            or self._at_once_bytes > MOST_AT_ONCE_BYTES
            or self._at_once >= MOST_AT_ONCE
        ):
            self._at_once = self._at_once_bytes = 0
            return False
        self._show(piece)
        return True

    async def in_steps(self, piece: bytes) -> None:
        """Inspect a piece of any size."""
        steps = self._steps(piece)
        is_over = False
        while not is_over:
            async with self._turn:
                is_over = next(steps, None) is None
                await asyncio.sleep(0)

    def _steps(self, piece: bytes) -> Iterator[bool]:
        """Inspect it, and pause after each step."""
        for at in range(0, len(piece), STEP_BYTES):
            step = piece[at : at + STEP_BYTES]
            for short in _short(step) if self._raw else ():
                for see in self._raw:
                    see(short)
                yield True
            for part in self._decoder.decode(step):
                for short in _short(part):
                    self._show(short)
                    yield True

    def _show(self, said: bytes) -> None:
        for see in self._read:
            see(said)

    def end(self) -> None:
        """Drop all kept data, since the body is over."""
        self._decoder.end()


def _escapes(text: bytes) -> int:
    return sum(text.count(one) for one in _BEGIN_ESCAPES)


def _short(text: bytes) -> Iterator[bytes]:
    """Yield parts of one step each; an empty text is one part."""
    for at in range(0, len(text) or 1, STEP_BYTES):
        step = text[at : at + STEP_BYTES]
        size = SHORT_STEP_BYTES if _escapes(step) > SHORT_STEP_BYTES // 4 else STEP_BYTES
        yield from (step[start : start + size] for start in range(0, len(step) or 1, size))


@dataclass(eq=False, slots=True)
class Direction:
    """One direction of an exchange: its inspection, if there is one, and the connection's room that
    counts the waiting bytes."""

    look: Inspection | None = None
    room: Room | None = None


@dataclass
class BodyPiece:
    """A piece to inspect in steps. It goes on only once `is_seen`."""

    look: Inspection
    data: bytes
    is_seen: bool = False


@dataclass
class BodyPieceHook(commands.StartHook):  # type: ignore[no-untyped-call]
    """Fired before a body piece or a WebSocket message goes on."""

    name = "body_piece"
    piece: BodyPiece


def look_at(way: Direction, headers: http.Headers, session: EgressSession) -> Inspection:
    """Return the inspection of the body in this direction, with this head; create it if there is
    none yet."""
    if way.look is None:
        decoder = Decoder(_codings(headers))
        if not session.may_unpack(decoder):
            decoder.refuse(TOO_MANY)
        way.look = Inspection(decoder, session.turn)
    return way.look


async def said_by(
    flow: http.HTTPFlow, session: EgressSession, may_hold: Callable[[int], bool]
) -> bytes | None:
    """Return the decoded body of a completely held request. Return None where it can't be decoded,
    or where `may_hold` doesn't allow that many bytes for both forms.

    It undoes only codings that no text looks like: an origin may read a body as it is, whatever its
    head says.
    """
    body, coding = flow.request.raw_content or b"", _codings(flow.request.headers).lower()
    names = {part.strip() for part in coding.split(",")} - {"", "identity"}
    if not names:
        return body
    decoder = Decoder(coding)
    if not names <= _MARKED or not session.may_unpack(decoder):
        return None
    said = bytearray()

    def take(part: bytes) -> None:
        if decoder.is_readable and may_hold(len(body) + len(said) + len(part)):
            said.extend(part)
        else:
            decoder.refuse(TOO_MUCH)

    look = Inspection(decoder, session.turn)
    look.add(take)
    await look.in_steps(body)
    look.end()
    may_hold(len(body))  # nothing keeps what it says for longer than it is looked at
    return bytes(said) if decoder.is_readable else None


def _codings(headers: http.Headers) -> str:
    """Return all codings of a body, in order. Of the transfer codings, only the chunks are removed
    before this (RFC 9112 6.1)."""
    of_transfer = [
        name
        for name in headers.get("transfer-encoding", "").split(",")
        if name.strip().lower() != "chunked"
    ]
    return ",".join([headers.get("content-encoding", ""), *of_transfer])
