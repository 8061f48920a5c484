"""`python -m supervisor.egress --channel-fd N`: the egress process.

Only `network` starts it, with the other end of its channel. It first gives up what it doesn't need:
no core dumps, no tracing by processes of the same user (it holds a CA key and credentials), no new
privileges.
"""

import argparse
import asyncio
import ctypes
import logging
import resource
import socket
import sys

from supervisor.base import log
from supervisor.base.clock import RealClock
from supervisor.egress.app import Egress
from supervisor.egress.loop.dialler import PinnedLoop
from supervisor.egress.loop.failures import OthersLog

# prctl(2)
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
MOST_FILES = 16384
# A connection takes three descriptors (`egress_sessions`), egress itself about forty. Below the
# first limit it warns, below the second it doesn't start.
FEW_FILES, LEAST_FILES = 2048, 256


def harden() -> int:
    """Give up privileges that egress doesn't need. Return how many files it may open. Raise
    `OSError` where the kernel refuses: egress doesn't run with less protection than intended."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(MOST_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    return wanted


def configure_logging() -> None:
    """Log only errors of libraries, and where they occurred."""
    logging.getLogger().handlers = [OthersLog(logging.ERROR)]
    logging.getLogger().setLevel(logging.ERROR)


def main() -> None:
    """Run until the supervisor is gone."""
    parser = argparse.ArgumentParser(prog="python -m supervisor.egress")
    parser.add_argument("--channel-fd", type=int, required=True)
    channel = socket.socket(fileno=parser.parse_args().channel_fd)
    files = harden()
    configure_logging()
    if files < FEW_FILES:
        remedy = f"raise the limit before Gatehouse is started: ulimit -n {MOST_FILES}"
        log.warning("few open files: few connections at a time", most=files, remedy=remedy)
    if files < LEAST_FILES:
        sys.exit("egress: too few open files to serve anybody")

    async def run() -> None:
        await Egress(RealClock()).run(channel)

    with asyncio.Runner(loop_factory=PinnedLoop) as runner:
        runner.run(run())


if __name__ == "__main__":
    main()
