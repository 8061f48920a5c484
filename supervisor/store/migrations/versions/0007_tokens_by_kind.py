"""Store a call's tokens in a column for each kind, so that queries can sum them.

Before, all were in one column.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_long", "searches")


def upgrade() -> None:
    for kind in _KINDS:
        op.add_column(
            "spending", sa.Column(kind, sa.BigInteger, nullable=False, server_default=sa.text("0"))
        )
    counts = sa.column("counts", sa.JSON)
    spending = sa.table("spending", counts, *(sa.column(kind, sa.BigInteger) for kind in _KINDS))
    # A row has no kind twice, and a missing kind was not used.
    values = {kind: sa.func.coalesce(counts[kind].as_integer(), 0) for kind in _KINDS}
    op.execute(sa.update(spending).values(values))
    op.drop_column("spending", "counts")
    op.drop_index("ix_spending_asked", "spending")
    op.create_index(
        "ix_spending_asked", "spending", ["asked_at", "session_id", "day", "model", "cost", *_KINDS]
    )
