"""The egress process: how it is started, and how it is made to end.

It is separate from `network`, which decides when. It must never give egress more of this process's
environment and descriptors than it needs.
"""

import asyncio
import socket
import sys

from supervisor import settings
from supervisor.base import process

# -P keeps the folder that it runs in off its path: Gatehouse's own folder may be a workspace, and
# an agent may add files there that would be modules of egress.
EGRESS = (sys.executable, "-P", "-m", "supervisor.egress")
STOP_TIMEOUT_S = 5.0


def environment() -> dict[str, str]:
    """Return the environment of egress.

    INVARIANT: the name that is looked up is the one that was judged. `search` in this machine's
    resolv.conf would turn an unknown name into another (`api.example.com.corp.example`);
    LOCALDOMAIN (resolver(5)) replaces that list. /etc/hosts counts as before.
    """
    return settings.inherited("LANG", "PATH") | settings.for_our_python() | {"LOCALDOMAIN": "."}


async def start(channel: socket.socket) -> process.Child:
    """Start egress with its end of the channel, which stays the caller's to close."""
    return await process.spawn(
        [*EGRESS, "--channel-fd", str(channel.fileno())],
        env=environment(),
        cwd=settings.ROOT,
        stderr=None,
        pass_fds=[channel.fileno()],
    )


async def reap(child: process.Child) -> None:
    """Wait for an egress whose channel is closed; kill it after `STOP_TIMEOUT_S`."""
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await child.wait()
    except TimeoutError:
        child.kill_tree()
    finally:
        child.close()
