-- Damaged runs, which nobody executes or shows. The views leave them out; they are replaced in place, so
-- that views of users that read them stay.

CREATE TABLE quarantine (
    run_no bigint PRIMARY KEY,
    at     bigint NOT NULL,
    why    text NOT NULL
);

CREATE OR REPLACE VIEW events AS
SELECT r.run_id, e.seq AS run_seq, e.ext->>'type' AS event_type,
       encode(substring(l.digests FROM d.at + 1 FOR 16), 'hex')::uuid AS event_id,
       encode(substring(l.digests FROM d.at + 17 FOR 32), 'hex') AS idempotency_key,
       encode(substring(l.digests FROM d.at + 49 FOR 32), 'hex') AS hash,
       moment(e.at) AS emitted_at,
       CASE WHEN t.json IS NOT NULL THEN with_nul(event_json(t.json, e.at, r.run_id, p.version,
           e.residual, encode(substring(l.digests FROM d.at + 1 FOR 16), 'hex')::uuid::text,
           encode(substring(l.digests FROM d.at + 17 FOR 32), 'hex'), e.seq, t.event_type), l.body)
       END AS event,
       with_nul(e.ext, l.body) AS ext
FROM log l
JOIN runs r ON r.run_no = l.run_no
JOIN plans p ON p.plan_no = r.plan_no
CROSS JOIN LATERAL ROWS FROM (generate_series(l.first_seq, l.last_seq), chunk_entries(l.body))
    AS e (seq, at, residual, ext)
CROSS JOIN LATERAL (SELECT (e.seq - l.first_seq) * 80 AS at) d
LEFT JOIN event_templates t ON t.codec = l.codec AND t.event_type = e.ext->>'type'
WHERE NOT EXISTS (SELECT FROM quarantine q WHERE q.run_no = l.run_no);

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
WHERE v.view_name = 'workflow_instance'
  AND NOT EXISTS (SELECT FROM quarantine q WHERE q.run_no = v.run_no);

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
WHERE v.view_name = 'workflow_step'
  AND NOT EXISTS (SELECT FROM quarantine q WHERE q.run_no = v.run_no);
