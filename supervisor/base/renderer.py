"""Code colours and rendered Markdown for pages, made in a process that can be ended.

One process, started with the first text and kept for the next ones. A text that takes too long ends
it (`render_worker`), and is shown plain from then on. It must never hold the loop, whatever the
text is (law 14).
"""

import asyncio
import hashlib
import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from supervisor.base import log
from supervisor.base.process import PIPE, Child, spawn
from supervisor.base.render_worker import CLASSES
from supervisor.errors import GatehouseError

# Characters of a text that are coloured or rendered: the rest of a longer one stays plain.
MOST_CHARS = 256 * 1024
# For the whole way there and back, on a busy machine too; the text itself has `CPU_S`.
PATIENCE_S = 10.0
# For one's turn, once the process has answered: whoever is behind many texts is shown plain.
TURN_S = 1.0
_MOST_ANSWER_BYTES = 16 * 1024 * 1024
# Answers that are kept, and their bytes together.
_MOST_KEPT, MOST_KEPT_BYTES = 200, 64 * 1024 * 1024
# A text that isn't shown in colours.
_PLAIN = msgspec.msgpack.encode(None)
_NAME_CHARS = 100
_LENGTH_BYTES = 4
_WORKER = (sys.executable, "-P", "-m", "supervisor.base.render_worker")

# For each line of a text, its pieces in order: their lengths and classes ("": plain). What isn't
# covered is plain.
type Colours = Sequence[Sequence[tuple[int, str]]]


class Renderer:
    """See the module's text. Call `stop` in the end."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._turn = asyncio.Lock()
        self._is_ready = False
        # As they came: as tuples they take twenty times the memory.
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._kept_bytes = 0

    async def colours(self, path: str, text: str) -> Colours:
        """Return the colours of a file's text, by its path."""
        shown = text[:MOST_CHARS].replace("\r\n", "\n")
        found = await self._rendered("code", path.rpartition("/")[2][-_NAME_CHARS:], shown)
        return await asyncio.to_thread(_colours, found)

    async def prose(self, text: str) -> str | None:
        """Return Markdown as harmless HTML: no link, no image, no attribute. None where it takes
        too long, or is longer than `MOST_CHARS`."""
        if len(text) > MOST_CHARS:
            return None
        return msgspec.msgpack.decode(await self._rendered("prose", "", text), type=str | None)

    async def stop(self) -> None:
        """End the process; the next text starts another one."""
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _rendered(self, kind: Literal["code", "prose"], name: str, text: str) -> bytes:
        """Return the process' answer; `_PLAIN` where it takes too long."""
        if not text:
            return _PLAIN
        asked = msgspec.msgpack.encode((kind, name, text.encode(errors="replace").decode()))
        key = hashlib.blake2b(asked, digest_size=32).digest()
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if not await self._has_turn():
            return _PLAIN  # not kept: the others may be done next time
        try:
            if key not in self._kept:
                self._keep(key, await self._asked(kind, asked))
            return self._kept[key]
        finally:
            self._turn.release()

    async def _has_turn(self) -> bool:
        """Wait for the lock. Return False where others have it for too long; a first start, which
        takes its time, is waited for."""
        while True:
            try:
                async with asyncio.timeout(TURN_S):
                    return await self._turn.acquire()
            except TimeoutError:
                if self._is_ready:
                    return False

    def _keep(self, key: bytes, answer: bytes) -> None:
        self._kept[key] = answer
        self._kept_bytes += len(answer)
        while len(self._kept) > _MOST_KEPT or (
            self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1
        ):
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    async def _asked(self, kind: str, asked: bytes) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE_S):
                if self._child is None:
                    self._child = await spawn(_WORKER, env={}, stdin=PIPE, stdout=PIPE)
                answer = await self._exchanged(self._child, asked)
        except (TimeoutError, asyncio.IncompleteReadError, OSError, GatehouseError) as error:
            log.warning("a text is shown plain", kind=kind, error=type(error).__name__)
            await self._end()
            return _PLAIN
        except BaseException:
            await self._end()
            raise
        finally:
            self._is_ready = True
        return answer

    async def _exchanged(self, child: Child, asked: bytes) -> bytes:
        assert child.stdin is not None
        assert child.stdout is not None
        # It reads all of it before it answers; one that is ended meanwhile breaks the pipe.
        await asyncio.to_thread(_write, child.stdin, len(asked).to_bytes(_LENGTH_BYTES) + asked)
        length = int.from_bytes(await child.stdout.readexactly(_LENGTH_BYTES))
        if length > _MOST_ANSWER_BYTES:
            raise OSError("too long an answer")
        return await child.stdout.readexactly(length)


def _colours(answer: bytes) -> Colours:
    return [
        [
            (length, word if word in CLASSES else "")
            for length, word in zip(line[::2], line[1::2], strict=True)
        ]
        for line in msgspec.msgpack.decode(answer) or ()
    ]


def _write(pipe: Any, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += pipe.write(data[at:])
