-- The tables of a store. Times are milliseconds since 1970, UTC. Text that is compared or sorted has
-- the collation "C", so that its order is that of its bytes on every server.

CREATE TABLE settings (
    name  text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

-- The clock that everyone shares, unless a time is given: tests and simulators bring their own.
CREATE FUNCTION clock(given bigint) RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
$$ SELECT COALESCE(given, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) $$;

-- Run numbers are given out in blocks. Nobody reads the log by them.
CREATE SEQUENCE run_numbers AS bigint;

CREATE TABLE plans (
    plan_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    plan_id text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    hash    text COLLATE "C" NOT NULL UNIQUE,
    net     text NOT NULL
);

-- Never updated. No foreign key to the plan: plans are never deleted, and the lock that a foreign
-- key takes on the one row of a popular plan would be in the way of every start.
CREATE TABLE runs (
    run_no      bigint PRIMARY KEY,
    created_at  bigint NOT NULL,
    plan_no     bigint NOT NULL,
    run_id      text COLLATE "C" NOT NULL CONSTRAINT runs_run_id UNIQUE,
    request_key text COLLATE "C" CONSTRAINT runs_request_key UNIQUE,
    tenant      text COLLATE "C" NOT NULL,
    project     text NOT NULL,
    environment text NOT NULL,
    parent      text,
    event_key   text COLLATE "C" NOT NULL
);

-- The one row of a run that changes. Room on each page, so that most changes stay on it.
CREATE TABLE heads (
    run_no         bigint PRIMARY KEY,
    version        bigint NOT NULL,
    commit_session bigint NOT NULL,
    commit_number  bigint NOT NULL,
    session_no     bigint,
    wake_at        bigint,
    due_at         bigint,
    ended_at       bigint,
    slots          text,                       -- the slots it holds, a JSON list
    queued         boolean NOT NULL,
    status         text COLLATE "C" NOT NULL,
    substatus      text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX heads_session ON heads (session_no, run_no) WHERE session_no IS NOT NULL;
CREATE INDEX heads_due ON heads (due_at, run_no)
    WHERE session_no IS NULL AND NOT queued AND due_at IS NOT NULL;
CREATE INDEX heads_queued ON heads (run_no) WHERE queued AND session_no IS NULL;

-- The truth: one row for each run and commit. No foreign key: a run's row is written in the commit
-- that writes its first chunk, and is never deleted.
CREATE TABLE log (
    run_no         bigint NOT NULL,
    commit_session bigint NOT NULL,
    commit_number  bigint NOT NULL,
    first_seq      integer NOT NULL,
    last_seq       integer NOT NULL,
    codec          smallint NOT NULL,
    body           text NOT NULL,
    digests        bytea NOT NULL,
    PRIMARY KEY (run_no, first_seq),
    CHECK (first_seq > 0 AND last_seq >= first_seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2);

CREATE TABLE event_keys (
    run_no bigint NOT NULL,
    key    bytea NOT NULL,
    PRIMARY KEY (run_no, key)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2);

CREATE TABLE tasks (
    run_no     bigint NOT NULL,
    visible_at bigint NOT NULL,
    until      bigint,
    priority   integer NOT NULL,
    leased     boolean NOT NULL,
    stopping   boolean NOT NULL,
    target     text COLLATE "C" NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    op         text COLLATE "C" NOT NULL,
    worker     text COLLATE "C",
    PRIMARY KEY (run_no, target)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX tasks_open ON tasks (queue, op, priority, visible_at, run_no, target)
    WHERE NOT leased AND NOT stopping;
CREATE INDEX tasks_expired ON tasks (until, run_no, target) WHERE leased;

CREATE TABLE waits (
    run_no     bigint NOT NULL,
    since      bigint NOT NULL,
    given      boolean NOT NULL,
    step       text COLLATE "C" NOT NULL,
    event_type text COLLATE "C" NOT NULL,
    event_key  text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_no, step)
);
CREATE INDEX waits_open ON waits (event_key, event_type, since, run_no, step) WHERE NOT given;

-- Events from outside; those that were given keep their id, so that it counts once.
CREATE TABLE inbox (
    since      bigint NOT NULL,
    given      boolean NOT NULL,
    event_id   text COLLATE "C" PRIMARY KEY,
    event_type text COLLATE "C" NOT NULL,
    event_key  text COLLATE "C" NOT NULL,
    payload    text NOT NULL,
    mail       text NOT NULL
);
CREATE INDEX inbox_kept ON inbox (event_key, event_type, since, event_id) WHERE NOT given;

CREATE TABLE mailbox (
    mail_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_no  bigint NOT NULL,
    body    text NOT NULL,
    answer  text
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX mailbox_run ON mailbox (run_no, mail_no) WHERE answer IS NULL;

CREATE TABLE outbox (
    run_no    bigint NOT NULL,
    due_at    bigint NOT NULL,
    since     bigint NOT NULL,
    until     bigint,
    first_seq integer NOT NULL,
    attempts  integer NOT NULL,
    sink      text COLLATE "C" NOT NULL,
    publisher text,
    why       text,
    PRIMARY KEY (sink, run_no, first_seq)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX outbox_due ON outbox (sink, due_at, run_no);

CREATE TABLE dead_letters (
    letter_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_no    bigint NOT NULL,
    at        bigint NOT NULL,
    first_seq integer NOT NULL,
    attempts  integer NOT NULL,
    sink      text COLLATE "C" NOT NULL,
    why       text NOT NULL
);

CREATE TABLE slots (
    key   text COLLATE "C" PRIMARY KEY,
    taken integer NOT NULL CHECK (taken >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE sessions (
    session_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ends_at    bigint NOT NULL,
    dead       boolean NOT NULL DEFAULT false,
    name       text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE snapshots (
    run_no  bigint PRIMARY KEY,
    seq     integer NOT NULL,
    version integer NOT NULL,
    body    bytea NOT NULL
);

CREATE TABLE alerts (
    alert_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_no   bigint,
    at       bigint NOT NULL,
    priority smallint NOT NULL CHECK (priority BETWEEN 1 AND 3),
    code     text COLLATE "C" NOT NULL,
    message  text NOT NULL
);

CREATE TABLE projections (
    run_no   bigint PRIMARY KEY,
    at       bigint NOT NULL,
    seq      integer NOT NULL,
    snapshot text NOT NULL
);

CREATE TABLE linear_instances (
    run_no            bigint PRIMARY KEY,
    workflow_version  bigint NOT NULL,
    started_at        bigint,
    completed_at      bigint,
    failed_at         bigint,
    current_step_seq  bigint NOT NULL,
    biz_key           text COLLATE "C",
    workflow_type     text COLLATE "C" NOT NULL,
    status            text COLLATE "C" NOT NULL,
    current_step_type text NOT NULL
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX linear_biz_key ON linear_instances (workflow_type, biz_key)
    WHERE status = 'RUNNING';

CREATE TABLE linear_steps (
    run_no             bigint NOT NULL,
    next_run_at        bigint,
    deadline_at        bigint,
    locked_until       bigint,
    step_seq           bigint NOT NULL,
    attempts           bigint NOT NULL,
    max_attempts       bigint NOT NULL,
    step_type          text NOT NULL,
    status             text COLLATE "C" NOT NULL,
    waiting_event_type text,
    locked_by          text,
    last_error         text,
    PRIMARY KEY (run_no, step_seq)
) WITH (fillfactor = 80);
