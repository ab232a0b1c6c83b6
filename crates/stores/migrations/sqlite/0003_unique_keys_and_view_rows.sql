-- Tables that know no language: keys that only one open run may have, and rows that the language of a
-- run makes for its views. They replace the tables of one language; the views stay as they were.

CREATE TABLE unique_keys (
  plan_id TEXT NOT NULL,
  key     TEXT NOT NULL,
  run_no  INTEGER NOT NULL,
  PRIMARY KEY (plan_id, key)
) STRICT, WITHOUT ROWID;

-- `body` is a JSON object with the columns of a row; those that are NULL are left out.
CREATE TABLE view_rows (
  view_name TEXT NOT NULL,
  run_no    INTEGER NOT NULL,
  row_no    INTEGER NOT NULL,
  body      TEXT NOT NULL,
  PRIMARY KEY (view_name, run_no, row_no)
) STRICT, WITHOUT ROWID;

INSERT INTO unique_keys
SELECT workflow_type, biz_key, run_no FROM linear_instances
WHERE status = 'RUNNING' AND biz_key IS NOT NULL;

-- Merging over an empty object leaves out what is NULL (RFC 7396).
INSERT INTO view_rows
SELECT 'workflow_instance', run_no, 0, json_patch('{}', json_object(
  'biz_key', biz_key,
  'workflow_type', workflow_type,
  'workflow_version', workflow_version,
  'status', status,
  'current_step_seq', current_step_seq,
  'current_step_type', current_step_type,
  'started_at', started_at,
  'completed_at', completed_at,
  'failed_at', failed_at))
FROM linear_instances;

INSERT INTO view_rows
SELECT 'workflow_step', run_no, step_seq, json_patch('{}', json_object(
  'step_seq', step_seq,
  'step_type', step_type,
  'status', status,
  'attempts', attempts,
  'max_attempts', max_attempts,
  'next_run_at', next_run_at,
  'waiting_event_type', waiting_event_type,
  'deadline_at', deadline_at,
  'locked_by', locked_by,
  'locked_until', locked_until,
  'last_error', last_error))
FROM linear_steps;

DROP VIEW workflow_instance;
DROP VIEW workflow_step;
DROP TABLE linear_instances;
DROP TABLE linear_steps;

CREATE VIEW workflow_instance AS
WITH instances AS (
  SELECT
    run_no,
    body ->> 'biz_key' AS biz_key,
    body ->> 'workflow_type' AS workflow_type,
    body ->> 'workflow_version' AS workflow_version,
    body ->> 'status' AS status,
    body ->> 'current_step_seq' AS current_step_seq,
    body ->> 'current_step_type' AS current_step_type,
    body ->> 'started_at' AS started_at,
    body ->> 'completed_at' AS completed_at,
    body ->> 'failed_at' AS failed_at
  FROM view_rows WHERE view_name = 'workflow_instance'
)
SELECT
  runs.run_id AS instance_id,
  biz_key,
  workflow_type,
  workflow_version,
  status,
  current_step_seq,
  current_step_type,
  strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000, 'unixepoch')
    || printf('.%03dZ', started_at % 1000) AS started_at,
  strftime('%Y-%m-%dT%H:%M:%S', completed_at / 1000, 'unixepoch')
    || printf('.%03dZ', completed_at % 1000) AS completed_at,
  strftime('%Y-%m-%dT%H:%M:%S', failed_at / 1000, 'unixepoch')
    || printf('.%03dZ', failed_at % 1000) AS failed_at
FROM instances JOIN runs USING (run_no);

-- A heartbeat moves the end of a lease without an event, so it is read where it is renewed: in the
-- task of a remote worker, or in the session of the server that runs the step itself. A run of this
-- language has one running step at most, so the run's only leased task is that step's.
CREATE VIEW workflow_step AS
WITH steps AS (
  SELECT
    run_no,
    row_no AS step_seq,
    body ->> 'step_type' AS step_type,
    body ->> 'status' AS status,
    body ->> 'attempts' AS attempts,
    body ->> 'max_attempts' AS max_attempts,
    body ->> 'next_run_at' AS next_run_at,
    body ->> 'waiting_event_type' AS waiting_event_type,
    body ->> 'deadline_at' AS deadline_at,
    body ->> 'locked_by' AS locked_by,
    body ->> 'locked_until' AS locked_until,
    body ->> 'last_error' AS last_error
  FROM view_rows WHERE view_name = 'workflow_step'
), leases AS (
  SELECT
    steps.*,
    CASE WHEN steps.status = 'RUNNING' THEN coalesce(
      (SELECT max(until) FROM tasks WHERE tasks.run_no = steps.run_no AND leased = 1),
      (SELECT until FROM heads JOIN sessions ON session_no = heads.session
        WHERE heads.run_no = steps.run_no),
      locked_until) END AS held_until
  FROM steps
)
SELECT
  runs.run_id AS instance_id,
  step_seq,
  step_type,
  status,
  attempts,
  max_attempts,
  strftime('%Y-%m-%dT%H:%M:%S', next_run_at / 1000, 'unixepoch')
    || printf('.%03dZ', next_run_at % 1000) AS next_run_at,
  waiting_event_type,
  strftime('%Y-%m-%dT%H:%M:%S', deadline_at / 1000, 'unixepoch')
    || printf('.%03dZ', deadline_at % 1000) AS deadline_at,
  locked_by,
  strftime('%Y-%m-%dT%H:%M:%S', held_until / 1000, 'unixepoch')
    || printf('.%03dZ', held_until % 1000) AS locked_until,
  last_error
FROM leases JOIN runs USING (run_no);
