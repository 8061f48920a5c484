"""Rounds, mentions, money and holds: the tables of many pushes to one pull request."""

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"


def _text(name: str, size: int = 256) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, sa.String(size), nullable=False, server_default="")


def _long(name: str) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def _whole(name: str) -> sa.Column:  # type: ignore[type-arg]
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def _pull() -> sa.Column:  # type: ignore[type-arg]
    return sa.Column("pull_id", sa.Integer, sa.ForeignKey("pull_requests.id"), nullable=False)


def upgrade() -> None:
    op.add_column(
        "repositories", sa.Column("settings", sa.JSON, nullable=False, server_default="{}")
    )
    op.add_column(
        "repositories", sa.Column("may_resolve", sa.Boolean, nullable=False, server_default="0")
    )
    op.add_column(
        "pull_requests", sa.Column("labels", sa.JSON, nullable=False, server_default="[]")
    )
    op.add_column("pull_requests", _long("body"))
    op.add_column("pull_requests", _text("paused_by"))
    for column in (
        _text("since_sha", 64),
        _text("trust", 16),
        _text("config_revision", 64),
        _text("config_digest", 64),
        sa.Column("config_notes", sa.JSON, nullable=False, server_default="[]"),
        _long("partial"),
        sa.Column("prompts", sa.JSON, nullable=False, server_default="[]"),
    ):
        op.add_column("runs", column)
    op.create_table(
        "findings",
        sa.Column("id", sa.Integer, primary_key=True),
        _pull(),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        _text("skill", 100),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("confidence", sa.String(16), nullable=False, server_default="medium"),
        sa.Column("path", sa.Text, nullable=False),
        _whole("line"),
        _whole("start_line"),
        _long("quote"),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("suggestion", sa.Text),
        _text("said", 16),
        _text("said_by"),
        _long("said_why"),
        _text("said_scope", 16),
        sa.Column("said_until", sa.Float),
        sa.Column("first_run", sa.String(64), nullable=False),
        sa.Column("last_run", sa.String(64), nullable=False),
        _text("gone_run", 64),
        sa.Column("posted_at", sa.Float),
        _whole("unconfirmed"),
        sa.UniqueConstraint("pull_id", "identity"),
    )
    op.create_index("findings_said", "findings", ["identity", "said_scope"])
    op.create_table(
        "mentions",
        sa.Column("forge", sa.String(16), primary_key=True),
        sa.Column("comment_id", sa.Integer, primary_key=True),
        _pull(),
        sa.Column("author", sa.String(256), nullable=False),
        sa.Column("command", sa.String(64), nullable=False),
        _long("arguments"),
        sa.Column("is_inline", sa.Boolean, nullable=False, server_default="0"),
        _text("outcome", 64),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "allowances",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("key", sa.String(256), nullable=False),
        _text("period", 16),
        sa.Column("reserved", sa.BigInteger, nullable=False),
        sa.Column("used", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("settled_at", sa.Float),
        sa.UniqueConstraint("run_id", "attempt", "scope"),
    )
    op.create_index("allowances_of", "allowances", ["scope", "key", "period"])
    op.create_index("allowances_open", "allowances", ["settled_at"])
    op.create_table(
        "paid_sessions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("budget", sa.BigInteger, nullable=False),
        _text("session_id", 64),
        sa.Column("lost", sa.Boolean, nullable=False, server_default="0"),
    )
    op.create_index("paid_sessions_of", "paid_sessions", ["run_id", "attempt"])
    op.create_table(
        "budget_notices",
        sa.Column("scope", sa.String(16), primary_key=True),
        sa.Column("key", sa.String(256), primary_key=True),
        sa.Column("period", sa.String(16), primary_key=True),
        sa.Column("percent", sa.Integer, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "holds",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("scope", sa.String(16), nullable=False),
        _text("key"),
        sa.Column("by", sa.String(256), nullable=False),
        _long("why"),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("released_at", sa.Float),
    )
