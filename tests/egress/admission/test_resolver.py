"""Names to addresses: by the system, once for a session, and never by the event loop."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine

import pytest

from supervisor.egress.admission.resolver import KEEP_S, MOST_AT_ONCE, MOST_OF_SESSION, Resolver
from supervisor.egress.loop.dialler import PIN, Pin, PinnedLoop
from tests.fakes.clock import FakeClock


async def test_the_system_is_asked_where_there_is_no_table() -> None:
    resolver = Resolver(FakeClock(), None)
    assert "127.0.0.1" in await resolver.addresses("s", "localhost")
    assert await resolver.addresses("s", "name.invalid") == ()
    assert await resolver.addresses("s", "192.0.2.7") == ("192.0.2.7",)


async def test_an_answer_is_kept_for_the_session_so_that_no_second_one_can_differ() -> None:
    """DNS rebinding: another answer to the same question."""
    table = {"a.test": ("192.0.2.1",)}
    clock = FakeClock()
    resolver = Resolver(clock, table)
    assert await resolver.addresses("s", "a.test") == ("192.0.2.1",)
    table["a.test"] = ("127.0.0.1",)
    assert await resolver.addresses("s", "a.test") == ("192.0.2.1",)
    assert await resolver.addresses("other", "a.test") == ("127.0.0.1",)
    clock.advance(KEEP_S + 1)
    assert await resolver.addresses("s", "a.test") == ("127.0.0.1",)
    table["a.test"] = ("192.0.2.9",)
    resolver.forget("s", "a.test")
    assert await resolver.addresses("s", "a.test") == ("192.0.2.9",)


async def test_names_that_nobody_answers_for_keep_no_other_session_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One who runs a name's server may answer as late as he likes, for as many names below it as
    are asked for."""
    answered, asked = threading.Event(), []

    def look_up(host: str, *args: object) -> list[tuple[object, ...]]:
        asked.append(host)
        if host.endswith("slow.test"):
            answered.wait()
        return [(socket.AF_INET, 0, 0, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolver = Resolver(FakeClock(), None)
    many = 2 * MOST_AT_ONCE
    waiting = [
        asyncio.create_task(resolver.addresses("greedy", f"{n}.slow.test")) for n in range(many)
    ]
    try:
        await asyncio.sleep(0)
        assert await resolver.addresses("modest", "fast.test") == ("192.0.2.1",)
        assert len(asked) <= MOST_OF_SESSION + 1
        waiting[0].cancel()  # whoever gives up leaves its place when its thread is done
    finally:
        answered.set()
    found = await asyncio.gather(*waiting[1:])
    assert found == [("192.0.2.1",)] * (many - 1)
    assert len(asked) == many + 1


def test_the_loop_dials_only_what_is_pinned() -> None:
    async def attempts() -> None:
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        loop = asyncio.get_running_loop()
        with server:
            for host in ("127.0.0.1", "localhost"):
                with pytest.raises(OSError, match="nothing was allowed"):
                    await asyncio.open_connection(host, port)
            PIN.set(Pin("a.test", port, ("127.0.0.1",), private_ok=True, judged_at=0))
            for host, other_port in (("127.0.0.1", port), ("b.test", port), ("a.test", port + 1)):
                with pytest.raises(OSError, match="nothing was allowed"):
                    await asyncio.open_connection(host, other_port)
            _, writer = await asyncio.open_connection("a.test", port)
            assert writer.get_extra_info("peername") == ("127.0.0.1", port)
            writer.close()
            PIN.set(Pin("a.test", port, ("127.0.0.1",), private_ok=False, judged_at=0))
            with pytest.raises(OSError, match="private address"):
                await asyncio.open_connection("a.test", port)
            with pytest.raises(OSError, match="no name is looked up"):
                await loop.getaddrinfo("localhost", port)
            with pytest.raises(OSError, match="no UDP"):
                await loop.create_datagram_endpoint(
                    asyncio.DatagramProtocol, remote_addr=("127.0.0.1", 53)
                )

    in_pinned_loop(attempts)


def in_pinned_loop(attempts: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=PinnedLoop) as runner:
        runner.run(attempts())


async def test_a_look_up_for_which_there_is_no_thread_takes_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Resolver(FakeClock(), None)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        for _ in range(MOST_OF_SESSION + 1):
            assert await resolver.addresses("s", "localhost") == ()
    assert "127.0.0.1" in await resolver.addresses("s", "localhost")


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
