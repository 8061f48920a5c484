"""Look at bodies piece by piece, before each piece goes on.

It decides when a piece is looked at, and that nobody else waits long for it. A coded body is
decoded once for all readers, and the loop has its turn after each step. A few bytes may stand for
megabytes; only their connection waits. INVARIANT: in one turn of the loop a session takes one step,
however many connections it has. It changes no piece.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mitmproxy import http
from mitmproxy.proxy import commands

from supervisor.egress.admission.egress_sessions import EgressSession
from supervisor.egress.admission.rooms import Room
from supervisor.egress.protocols.codings import STEP_BYTES, TOO_MANY, TOO_MUCH, Decoder

# So many pieces in one go, and so much of them: each is looked at together with the end of those
# before it, and may have one byte, and a single read thousands of them.
MOST_AT_ONCE = 64
MOST_AT_ONCE_BYTES = 16 * 1024
# A character that may begin an escape (`core.text.encodings`) takes as long as so many bytes of
# ordinary text; steps of a text with many of them are shorter.
_BEGIN_ESCAPES = (b"\\", b"%", b"&")
_ESCAPE_BYTES = 8
SHORT_STEP_BYTES = STEP_BYTES // _ESCAPE_BYTES
# What these make begins with bytes that no text does (RFC 1952 2.3.1, RFC 8878 3.1.1).
_MARKED = {"gzip", "x-gzip", "zstd"}


class Inspection:
    """One body, of a session whose steps take turns by `turn`. `why` is why it couldn't be read
    as far as it came, and empty as long as it could."""

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
        """Show the decoded body to `read`, and the coded one to `raw` where it differs."""
        self._read.append(read)
        if raw is not None and self._decoder.is_coded:
            self._raw.append(raw)

    def try_at_once(self, piece: bytes) -> bool:
        """Look at the next piece here and now. Return whether that was possible: a piece that takes
        long enough, after those before it, to keep others waiting is left to `in_steps`."""
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
        """Look at a piece of any size."""
        steps = self._steps(piece)
        is_over = False
        while not is_over:
            async with self._turn:
                is_over = next(steps, None) is None
                await asyncio.sleep(0)

    def _steps(self, piece: bytes) -> Iterator[bool]:
        """Look at it, and stop after each step."""
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
        """Keep nothing more: the body is over."""
        self._decoder.end()


def _escapes(text: bytes) -> int:
    return sum(text.count(one) for one in _BEGIN_ESCAPES)


def _short(text: bytes) -> Iterator[bytes]:
    """In parts that are looked at in one step each; an empty text is one, too."""
    for at in range(0, len(text) or 1, STEP_BYTES):
        step = text[at : at + STEP_BYTES]
        size = SHORT_STEP_BYTES if _escapes(step) > SHORT_STEP_BYTES // 4 else STEP_BYTES
        yield from (step[start : start + size] for start in range(0, len(step) or 1, size))


@dataclass(eq=False, slots=True)
class Direction:
    """One direction of an exchange: what looks at what goes there, if anything does, and the
    room of its connection that is told how much waits meanwhile."""

    look: Inspection | None = None
    room: Room | None = None


@dataclass
class BodyPiece:
    """A piece to look at in steps. It goes on only once `is_seen`."""

    look: Inspection
    data: bytes
    is_seen: bool = False


@dataclass
class BodyPieceHook(commands.StartHook):  # type: ignore[no-untyped-call]
    """A piece of a body, or a message of a WebSocket, is about to go on."""

    name = "body_piece"
    piece: BodyPiece


def look_at(way: Direction, headers: http.Headers, session: EgressSession) -> Inspection:
    """Return the inspection of the body that goes this way, under this head; made where there is
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
    """Return what the body of a request says that is held whole; None where that can't be told, or
    where `may_hold` allows not so many bytes of both forms.

    Only codings are undone that no text looks like: an origin may read a body as it is, whatever
    its head says of it.
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
    """Return all codings of a body, in order: of transfer codings only the chunks are taken apart
    before this (RFC 9112 6.1)."""
    of_transfer = [
        name
        for name in headers.get("transfer-encoding", "").split(",")
        if name.strip().lower() != "chunked"
    ]
    return ",".join([headers.get("content-encoding", ""), *of_transfer])
