"""Definitions of the review service's tables.

Times are seconds since the epoch. A migration in `migrations/versions` makes each table.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
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
    # Whether the App's permissions there suffice to resolve threads.
    Column("may_resolve", Boolean, nullable=False, server_default="0"),
    # The operator's settings for it, made on the page.
    Column("settings", JSON, nullable=False, server_default="{}"),
    # The standing session to which the repository's acts belong.
    Column("session_id", String(64), nullable=False),
    UniqueConstraint("forge", "full_name"),
)

# The operator's settings for all repositories of an owner, made on the page. `name` is lower case.
owners = Table(
    "owners",
    metadata,
    Column("forge", String(16), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("settings", JSON, nullable=False),
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
    Column("labels", JSON, nullable=False, server_default="[]"),
    Column("body", Text, nullable=False, server_default=""),
    # Who asked to stop reviewing it; "": nobody.
    Column("paused_by", String(256), nullable=False, server_default=""),
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
    # The base branch of the review, "" before a reader starts, and that branch's commit.
    Column("base_ref", Text, nullable=False, server_default=""),
    Column("base_sha", String(64), nullable=False, server_default=""),
    Column("attempt", Integer, nullable=False),
    Column("full", Boolean, nullable=False, server_default="0"),
    Column("wanted_at", Float, nullable=False),
    Column("claimed_at", Float),
    # The last claimed attempt: an attempt is claimed once.
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
    # The previously reviewed head, if only the changes since then were shown.
    Column("since_sha", String(64), nullable=False, server_default=""),
    # The source of its configuration: `head` or `base`, the commit, and a digest of the
    # configuration.
    Column("trust", String(16), nullable=False, server_default=""),
    Column("config_revision", String(64), nullable=False, server_default=""),
    Column("config_digest", String(64), nullable=False, server_default=""),
    # The narrowed parts of it, and the files that weren't used.
    Column("config_notes", JSON, nullable=False, server_default="[]"),
    # Why the review is partial: the money ran out, or the reader was told to conclude.
    Column("partial", Text, nullable=False, server_default=""),
    # The outcome of each prompt of `.reviewerc`.
    Column("prompts", JSON, nullable=False, server_default="[]"),
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

# One remark on a pull request, over all its rounds.
findings = Table(
    "findings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("pull_id", Integer, ForeignKey("pull_requests.id"), nullable=False),
    Column("identity", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("skill", String(100), nullable=False, server_default=""),
    Column("severity", String(16), nullable=False),
    Column("confidence", String(16), nullable=False, server_default="medium"),
    Column("path", Text, nullable=False),
    # 0: nowhere in the change.
    Column("line", Integer, nullable=False, server_default="0"),
    Column("start_line", Integer, nullable=False, server_default="0"),
    Column("quote", Text, nullable=False, server_default=""),
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("suggestion", Text),
    # A person's decision: `justified` or `wont-fix`, for this pull request or the repository.
    Column("said", String(16), nullable=False, server_default=""),
    Column("said_by", String(256), nullable=False, server_default=""),
    Column("said_why", Text, nullable=False, server_default=""),
    Column("said_scope", String(16), nullable=False, server_default=""),
    Column("said_until", Float),
    Column("first_run", String(64), nullable=False),
    Column("last_run", String(64), nullable=False),
    Column("gone_run", String(64), nullable=False, server_default=""),
    Column("posted_at", Float),
    # For how many rounds it has waited to be posted without being seen again.
    Column("unconfirmed", Integer, nullable=False, server_default="0"),
    UniqueConstraint("pull_id", "identity"),
    Index("findings_said", "identity", "said_scope"),
)

# A comment that mentioned us, by its id; comments beside the code have separate ids. Each is
# answered once.
mentions = Table(
    "mentions",
    metadata,
    Column("forge", String(16), primary_key=True),
    Column("comment_id", Integer, primary_key=True),
    # Whether it is beside the code.
    Column("is_inline", Boolean, primary_key=True),
    Column("pull_id", Integer, ForeignKey("pull_requests.id"), nullable=False),
    Column("author", String(256), nullable=False),
    Column("command", String(64), nullable=False),
    Column("arguments", Text, nullable=False, server_default=""),
    Column("outcome", String(64), nullable=False, server_default=""),
    Column("at", Float, nullable=False),
)

# The money that an attempt of a run may spend under each cap that applies to it, in pico-dollars.
allowances = Table(
    "allowances",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    # `run`, `pull`, `repository`, `owner` or `all`; whose; and the day or month, "" for all time.
    Column("scope", String(16), nullable=False),
    Column("key", String(256), nullable=False),
    Column("period", String(16), nullable=False, server_default=""),
    Column("reserved", BigInteger, nullable=False),
    Column("used", BigInteger, nullable=False, server_default="0"),
    Column("at", Float, nullable=False),
    Column("settled_at", Float),
    UniqueConstraint("run_id", "attempt", "scope"),
    Index("allowances_of", "scope", "key", "period"),
    Index("allowances_open", "settled_at"),
)

# The sessions that spend an attempt's allowance. A session is recorded before it is started: if a
# crash left it without an id, its whole budget counts as spent.
paid_sessions = Table(
    "paid_sessions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("budget", BigInteger, nullable=False),
    Column("session_id", String(64), nullable=False, server_default=""),
    Column("lost", Boolean, nullable=False, server_default="0"),
    Index("paid_sessions_of", "run_id", "attempt"),
)

# Notices already given about a cap: 50, 80 or 100 % of it are used; 0: the comment that nothing is
# left.
budget_notices = Table(
    "budget_notices",
    metadata,
    Column("scope", String(16), primary_key=True),
    Column("key", String(256), primary_key=True),
    Column("period", String(16), primary_key=True),
    Column("percent", Integer, primary_key=True),
    Column("at", Float, nullable=False),
)

# While a hold is in force, no run starts and no act is done.
holds = Table(
    "holds",
    metadata,
    Column("id", Integer, primary_key=True),
    # `all`, `forge`, `repository` or `pull`, and which: `github`, `OWNER/REPO`, `OWNER/REPO#N`.
    Column("scope", String(16), nullable=False),
    Column("key", String(256), nullable=False, server_default=""),
    Column("by", String(256), nullable=False),
    Column("why", Text, nullable=False, server_default=""),
    Column("at", Float, nullable=False),
    Column("released_at", Float),
)

# The scheduled jobs of a repository, as its configuration last named them.
jobs = Table(
    "jobs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("repository_id", Integer, ForeignKey("repositories.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("cron", String(200), nullable=False),
    Column("timezone", String(100), nullable=False),
    # None: it isn't scheduled any more.
    Column("next_due_at", Float),
    # For when it last ran.
    Column("last_due_at", Float, nullable=False, server_default="0"),
    # What we pushed last, as long as its branch may be there.
    Column("pushed", String(64), nullable=False, server_default=""),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("paused_by", String(256), nullable=False, server_default=""),
    Column("paused_why", Text, nullable=False, server_default=""),
    UniqueConstraint("repository_id", "name"),
    Index("jobs_due", "next_due_at"),
)

# One run of a job, with attempts.
job_runs = Table(
    "job_runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("job_id", Integer, ForeignKey("jobs.id"), nullable=False),
    # Who wanted it; "": its schedule.
    Column("wanted_by", String(256), nullable=False, server_default=""),
    Column("wanted_at", Float, nullable=False),
    # It doesn't start before then: it waits for money, or for a retry.
    Column("due_at", Float, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("claimed_attempt", Integer, nullable=False, server_default="0"),
    Column("ended_at", Float),
    Column("outcome", String(32), nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),
    Column("session_id", String(64), nullable=False, server_default=""),
    Column("cost", Integer, nullable=False, server_default="0"),
    # The commit that it made, and of which; the commit's pack as long as it may be pushed.
    Column("base_sha", String(64), nullable=False, server_default=""),
    Column("head_sha", String(64), nullable=False, server_default=""),
    Column("pack", LargeBinary, nullable=False),
    # What its session was told to do, and the result, as `core.jobs` has them.
    Column("task", JSON(none_as_null=True)),
    Column("result", JSON(none_as_null=True)),
    Index("job_runs_of", "job_id", "wanted_at"),
)
