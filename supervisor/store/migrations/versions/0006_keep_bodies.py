"""Add whether a session's request bodies are kept to be seen.

A setting decided it for earlier sessions, so they have no value.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column(
        "sessions",
        sa.Column("keep_bodies", sa.Boolean, nullable=False, server_default=sa.text("0")),
    )
