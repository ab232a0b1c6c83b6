-- No two chunks of a run have a sequence number in common, whoever writes them. The chunk that begins last among those
-- that begin before the end of a new one is the only one that can meet it. The index has all that is asked for; that
-- the beginnings of chunks are unique follows, so the index need not see to it.
DROP INDEX log_by_run;
CREATE INDEX log_by_run ON log (run_no, first_seq, last_seq);

CREATE TRIGGER log_ranges BEFORE INSERT ON log
WHEN NEW.first_seq <= (
  SELECT last_seq FROM log
  WHERE run_no = NEW.run_no AND first_seq <= NEW.last_seq
  ORDER BY first_seq DESC LIMIT 1)
BEGIN
  SELECT RAISE(ABORT, 'log_ranges: the sequence numbers of a run are unique, and a chunk of the log has some of these');
END;

CREATE TRIGGER log_ranges_stay BEFORE UPDATE OF run_no, first_seq, last_seq ON log
BEGIN
  SELECT RAISE(ABORT, 'log_ranges: the sequence numbers of a chunk of the log never change');
END;

-- Events that waited for the store have the time of their append beside the time of their decision.
DROP VIEW events;

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
    strftime('%Y-%m-%dT%H:%M:%S', at / 1000, 'unixepoch') || printf('.%03dZ', at % 1000) AS decided_at,
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
  coalesce(residual ->> '$.emittedAt', decided_at) AS emitted_at,
  json_patch(
    json_patch(
      replace(replace(replace(coalesce(template, '{}'),
        '"$at"', json_quote(decided_at)),
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
