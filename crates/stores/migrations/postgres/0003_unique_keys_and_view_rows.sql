-- Tables that know no language: keys that only one open run may have, and rows that the language of a
-- run makes for its views. They replace the tables of one language; the views stay as they were.

CREATE TABLE unique_keys (
    run_no  bigint NOT NULL,
    plan_id text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    PRIMARY KEY (plan_id, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- `body` is a JSON object with the columns of a row; those that are NULL are left out.
CREATE TABLE view_rows (
    run_no    bigint NOT NULL,
    row_no    bigint NOT NULL,
    view_name text COLLATE "C" NOT NULL,
    body      text NOT NULL,
    PRIMARY KEY (view_name, run_no, row_no)
) WITH (fillfactor = 80);

INSERT INTO unique_keys (run_no, plan_id, key)
SELECT run_no, workflow_type, biz_key FROM linear_instances
WHERE status = 'RUNNING' AND biz_key IS NOT NULL;

INSERT INTO view_rows (run_no, row_no, view_name, body)
SELECT run_no, 0, 'workflow_instance', json_strip_nulls(json_build_object(
    'biz_key', biz_key, 'workflow_type', workflow_type, 'workflow_version', workflow_version,
    'status', status, 'current_step_seq', current_step_seq, 'current_step_type', current_step_type,
    'started_at', started_at, 'completed_at', completed_at, 'failed_at', failed_at))::text
FROM linear_instances;

INSERT INTO view_rows (run_no, row_no, view_name, body)
SELECT run_no, step_seq, 'workflow_step', json_strip_nulls(json_build_object(
    'step_seq', step_seq, 'step_type', step_type, 'status', status, 'attempts', attempts,
    'max_attempts', max_attempts, 'next_run_at', next_run_at,
    'waiting_event_type', waiting_event_type, 'deadline_at', deadline_at, 'locked_by', locked_by,
    'locked_until', locked_until, 'last_error', last_error))::text
FROM linear_steps;

-- PostgreSQL reads no text with a \u0000 out of JSON, so another character is shown for it.
CREATE FUNCTION view_columns(body text) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN replace(body, '\u0000', '\ufffd')::json;

-- Replaced in place, so that views of users that read them stay.
CREATE OR REPLACE VIEW workflow_instance AS
SELECT r.run_id AS instance_id, i.biz_key, i.workflow_type, i.workflow_version, i.status,
       i.current_step_seq, i.current_step_type, moment(i.started_at) AS started_at,
       moment(i.completed_at) AS completed_at, moment(i.failed_at) AS failed_at
FROM view_rows v
JOIN runs r ON r.run_no = v.run_no
CROSS JOIN LATERAL json_to_record(view_columns(v.body)) AS i (
    biz_key text COLLATE "C", workflow_type text COLLATE "C", workflow_version bigint,
    status text COLLATE "C", current_step_seq bigint, current_step_type text, started_at bigint,
    completed_at bigint, failed_at bigint)
WHERE v.view_name = 'workflow_instance';

-- A lease lasts as its task's row says, or as the session of the server that has the run does.
CREATE OR REPLACE VIEW workflow_step AS
SELECT r.run_id AS instance_id, v.row_no AS step_seq, s.step_type, s.status, s.attempts,
       s.max_attempts, moment(s.next_run_at) AS next_run_at, s.waiting_event_type,
       moment(s.deadline_at) AS deadline_at, s.locked_by,
       moment(CASE WHEN s.locked_by IS NOT NULL
                   THEN COALESCE(t.until, x.ends_at, s.locked_until) END) AS locked_until,
       s.last_error
FROM view_rows v
JOIN runs r ON r.run_no = v.run_no
JOIN plans p ON p.plan_no = r.plan_no
CROSS JOIN LATERAL json_to_record(view_columns(v.body)) AS s (
    step_type text, status text COLLATE "C", attempts bigint, max_attempts bigint,
    next_run_at bigint, waiting_event_type text, deadline_at bigint, locked_by text,
    locked_until bigint, last_error text)
LEFT JOIN heads h ON h.run_no = v.run_no
LEFT JOIN sessions x ON x.session_no = h.session_no
LEFT JOIN tasks t ON t.run_no = v.run_no AND t.leased
    AND t.target = step_name(p.net, v.row_no::integer)
WHERE v.view_name = 'workflow_step';

DROP TABLE linear_instances;
DROP TABLE linear_steps;
