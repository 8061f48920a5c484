"""Definitions of the tables.

A migration in `migrations/versions` makes each of them; a test compares the two.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from supervisor.core.models.model_calls import Tokens

metadata = MetaData()
# The token columns of `spending` have the names of the counts.
TOKEN_KINDS: tuple[str, ...] = Tokens.__struct_fields__

sessions = Table(
    "sessions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("workspace", Text, nullable=False),
    Column("command", JSON, nullable=False),
    Column("token_hash", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("deadline_at", Float, nullable=False),
    Column("policy_text", Text, nullable=False, server_default=""),
    Column("base", Text),
    Column("remotes", JSON, nullable=False),
    Column("model", Text),
    Column("started_at", Float),
    Column("pid", Integer),
    Column("pid_started", Integer),
    Column("agent_exited_at", Float),
    Column("exit_code", Integer),
    Column("stopping_at", Float),
    Column("ended_at", Float),
    Column("end_reason", Text, nullable=False, server_default=""),
    Column("notices", JSON, nullable=False),
    Column("review", JSON),
    Column("budget", Text, nullable=False, server_default=""),
    Column("network", String(16), nullable=False, server_default="proxy"),
    Column("keep_bodies", Boolean, nullable=False, server_default=text("0")),
    Column("policy_file", Text, nullable=False, server_default=""),
    Column("saved_rules_file", Text, nullable=False, server_default=""),
    Column("limits", JSON, nullable=False, server_default="{}"),
    Column("paused_at", Float),
    Column("agent", String(32), nullable=False, server_default=""),
    Column("job", JSON(none_as_null=True)),
    Column("job_result", JSON(none_as_null=True)),
    Column("order", Text, nullable=False, server_default=""),
    Column("name", Text, nullable=False, server_default=""),
)

requests = Table(
    "requests",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("session_id", String(64), nullable=False, index=True),
    Column("origin", String(16), nullable=False),
    Column("category", String(16), nullable=False),
    Column("action", Text, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("subject", Text, nullable=False),
    Column("asked_at", Float, nullable=False),
    Column("decision", String(8), nullable=False),
    Column("why", Text, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("rule", Text),
    Column("remedy", Text, nullable=False, server_default=""),
    Column("sticky", Boolean, nullable=False, server_default=text("0")),
    Column("by_policy", Boolean, nullable=False, server_default=text("1")),
    Column("held_up", Boolean, nullable=False, server_default=text("0")),
    Column("asked_times", Integer, nullable=False, server_default=text("1")),
    Column("hold_until", Float),
    Column("answer", String(16)),
    Column("answered_at", Float),
    Column("answered_by", Text),
    Column("answer_reason", Text, nullable=False, server_default=""),
    Column("in_part", Boolean, nullable=False, server_default=text("0")),
    Column("superseded_by", String(64)),
    Column("closed_at", Float),
    Column("closed_why", Text, nullable=False, server_default=""),
    Column("used_at", Float),
    Column("settled_at", Float),
    Column("outcome", JSON),
    Index("ix_requests_fingerprint", "session_id", "fingerprint"),
)

# INVARIANT: at most one request per session and subject is pending. The database ensures it, not
# Python code.
_PENDING = text(
    "decision = 'ask' AND answer IS NULL AND superseded_by IS NULL AND closed_at IS NULL"
)
Index(
    "ux_requests_pending",
    requests.c.session_id,
    requests.c.subject,
    unique=True,
    sqlite_where=_PENDING,
)

rule_hits = Table(
    "rule_hits",
    metadata,
    Column("rule", Text, primary_key=True),
    Column("hits", Integer, nullable=False),
    Column("last_at", Float, nullable=False),
)

# One row per model call. Until it is settled, `cost`, `tokens` and the kinds of tokens hold the
# reservation. So sums need no cases, and a call that a crash cut off counts as reserved. `tokens`
# is the sum that a budget counts. Money is pico-dollars.
spending = Table(
    "spending",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("session_id", String(64), nullable=False),
    Column("day", String(10), nullable=False),
    Column("asked_at", Float, nullable=False),
    Column("host", Text, nullable=False),
    Column("call", JSON, nullable=False),
    Column("model", Text, nullable=False),
    Column("reserved", JSON, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("bytes_out", BigInteger, nullable=False),
    Column("flags", JSON, nullable=False),
    Column("settled_at", Float),
    *(Column(kind, BigInteger, nullable=False, server_default=text("0")) for kind in TOKEN_KINDS),
    Index("ix_spending_session", "session_id", "cost", "tokens", "bytes_out"),
    Index("ix_spending_day", "day", "cost", "tokens", "bytes_out"),
    Index("ix_spending_asked", "asked_at", "session_id", "day", "model", "cost", *TOKEN_KINDS),
)

# Traffic of a session on a day. A held portion was handed out to egress and isn't used yet. It
# counts, so that a crash can't increase the budget.
traffic = Table(
    "traffic",
    metadata,
    Column("session_id", String(64), primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("bytes_out", BigInteger, nullable=False),
    Column("held_requests", BigInteger, nullable=False),
    Column("held_bytes_out", BigInteger, nullable=False),
    Index("ix_traffic_day", "day"),
)

# `scope_key` is the session's id, the day, or empty.
budget_raises = Table(
    "budget_raises",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("scope", String(16), nullable=False),
    Column("scope_key", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("raised_at", Float, nullable=False),
)

# One row: the newest signed head of the audit log.
audit_head = Table(
    "audit_head",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", String(64), nullable=False),
    Column("signature", Text, nullable=False),
)
