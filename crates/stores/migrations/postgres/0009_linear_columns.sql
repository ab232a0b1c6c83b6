-- The context of a linear instance, and the worker that has one of its steps by name. A business key is unique among the open
-- runs of all workflows.

DELETE FROM unique_keys u WHERE EXISTS (
    SELECT FROM unique_keys o WHERE o.key = u.key AND o.run_no < u.run_no);
UPDATE unique_keys SET plan_id = '';

CREATE OR REPLACE VIEW workflow_instance AS
SELECT r.run_id AS instance_id, i.biz_key, i.workflow_type, i.workflow_version, i.status,
       i.current_step_seq, i.current_step_type, moment(i.started_at) AS started_at,
       moment(i.completed_at) AS completed_at, moment(i.failed_at) AS failed_at, c.body AS context_json
FROM view_rows v
JOIN runs r ON r.run_no = v.run_no
CROSS JOIN LATERAL json_to_record(view_columns(v.body)) AS i (
    biz_key text COLLATE "C", workflow_type text COLLATE "C", workflow_version bigint,
    status text COLLATE "C", current_step_seq bigint, current_step_type text, started_at bigint,
    completed_at bigint, failed_at bigint)
LEFT JOIN view_rows c ON c.view_name = 'workflow_context' AND c.run_no = v.run_no AND c.row_no = 0
WHERE v.view_name = 'workflow_instance'
  AND NOT EXISTS (SELECT FROM quarantine q WHERE q.run_no = v.run_no);

-- A lease lasts as its task's row says. Work of a server lasts as the claim says, and when that is over, as long as the
-- session of the server lives. Work of a server is leased to `@` and the number of its session.
CREATE OR REPLACE VIEW workflow_step AS
SELECT r.run_id AS instance_id, v.row_no AS step_seq, s.step_type, s.status, s.attempts,
       s.max_attempts, moment(s.next_run_at) AS next_run_at, s.waiting_event_type,
       moment(s.deadline_at) AS deadline_at,
       COALESCE(split_part(w.name, '#', 1) || ':' || lpad(to_hex(w.session_no), 8, '0'), s.locked_by) AS locked_by,
       moment(CASE WHEN s.locked_by IS NOT NULL THEN COALESCE(t.until,
           CASE WHEN s.locked_until >= clock(NULL) THEN s.locked_until END, x.ends_at, s.locked_until)
       END) AS locked_until,
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
LEFT JOIN sessions w ON s.locked_by = '@' || w.session_no::text
LEFT JOIN tasks t ON t.run_no = v.run_no AND t.leased
    AND t.target = step_name(p.net, v.row_no::integer)
WHERE v.view_name = 'workflow_step'
  AND NOT EXISTS (SELECT FROM quarantine q WHERE q.run_no = v.run_no);
