-- No two chunks of a run have a sequence number in common, whoever writes them and with whatever search_path. Who appends
-- to a run has its head until the end of the transaction, so that appends under way at once see each other; that needs
-- the isolation in which a statement sees what was committed before it. The check is done once for each statement. The
-- chunk that begins last among those that begin before the end of a new one is the only one that can meet it.
CREATE FUNCTION log_ranges() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS
$$ BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'log_ranges: the log is appended to in transactions with the isolation level READ COMMITTED'
            USING ERRCODE = 'invalid_transaction_state', CONSTRAINT = 'log_ranges', TABLE = 'log';
    END IF;
    PERFORM FROM heads h WHERE h.run_no IN (SELECT a.run_no FROM added a) ORDER BY h.run_no FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT FROM added a CROSS JOIN LATERAL (
            SELECT l.last_seq FROM log l
            WHERE l.run_no = a.run_no AND l.first_seq <= a.last_seq AND l.first_seq <> a.first_seq
            ORDER BY l.first_seq DESC LIMIT 1) other
        WHERE other.last_seq >= a.first_seq
    ) THEN
        RAISE EXCEPTION 'log_ranges: the sequence numbers of a run are unique, and a chunk of the log has some of these'
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'log_ranges', TABLE = 'log';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION log_ranges_stay() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    RAISE EXCEPTION 'log_ranges: the sequence numbers of a chunk of the log never change'
        USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'log_ranges', TABLE = 'log';
END $$;

CREATE TRIGGER log_ranges AFTER INSERT ON log REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION log_ranges();

CREATE TRIGGER log_ranges_stay BEFORE UPDATE OF run_no, first_seq, last_seq ON log
FOR EACH ROW EXECUTE FUNCTION log_ranges_stay();

-- Events that waited for the store have the time of their append beside the time of their decision.
CREATE OR REPLACE VIEW events AS
SELECT r.run_id, e.seq AS run_seq, e.ext->>'type' AS event_type,
       encode(substring(l.digests FROM d.at + 1 FOR 16), 'hex')::uuid AS event_id,
       encode(substring(l.digests FROM d.at + 17 FOR 32), 'hex') AS idempotency_key,
       encode(substring(l.digests FROM d.at + 49 FOR 32), 'hex') AS hash,
       COALESCE((e.residual->>'emittedAt')::timestamptz, moment(e.at)) AS emitted_at,
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
