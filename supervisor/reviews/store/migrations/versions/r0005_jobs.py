"""Add scheduled jobs and their runs."""

import sqlalchemy as sa
from alembic import op

revision = "r0005"
down_revision = "r0004"


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("repository_id", sa.Integer, sa.ForeignKey("repositories.id"), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("cron", sa.String(200), nullable=False),
        sa.Column("timezone", sa.String(100), nullable=False),
        sa.Column("next_due_at", sa.Float),
        sa.Column("last_due_at", sa.Float, nullable=False, server_default="0"),
        sa.Column("pushed", sa.String(64), nullable=False, server_default=""),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("paused_by", sa.String(256), nullable=False, server_default=""),
        sa.Column("paused_why", sa.Text, nullable=False, server_default=""),
        sa.UniqueConstraint("repository_id", "name"),
    )
    op.create_index("jobs_due", "jobs", ["next_due_at"])
    op.create_table(
        "job_runs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("job_id", sa.Integer, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("wanted_by", sa.String(256), nullable=False, server_default=""),
        sa.Column("wanted_at", sa.Float, nullable=False),
        sa.Column("due_at", sa.Float, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="1"),
        sa.Column("claimed_attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("ended_at", sa.Float),
        sa.Column("outcome", sa.String(32), nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("session_id", sa.String(64), nullable=False, server_default=""),
        sa.Column("cost", sa.Integer, nullable=False, server_default="0"),
        sa.Column("base_sha", sa.String(64), nullable=False, server_default=""),
        sa.Column("head_sha", sa.String(64), nullable=False, server_default=""),
        sa.Column("pack", sa.LargeBinary, nullable=False),
        sa.Column("task", sa.JSON(none_as_null=True)),
        sa.Column("result", sa.JSON(none_as_null=True)),
    )
    op.create_index("job_runs_of", "job_runs", ["job_id", "wanted_at"])
