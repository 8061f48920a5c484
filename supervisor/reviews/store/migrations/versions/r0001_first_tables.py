"""The first tables, as `tables` had them then."""

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None


def _text(name: str, size: int = 256) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, sa.String(size), nullable=False, server_default="")


def upgrade() -> None:
    op.create_table(
        "repositories",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("forge", sa.String(16), nullable=False),
        sa.Column("full_name", sa.String(256), nullable=False),
        sa.Column("external_id", sa.Integer),
        sa.Column("installation_id", sa.Integer),
        sa.Column("default_branch", sa.String(256), nullable=False, server_default="main"),
        sa.Column("clone_url", sa.Text, nullable=False, server_default=""),
        sa.Column("enabled", sa.Boolean, nullable=False, server_default="1"),
        sa.Column("removed_at", sa.Float),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.UniqueConstraint("forge", "full_name"),
    )
    op.create_table(
        "deliveries",
        sa.Column("forge", sa.String(16), primary_key=True),
        sa.Column("delivery_id", sa.String(64), primary_key=True),
        sa.Column("event", sa.String(64), nullable=False),
        _text("action", 64),
        _text("repository"),
        sa.Column("number", sa.Integer),
        sa.Column("received_at", sa.Float, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("handled_at", sa.Float),
        _text("outcome", 64),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("error", sa.Text, nullable=False, server_default=""),
    )
    op.create_index("deliveries_unhandled", "deliveries", ["handled_at"])
    op.create_table(
        "pull_requests",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("repository_id", sa.Integer, sa.ForeignKey("repositories.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("title", sa.Text, nullable=False, server_default=""),
        _text("author"),
        _text("author_permission", 32),
        sa.Column("fork", sa.Boolean, nullable=False, server_default="0"),
        sa.Column("draft", sa.Boolean, nullable=False, server_default="0"),
        sa.Column("base_ref", sa.Text, nullable=False, server_default=""),
        _text("base_sha", 64),
        sa.Column("head_ref", sa.Text, nullable=False, server_default=""),
        _text("head_sha", 64),
        sa.Column("closed_at", sa.Float),
        sa.UniqueConstraint("repository_id", "number"),
    )
    op.create_table(
        "slots",
        sa.Column("pull_id", sa.Integer, sa.ForeignKey("pull_requests.id"), primary_key=True),
        sa.Column("wanted_sha", sa.String(64), nullable=False),
        sa.Column("first_wanted_at", sa.Float),
        sa.Column("due_at", sa.Float),
        sa.Column("full", sa.Boolean, nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("run_sha", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lease_until", sa.Float),
        sa.Column("last_reviewed_sha", sa.String(64), nullable=False),
        sa.Column("rounds", sa.Integer, nullable=False),
    )
    op.create_index("slots_due", "slots", ["due_at"])
    op.create_index("slots_lease", "slots", ["lease_until"])
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("pull_id", sa.Integer, sa.ForeignKey("pull_requests.id"), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("head_sha", sa.String(64), nullable=False),
        _text("base_sha", 64),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("full", sa.Boolean, nullable=False, server_default="0"),
        sa.Column("wanted_at", sa.Float, nullable=False),
        sa.Column("claimed_at", sa.Float),
        sa.Column("claimed_attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("ended_at", sa.Float),
        _text("outcome", 32),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        _text("session_id", 64),
        _text("model", 128),
        sa.Column("review", sa.JSON),
        sa.Column("files", sa.JSON, nullable=False, server_default="[]"),
        sa.Column("skipped", sa.JSON, nullable=False, server_default="[]"),
        sa.Column("cost", sa.Integer, nullable=False, server_default="0"),
        sa.Column("setup_ms", sa.Float),
        sa.Column("duration_ms", sa.Float),
    )
    op.create_index("runs_of_pull", "runs", ["pull_id", "wanted_at"])
    op.create_table(
        "receipts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("pull_id", sa.Integer, sa.ForeignKey("pull_requests.id"), nullable=False),
        sa.Column("head_sha", sa.String(64), nullable=False),
        _text("run_id", 64),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("signature", sa.String(128), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("receipts_of_pull", "receipts", ["pull_id", "at"])
