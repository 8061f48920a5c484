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
_MOST_ANSWER_BYTES = 16 * 1024 * 1024
_MOST_KEPT = 200
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
        self._kept: OrderedDict[bytes, Any] = OrderedDict()

    async def colours(self, path: str, text: str) -> Colours:
        """Return the colours of a file's text, by its path."""
        shown = text[:MOST_CHARS].replace("\r\n", "\n")
        found = await self._rendered("code", path.rpartition("/")[2][-_NAME_CHARS:], shown)
        return found or ()

    async def prose(self, text: str) -> str | None:
        """Return Markdown as harmless HTML: no link, no image, no attribute. None where it takes
        too long, or is longer than `MOST_CHARS`."""
        if len(text) > MOST_CHARS:
            return None
        found: str | None = await self._rendered("prose", "", text)
        return found

    async def stop(self) -> None:
        """End the process; the next text starts another one."""
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _rendered(self, kind: Literal["code", "prose"], name: str, text: str) -> Any:
        if not text:
            return None
        asked = msgspec.msgpack.encode((kind, name, text.encode(errors="replace").decode()))
        key = hashlib.blake2b(asked, digest_size=32).digest()
        if key not in self._kept:
            async with self._turn:
                if key not in self._kept:
                    self._kept[key] = await self._asked(kind, asked)
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    async def _asked(self, kind: str, asked: bytes) -> Any:
        try:
            async with asyncio.timeout(PATIENCE_S):
                if self._child is None:
                    self._child = await spawn(_WORKER, env={}, stdin=PIPE, stdout=PIPE)
                answer = await self._exchanged(self._child, asked)
        except (TimeoutError, asyncio.IncompleteReadError, OSError, GatehouseError) as error:
            log.warning("a text is shown plain", kind=kind, error=type(error).__name__)
            await self._end()
            return None
        except BaseException:
            await self._end()
            raise
        if kind != "code":
            return answer
        return [
            [
                (length, word if word in CLASSES else "")
                for length, word in zip(line[::2], line[1::2], strict=True)
            ]
            for line in answer
        ]

    async def _exchanged(self, child: Child, asked: bytes) -> Any:
        assert child.stdin is not None
        assert child.stdout is not None
        # It reads all of it before it answers; one that is ended meanwhile breaks the pipe.
        await asyncio.to_thread(_write, child.stdin, len(asked).to_bytes(_LENGTH_BYTES) + asked)
        length = int.from_bytes(await child.stdout.readexactly(_LENGTH_BYTES))
        if length > _MOST_ANSWER_BYTES:
            raise OSError("too long an answer")
        return msgspec.msgpack.decode(await child.stdout.readexactly(length))


def _write(pipe: Any, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += pipe.write(data[at:])
