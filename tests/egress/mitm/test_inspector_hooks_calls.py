"""Hooks go straight to the addons, in order; what one raises keeps no other from its turn, and
refuses where it closes."""

import asyncio

import pytest
from mitmproxy.proxy.layers.tls import TlsClienthelloHook, TlsFailedClientHook, TlsStartClientHook

from supervisor.egress.mitm.guard import closes
from supervisor.egress.mitm.inspector import Hooks


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


async def test_nobody_has_to_listen() -> None:
    noted: list[str] = []
    await Hooks([]).run(TlsFailedClientHook("a"))  # type: ignore[arg-type]
    await Hooks([Addon(noted)]).run(TlsFailedClientHook("a"))  # type: ignore[arg-type]
    assert noted == []


async def test_what_one_addon_raises_keeps_no_other_from_its_turn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    noted: list[str] = []
    hooks = Hooks([Addon(noted), Raising(), Addon(noted)])
    await hooks.run(TlsClienthelloHook("a"))  # type: ignore[arg-type]
    await hooks.run(TlsStartClientHook("a"))  # type: ignore[arg-type]
    await hooks.run(TlsClienthelloHook("b"))  # type: ignore[arg-type]
    assert noted == ["hello a"] * 2 + ["start a"] * 2 + ["hello b"] * 2
    assert "text of a client" not in "".join(capsys.readouterr())


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


class Closing:
    """Hooks as the guard has them."""

    @closes(lambda data: data.append("refused"))
    def tls_clienthello(self, data: list[str]) -> None:
        raise ValueError("text of a client")

    @closes(lambda data: data.append("refused"))
    async def tls_start_client(self, data: list[str]) -> None:
        await asyncio.sleep(0)
        raise ValueError("text of a client")


async def test_what_closes_refuses_whether_it_waits_or_not() -> None:
    hooks = Hooks([Closing()])
    plain: list[str] = []
    waiting: list[str] = []
    await hooks.run(TlsClienthelloHook(plain))  # type: ignore[arg-type]
    await hooks.run(TlsStartClientHook(waiting))  # type: ignore[arg-type]
    assert (plain, waiting) == (["refused"], ["refused"])
