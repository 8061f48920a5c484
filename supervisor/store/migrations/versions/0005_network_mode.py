"""Add each session's network mode. Earlier sessions had the proxy."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column(
        "sessions", sa.Column("network", sa.String(16), nullable=False, server_default="proxy")
    )
