"""Add the ledger of model calls, raised budgets, and each session's own budget."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("budget", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "spending",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("asked_at", sa.Float, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("call", sa.JSON, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("reserved", sa.JSON, nullable=False),
        sa.Column("cost", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("bytes_out", sa.BigInteger, nullable=False),
        sa.Column("counts", sa.JSON, nullable=False),
        sa.Column("flags", sa.JSON, nullable=False),
        sa.Column("settled_at", sa.Float),
    )
    # With all summed columns, so that sums read the index alone.
    op.create_index(
        "ix_spending_session", "spending", ["session_id", "cost", "tokens", "bytes_out"]
    )
    op.create_index("ix_spending_day", "spending", ["day", "cost", "tokens", "bytes_out"])
    op.create_table(
        "budget_raises",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("scope_key", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("raised_at", sa.Float, nullable=False),
    )
