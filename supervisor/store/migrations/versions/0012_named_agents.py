"""Add the agent that a session runs, if Gatehouse knows it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("agent", sa.String(32), nullable=False, server_default=""))
