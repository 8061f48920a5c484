"""Index the ledger by time, with all columns that its chart sums."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_index(
        "ix_spending_asked",
        "spending",
        ["asked_at", "session_id", "day", "model", "cost", "tokens"],
    )
