"""Hooks go straight to the addons: in the order and with the outcome that mitmproxy's tasks
would give them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.tls import TlsClienthelloHook, TlsFailedClientHook, TlsStartClientHook

from supervisor.egress.mitm.fail_closed import closes
from supervisor.egress.mitm.hooks import Hooks, Straight


class Scripted:
    """A layer that gives these commands for each event, and notes what it was told; it may not
    be entered twice."""

    def __init__(self, *steps: list[commands.Command]) -> None:
        self.steps = list(steps)
        self.told: list[events.Event] = []
        self.is_inside = False

    def handle_event(self, event: events.Event) -> Iterator[commands.Command]:
        assert not self.is_inside
        self.is_inside = True
        self.told.append(event)
        yield from self.steps.pop(0) if self.steps else []
        self.is_inside = False


class Addon:
    def __init__(self, noted: list[str]) -> None:
        self.noted = noted

    def tls_clienthello(self, data: str) -> None:
        self.noted.append(f"hello {data}")

    async def tls_start_client(self, data: str) -> None:
        await asyncio.sleep(0)
        self.noted.append(f"start {data}")


class Raising:
    def tls_clienthello(self, data: str) -> None:
        raise ValueError("text of a client")

    async def tls_start_client(self, data: str) -> None:
        raise ValueError("text of a client")


def hello(data: Any) -> commands.StartHook:
    return TlsClienthelloHook(data)


def given(outermost: Scripted, hooks: Hooks) -> list[commands.Command]:
    straight = Straight(outermost, hooks)  # type: ignore[arg-type]
    return list(straight.handle_event(events.Start()))


def test_a_plain_hook_runs_where_it_is_called_and_the_layer_goes_on() -> None:
    noted: list[str] = []
    first, then = commands.Log("first"), commands.Log("then")
    hook = hello("a")
    outermost = Scripted([first, hook, commands.Log("behind")], [then, hello("b")], [])
    assert [
        str(one.message)
        for one in given(outermost, Hooks([Addon(noted)]))
        if isinstance(one, commands.Log)
    ] == [
        "first",
        "behind",
        "then",
    ]
    assert noted == ["hello a", "hello b"]
    assert isinstance(outermost.told[1], events.HookCompleted)
    assert outermost.told[1].command is hook
    assert len(outermost.told) == 3


async def test_a_hook_that_waits_is_passed_on_untouched() -> None:
    noted: list[str] = []
    hook = TlsStartClientHook("a")  # type: ignore[arg-type]
    hooks = Hooks([Addon(noted)])
    outermost = Scripted([hook])
    assert given(outermost, hooks) == [hook]
    assert noted == []
    assert len(outermost.told) == 1
    await hooks.run(hook)
    assert noted == ["start a"]


def test_nobody_has_to_listen() -> None:
    outermost = Scripted([TlsFailedClientHook("a")])  # type: ignore[arg-type]
    assert given(outermost, Hooks([])) == []
    assert isinstance(outermost.told[1], events.HookCompleted)


def test_what_does_not_block_is_not_told_of_its_end() -> None:
    hook = hello("a")
    hook.blocking = False
    outermost = Scripted([hook])
    noted: list[str] = []
    assert given(outermost, Hooks([Addon(noted)])) == []
    assert noted == ["hello a"]
    assert len(outermost.told) == 1


def test_what_one_addon_raises_keeps_no_other_from_its_turn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    noted: list[str] = []
    outermost = Scripted([hello("a")])
    given(outermost, Hooks([Addon(noted), Raising(), Addon(noted)]))
    assert noted == ["hello a"] * 2
    assert len(outermost.told) == 2
    assert "text of a client" not in "".join(capsys.readouterr())


async def test_the_same_for_those_that_wait(capsys: pytest.CaptureFixture[str]) -> None:
    noted: list[str] = []
    hook = TlsStartClientHook("a")  # type: ignore[arg-type]
    await Hooks([Addon(noted), Raising(), Addon(noted)]).run(hook)
    assert noted == ["start a"] * 2
    assert "text of a client" not in "".join(capsys.readouterr())


async def test_a_plain_hook_can_be_awaited_too() -> None:
    noted: list[str] = []
    await Hooks([Addon(noted)]).run(hello("a"))
    assert noted == ["hello a"]


async def test_one_that_is_cancelled_ends() -> None:
    class Patient:
        async def tls_start_client(self, data: asyncio.Event) -> None:
            data.set()
            await asyncio.Event().wait()

    began = asyncio.Event()
    noted: list[str] = []
    hook = TlsStartClientHook(began)  # type: ignore[arg-type]
    running = asyncio.ensure_future(Hooks([Patient(), Addon(noted)]).run(hook))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert noted == []


class Sometimes:
    """Looks at what it is told, and has to wait for the rest of it."""

    def __init__(self, noted: list[str]) -> None:
        self.noted = noted

    def tls_clienthello(self, data: str) -> Awaitable[None] | None:
        self.noted.append(f"began {data}")
        return self.rest(data) if data == "long" else None

    async def rest(self, data: str) -> None:
        await asyncio.sleep(0)
        self.noted.append(f"ended {data}")
        raise ValueError("text of a client")


async def test_one_that_finds_that_it_has_to_wait_goes_on_from_there() -> None:
    noted: list[str] = []
    hooks = Hooks([Addon(noted), Sometimes(noted), Addon(noted), Sometimes(noted)])
    long, short = hello("long"), hello("short")
    outermost = Scripted([short, long])
    assert given(outermost, hooks) == [long]  # of which the layer isn't told that it was over
    assert [
        event.command for event in outermost.told if isinstance(event, events.HookCompleted)
    ] == [short]
    assert noted == [
        "hello short",
        "began short",
        "hello short",
        "began short",
        "hello long",
        "began long",
    ]
    del noted[:]
    await hooks.run(long)
    assert noted == ["ended long", "hello long", "began long", "ended long"]


class Closing:
    """Hooks as the guard has them."""

    @closes(lambda data: data.append("refused"))
    def tls_clienthello(self, data: list[str]) -> None:
        raise ValueError("text of a client")

    @closes(lambda data: data.append("refused"))
    async def tls_start_client(self, data: list[str]) -> None:
        await asyncio.sleep(0)
        raise ValueError("text of a client")


async def test_what_closes_stays_plain_where_it_was_and_refuses_either_way() -> None:
    hooks = Hooks([Closing()])
    plain: list[str] = []
    waiting: list[str] = []
    assert hooks.ran(hello(plain))
    hook = TlsStartClientHook(waiting)  # type: ignore[arg-type]
    assert not hooks.ran(hook)
    assert waiting == []
    await hooks.run(hook)
    assert (plain, waiting) == (["refused"], ["refused"])


def test_a_layer_is_entered_as_if_by_tasks() -> None:
    """A real layer that pauses at its hook, is sent an event meanwhile, and goes on behind it in
    order."""
    noted: list[str] = []

    class Real(layer.Layer):
        def __init__(self) -> None:
            self.context = None  # type: ignore[assignment]
            self._paused = None
            self._paused_event_queue = deque()

        def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
            noted.append(f"begin {type(event).__name__}")
            yield hello(type(event).__name__)
            noted.append(f"end {type(event).__name__}")

    straight = Straight(Real(), Hooks([Addon(noted)]))
    assert list(straight.handle_event(events.Start())) == []
    assert noted == ["begin Start", "hello Start", "end Start"]
