"""Holds: while one is in force, no review in its scope starts and nothing is posted.

Meanwhile webhooks are stored and answered, and running reviews finish. The same applies while
everything is stopped (`records.kill_switch`).
"""

from collections.abc import Callable
from typing import Literal, get_args

from sqlalchemy import Connection, Engine

from supervisor.base.clock import Clock
from supervisor.core.forge_acts import Act, Forge, spelled
from supervisor.errors import NotFoundError, UserError
from supervisor.records.audit import Audit
from supervisor.reviews.store import holds
from supervisor.reviews.store.holds import Hold
from supervisor.reviews.targets import pull_named, repository_named

HoldScope = Literal["all", "forge", "repository", "pull"]
MOST_WHY_CHARS = 500


class Holds:
    """The holds of one supervisor. `stopped` says why everything is stopped; None if it isn't."""

    def __init__(
        self, engine: Engine, clock: Clock, audit: Audit, stopped: Callable[[], str | None]
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._audit = audit
        self.stopped = stopped

    def hold(self, scope: HoldScope, key: str, *, by: str, why: str) -> Hold:
        """Hold the reviews and acts that `scope` and `key` name, replacing an existing hold. It
        applies even if it can't be recorded."""
        now = self._clock.now()
        with self._engine.begin() as connection:
            key = _key(connection, scope, key)
            holds.release(connection, scope, key, now)
            facts = {"scope": scope, "key": key, "by": by, "why": why.strip()[:MOST_WHY_CHARS]}
            hold = holds.add_hold(connection, at=now, **facts)
        self._audit.record("reviews_held", **facts)
        return hold

    def release(self, scope: HoldScope, key: str, *, by: str) -> None:
        """Release exactly that hold. Raise `NotFoundError` if there is none."""
        with self._engine.begin() as connection:
            key = _key(connection, scope, key)
            if not holds.release(connection, scope, key, self._clock.now()):
                raise NotFoundError(
                    f"{key or 'everything'} is not held", "`gatehouse holds` lists what is"
                )
            self._audit.record("reviews_released", scope=scope, key=key, by=by)

    def standing(self) -> list[Hold]:
        """Return the current holds, oldest first."""
        with self._engine.connect() as connection:
            return holds.standing(connection)

    def keeps(self, act: Act) -> bool:
        """Return whether an act has to wait. Checks wait only while everything is stopped, because
        they report that a review is held."""
        if self.stopped() is not None:
            return True
        if act.operation == "check":
            return False
        with self._engine.connect() as connection:
            return holds.hold_on(connection, act.forge, act.repository, act.number) is not None


def words(hold: Hold) -> str:
    """Return who made a hold, and why, in the words of a receipt."""
    return f"held by {hold.by}{': ' + hold.why if hold.why else ''}"


def _key(connection: Connection, scope: HoldScope, key: str) -> str:
    """Return the key of a hold as it is stored. Raise `UserError` or `NotFoundError` if it names
    nothing."""
    if scope == "all":
        return ""
    if scope == "forge":
        forges = get_args(Forge)
        if key not in forges:
            raise UserError(f"no forge is called `{key[:100]}`", f"name one of {', '.join(forges)}")
        return key
    name, number = pull_named(key) if scope == "pull" else (key, 0)
    repository = repository_named(connection, name)
    spelled_name = spelled(repository.forge, repository.full_name)
    return f"{spelled_name}#{number}" if number else spelled_name
