"""Ledger of model calls: reserve, settle, and check against the budgets.

    reserve   before a call goes out: recorded at its highest possible cost, or refused with the
              limit that it would pass
    settle    after it: at its real cost
    lose      its end was never seen (a crash, egress gone): it stays at the reserved cost, and is
              flagged

INVARIANT: sums are taken and the reservation is written in one transaction, with nothing awaited
between. However many calls ask at once, spent and reserved amounts together never pass a limit. It
doesn't decide who may raise a limit: the gate asks a person.
"""

import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, Engine

from supervisor.base import log, plain_files
from supervisor.base.clock import Clock
from supervisor.core.budget import (
    SCOPES,
    Amounts,
    Kind,
    Limits,
    Over,
    Scope,
    first_over,
    must_conclude,
    nearly_used,
    parse_budget,
    used_percent,
)
from supervisor.core.models.model_calls import ModelCall, Tokens
from supervisor.core.models.prices import PriceTable, parse_prices
from supervisor.core.models.spend import Charge, bound, charge, lost
from supervisor.core.models.usage import Usage
from supervisor.core.money import dollars
from supervisor.core.sessions import Session
from supervisor.errors import StorageError, UserError
from supervisor.ledger.traffic import ENDED, BudgetRefusal, Traffic
from supervisor.records.audit import Audit
from supervisor.store import spending as store

OTHER = "not metered"


class BudgetStanding(NamedTuple):
    """Use of each budget. `near` are the limits used to 80 % or more."""

    used: dict[Scope, Amounts]
    limits: dict[Scope, Limits]
    near: list[tuple[Scope, Kind]]


class Summary(NamedTuple):
    """A session's spending for the pages. `near` are the limits used to 80 % or more."""

    used: dict[Scope, Amounts]
    limits: dict[Scope, Limits]
    by_model: list[store.OfModel]
    flags: dict[str, int]
    near: list[tuple[Scope, Kind]]


class Spending:
    """One per supervisor; every method runs in the event loop."""

    def __init__(
        self,
        engine: Engine,
        audit: Audit,
        clock: Clock,
        table: PriceTable,
        *,
        per_day: Limits,
        total: Limits,
    ) -> None:
        self._engine = engine
        self._audit = audit
        self._clock = clock
        self._table = table
        self._fixed: dict[Scope, Limits] = {"day": per_day, "total": total}
        self._noticed: set[tuple[Scope, str, Kind, int]] = set()
        self._budgets: dict[str, Limits] = {}
        self._fixed_sessions: set[str] = set()
        # The reason of each session's last refused call, in memory only.
        self.refusals: dict[str, str] = {}
        self._watchers: list[Callable[[str], None]] = []
        self.traffic = Traffic(
            engine,
            self._standing,
            self._budgets.__contains__,
            lambda: self.key("day", ""),
            self._sent,
        )

    def use_prices(self, table: PriceTable) -> None:
        """Use these prices from now on. Existing reservations stay unchanged."""
        self._table = table

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with a session's id when its figures changed."""
        self._watchers.append(callback)

    def open_session(self, session: Session) -> None:
        """Allow reservations for its calls from now on, within its own budget."""
        self._budgets[session.id] = parse_budget(session.budget, "the session's budget")

    def fix(self, session_id: str) -> None:
        """Never ask for more of this session's own budget, since it is part of another one."""
        self._fixed_sessions.add(session_id)

    def is_fixed(self, session_id: str) -> bool:
        """Return whether the session's own budget can't be raised."""
        return session_id in self._fixed_sessions

    def close_session(self, session_id: str) -> None:
        """Let no more of its calls out. Open calls are still settled."""
        self._budgets.pop(session_id, None)
        self._fixed_sessions.discard(session_id)

    def spent(self, session_id: str) -> int | None:
        """Return the cost of a session's calls, or None while one of them is open."""
        with self._engine.connect() as connection:
            if store.has_open(connection, session_id):
                return None
            return store.used(connection, "session", session_id).cost

    def key(self, scope: Scope, session_id: str) -> str:
        """Return the key of a scope's sums: the session, the present day (in this machine's zone),
        or everything."""
        if scope == "session":
            return session_id
        return (
            datetime.fromtimestamp(self._clock.now()).astimezone().date().isoformat()
            if scope == "day"
            else ""
        )

    def reserve(self, session_id: str, host: str, call: ModelCall) -> str | Over | BudgetRefusal:
        """Return the reservation's id, or why there is none. Raise `StorageError` where it can't be
        recorded."""
        budget = self._budgets.get(session_id)
        if budget is None:
            return ENDED
        reserved = bound(call, self._table)
        with self._engine.begin() as connection:
            limits, used = self._standing(connection, session_id)
            if call.api == "unmetered":
                if any(
                    limits[scope].cost is not None or limits[scope].tokens is not None
                    for scope in SCOPES
                ):
                    return BudgetRefusal(
                        "this call of a model's API can't be metered, and a budget is set",
                        "use the Messages, chat completions, responses, invoke or converse API",
                    )
                reserved = Charge(tokens=Tokens(), cost_picousd=0)
            elif call.bills_more and any(limits[scope].cost is not None for scope in SCOPES):
                return BudgetRefusal(
                    "this call has the provider use a tool whose cost can't be metered, or may do"
                    " so by what is kept there or can't be read here, and a budget is set",
                    "leave out tools that the provider runs, but web search, web fetch and file"
                    " search, models that always search, presets and prompts kept there, and JSON"
                    " that says a key twice or is coded otherwise than with gzip or zstd",
                )
            wanted = Amounts(cost=reserved.cost_picousd, tokens=reserved.tokens.total)
            over = first_over(limits, used, wanted)
            if over is not None:
                return over
            reservation_id = secrets.token_hex(16)
            self._audit.record(
                "spend_reserved",
                reservation=reservation_id,
                session=session_id,
                host=host,
                api=call.api,
                model=call.model,
                cost_picousd=wanted.cost,
                tokens=wanted.tokens,
                flags=list(reserved.flags),
            )
            store.add(
                connection,
                id=reservation_id,
                session_id=session_id,
                day=self.key("day", session_id),
                asked_at=self._clock.now(),
                host=host,
                call=msgspec.to_builtins(call),
                model=OTHER if call.api == "unmetered" else call.model,
                reserved=msgspec.to_builtins(reserved),
                cost=wanted.cost,
                tokens=reserved.tokens,
                bytes_out=call.body_bytes,
                flags=[*reserved.flags],
            )
        self._tell(session_id)
        return reservation_id

    def settle(self, reservation_id: str, usage: Usage | None) -> Charge | None:
        """Record a call's cost; with `usage` None, nobody saw its end. Return None where it was
        settled before, or never reserved.

        The audit line is written before the database. After a kill in between, the next start
        settles the call again, and a reservation's last line counts.
        """
        with self._engine.begin() as connection:
            found = store.unsettled(connection, reservation_id)
            if not found:
                return None
            cost = self._cost(found[0], usage)
            facts: dict[str, object] = {"flags": list(cost.flags)}
            if usage is not None and usage.model and found[0].call["api"] != "unmetered":
                facts["model"] = usage.model
            store.settle(
                connection,
                reservation_id,
                settled_at=self._clock.now(),
                cost=cost.cost_picousd,
                tokens=cost.tokens,
                **facts,
            )
            try:
                self._audit.record(
                    "spend_settled",
                    reservation=reservation_id,
                    session=found[0].session_id,
                    model=usage.model if usage is not None else "",
                    cost_picousd=cost.cost_picousd,
                    counts=msgspec.to_builtins(cost.tokens),
                    flags=list(cost.flags),
                )
            except StorageError as error:
                log.error("spending not on record", error=str(error), reservation=reservation_id)
        try:
            self._notice(found[0].session_id)
        except StorageError as error:
            log.error("a notice of spending not on record", error=str(error))
        self._tell(found[0].session_id)
        return cost

    def pressure(self, session_id: str) -> tuple[int, bool]:
        """Return how much of a session's own money and tokens is used, in percent of the nearer
        limit, and whether its agent must conclude (`core.budget.must_conclude`). While a person may
        raise the budget, it needn't conclude only because the call after the next might not fit."""
        reserved = cost = Amounts()
        with self._engine.connect() as connection:
            limits, used = self._standing(connection, session_id)
            if self.is_fixed(session_id):
                reserved, cost = store.last_call(connection, session_id)
        own, have = limits["session"], used["session"]
        return used_percent(own, have), must_conclude(own, have, reserved=reserved, cost=cost)

    def lose_all(self) -> int:
        """At start-up, count the calls that a crash cut off as reserved. Return how many."""
        self.traffic.lose()
        with self._engine.connect() as connection:
            left = store.unsettled(connection)
        for one in left:
            self.settle(one.id, None)
        return len(left)

    def is_priced(self, model: str) -> bool:
        """Return whether the price table has a model. Other models cost its highest prices."""
        return self._table.find(model)[1]

    def raise_limit(self, session_id: str, over: Over, by: int, of: str) -> None:
        """Add to a budget, as a person approved. `of`: the session or the day (`key`) that the
        question was about, which may be over by now."""
        facts = {"scope": over.scope, "of": of, "kind": over.kind, "by": by}
        self._audit.record("budget_raised", session=session_id, **facts)
        with self._engine.begin() as connection:
            store.add_raise(
                connection,
                raise_id=secrets.token_hex(16),
                scope=over.scope,
                key=of,
                kind=over.kind,
                by=by,
                now=self._clock.now(),
            )

    def is_raised(self, session_id: str, over: Over, of: str) -> bool:
        """Return whether a limit of the same session or day was raised since it was found to be
        reached."""
        budgets = self._fixed | {"session": self._budgets.get(session_id, Limits())}
        with self._engine.connect() as connection:
            limits = budgets[over.scope].raised(store.raises(connection, over.scope, of))
        now: int | None = getattr(limits, over.kind)
        return now is not None and now > over.limit

    def standing(self, session_id: str = "", budget: str = "") -> BudgetStanding:
        """Return the present use of each budget, including those without a limit."""
        with self._engine.connect() as connection:
            limits = self._limits(
                connection, session_id, parse_budget(budget, "the session's budget")
            )
            used = {
                scope: store.used(connection, scope, self.key(scope, session_id))
                for scope in SCOPES
            }
        return BudgetStanding(used, limits, nearly_used(limits, used))

    def began_at(self, session_id: str | None = None) -> float | None:
        """Return when the first call of a session, or of all, was asked for; None where there is
        none."""
        with self._engine.connect() as connection:
            return store.first_at(connection, session_id)

    def over_time(
        self, *, since: float, width_s: int | None, models: int, others: str, session_id: str | None
    ) -> list[store.OfTime]:
        """Return the spending since then, by time and model (`store.over_time`)."""
        with self._engine.connect() as connection:
            return store.over_time(
                connection,
                since=since,
                width_s=width_s,
                models=models,
                others=others,
                session_id=session_id,
            )

    def summary(self, session: Session) -> Summary:
        """Return a session's spending, running or ended."""
        budget = parse_budget(session.budget, "the session's budget")
        with self._engine.connect() as connection:
            limits, used = self._standing(connection, session.id, budget)
            models = store.by_model(connection, session.id)
            flags = store.flags(connection, session.id)
        return Summary(used, limits, models, flags, nearly_used(limits, used))

    def of_kind(self, kind: str) -> tuple[int, Tokens]:
        """Return the cost of all sessions of a kind, in pico-dollars, and their tokens."""
        with self._engine.connect() as connection:
            return store.of_kind(connection, kind)

    def cost_words(self, session: Session) -> str:
        """Return what a session's model calls have cost, for a person."""
        return dollars(self.summary(session).used["session"].cost)

    def _tell(self, session_id: str) -> None:
        for watcher in self._watchers:
            watcher(session_id)

    def _cost(self, one: store.UnsettledCall, usage: Usage | None) -> Charge:
        reserved = msgspec.convert(one.reserved, Charge)
        if usage is None:
            return lost(reserved)
        if one.call["api"] == "unmetered":
            return reserved
        return charge(msgspec.convert(one.call, ModelCall), usage, reserved, self._table)

    def _limits(
        self, connection: Connection, session_id: str, budget: Limits
    ) -> dict[Scope, Limits]:
        limits = self._fixed | {"session": budget}
        return {
            scope: (
                limits[scope].raised(store.raises(connection, scope, self.key(scope, session_id)))
            )
            for scope in SCOPES
        }

    def _standing(
        self, connection: Connection, session_id: str, budget: Limits | None = None
    ) -> tuple[dict[Scope, Limits], dict[Scope, Amounts]]:
        """Return limits and their use. While a session is open, its own limits count unless
        `budget` gives others."""
        limits = self._limits(
            connection, session_id, budget or self._budgets.get(session_id, Limits())
        )
        # Without a limit, a kind is summed only for the session, for its page.
        wanted = [scope for scope in SCOPES if limits[scope] or scope == "session"]
        used = dict.fromkeys(SCOPES, Amounts())
        used |= {
            scope: store.used(connection, scope, self.key(scope, session_id)) for scope in wanted
        }
        return limits, used

    def _sent(self, session_id: str) -> None:
        """Note that a session's traffic changed."""
        self._notice(session_id)
        self._tell(session_id)

    def _notice(self, session_id: str) -> None:
        """Record, once, that 80 % of a limit is used. Only finished calls count, since most of a
        reservation is given back."""
        with self._engine.connect() as connection:
            limits = self._limits(connection, session_id, self._budgets.get(session_id, Limits()))
            used = {
                scope: store.used(connection, scope, self.key(scope, session_id), is_over=True)
                for scope in SCOPES
                if limits[scope]
            }
        for scope, kind in nearly_used(limits, used):
            mark = (scope, self.key(scope, session_id), kind, getattr(limits[scope], kind))
            if mark not in self._noticed:
                facts = {
                    "scope": scope,
                    "kind": kind,
                    "limit": mark[3],
                    "used": getattr(used[scope], kind),
                }
                self._audit.record("budget_nearly_used", session=session_id, **facts)
                self._noticed.add(mark)


def read_prices(path: Path) -> PriceTable:
    """Return the price table of a file. Raise `UserError` where it can't be read or used."""
    try:
        return parse_prices(plain_files.read_text(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: {plain_files.why_not_text(error)}",
            "give the price table with GATEHOUSE_PRICES",
        ) from error
