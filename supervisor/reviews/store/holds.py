"""Queries of holds: while one is in force, no run in its scope starts and no act is done."""

from typing import Any

import msgspec
from sqlalchemy import Connection, String, and_, case, cast, insert, literal, or_, select, update

from supervisor.core.forge_acts import spelled
from supervisor.reviews.store.tables import holds, pulls, repositories, slots


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold. `scope` is `all`, `forge`, `repository` or `pull`; `key` names the thing: `github`,
    `OWNER/REPO`, `OWNER/REPO#N`, the latter two as `forge_acts.spelled`."""

    id: int
    scope: str
    key: str
    by: str
    why: str
    at: float
    released_at: float | None


def standing(connection: Connection) -> list[Hold]:
    """Return the unreleased holds, oldest first."""
    query = select(holds).where(holds.c.released_at.is_(None)).order_by(holds.c.at, holds.c.id)
    return [Hold(**row._mapping) for row in connection.execute(query)]


def add_hold(connection: Connection, **facts: object) -> Hold:
    row = connection.execute(insert(holds).values(facts).returning(holds)).one()
    return Hold(**row._mapping)


def release(connection: Connection, scope: str, key: str, now: float) -> int:
    """Release the holds with this scope and key; return their number."""
    query = update(holds).where(
        holds.c.scope == scope, holds.c.key == key, holds.c.released_at.is_(None)
    )
    return connection.execute(query.values(released_at=now)).rowcount


def hold_on(connection: Connection, forge: str, full_name: str, number: int) -> Hold | None:
    """Return the oldest hold that covers a pull request; number 0 means the repository itself."""
    name = spelled(forge, full_name)
    covers = _covers(literal(forge), literal(name), literal(f"{name}#{number}"))
    row = connection.execute(
        select(holds).where(covers).order_by(holds.c.at).limit(1)
    ).one_or_none()
    return None if row is None else Hold(**row._mapping)


def held_slots(connection: Connection) -> dict[int, tuple[Hold, str]]:
    """Return the pull requests whose review is wanted or runs while a hold covers them: the oldest
    hold, and the wanted head."""
    forge, full_name = repositories.c.forge, repositories.c.full_name
    # As `forge_acts.spelled` has it.
    name = case((forge == "github", full_name), else_=forge + ":" + full_name)
    named = name + "#" + cast(pulls.c.number, String)
    joined = (
        slots.join(pulls, slots.c.pull_id == pulls.c.id)
        .join(repositories, pulls.c.repository_id == repositories.c.id)
        .join(holds, _covers(forge, name, named))
    )
    query = (
        select(slots.c.pull_id, slots.c.wanted_sha, holds)
        .select_from(joined)
        .where(or_(slots.c.due_at.is_not(None), slots.c.lease_until.is_not(None)))
        .order_by(holds.c.at.desc(), holds.c.id.desc())
    )
    found = {}
    for row in connection.execute(query):
        pull_id, head, *facts = row
        found[pull_id] = Hold(**dict(zip(holds.c.keys(), facts, strict=True))), head
    return found


def _covers(forge: Any, full_name: Any, pull: Any) -> Any:
    return and_(
        holds.c.released_at.is_(None),
        or_(
            holds.c.scope == "all",
            and_(holds.c.scope == "forge", holds.c.key == forge),
            and_(holds.c.scope == "repository", holds.c.key == full_name),
            and_(holds.c.scope == "pull", holds.c.key == pull),
        ),
    )
