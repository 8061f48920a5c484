"""Waiting for what comes of a request, on facts as the product's own waits do; no test sleeps
for it, and no bound says how fast."""

import asyncio

from supervisor.core.approvals import Request, is_settled
from supervisor.records.approval_queue import ApprovalQueue

# The end of a hang, never a measure: what takes milliseconds gets so long, on a machine that does
# ten other things.
PATIENCE_S = 60.0


async def settled(queue: ApprovalQueue, request_id: str, timeout_s: float) -> Request:
    """The request as soon as nothing more can come of it, its outcome included. TimeoutError
    where that takes longer."""
    async with asyncio.timeout(timeout_s):
        while True:
            request = queue.get(request_id)
            if is_settled(request):
                return request
            await queue.next_change(request_id, timeout_s)
