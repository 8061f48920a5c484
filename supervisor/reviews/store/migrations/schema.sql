-- Written from the migrations by scripts/database_schema.py.
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE repositories (
	id INTEGER NOT NULL, 
	forge VARCHAR(16) NOT NULL, 
	full_name VARCHAR(256) NOT NULL, 
	external_id INTEGER, 
	installation_id INTEGER, 
	default_branch VARCHAR(256) DEFAULT 'main' NOT NULL, 
	clone_url TEXT DEFAULT '' NOT NULL, 
	enabled BOOLEAN DEFAULT '1' NOT NULL, 
	removed_at FLOAT, 
	session_id VARCHAR(64) NOT NULL, settings JSON DEFAULT '{}' NOT NULL, may_resolve BOOLEAN DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (forge, full_name)
);

CREATE TABLE deliveries (
	forge VARCHAR(16) NOT NULL, 
	delivery_id VARCHAR(64) NOT NULL, 
	event VARCHAR(64) NOT NULL, 
	action VARCHAR(64) DEFAULT '' NOT NULL, 
	repository VARCHAR(256) DEFAULT '' NOT NULL, 
	number INTEGER, 
	received_at FLOAT NOT NULL, 
	payload BLOB NOT NULL, 
	handled_at FLOAT, 
	outcome VARCHAR(64) DEFAULT '' NOT NULL, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	error TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (forge, delivery_id)
);

CREATE INDEX deliveries_unhandled ON deliveries (handled_at);

CREATE TABLE pull_requests (
	id INTEGER NOT NULL, 
	repository_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	title TEXT DEFAULT '' NOT NULL, 
	author VARCHAR(256) DEFAULT '' NOT NULL, 
	author_permission VARCHAR(32) DEFAULT '' NOT NULL, 
	fork BOOLEAN DEFAULT '0' NOT NULL, 
	draft BOOLEAN DEFAULT '0' NOT NULL, 
	base_ref TEXT DEFAULT '' NOT NULL, 
	base_sha VARCHAR(64) DEFAULT '' NOT NULL, 
	head_ref TEXT DEFAULT '' NOT NULL, 
	head_sha VARCHAR(64) DEFAULT '' NOT NULL, 
	closed_at FLOAT, labels JSON DEFAULT '[]' NOT NULL, body TEXT DEFAULT '' NOT NULL, paused_by VARCHAR(256) DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (repository_id, number), 
	FOREIGN KEY(repository_id) REFERENCES repositories (id)
);

CREATE TABLE slots (
	pull_id INTEGER NOT NULL, 
	wanted_sha VARCHAR(64) NOT NULL, 
	first_wanted_at FLOAT, 
	due_at FLOAT, 
	"full" BOOLEAN NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	run_sha VARCHAR(64) NOT NULL, 
	attempt INTEGER NOT NULL, 
	lease_until FLOAT, 
	last_reviewed_sha VARCHAR(64) NOT NULL, 
	rounds INTEGER NOT NULL, 
	PRIMARY KEY (pull_id), 
	FOREIGN KEY(pull_id) REFERENCES pull_requests (id)
);

CREATE INDEX slots_due ON slots (due_at);

CREATE INDEX slots_lease ON slots (lease_until);

CREATE TABLE runs (
	id VARCHAR(64) NOT NULL, 
	pull_id INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	head_sha VARCHAR(64) NOT NULL, 
	base_sha VARCHAR(64) DEFAULT '' NOT NULL, 
	attempt INTEGER NOT NULL, 
	"full" BOOLEAN DEFAULT '0' NOT NULL, 
	wanted_at FLOAT NOT NULL, 
	claimed_at FLOAT, 
	claimed_attempt INTEGER DEFAULT '0' NOT NULL, 
	ended_at FLOAT, 
	outcome VARCHAR(32) DEFAULT '' NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	session_id VARCHAR(64) DEFAULT '' NOT NULL, 
	model VARCHAR(128) DEFAULT '' NOT NULL, 
	review JSON, 
	files JSON DEFAULT '[]' NOT NULL, 
	skipped JSON DEFAULT '[]' NOT NULL, 
	cost INTEGER DEFAULT '0' NOT NULL, 
	setup_ms FLOAT, 
	duration_ms FLOAT, since_sha VARCHAR(64) DEFAULT '' NOT NULL, trust VARCHAR(16) DEFAULT '' NOT NULL, config_revision VARCHAR(64) DEFAULT '' NOT NULL, config_digest VARCHAR(64) DEFAULT '' NOT NULL, config_notes JSON DEFAULT '[]' NOT NULL, partial TEXT DEFAULT '' NOT NULL, prompts JSON DEFAULT '[]' NOT NULL, base_ref TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(pull_id) REFERENCES pull_requests (id)
);

CREATE INDEX runs_of_pull ON runs (pull_id, wanted_at);

CREATE TABLE receipts (
	id INTEGER NOT NULL, 
	pull_id INTEGER NOT NULL, 
	head_sha VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64) DEFAULT '' NOT NULL, 
	outcome VARCHAR(32) NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	body TEXT NOT NULL, 
	signature VARCHAR(128) NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(pull_id) REFERENCES pull_requests (id)
);

CREATE INDEX receipts_of_pull ON receipts (pull_id, at);

CREATE TABLE findings (
	id INTEGER NOT NULL, 
	pull_id INTEGER NOT NULL, 
	identity VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	skill VARCHAR(100) DEFAULT '' NOT NULL, 
	severity VARCHAR(16) NOT NULL, 
	confidence VARCHAR(16) DEFAULT 'medium' NOT NULL, 
	path TEXT NOT NULL, 
	line INTEGER DEFAULT '0' NOT NULL, 
	start_line INTEGER DEFAULT '0' NOT NULL, 
	quote TEXT DEFAULT '' NOT NULL, 
	title TEXT NOT NULL, 
	body TEXT NOT NULL, 
	suggestion TEXT, 
	said VARCHAR(16) DEFAULT '' NOT NULL, 
	said_by VARCHAR(256) DEFAULT '' NOT NULL, 
	said_why TEXT DEFAULT '' NOT NULL, 
	said_scope VARCHAR(16) DEFAULT '' NOT NULL, 
	said_until FLOAT, 
	first_run VARCHAR(64) NOT NULL, 
	last_run VARCHAR(64) NOT NULL, 
	gone_run VARCHAR(64) DEFAULT '' NOT NULL, 
	posted_at FLOAT, 
	unconfirmed INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (pull_id, identity), 
	FOREIGN KEY(pull_id) REFERENCES pull_requests (id)
);

CREATE INDEX findings_said ON findings (identity, said_scope);

CREATE TABLE allowances (
	id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	attempt INTEGER NOT NULL, 
	scope VARCHAR(16) NOT NULL, 
	"key" VARCHAR(256) NOT NULL, 
	period VARCHAR(16) DEFAULT '' NOT NULL, 
	reserved BIGINT NOT NULL, 
	used BIGINT DEFAULT '0' NOT NULL, 
	at FLOAT NOT NULL, 
	settled_at FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (run_id, attempt, scope)
);

CREATE INDEX allowances_of ON allowances (scope, "key", period);

CREATE INDEX allowances_open ON allowances (settled_at);

CREATE TABLE paid_sessions (
	id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	attempt INTEGER NOT NULL, 
	budget BIGINT NOT NULL, 
	session_id VARCHAR(64) DEFAULT '' NOT NULL, 
	lost BOOLEAN DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);

CREATE INDEX paid_sessions_of ON paid_sessions (run_id, attempt);

CREATE TABLE budget_notices (
	scope VARCHAR(16) NOT NULL, 
	"key" VARCHAR(256) NOT NULL, 
	period VARCHAR(16) NOT NULL, 
	percent INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (scope, "key", period, percent)
);

CREATE TABLE holds (
	id INTEGER NOT NULL, 
	scope VARCHAR(16) NOT NULL, 
	"key" VARCHAR(256) DEFAULT '' NOT NULL, 
	"by" VARCHAR(256) NOT NULL, 
	why TEXT DEFAULT '' NOT NULL, 
	at FLOAT NOT NULL, 
	released_at FLOAT, 
	PRIMARY KEY (id)
);

CREATE TABLE mentions (
	forge VARCHAR(16) NOT NULL, 
	comment_id INTEGER NOT NULL, 
	is_inline BOOLEAN NOT NULL, 
	pull_id INTEGER NOT NULL, 
	author VARCHAR(256) NOT NULL, 
	command VARCHAR(64) NOT NULL, 
	arguments TEXT DEFAULT '' NOT NULL, 
	outcome VARCHAR(64) DEFAULT '' NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (forge, comment_id, is_inline), 
	FOREIGN KEY(pull_id) REFERENCES pull_requests (id)
);

CREATE TABLE owners (
	forge VARCHAR(16) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	settings JSON NOT NULL, 
	PRIMARY KEY (forge, name)
);

CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	repository_id INTEGER NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	cron VARCHAR(200) NOT NULL, 
	timezone VARCHAR(100) NOT NULL, 
	next_due_at FLOAT, 
	last_due_at FLOAT DEFAULT '0' NOT NULL, 
	pushed VARCHAR(64) DEFAULT '' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	paused_by VARCHAR(256) DEFAULT '' NOT NULL, 
	paused_why TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (repository_id, name), 
	FOREIGN KEY(repository_id) REFERENCES repositories (id)
);

CREATE INDEX jobs_due ON jobs (next_due_at);

CREATE TABLE job_runs (
	id VARCHAR(64) NOT NULL, 
	job_id INTEGER NOT NULL, 
	wanted_by VARCHAR(256) DEFAULT '' NOT NULL, 
	wanted_at FLOAT NOT NULL, 
	due_at FLOAT NOT NULL, 
	attempt INTEGER DEFAULT '1' NOT NULL, 
	claimed_attempt INTEGER DEFAULT '0' NOT NULL, 
	ended_at FLOAT, 
	outcome VARCHAR(32) DEFAULT '' NOT NULL, 
	reason TEXT DEFAULT '' NOT NULL, 
	session_id VARCHAR(64) DEFAULT '' NOT NULL, 
	cost INTEGER DEFAULT '0' NOT NULL, 
	base_sha VARCHAR(64) DEFAULT '' NOT NULL, 
	head_sha VARCHAR(64) DEFAULT '' NOT NULL, 
	pack BLOB NOT NULL, 
	task JSON, 
	result JSON, 
	PRIMARY KEY (id), 
	FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE INDEX job_runs_of ON job_runs (job_id, wanted_at);

INSERT INTO alembic_version (version_num) VALUES ('r0005')
