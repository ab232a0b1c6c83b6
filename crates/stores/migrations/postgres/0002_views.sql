-- The log and linear runs as their specifications have them, for people and programs with SQL.
-- Bodies with RETURN are bound here and now, so that a reader's search path does not matter.

-- What the events of a type share, by the form that chunks are written in. Filled by the program.
CREATE TABLE event_templates (
    codec      smallint NOT NULL,
    event_type text COLLATE "C" NOT NULL,
    json       text NOT NULL,
    PRIMARY KEY (codec, event_type)
);

CREATE FUNCTION moment(millis bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN timestamptz '1970-01-01 00:00:00+00' + millis * interval '1 millisecond';

-- The entries of a chunk. PostgreSQL looks into no JSON that has a \u0000 anywhere, so a private
-- character stands for it meanwhile; `with_nul` puts it back. A chunk that is no JSON has no entries.
CREATE FUNCTION chunk_entries(body text)
RETURNS TABLE (at bigint, residual json, ext json) LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
$$ BEGIN
    RETURN QUERY SELECT (e.value->>0)::bigint, e.value->1, e.value->2
    FROM json_array_elements(replace(body, '\u0000', '\ue0f0')::json) WITH ORDINALITY AS e (value, place)
    ORDER BY e.place;
EXCEPTION WHEN OTHERS THEN RETURN;
END $$;

CREATE FUNCTION with_nul(value json, body text) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN position('\u0000' IN body) = 0 THEN value
            ELSE replace(value::text, '\ue0f0', '\u0000')::json END;

-- The template with the residual over it, and what is kept elsewhere. Members of the residual are
-- whole values: nothing below the first level is merged.
CREATE FUNCTION event_json(template text, at bigint, run_id text, plan_version text, residual json,
                           event_id text, idempotency_key text, run_seq integer, event_type text)
RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT json_object_agg(m.key, m.value) FROM (
    SELECT t.key, t.value FROM json_each(
        replace(replace(replace(template,
            '"$at"', to_char(moment(at) AT TIME ZONE 'UTC', '"\""YYYY-MM-DD"T"HH24:MI:SS.MS"Z\""')),
            '"$runId"', to_json(run_id)::text),
            '"$planVersion"', to_json(plan_version)::text)::json) AS t
    WHERE residual->t.key IS NULL
    UNION ALL SELECT r.key, r.value FROM json_each(residual) AS r WHERE json_typeof(r.value) <> 'null'
    UNION ALL SELECT k.key, k.value FROM (VALUES
        ('eventId', to_json(event_id)), ('idempotencyKey', to_json(idempotency_key)),
        ('runSeq', to_json(run_seq)), ('eventType', to_json(event_type))) AS k (key, value)
) m);

-- One row for each event; `event` is the contract's event, `ext` what Stepwell adds to it.
CREATE VIEW events AS
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
LEFT JOIN event_templates t ON t.codec = l.codec AND t.event_type = e.ext->>'type';

CREATE VIEW workflow_instance AS
SELECT r.run_id AS instance_id, i.biz_key, i.workflow_type, i.workflow_version, i.status,
       i.current_step_seq, i.current_step_type, moment(i.started_at) AS started_at,
       moment(i.completed_at) AS completed_at, moment(i.failed_at) AS failed_at
FROM linear_instances i JOIN runs r ON r.run_no = i.run_no;

-- The name of a plan's step. A net that PostgreSQL cannot look into has no names.
CREATE FUNCTION step_name(net text, place integer) RETURNS text LANGUAGE plpgsql IMMUTABLE
PARALLEL SAFE AS
$$ BEGIN RETURN net::json->'steps'->place->>'name';
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END $$;

-- A lease lasts as its task's row says, or as the session of the server that has the run does.
CREATE VIEW workflow_step AS
SELECT r.run_id AS instance_id, s.step_seq, s.step_type, s.status, s.attempts, s.max_attempts,
       moment(s.next_run_at) AS next_run_at, s.waiting_event_type,
       moment(s.deadline_at) AS deadline_at, s.locked_by,
       moment(CASE WHEN s.locked_by IS NOT NULL
                   THEN COALESCE(t.until, x.ends_at, s.locked_until) END) AS locked_until,
       s.last_error
FROM linear_steps s
JOIN runs r ON r.run_no = s.run_no
JOIN plans p ON p.plan_no = r.plan_no
LEFT JOIN heads h ON h.run_no = s.run_no
LEFT JOIN sessions x ON x.session_no = h.session_no
LEFT JOIN tasks t ON t.run_no = s.run_no AND t.leased
    AND t.target = step_name(p.net, s.step_seq::integer);
