"""Add the operator's settings for an owner."""

import sqlalchemy as sa
from alembic import op

revision = "r0004"
down_revision = "r0003"


def upgrade() -> None:
    op.create_table(
        "owners",
        sa.Column("forge", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(256), primary_key=True),
        sa.Column("settings", sa.JSON, nullable=False),
    )
