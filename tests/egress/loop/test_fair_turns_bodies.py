"""How long a session may keep the others waiting while its bodies are looked through: counted in
steps and in turns of the loop, not in time."""

import asyncio
import gzip
import random

import pytest

from supervisor.core.secrets.secret_forms import SecretForms
from supervisor.egress.admission.secrets import BodyScan
from supervisor.egress.mitm.body_inspection import MOST_AT_ONCE_BYTES, SHORT_STEP_BYTES, Inspection
from supervisor.egress.protocols.codings import STEP_BYTES, Decoder

MOST_TURNS = 100_000


class Count:
    """One look whose steps are counted, by the turn of the loop that each is in."""

    def __init__(self, turns: list[int], turn: asyncio.Lock, coding: str = "") -> None:
        self.look = Inspection(Decoder(coding), turn)
        self.parts: list[bytes] = []
        self.at: list[int] = []
        self.look.add(lambda part: self._note(turns, part))

    def _note(self, turns: list[int], part: bytes) -> None:
        self.parts.append(part)
        self.at.append(turns[0])


async def counted(turns: list[int], until: "asyncio.Future[None] | asyncio.Task[None]") -> None:
    while not until.done() and turns[0] < MOST_TURNS:
        turns[0] += 1
        await asyncio.sleep(0)


@pytest.mark.parametrize("coding", ["", "gzip"])
@pytest.mark.parametrize("connections", [1, 50])
async def test_many_connections_take_no_more_steps_in_a_turn_than_one(
    coding: str, connections: int
) -> None:
    body = b"\\" * (4 * STEP_BYTES)
    turns, greedy, modest = [0], asyncio.Lock(), asyncio.Lock()
    many = [Count(turns, greedy, coding) for _ in range(connections)]
    one = Count(turns, modest)
    said = gzip.compress(body) if coding else body
    async with asyncio.TaskGroup() as tasks:
        for each in many:
            tasks.create_task(each.look.in_steps(said))
        its = tasks.create_task(one.look.in_steps(bytes(20 * STEP_BYTES)))
        tasks.create_task(counted(turns, its))
    assert len(one.parts) == 20
    # Who shares the loop with any number of them has every turn, and they have one step in it
    # together.
    assert one.at[-1] - one.at[0] <= 2 * 20
    steps = [at for each in many for at in each.at if one.at[0] <= at < one.at[-1]]
    assert max(map(steps.count, steps)) <= 2
    assert all(b"".join(each.parts) == body for each in many)


async def test_each_of_a_sessions_connections_has_its_turn() -> None:
    turns, turn = [0], asyncio.Lock()
    long, short = Count(turns, turn), Count(turns, turn)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(long.look.in_steps(bytes(200 * STEP_BYTES)))
        its = tasks.create_task(short.look.in_steps(bytes(5 * STEP_BYTES)))
        tasks.create_task(counted(turns, its))
    assert len([at for at in long.at if at < short.at[-1]]) <= 3 * 5


async def test_one_that_is_given_up_or_breaks_keeps_no_turn() -> None:
    turn = asyncio.Lock()
    broken = Inspection(Decoder(""), turn)
    broken.add(lambda part: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        await broken.in_steps(b"x")
    given_up = asyncio.create_task(Inspection(Decoder(""), turn).in_steps(bytes(100 * STEP_BYTES)))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    assert not turn.locked()


TEXTS = {
    "backslashes": b"\\" * STEP_BYTES,
    "percents": b"%5c" * (STEP_BYTES // 3),
    "entities": b"&#92;" * (STEP_BYTES // 5),
    "one after the other": b"\\n%41&lt;" * (STEP_BYTES // 9),
    "half of it": b"x" * (STEP_BYTES // 2) + b"\\" * (STEP_BYTES // 2),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_that_takes_long_is_looked_at_in_short_steps(text: bytes) -> None:
    one = Count([0], asyncio.Lock())
    assert not one.look.try_at_once(text)
    await one.look.in_steps(text)
    assert b"".join(one.parts) == text
    assert max(map(len, one.parts)) <= SHORT_STEP_BYTES
    # A little of it is more than may be looked at on the way.
    assert any(
        not one.look.try_at_once(text[-1024:]) for _ in range(MOST_AT_ONCE_BYTES // 1024 + 1)
    )


async def test_ordinary_text_is_not() -> None:
    text = (b'{"path": "a/b", "text": "two\\nlines", "and": "more of it, as it comes"}' * 2000)[
        :STEP_BYTES
    ]
    one = Count([0], asyncio.Lock())
    await one.look.in_steps(text)
    assert one.parts == [text]
    assert Inspection(Decoder(""), asyncio.Lock()).try_at_once(text[:8192])


@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_nothing_is_missed_wherever_the_steps_are_cut(coding: str) -> None:
    rng = random.Random(5)
    secret = "gatehouse-placeholder-it-0123456789"
    forms = SecretForms([secret])
    for _ in range(12):
        at = rng.choice([SHORT_STEP_BYTES, STEP_BYTES, 3 * SHORT_STEP_BYTES]) - rng.randrange(
            len(secret) + 2
        )
        noise = rng.choice([b"\\", b"x", b"%"])
        body = noise * at + secret.encode() + noise * 100
        scan, look = BodyScan(forms), Inspection(Decoder(coding), asyncio.Lock())
        look.add(scan.see, raw=scan.see_raw)
        await look.in_steps(gzip.compress(body) if coding else body)
        assert scan.found, (at, noise)
