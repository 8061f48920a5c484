"""Add the instructions to the reader of a pull request."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("order", sa.Text, nullable=False, server_default=""))
