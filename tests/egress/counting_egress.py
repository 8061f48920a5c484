"""What is run in an egress process before it starts, so that a test can ask what it holds."""

import asyncio
import json
from collections.abc import Callable

from supervisor.core.network.egress_wire import Body, CloseListener
from tests.egress.egress_harness import PATIENCE_S, FakeSupervisor

_COUNT = "count"

PREFACE = f"""
import asyncio, json, os
from supervisor.core.network.egress_wire import Body, CloseListener
from supervisor.egress import app

obey = app.Egress._on_message

def held(egress):
    questions, sessions = egress._work.questions, egress._sessions.all()
    facts = dict(
        tasks=len(asyncio.all_tasks()),
        files=len(os.listdir("/proc/self/fd")),
        connections=egress._sessions._open_connections + sum(len(one.connections) for one in sessions),
        clients=len(egress._sessions._by_client),
        questions=len(questions._open) + sum(questions._per_session.values()),
        message_bytes=sum(one.message_bytes for one in sessions),
        wide=sum(len(one.wide) for one in sessions),
        draws=len(egress._work.allowances._draws),
    )
    if egress._inspector is not None:
        meter = egress._inspector._master.addons.chain[0]._meter
        facts |= dict(body_bytes=sum(meter._held_bodies._held.values()), calls=len(meter._open))
    return facts

def say(egress, what, facts):
    data = json.dumps(facts).encode()
    egress._link.send(Body(question_id=-1, of="request", media_type=what, data=data, whole_bytes=0))

def obeyed(egress, message, fds):
    if not isinstance(message, CloseListener):
        obey(egress, message, fds)
    elif message.session_id == {_COUNT!r}:
        say(egress, {_COUNT!r}, held(egress))

app.Egress._on_message = obeyed
"""  # noqa: E501


async def held(supervisor: FakeSupervisor) -> dict[str, int]:
    """What egress holds now."""
    count = len(_said(supervisor, _COUNT))
    supervisor.send(CloseListener(session_id=_COUNT, listener_id=0))
    async with asyncio.timeout(PATIENCE_S), supervisor.changed:
        await supervisor.changed.wait_for(lambda: len(_said(supervisor, _COUNT)) > count)
    found: dict[str, int] = json.loads(_said(supervisor, _COUNT)[-1].data)
    return found


async def until_held(
    supervisor: FakeSupervisor, wanted: Callable[[dict[str, int]], bool]
) -> dict[str, int]:
    """What it holds, once that is as wanted."""
    found = await held(supervisor)
    try:
        async with asyncio.timeout(PATIENCE_S / 2):
            while not wanted(found):
                await asyncio.sleep(0.02)
                found = await held(supervisor)
    except TimeoutError:
        raise AssertionError(found) from None
    return found


def _said(supervisor: FakeSupervisor, what: str) -> list[Body]:
    return [one for one in supervisor.of_type(Body) if one.media_type == what]
