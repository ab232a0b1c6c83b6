//! The statements of a commit. Arrays come sorted by run, and every statement goes through them in
//! that order, so that two commits meet in the same order everywhere.

/// Chunks and their keys, in one statement: a run that is not where the sender thought, or whose
/// session is over, has no row in the answer and no keys. The session's row is locked, so that
/// declaring it dead and committing exclude each other.
pub(super) const APPEND: &str = "
WITH alive AS MATERIALIZED (
    SELECT FROM sessions
    WHERE session_no = $1 AND NOT dead AND ends_at >= clock($2) FOR KEY SHARE
), won AS (
    INSERT INTO log (run_no, commit_session, commit_number, first_seq, last_seq, codec, body, digests)
    SELECT u.run_no, $3, $4, u.after + 1, u.last_seq, u.codec, u.body, u.digests
    FROM unnest($5::bigint[], $6::integer[], $7::integer[], $8::smallint[], $9::text[],
                $10::bytea[], $11::boolean[])
        AS u (run_no, after, last_seq, codec, body, digests, guarded)
    WHERE (NOT u.guarded OR EXISTS (SELECT FROM alive))
      AND u.after = COALESCE((SELECT l.last_seq FROM log l WHERE l.run_no = u.run_no
                              ORDER BY l.first_seq DESC LIMIT 1), 0)
    ON CONFLICT DO NOTHING RETURNING run_no, first_seq
), keyed AS (
    INSERT INTO event_keys (run_no, key)
    SELECT k.run_no, k.key FROM unnest($12::bigint[], $13::bytea[]) AS k (run_no, key)
    WHERE (k.run_no IN (SELECT run_no FROM won)) IS TRUE
), marked AS (
    INSERT INTO outbox (sink, run_no, first_seq, attempts, due_at, since)
    SELECT s.name, w.run_no, w.first_seq, 0, clock($2), clock($2) FROM sinks s CROSS JOIN won w
    ON CONFLICT DO NOTHING
)
SELECT run_no FROM won";

/// The same for a commit in which a key is known to exist: a row with true for each key that is new.
pub(super) const APPEND_COUNTING: &str = "
WITH won AS (
    INSERT INTO log (run_no, commit_session, commit_number, first_seq, last_seq, codec, body, digests)
    SELECT u.run_no, $1, $2, u.after + 1, u.last_seq, u.codec, u.body, u.digests
    FROM unnest($3::bigint[], $4::integer[], $5::integer[], $6::smallint[], $7::text[],
                $8::bytea[]) AS u (run_no, after, last_seq, codec, body, digests)
    WHERE u.after = COALESCE((SELECT l.last_seq FROM log l WHERE l.run_no = u.run_no
                              ORDER BY l.first_seq DESC LIMIT 1), 0)
    ON CONFLICT DO NOTHING RETURNING run_no
), keyed AS (
    INSERT INTO event_keys (run_no, key)
    SELECT k.run_no, k.key FROM unnest($9::bigint[], $10::bytea[]) AS k (run_no, key)
    WHERE (k.run_no IN (SELECT run_no FROM won)) IS TRUE
    ON CONFLICT DO NOTHING RETURNING run_no
)
SELECT run_no, false FROM won UNION ALL SELECT run_no, true FROM keyed";

/// One lock for each key and type that a step begins to wait for; `deliver` takes the same.
pub(super) const LOCK_WAITS: &str = "
SELECT pg_advisory_xact_lock(x.lock) FROM (
    SELECT DISTINCT hashtextextended(COALESCE(u.event_key, r.event_key),
                                     hashtextextended(u.event_type, 0)) AS lock
    FROM unnest($1::bigint[], $2::text[], $3::text[]) AS u (run_no, event_key, event_type)
    LEFT JOIN runs r ON r.run_no = u.run_no
    ORDER BY 1
) x WHERE x.lock IS NOT NULL";

pub(super) const CREATE: &str = "
INSERT INTO runs (run_no, created_at, plan_no, run_id, request_key, tenant, project, environment,
                  parent, event_key, priority)
SELECT u.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[],
                       $7::text[], $8::text[], $9::text[], $10::text[], $11::integer[])
    AS u (run_no, created_at, plan_no, run_id, request_key, tenant, project, environment, parent,
          event_key, priority)
WHERE EXISTS (SELECT FROM plans p WHERE p.plan_no = u.plan_no)
ON CONFLICT DO NOTHING RETURNING run_no";

/// Why a run could not be created.
pub(super) const WHY_NOT_CREATED: &str = "
SELECT u.run_no, r.run_id, l.commit_session, l.commit_number,
       (SELECT q.run_id FROM runs q WHERE q.request_key = u.request_key),
       EXISTS (SELECT FROM plans p WHERE p.plan_no = u.plan_no), r.run_no
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])
    AS u (run_no, run_id, request_key, plan_no)
LEFT JOIN LATERAL (
    SELECT x.run_no, x.run_id FROM (
        SELECT 1 AS rank, i.run_no, i.run_id FROM runs i WHERE i.run_id = u.run_id
        UNION ALL SELECT 2, n.run_no, n.run_id FROM runs n WHERE n.run_no = u.run_no
    ) x ORDER BY x.rank LIMIT 1
) r ON true
LEFT JOIN log l ON l.run_no = r.run_no AND l.first_seq = 1";

/// The commit that wrote a chunk; without a sequence number, the commit that wrote the head last.
pub(super) const WHO_WAS_THERE: &str = "
SELECT u.run_no, COALESCE(l.commit_session, h.commit_session), COALESCE(l.commit_number, h.commit_number)
FROM unnest($1::bigint[], $2::integer[]) AS u (run_no, first_seq)
LEFT JOIN log l ON l.run_no = u.run_no AND l.first_seq = u.first_seq
LEFT JOIN heads h ON h.run_no = u.run_no AND u.first_seq IS NULL";

pub(super) const SESSIONS: &str = "
SELECT session_no, dead, ends_at >= clock($2) FROM sessions
WHERE session_no = ANY($1) ORDER BY session_no FOR KEY SHARE";

pub(super) const LEASES: &str = "
SELECT t.run_no, t.target, t.worker, t.until >= clock($3), t.leased
FROM unnest($1::bigint[], $2::text[]) AS u (run_no, target)
JOIN tasks t ON t.run_no = u.run_no AND t.target = u.target
FOR UPDATE OF t";

/// A head that is there keeps its tenant.
pub(super) const HEADS: &str = "
INSERT INTO heads AS h (run_no, version, commit_session, commit_number, session_no, wake_at, due_at,
                        ended_at, queued, status, substatus, slots, tenant)
SELECT u.run_no, 1, $1, $2, u.session_no, u.wake_at, u.wake_at, u.ended_at, u.queued,
       COALESCE(u.status, ''), u.substatus, u.slots, u.tenant
FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::boolean[], $8::text[],
            $9::text[], $10::text[], $11::text[])
    AS u (run_no, session_no, wake_at, ended_at, queued, status, substatus, slots, tenant)
ON CONFLICT (run_no) DO UPDATE SET
    version = h.version + 1, commit_session = excluded.commit_session,
    commit_number = excluded.commit_number, session_no = excluded.session_no,
    wake_at = excluded.wake_at, due_at = excluded.due_at, ended_at = excluded.ended_at,
    queued = excluded.queued, status = excluded.status, substatus = excluded.substatus,
    slots = excluded.slots";

/// Rows without events: a compare-and-set on the head's version.
pub(super) const HEADS_ALONE: &str = "
UPDATE heads h SET
    version = h.version + 1, commit_session = $1, commit_number = $2,
    session_no = CASE WHEN u.status IS NULL THEN h.session_no ELSE u.session_no END,
    wake_at = CASE WHEN u.status IS NULL THEN h.wake_at ELSE u.wake_at END,
    due_at = CASE WHEN u.status IS NULL THEN h.wake_at ELSE u.wake_at END,
    ended_at = CASE WHEN u.status IS NULL THEN h.ended_at ELSE u.ended_at END,
    queued = CASE WHEN u.status IS NULL THEN h.queued ELSE u.queued END,
    substatus = CASE WHEN u.status IS NULL THEN h.substatus ELSE u.substatus END,
    slots = CASE WHEN u.status IS NULL THEN h.slots ELSE u.slots END,
    status = COALESCE(u.status, h.status)
FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::boolean[], $8::text[],
            $9::text[], $10::text[], $11::bigint[], $12::integer[])
    AS u (run_no, session_no, wake_at, ended_at, queued, status, substatus, slots, version, after)
WHERE h.run_no = u.run_no AND h.version = u.version
  AND u.after = COALESCE((SELECT l.last_seq FROM log l WHERE l.run_no = u.run_no
                          ORDER BY l.first_seq DESC LIMIT 1), 0)
RETURNING h.run_no";

/// Runs that want a key, and the run that has it.
pub(super) const UNIQUE_KEYS_TAKEN: &str = "
SELECT u.run_no, r.run_id
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS u (run_no, tenant, key)
JOIN unique_keys k ON k.tenant = u.tenant AND k.key = u.key AND k.run_no <> u.run_no
JOIN runs r ON r.run_no = k.run_no";

pub(super) const TAKE_MAIL: &str = "
DELETE FROM mailbox m USING unnest($1::bigint[], $2::bigint[]) AS u (mail_no, run_no)
WHERE m.mail_no = u.mail_no AND m.run_no = u.run_no AND m.answer IS NULL
RETURNING m.mail_no, m.run_no";

pub(super) const MAKE_SLOTS: &str = "
INSERT INTO slots (key, taken) SELECT u.key, 0 FROM unnest($1::text[]) AS u (key)
ON CONFLICT DO NOTHING";

pub(super) const LOCK_SLOTS: &str = "
SELECT s.key, s.taken FROM unnest($1::text[]) AS u (key) JOIN slots s ON s.key = u.key
FOR UPDATE OF s";

pub(super) const SET_SLOTS: &str = "
UPDATE slots s SET taken = u.taken FROM unnest($1::text[], $2::integer[]) AS u (key, taken)
WHERE s.key = u.key";

/// For each step that begins to wait the events that are kept for it, as many as there are steps. The key of the inbox has
/// the tenant in it, as `name_of_tenant` writes it.
pub(super) const KEPT_EVENTS: &str = "
SELECT u.place, i.event_id, i.mail
FROM unnest($1::bigint[], $2::text[], $3::text[])
    WITH ORDINALITY AS u (run_no, event_key, event_type, place)
LEFT JOIN runs r ON r.run_no = u.run_no
CROSS JOIN LATERAL (
    SELECT e.since, e.event_id, e.mail FROM inbox e
    WHERE e.event_key = CASE
            WHEN r.tenant = 'local' AND NOT starts_with(COALESCE(u.event_key, r.event_key), chr(31))
            THEN COALESCE(u.event_key, r.event_key)
            ELSE chr(31) || octet_length(r.tenant) || ':' || r.tenant || COALESCE(u.event_key, r.event_key)
          END
      AND e.event_type = u.event_type AND NOT e.given
    ORDER BY e.since, e.event_id LIMIT cardinality($1::bigint[])
) i ORDER BY u.place, i.since, i.event_id";

pub(super) const DELETE_TASKS: &str = "
DELETE FROM tasks t USING unnest($1::bigint[], $2::text[]) AS u (run_no, target)
WHERE t.run_no = u.run_no AND t.target = u.target";

/// A lease's end is moved from the sender's clock to the database's.
pub(super) const PUT_TASKS: &str = "
INSERT INTO tasks (run_no, target, queue, op, priority, visible_at, worker, until, leased, stopping)
SELECT u.run_no, u.target, u.queue, u.op, u.priority, u.visible_at, u.worker,
       u.until + clock($1) - $2, u.worker IS NOT NULL, u.stopping
FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::bigint[],
            $9::text[], $10::bigint[], $11::boolean[])
    AS u (run_no, target, queue, op, priority, visible_at, worker, until, stopping)
ON CONFLICT (run_no, target) DO UPDATE SET
    queue = excluded.queue, op = excluded.op, priority = excluded.priority,
    visible_at = excluded.visible_at, worker = excluded.worker, until = excluded.until,
    leased = excluded.leased, stopping = excluded.stopping";

pub(super) const CHANGE_TASKS: &str = "
UPDATE tasks t SET worker = COALESCE(u.worker, t.worker),
                   until = COALESCE(u.until + clock($1) - $2, t.until),
                   leased = t.leased OR u.worker IS NOT NULL, stopping = t.stopping OR u.stopping
FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::boolean[])
    AS u (run_no, target, worker, until, stopping)
WHERE t.run_no = u.run_no AND t.target = u.target";

pub(super) const DELETE_WAITS: &str = "
DELETE FROM waits w USING unnest($1::bigint[], $2::text[]) AS u (run_no, step)
WHERE w.run_no = u.run_no AND w.step = u.step";

pub(super) const PUT_WAITS: &str = "
INSERT INTO waits (run_no, since, given, step, event_type, event_key)
SELECT u.run_no, clock($1), u.given, u.step, u.event_type, r.event_key
FROM unnest($2::bigint[], $3::boolean[], $4::text[], $5::text[])
    AS u (run_no, given, step, event_type)
JOIN runs r ON r.run_no = u.run_no
ON CONFLICT (run_no, step) DO UPDATE SET
    since = excluded.since, given = excluded.given, event_type = excluded.event_type";

pub(super) const GIVE_EVENTS: &str = "
UPDATE inbox SET given = true WHERE event_id = ANY($1)";

pub(super) const POST_BY_NUMBER: &str = "
INSERT INTO mailbox (run_no, body)
SELECT u.run_no, u.body FROM unnest($1::bigint[], $2::text[]) AS u (run_no, body)";

/// Mail to a run that is not there is dropped.
pub(super) const POST_BY_ID: &str = "
INSERT INTO mailbox (run_no, body)
SELECT r.run_no, u.body
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (run_id, body, place)
JOIN runs r ON r.run_id = u.run_id ORDER BY u.place";

pub(super) const NOTIFY: &str = "SELECT pg_notify('stepwell/' || current_schema(), '')";

/// The sinks that the store knows get every chunk. Registering one locks the table `sinks`: a commit sees the sink,
/// or registering the sink sees its chunk.
pub(super) const MARK_REGISTERED: &str = "
INSERT INTO outbox (sink, run_no, first_seq, attempts, due_at, since)
SELECT s.name, u.run_no, u.first_seq, 0, clock($1), clock($1)
FROM sinks s CROSS JOIN unnest($2::bigint[], $3::integer[]) AS u (run_no, first_seq)
ON CONFLICT DO NOTHING";

pub(super) const MARK: &str = "
INSERT INTO outbox (sink, run_no, first_seq, attempts, due_at, since)
SELECT u.sink, u.run_no, u.first_seq, 0, clock($1), clock($1)
FROM unnest($2::text[], $3::bigint[], $4::integer[]) AS u (sink, run_no, first_seq)
ON CONFLICT DO NOTHING";

/// A key that another commit takes at the same time is a duplicate. In the order of the keys, so that
/// two commits do not wait for each other.
pub(super) const TAKE_UNIQUE_KEYS: &str = "
INSERT INTO unique_keys (run_no, tenant, key)
SELECT u.run_no, u.tenant, u.key
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS u (run_no, tenant, key)
WHERE NOT EXISTS (SELECT FROM unique_keys k
                  WHERE k.tenant = u.tenant AND k.key = u.key AND k.run_no = u.run_no)
ORDER BY u.key, u.tenant";

pub(super) const FREE_UNIQUE_KEYS: &str = "
DELETE FROM unique_keys k
USING unnest($1::bigint[], $2::text[], $3::text[]) AS u (run_no, tenant, key)
WHERE k.tenant = u.tenant AND k.key = u.key AND k.run_no = u.run_no";

pub(super) const VIEW_ROWS: &str = "
INSERT INTO view_rows (run_no, row_no, view_name, body)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[])
ON CONFLICT (view_name, run_no, row_no) DO UPDATE SET body = excluded.body";

pub(super) const LABELS: &str = "
INSERT INTO run_labels (run_no, name, value) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[])";

pub(super) const SNAPSHOTS: &str = "
INSERT INTO snapshots AS s (run_no, seq, version, body)
SELECT * FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::bytea[])
ON CONFLICT (run_no) DO UPDATE SET seq = excluded.seq, version = excluded.version,
    body = excluded.body WHERE s.seq <= excluded.seq";

pub(super) const ALERTS: &str = "
INSERT INTO alerts (run_no, at, priority, code, message)
SELECT u.run_no, clock($1), u.priority, u.code, u.message
FROM unnest($2::bigint[], $3::smallint[], $4::text[], $5::text[])
    AS u (run_no, priority, code, message)";
