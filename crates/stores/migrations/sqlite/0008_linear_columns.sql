-- The context of a linear instance, and the worker that has one of its steps by name. A business key is unique among the open
-- runs of all workflows.

UPDATE OR IGNORE unique_keys SET plan_id = '';
DELETE FROM unique_keys WHERE plan_id <> '';

DROP VIEW workflow_instance;
DROP VIEW workflow_step;

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
    AND run_no NOT IN (SELECT run_no FROM quarantine)
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
    || printf('.%03dZ', failed_at % 1000) AS failed_at,
  (SELECT body FROM view_rows WHERE view_name = 'workflow_context'
    AND view_rows.run_no = instances.run_no) AS context_json
FROM instances JOIN runs USING (run_no);

-- A lease lasts as the task of a remote worker says. Work of a server lasts as the claim says, and when that is over, as
-- long as the session of the server lives. A run of this language has one running step at most, so the run's only
-- leased task is that step's. Work of a server is leased to `@` and the number of its session.
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
    AND run_no NOT IN (SELECT run_no FROM quarantine)
), leases AS (
  SELECT
    steps.*,
    coalesce(
      (SELECT substr(name, 1, instr(name || '#', '#') - 1) || printf(':%08x', session_no)
        FROM sessions WHERE steps.locked_by = '@' || session_no),
      locked_by) AS worker,
    CASE WHEN steps.status = 'RUNNING' THEN coalesce(
      (SELECT max(until) FROM tasks WHERE tasks.run_no = steps.run_no AND leased = 1),
      CASE WHEN locked_until >= CAST(strftime('%s', 'now') AS INTEGER) * 1000 THEN locked_until END,
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
  worker AS locked_by,
  strftime('%Y-%m-%dT%H:%M:%S', held_until / 1000, 'unixepoch')
    || printf('.%03dZ', held_until % 1000) AS locked_until,
  last_error
FROM leases JOIN runs USING (run_no);
