"""Add a maintenance session's purpose and outcome."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("job", sa.JSON))
    op.add_column("sessions", sa.Column("job_result", sa.JSON))
