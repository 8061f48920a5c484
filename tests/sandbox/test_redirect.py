"""Redirecting a sandbox's connections: where the kernel won't, or it doesn't lead to the door,
nothing starts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from supervisor.errors import SandboxError
from supervisor.sandbox import machine_checks, namespaces
from supervisor.sandbox.base import DOOR_PORT, NAMES_PORT, Spec
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.sandbox.redirect import SetupStep, steps


@pytest.fixture
async def sandbox() -> AsyncIterator[Bubblewrap]:
    made = Bubblewrap()
    yield made
    await made.close()


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    (tmp_path / "lower").mkdir()
    (tmp_path / "copies" / "merged").mkdir(parents=True)
    return Spec(
        command=("/bin/sh", "-c", "touch ran; ls /proc/net/tcp >/dev/null && cat /proc/net/udp"),
        workspace_lower=tmp_path / "lower",
        workspace_merged=tmp_path / "copies" / "merged",
        ports=(3128,),
        redirected=True,
    )


async def test_its_sockets_are_there_before_the_command(sandbox: Bubblewrap, spec: Spec) -> None:
    running = await sandbox.start(spec, on_output=lambda block: None)
    assert set(running.listeners) == {3128, DOOR_PORT, NAMES_PORT}
    assert await running.wait() == 0
    for listener in running.listeners.values():
        listener.close()


async def test_without_it_there_is_neither_door_nor_route(sandbox: Bubblewrap, spec: Spec) -> None:
    script = "exec 3<>/dev/tcp/192.0.2.1/443"
    for redirected, found in ((False, "Network is unreachable"), (True, "")):
        plain = Spec(
            command=("/bin/bash", "-c", script),
            workspace_lower=spec.workspace_lower,
            workspace_merged=spec.workspace_merged,
            redirected=redirected,
        )
        result = await sandbox.run_tool(plain, timeout_s=60)
        assert (result.exit_code == 0, found in result.stderr.decode()) == (redirected, True)


def without_rules(port: int) -> tuple[SetupStep, ...]:
    return steps(port)[1:]


def to_another_port(port: int) -> tuple[SetupStep, ...]:
    return steps(port + 1)


def not_a_message(port: int) -> tuple[SetupStep, ...]:
    rules, *routes = steps(port)
    (packet,) = rules.packets
    broken = packet._replace(data=packet.data.replace(b"redir".hex(), b"rodir".hex()))
    assert broken != packet
    return (SetupStep((broken,)), *routes)


@pytest.mark.parametrize("wrong", [without_rules, to_another_port, not_a_message])
async def test_where_it_does_not_lead_to_the_door_nothing_starts(
    sandbox: Bubblewrap, spec: Spec, monkeypatch: pytest.MonkeyPatch, wrong: object
) -> None:
    monkeypatch.setattr(namespaces, "steps", wrong)
    with pytest.raises(SandboxError, match="can't be set up from outside"):
        await sandbox.start(spec, on_output=lambda block: None)
    assert not list(spec.workspace_merged.iterdir()), "the command never ran"
    monkeypatch.undo()
    result = await sandbox.run_tool(spec, timeout_s=60)
    assert result.exit_code == 0


async def test_a_machine_without_ipv6_has_the_rest(
    sandbox: Bubblewrap, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, v4, v6 = steps(DOOR_PORT)
    refused = v6._replace(
        packets=tuple(one._replace(data=one.data[:-8] + "ffffff7f") for one in v6.packets)
    )
    monkeypatch.setattr(namespaces, "steps", lambda port: (rules, v4, refused))
    result = await sandbox.run_tool(spec, timeout_s=60)
    assert result.exit_code == 0
    six = Spec(
        command=("/bin/bash", "-c", "exec 3<>/dev/tcp/2001:db8::1/443"),
        workspace_lower=spec.workspace_lower,
        workspace_merged=spec.workspace_merged,
        redirected=True,
    )
    assert "unreachable" in (await sandbox.run_tool(six, timeout_s=60)).stderr.decode()


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")
async def test_where_there_is_ipv6_every_sandbox_has_it(sandbox: Bubblewrap, spec: Spec) -> None:
    """Many at once: the kernel may take a moment to find an address usable that was just made."""
    six = Spec(
        command=("/bin/bash", "-c", "exec 3<>/dev/tcp/2001:db8::1/443"),
        workspace_lower=spec.workspace_lower,
        workspace_merged=spec.workspace_merged,
        redirected=True,
    )
    for _ in range(6):
        found = await asyncio.gather(*(sandbox.run_tool(six, timeout_s=60) for _ in range(4)))
        assert [one.exit_code for one in found] == [0] * 4, found[0].stderr


async def test_doctor_says_what_is_missing(
    sandbox: Bubblewrap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine_checks, "NF_CONNTRACK_MAX", tmp_path / "max")
    assert (await machine_checks.redirection(sandbox)).ok
    (tmp_path / "max").write_text("262144\n")
    assert (await machine_checks.redirection(sandbox)).ok
    (tmp_path / "max").write_text("4096\n")
    found = await machine_checks.redirection(sandbox)
    assert (found.ok, found.needed) == (False, False)
    assert "keeps 4096 connections" in found.detail
    assert "nf_conntrack_max" in found.remedy
    monkeypatch.setattr(namespaces, "steps", not_a_message)
    found = await machine_checks.redirection(sandbox)
    assert (found.ok, found.needed) == (False, False)
    assert "nf_tables" in found.remedy
