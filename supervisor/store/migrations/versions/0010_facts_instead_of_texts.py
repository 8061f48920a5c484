"""Store facts in columns that a request's texts told before; fill old rows from the texts."""

import re

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

# The texts at the time of this migration: they never change here.
_OWN = re.compile(
    r"everything is stopped: .*"
    r"|the rules could not be evaluated: \w+"
    r"|`[^`]*` port [0-9]+ is Gatehouse itself, which is never reached"
    r"|the session has ended"
    r"|too many requests of this session wait already"
    r"|Gatehouse itself reads this file \(its policy, code or pages\):"
    r" a change of it is always asked"
    r"|no policy could be read, so everything is denied",
    re.DOTALL,
)


def upgrade() -> None:
    for name, default in (("by_policy", "1"), ("held_up", "0"), ("in_part", "0")):
        op.add_column(
            "requests",
            sa.Column(name, sa.Boolean, nullable=False, server_default=sa.text(default)),
        )
    connection = op.get_bind()
    table = sa.table(
        "requests", *(sa.column(name) for name in ("id", "rule", "why", "origin", "reason")),
        *(sa.column(name) for name in ("answer", "answer_reason")),
        *(sa.column(name, sa.Boolean) for name in ("by_policy", "held_up", "in_part")),
    )  # fmt: skip
    held_up = _begins(table.c.reason, "could not be carried out before: ")
    connection.execute(
        table.update().where(table.c.origin == "workspace", held_up).values(held_up=True)
    )
    in_part = _begins(table.c.answer_reason, "in part, ")
    connection.execute(
        table.update().where(table.c.answer == "approved", in_part).values(in_part=True)
    )
    unruled = connection.execute(
        sa.select(table.c.why).where(table.c.rule.is_(None)).distinct()
    ).scalars()
    for why in [one for one in unruled if _OWN.fullmatch(one)]:
        connection.execute(
            table.update().where(table.c.rule.is_(None), table.c.why == why).values(by_policy=False)
        )


def _begins(column: sa.ColumnClause[str], text: str) -> sa.ColumnElement[bool]:
    # Not LIKE, which ignores case on SQLite.
    return sa.func.substr(column, 1, len(text)) == text
