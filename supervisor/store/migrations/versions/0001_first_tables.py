"""The first tables: sessions, requests, rule hits."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

PENDING = sa.text(
    "decision = 'ask' AND answer IS NULL AND superseded_by IS NULL AND closed_at IS NULL"
)


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("workspace", sa.Text, nullable=False),
        sa.Column("command", sa.JSON, nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("deadline_at", sa.Float, nullable=False),
        sa.Column("policy_text", sa.Text, nullable=False, server_default=""),
        sa.Column("base", sa.Text),
        sa.Column("remotes", sa.JSON, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("started_at", sa.Float),
        sa.Column("pid", sa.Integer),
        sa.Column("pid_started", sa.Integer),
        sa.Column("agent_exited_at", sa.Float),
        sa.Column("exit_code", sa.Integer),
        sa.Column("stopping_at", sa.Float),
        sa.Column("ended_at", sa.Float),
        sa.Column("end_reason", sa.Text, nullable=False, server_default=""),
        sa.Column("notices", sa.JSON, nullable=False),
        sa.Column("review", sa.JSON),
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("session_id", sa.String(64), nullable=False, index=True),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("category", sa.String(16), nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("asked_at", sa.Float, nullable=False),
        sa.Column("decision", sa.String(8), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("rule", sa.Text),
        sa.Column("remedy", sa.Text, nullable=False, server_default=""),
        sa.Column("sticky", sa.Boolean, nullable=False, server_default=sa.text("0")),
        sa.Column("asked_times", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("hold_until", sa.Float),
        sa.Column("answer", sa.String(16)),
        sa.Column("answered_at", sa.Float),
        sa.Column("answered_by", sa.Text),
        sa.Column("answer_reason", sa.Text, nullable=False, server_default=""),
        sa.Column("superseded_by", sa.String(64)),
        sa.Column("closed_at", sa.Float),
        sa.Column("closed_why", sa.Text, nullable=False, server_default=""),
        sa.Column("used_at", sa.Float),
        sa.Column("settled_at", sa.Float),
        sa.Column("outcome", sa.JSON),
    )
    op.create_index("ix_requests_fingerprint", "requests", ["session_id", "fingerprint"])
    op.create_index(
        "ux_requests_pending",
        "requests",
        ["session_id", "subject"],
        unique=True,
        sqlite_where=PENDING,
        postgresql_where=PENDING,
    )
    op.create_table(
        "rule_hits",
        sa.Column("rule", sa.Text, primary_key=True),
        sa.Column("hits", sa.Integer, nullable=False),
        sa.Column("last_at", sa.Float, nullable=False),
    )
