"""Add the name that a person gives a session."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("name", sa.Text, nullable=False, server_default=""))
