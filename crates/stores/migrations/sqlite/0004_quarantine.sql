-- Damaged runs, which nobody executes or shows. The views leave them out.

CREATE TABLE quarantine (
  run_no INTEGER PRIMARY KEY,
  why    TEXT NOT NULL,
  at     INTEGER NOT NULL
) STRICT;

DROP VIEW events;
DROP VIEW workflow_instance;
DROP VIEW workflow_step;

CREATE VIEW events AS
WITH parts AS (
  SELECT
    runs.run_id AS run_id,
    plans.version AS plan_version,
    log.first_seq + item.key AS run_seq,
    log.codec AS codec,
    item.value ->> '$[0]' AS at,
    item.value -> '$[1]' AS residual,
    item.value -> '$[2]' AS ext,
    item.value ->> '$[2].type' AS event_type,
    lower(hex(substr(log.digests, 80 * item.key + 1, 16))) AS id,
    lower(hex(substr(log.digests, 80 * item.key + 17, 32))) AS idempotency_key,
    lower(hex(substr(log.digests, 80 * item.key + 49, 32))) AS hash
  FROM runs
  JOIN plans ON plans.plan_no = runs.plan_no
  JOIN log ON log.run_no = runs.run_no
  JOIN json_each(log.body) AS item
  WHERE NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.run_no = runs.run_no)
), named AS (
  SELECT
    *,
    strftime('%Y-%m-%dT%H:%M:%S', at / 1000, 'unixepoch') || printf('.%03dZ', at % 1000) AS emitted_at,
    substr(id, 1, 8) || '-' || substr(id, 9, 4) || '-' || substr(id, 13, 4) || '-'
      || substr(id, 17, 4) || '-' || substr(id, 21) AS event_id
  FROM parts
)
SELECT
  run_id,
  run_seq,
  named.event_type AS event_type,
  event_id,
  idempotency_key,
  hash,
  emitted_at,
  json_patch(
    json_patch(
      replace(replace(replace(coalesce(template, '{}'),
        '"$at"', json_quote(emitted_at)),
        '"$runId"', json_quote(run_id)),
        '"$planVersion"', json_quote(plan_version)),
      coalesce(residual, '{}')),
    json_object(
      'eventId', event_id,
      'idempotencyKey', idempotency_key,
      'runSeq', run_seq,
      'eventType', named.event_type)) AS event,
  ext
FROM named
LEFT JOIN event_templates
  ON event_templates.codec = named.codec AND event_templates.event_type = named.event_type;

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
    AND run_no NOT IN (SELECT run_no FROM quarantine)
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
