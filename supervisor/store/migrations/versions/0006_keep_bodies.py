"""Whether the bodies of a session's requests are kept to be seen. Those from before were asked
by a setting, which isn't theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column(
        "sessions",
        sa.Column("keep_bodies", sa.Boolean, nullable=False, server_default=sa.text("0")),
    )
