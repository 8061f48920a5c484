"""Add the kind of a mention's comment to its key, and a run's base branch."""

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"


def upgrade() -> None:
    op.add_column("runs", sa.Column("base_ref", sa.Text, nullable=False, server_default=""))
    op.execute(
        "UPDATE runs SET base_ref ="
        " (SELECT base_ref FROM pull_requests WHERE pull_requests.id = runs.pull_id)"
    )
    op.rename_table("mentions", "old_mentions")
    op.create_table(
        "mentions",
        sa.Column("forge", sa.String(16), primary_key=True),
        sa.Column("comment_id", sa.Integer, primary_key=True),
        sa.Column("is_inline", sa.Boolean, primary_key=True),
        sa.Column("pull_id", sa.Integer, sa.ForeignKey("pull_requests.id"), nullable=False),
        sa.Column("author", sa.String(256), nullable=False),
        sa.Column("command", sa.String(64), nullable=False),
        sa.Column("arguments", sa.Text, nullable=False, server_default=""),
        sa.Column("outcome", sa.String(64), nullable=False, server_default=""),
        sa.Column("at", sa.Float, nullable=False),
    )
    names = "forge, comment_id, is_inline, pull_id, author, command, arguments, outcome, at"
    op.execute(f"INSERT INTO mentions ({names}) SELECT {names} FROM old_mentions")  # noqa: S608
    op.drop_table("old_mentions")
