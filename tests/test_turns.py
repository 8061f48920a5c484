"""Turns on the processor: asked for by one thread, of which nobody else gets any, and nothing goes wrong where there are none."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor import turns
from tests.fakes.supervised import settings_in, supervised

WANTED_NS = 200_000

needs_turns = pytest.mark.skipif(turns.length_ns(0) is None, reason="this kernel knows no turns (Linux 6.12 does)")


def in_a_thread[Found](do: Callable[[], Found]) -> Found:
    """In a thread of its own: what is asked for goes with it."""
    found: list[Found] = []
    thread = threading.Thread(target=lambda: found.append(do()))
    thread.start()
    thread.join()
    return found[0]


def of_a_new_process() -> int:
    program = "from supervisor import turns; print(turns.length_ns(0))"
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


@needs_turns
def test_the_thread_that_asks_has_short_turns_and_no_other() -> None:
    before_ns = turns.length_ns(0)

    def ask() -> int | None:
        turns.take_short(WANTED_NS)
        return turns.length_ns(threading.get_native_id())

    assert in_a_thread(ask) == WANTED_NS
    assert turns.length_ns(0) == before_ns


@needs_turns
def test_what_it_starts_has_ordinary_turns() -> None:
    def ask() -> tuple[int | None, int, int | None]:
        turns.take_short(WANTED_NS)
        return turns.length_ns(0), of_a_new_process(), in_a_thread(lambda: turns.length_ns(0))

    own, process_ns, thread_ns = in_a_thread(ask)
    assert own == WANTED_NS
    assert process_ns > WANTED_NS
    assert thread_ns is not None
    assert thread_ns > WANTED_NS


@needs_turns
def test_shorter_turns_are_never_made_longer_and_its_share_stays() -> None:
    def ask() -> tuple[int | None, int]:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
        turns.take_short(WANTED_NS)
        turns.take_short(2 * WANTED_NS)
        return turns.length_ns(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert in_a_thread(ask) == (WANTED_NS, 7)


@needs_turns
def test_the_supervisor_answers_in_shorter_turns_than_egress_asks(tmp_path: Path) -> None:
    async def start() -> tuple[int | None, int | None]:
        async with supervised(settings_in(tmp_path)) as here:
            pid = here.parts.network.pid
            assert pid is not None
            return turns.length_ns(0), turns.length_ns(pid)

    assert in_a_thread(lambda: asyncio.run(start())) == (turns.ANSWERS_NS, turns.PASSES_ON_NS)


def test_who_has_another_policy_keeps_it() -> None:
    def ask() -> tuple[int, int | None]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        before_ns = turns.length_ns(0)
        turns.take_short(WANTED_NS)
        assert turns.length_ns(0) == before_ns
        return os.sched_getscheduler(0), before_ns

    policy, _ = in_a_thread(ask)
    assert policy == os.SCHED_BATCH


def test_a_kernel_or_machine_without_them_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_CALLS", {})
    turns.take_short(WANTED_NS)
    assert turns.length_ns(0) is None
    # No such system call: ENOSYS.
    monkeypatch.setattr(turns, "_CALLS", {os.uname().machine: (4000, 4001)})
    turns.take_short(WANTED_NS)
    assert turns.length_ns(0) is None


def test_a_kernel_that_says_no_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = dict(turns._CALLS)
    number = calls.get(os.uname().machine, (4000, 4000))[1]
    monkeypatch.setattr(turns, "_CALLS", {os.uname().machine: (4000, number)})
    before_ns = turns.length_ns(0)
    in_a_thread(lambda: turns.take_short(WANTED_NS))
    assert turns.length_ns(0) == before_ns
