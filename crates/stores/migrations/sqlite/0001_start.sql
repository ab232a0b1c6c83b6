-- Times are milliseconds since 1970, UTC. Names are as in ARCHITECTURE.md; the views at the end are
-- for people and for linear.md. A migration that has been released is never changed.

CREATE TABLE settings (
  name  TEXT PRIMARY KEY,
  value ANY
) STRICT, WITHOUT ROWID;
INSERT INTO settings VALUES ('secret', randomblob(32)), ('last_run_no', 0);

CREATE TABLE plans (
  plan_no INTEGER PRIMARY KEY,
  plan_id TEXT NOT NULL,
  version TEXT NOT NULL,
  hash    TEXT NOT NULL UNIQUE,
  net     TEXT NOT NULL
) STRICT;
CREATE INDEX plans_by_id ON plans (plan_id);

-- Never updated.
CREATE TABLE runs (
  run_no      INTEGER PRIMARY KEY,
  run_id      TEXT NOT NULL UNIQUE,
  request_key TEXT,
  plan_no     INTEGER NOT NULL,
  tenant      TEXT NOT NULL,
  project     TEXT NOT NULL,
  environment TEXT NOT NULL,
  parent      TEXT,
  event_key   TEXT NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX runs_by_request ON runs (request_key) WHERE request_key IS NOT NULL;

-- The one row of a run that changes. `due_at` is when it is offered: `wake_at`, or later if it was
-- offered already. The commit is what a change without events is recognised by.
CREATE TABLE heads (
  run_no         INTEGER PRIMARY KEY,
  version        INTEGER NOT NULL,
  status         TEXT NOT NULL,
  substatus      TEXT,
  session        INTEGER,
  wake_at        INTEGER,
  due_at         INTEGER,
  queued         INTEGER NOT NULL,
  ended_at       INTEGER,
  slots          TEXT,
  commit_session INTEGER NOT NULL,
  commit_number  INTEGER NOT NULL
) STRICT;
CREATE INDEX heads_by_session ON heads (session) WHERE session IS NOT NULL;
CREATE INDEX heads_due ON heads (due_at) WHERE session IS NULL AND queued = 0 AND due_at IS NOT NULL;
CREATE INDEX heads_queued ON heads (run_no) WHERE queued = 1;
CREATE INDEX heads_open ON heads (run_no) WHERE ended_at IS NULL;
CREATE INDEX heads_by_status ON heads (status);

-- One row for each run and commit, in the order of writing: a batch touches few pages.
CREATE TABLE log (
  log_no    INTEGER PRIMARY KEY,
  run_no    INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  session   INTEGER NOT NULL,
  number    INTEGER NOT NULL,
  codec     INTEGER NOT NULL,
  body      TEXT NOT NULL,
  digests   BLOB NOT NULL,
  CHECK (first_seq > 0 AND last_seq >= first_seq),
  CHECK (length(digests) = 80 * (last_seq - first_seq + 1))
) STRICT;
CREATE UNIQUE INDEX log_by_run ON log (run_no, first_seq);

-- The preimages of the events' keys: an event is recorded once.
CREATE TABLE event_keys (
  run_no INTEGER NOT NULL,
  key    BLOB NOT NULL,
  PRIMARY KEY (run_no, key)
) STRICT, WITHOUT ROWID;

-- `free_from` is when an unleased task can be reserved: visible, and no reservation holds it.
CREATE TABLE tasks (
  run_no     INTEGER NOT NULL,
  target     TEXT NOT NULL,
  queue      TEXT NOT NULL,
  op         TEXT NOT NULL,
  priority   INTEGER NOT NULL,
  visible_at INTEGER NOT NULL,
  worker     TEXT,
  until      INTEGER,
  leased     INTEGER NOT NULL DEFAULT 0,
  stopping   INTEGER NOT NULL DEFAULT 0,
  free_from  INTEGER NOT NULL,
  PRIMARY KEY (run_no, target)
) STRICT, WITHOUT ROWID;
CREATE INDEX tasks_free ON tasks (queue, op, priority, visible_at, run_no, target)
  WHERE leased = 0 AND stopping = 0;
CREATE INDEX tasks_leased ON tasks (until) WHERE leased = 1;

-- Who waits for which event, and since when. `given` ones have their event and get no second one.
CREATE TABLE waits (
  run_no     INTEGER NOT NULL,
  step       TEXT NOT NULL,
  event_type TEXT NOT NULL,
  event_key  TEXT NOT NULL,
  since      INTEGER NOT NULL,
  given      INTEGER NOT NULL,
  PRIMARY KEY (run_no, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_open ON waits (event_type, event_key, since) WHERE given = 0;

-- Events from outside. One that was given keeps its id, so that it counts once, and loses the rest.
CREATE TABLE inbox (
  event_no   INTEGER PRIMARY KEY,
  event_id   TEXT NOT NULL UNIQUE,
  event_type TEXT,
  event_key  TEXT,
  payload    TEXT,
  mail       TEXT,
  at         INTEGER NOT NULL,
  given      INTEGER NOT NULL
) STRICT;
CREATE INDEX inbox_kept ON inbox (event_type, event_key, at, event_id) WHERE given = 0;

-- Numbers are never used again: a sender asks for its message by number after it is gone.
CREATE TABLE mailbox (
  mail_no INTEGER PRIMARY KEY AUTOINCREMENT,
  run_no  INTEGER NOT NULL,
  body    TEXT NOT NULL,
  at      INTEGER NOT NULL,
  answer  TEXT
) STRICT;
CREATE INDEX mailbox_unanswered ON mailbox (mail_no) WHERE answer IS NULL;
CREATE INDEX mailbox_by_run ON mailbox (run_no) WHERE answer IS NULL;

CREATE TABLE outbox (
  sink      TEXT NOT NULL,
  run_no    INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  attempts  INTEGER NOT NULL,
  due_at    INTEGER NOT NULL,
  publisher TEXT,
  until     INTEGER,
  why       TEXT,
  since     INTEGER NOT NULL,
  PRIMARY KEY (sink, run_no, first_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letters (
  letter_no INTEGER PRIMARY KEY AUTOINCREMENT,
  sink      TEXT NOT NULL,
  run_no    INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  attempts  INTEGER NOT NULL,
  why       TEXT NOT NULL,
  at        INTEGER NOT NULL
) STRICT;

CREATE TABLE slots (
  slot_key TEXT PRIMARY KEY,
  taken    INTEGER NOT NULL CHECK (taken >= 0)
) STRICT, WITHOUT ROWID;

-- Numbers are never used again: commits are known by them.
CREATE TABLE sessions (
  session_no INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT NOT NULL,
  opened_at  INTEGER NOT NULL,
  until      INTEGER NOT NULL,
  dead       INTEGER NOT NULL
) STRICT;

CREATE TABLE snapshots (
  run_no  INTEGER PRIMARY KEY,
  seq     INTEGER NOT NULL,
  version INTEGER NOT NULL,
  body    BLOB NOT NULL
) STRICT;

CREATE TABLE alerts (
  alert_no INTEGER PRIMARY KEY,
  run_no   INTEGER,
  code     TEXT NOT NULL,
  priority INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 3),
  message  TEXT NOT NULL,
  at       INTEGER NOT NULL
) STRICT;

CREATE TABLE projections (
  run_no   INTEGER PRIMARY KEY,
  seq      INTEGER NOT NULL,
  snapshot TEXT NOT NULL,
  at       INTEGER NOT NULL
) STRICT;

CREATE TABLE linear_instances (
  run_no            INTEGER PRIMARY KEY,
  biz_key           TEXT,
  workflow_type     TEXT NOT NULL,
  workflow_version  INTEGER NOT NULL,
  status            TEXT NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'CANCELED')),
  current_step_seq  INTEGER NOT NULL,
  current_step_type TEXT NOT NULL,
  started_at        INTEGER,
  completed_at      INTEGER,
  failed_at         INTEGER
) STRICT;
CREATE UNIQUE INDEX linear_instances_by_biz_key ON linear_instances (workflow_type, biz_key)
  WHERE status = 'RUNNING' AND biz_key IS NOT NULL;

CREATE TABLE linear_steps (
  run_no             INTEGER NOT NULL,
  step_seq           INTEGER NOT NULL,
  step_type          TEXT NOT NULL,
  status             TEXT NOT NULL
    CHECK (status IN ('PENDING', 'READY', 'RUNNING', 'WAITING', 'DONE', 'DEAD')),
  attempts           INTEGER NOT NULL,
  max_attempts       INTEGER NOT NULL,
  next_run_at        INTEGER,
  waiting_event_type TEXT,
  deadline_at        INTEGER,
  locked_by          TEXT,
  locked_until       INTEGER,
  last_error         TEXT,
  PRIMARY KEY (run_no, step_seq)
) STRICT, WITHOUT ROWID;

-- What most events of a type say, for the view below; filled when the store is opened.
CREATE TABLE event_templates (
  codec      INTEGER NOT NULL,
  event_type TEXT NOT NULL,
  template   TEXT NOT NULL,
  PRIMARY KEY (codec, event_type)
) STRICT, WITHOUT ROWID;
