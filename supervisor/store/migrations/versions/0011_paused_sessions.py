"""Add when a session was paused; empty while it isn't."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("paused_at", sa.Float))
