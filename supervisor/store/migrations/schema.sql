-- Written from the migrations by scripts/database_schema.py.
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE sessions (
	id VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	workspace TEXT NOT NULL, 
	command JSON NOT NULL, 
	token_hash VARCHAR(64) NOT NULL, 
	created_at FLOAT NOT NULL, 
	deadline_at FLOAT NOT NULL, 
	policy_text TEXT DEFAULT '' NOT NULL, 
	base TEXT, 
	remotes JSON NOT NULL, 
	model TEXT, 
	started_at FLOAT, 
	pid INTEGER, 
	pid_started INTEGER, 
	agent_exited_at FLOAT, 
	exit_code INTEGER, 
	stopping_at FLOAT, 
	ended_at FLOAT, 
	end_reason TEXT DEFAULT '' NOT NULL, 
	notices JSON NOT NULL, 
	review JSON, budget TEXT DEFAULT '' NOT NULL, network VARCHAR(16) DEFAULT 'proxy' NOT NULL, keep_bodies BOOLEAN DEFAULT 0 NOT NULL, policy_file TEXT DEFAULT '' NOT NULL, saved_rules_file TEXT DEFAULT '' NOT NULL, limits JSON DEFAULT '{}' NOT NULL, paused_at FLOAT, agent VARCHAR(32) DEFAULT '' NOT NULL, job JSON, job_result JSON, "order" TEXT DEFAULT '' NOT NULL, name TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE requests (
	id VARCHAR(64) NOT NULL, 
	session_id VARCHAR(64) NOT NULL, 
	origin VARCHAR(16) NOT NULL, 
	category VARCHAR(16) NOT NULL, 
	action TEXT NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	subject TEXT NOT NULL, 
	asked_at FLOAT NOT NULL, 
	decision VARCHAR(8) NOT NULL, 
	why TEXT NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	rule TEXT, 
	remedy TEXT DEFAULT '' NOT NULL, 
	sticky BOOLEAN DEFAULT 0 NOT NULL, 
	asked_times INTEGER DEFAULT 1 NOT NULL, 
	hold_until FLOAT, 
	answer VARCHAR(16), 
	answered_at FLOAT, 
	answered_by TEXT, 
	answer_reason TEXT DEFAULT '' NOT NULL, 
	superseded_by VARCHAR(64), 
	closed_at FLOAT, 
	closed_why TEXT DEFAULT '' NOT NULL, 
	used_at FLOAT, 
	settled_at FLOAT, 
	outcome JSON, by_policy BOOLEAN DEFAULT 1 NOT NULL, held_up BOOLEAN DEFAULT 0 NOT NULL, in_part BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_requests_session_id ON requests (session_id);

CREATE INDEX ix_requests_fingerprint ON requests (session_id, fingerprint);

CREATE UNIQUE INDEX ux_requests_pending ON requests (session_id, subject) WHERE decision = 'ask' AND answer IS NULL AND superseded_by IS NULL AND closed_at IS NULL;

CREATE TABLE rule_hits (
	rule TEXT NOT NULL, 
	hits INTEGER NOT NULL, 
	last_at FLOAT NOT NULL, 
	PRIMARY KEY (rule)
);

CREATE TABLE spending (
	id VARCHAR(64) NOT NULL, 
	session_id VARCHAR(64) NOT NULL, 
	day VARCHAR(10) NOT NULL, 
	asked_at FLOAT NOT NULL, 
	host TEXT NOT NULL, 
	call JSON NOT NULL, 
	model TEXT NOT NULL, 
	reserved JSON NOT NULL, 
	cost BIGINT NOT NULL, 
	tokens BIGINT NOT NULL, 
	bytes_out BIGINT NOT NULL, 
	flags JSON NOT NULL, 
	settled_at FLOAT, input BIGINT DEFAULT 0 NOT NULL, output BIGINT DEFAULT 0 NOT NULL, cache_read BIGINT DEFAULT 0 NOT NULL, cache_write BIGINT DEFAULT 0 NOT NULL, cache_write_long BIGINT DEFAULT 0 NOT NULL, searches BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX ix_spending_session ON spending (session_id, cost, tokens, bytes_out);

CREATE INDEX ix_spending_day ON spending (day, cost, tokens, bytes_out);

CREATE TABLE budget_raises (
	id VARCHAR(64) NOT NULL, 
	scope VARCHAR(16) NOT NULL, 
	scope_key VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	amount BIGINT NOT NULL, 
	raised_at FLOAT NOT NULL, 
	PRIMARY KEY (id)
);

CREATE TABLE traffic (
	session_id VARCHAR(64) NOT NULL, 
	day VARCHAR(10) NOT NULL, 
	requests BIGINT NOT NULL, 
	bytes_out BIGINT NOT NULL, 
	held_requests BIGINT NOT NULL, 
	held_bytes_out BIGINT NOT NULL, 
	PRIMARY KEY (session_id, day)
);

CREATE INDEX ix_traffic_day ON traffic (day);

CREATE INDEX ix_spending_asked ON spending (asked_at, session_id, day, model, cost, input, output, cache_read, cache_write, cache_write_long, searches);

CREATE TABLE audit_head (
	seq BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	signature TEXT NOT NULL, 
	PRIMARY KEY (seq)
);

INSERT INTO alembic_version (version_num) VALUES ('0015')
