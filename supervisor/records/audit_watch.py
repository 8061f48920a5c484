"""Look after the audit log while the supervisor runs: what is wrong with it is shown as it happens,
and so is its end.

It decides nothing: a log that can't be written allows nothing by itself (`audit`).
"""

import asyncio
from collections.abc import Callable

from supervisor.base import log
from supervisor.records.audit import Audit

LOOK_EVERY_S = 1.0


async def watch(audit: Audit, changed: Callable[[], None]) -> None:
    """Until cancelled. `changed` is called when `failure` or `broken` became another; the
    terminal is told what is wrong."""
    told: tuple[str | None, str | None] = (None, None)
    while True:
        try:
            if audit.look():
                await asyncio.to_thread(audit.examine)  # the first look is at all of it
        except Exception as error:  # a database that can't be read, mostly: the next look is soon
            log.error("the audit log can't be checked", error=str(error))
        found = (audit.failure, audit.broken)
        if found != told:
            for why, before in zip(found, told, strict=True):
                if why is not None and why != before:
                    log.error(why)
            told = found
            changed()
        await asyncio.sleep(LOOK_EVERY_S)
