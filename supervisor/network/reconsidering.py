"""Judge open connections again when rules may have changed, in the background.

It takes them a few at a time. It is separate from `egress_questions`, which judges, because that
knows nothing of the channel, which must take every message that ends one.
"""

import asyncio

from supervisor.network.egress_channel import Channel
from supervisor.network.egress_questions import EgressQuestions


class Reconsidering:
    """One per egress process."""

    def __init__(
        self, tasks: asyncio.TaskGroup, questions: EgressQuestions, channel: Channel
    ) -> None:
        self._tasks = tasks
        self._questions = questions
        self._channel = channel
        self._is_outdated = False
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Judge everything; once more after a round that is under way."""
        self._is_outdated = True
        if not self._is_over and (self._task is None or self._task.done()):
            self._task = self._tasks.create_task(self._run(), name="what goes on is judged again")

    def cancel(self) -> None:
        """Stop: egress is gone, and nothing may begin any more."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._is_outdated:
            self._is_outdated = False
            for messages in self._questions.reconsider():
                for message in messages:
                    self._channel.send(message)
                await self._channel.sent()
