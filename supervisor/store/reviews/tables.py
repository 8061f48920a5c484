"""Definitions of the review service's tables.

Times are seconds since the epoch. A migration in `migrations/versions` makes each of them.
"""

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

repositories = Table(
    "repositories",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("forge", String(16), nullable=False),
    Column("full_name", String(256), nullable=False),
    Column("external_id", Integer),
    Column("installation_id", Integer),
    Column("default_branch", String(256), nullable=False, server_default="main"),
    Column("clone_url", Text, nullable=False, server_default=""),
    Column("enabled", Boolean, nullable=False, server_default="1"),
    Column("removed_at", Float),
    # The standing session that the repository's acts belong to.
    Column("session_id", String(64), nullable=False),
    UniqueConstraint("forge", "full_name"),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("forge", String(16), primary_key=True),
    Column("delivery_id", String(64), primary_key=True),
    Column("event", String(64), nullable=False),
    Column("action", String(64), nullable=False, server_default=""),
    Column("repository", String(256), nullable=False, server_default=""),
    Column("number", Integer),
    Column("received_at", Float, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("handled_at", Float),
    Column("outcome", String(64), nullable=False, server_default=""),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("error", Text, nullable=False, server_default=""),
    Index("deliveries_unhandled", "handled_at"),
)

pulls = Table(
    "pull_requests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("repository_id", Integer, ForeignKey("repositories.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("title", Text, nullable=False, server_default=""),
    Column("author", String(256), nullable=False, server_default=""),
    Column("author_permission", String(32), nullable=False, server_default=""),
    Column("fork", Boolean, nullable=False, server_default="0"),
    Column("draft", Boolean, nullable=False, server_default="0"),
    Column("base_ref", Text, nullable=False, server_default=""),
    Column("base_sha", String(64), nullable=False, server_default=""),
    Column("head_ref", Text, nullable=False, server_default=""),
    Column("head_sha", String(64), nullable=False, server_default=""),
    Column("closed_at", Float),
    UniqueConstraint("repository_id", "number"),
)

slots = Table(
    "slots",
    metadata,
    Column("pull_id", Integer, ForeignKey("pull_requests.id"), primary_key=True),
    Column("wanted_sha", String(64), nullable=False),
    Column("first_wanted_at", Float),
    Column("due_at", Float),
    Column("full", Boolean, nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("run_sha", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lease_until", Float),
    Column("last_reviewed_sha", String(64), nullable=False),
    Column("rounds", Integer, nullable=False),
    Index("slots_due", "due_at"),
    Index("slots_lease", "lease_until"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("pull_id", Integer, ForeignKey("pull_requests.id"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("head_sha", String(64), nullable=False),
    Column("base_sha", String(64), nullable=False, server_default=""),
    Column("attempt", Integer, nullable=False),
    Column("full", Boolean, nullable=False, server_default="0"),
    Column("wanted_at", Float, nullable=False),
    Column("claimed_at", Float),
    # The attempt that was claimed last: an attempt is claimed once.
    Column("claimed_attempt", Integer, nullable=False, server_default="0"),
    Column("ended_at", Float),
    Column("outcome", String(32), nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),
    Column("session_id", String(64), nullable=False, server_default=""),
    Column("model", String(128), nullable=False, server_default=""),
    Column("review", JSON(none_as_null=True)),
    Column("files", JSON, nullable=False, server_default="[]"),
    Column("skipped", JSON, nullable=False, server_default="[]"),
    Column("cost", Integer, nullable=False, server_default="0"),
    Column("setup_ms", Float),
    Column("duration_ms", Float),
    Index("runs_of_pull", "pull_id", "wanted_at"),
)

receipts = Table(
    "receipts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("pull_id", Integer, ForeignKey("pull_requests.id"), nullable=False),
    Column("head_sha", String(64), nullable=False),
    Column("run_id", String(64), nullable=False, server_default=""),
    Column("outcome", String(32), nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("body", Text, nullable=False),
    Column("signature", String(128), nullable=False),
    Column("at", Float, nullable=False),
    Index("receipts_of_pull", "pull_id", "at"),
)
