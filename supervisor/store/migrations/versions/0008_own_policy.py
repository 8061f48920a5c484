"""Add each session's policy and limits. Earlier sessions had the supervisor's."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("policy_file", sa.Text, nullable=False, server_default=""))
    op.add_column(
        "sessions", sa.Column("saved_rules_file", sa.Text, nullable=False, server_default="")
    )
    op.add_column("sessions", sa.Column("limits", sa.JSON, nullable=False, server_default="{}"))
