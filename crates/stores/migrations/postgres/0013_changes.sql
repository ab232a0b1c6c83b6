-- Which runs have changed, in the order of transactions: a row for each statement that appends to the log. Servers that
-- follow all runs read it from their mark on. Old rows are deleted; `changes_forgotten` in the settings is the last
-- transaction of which rows are gone.
CREATE TABLE changes (
    xact bigint NOT NULL,
    at   bigint NOT NULL,
    runs bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX changes_xact ON changes (xact);

CREATE FUNCTION log_changes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS
$$ BEGIN
    INSERT INTO changes (xact, at, runs)
    SELECT pg_current_xact_id()::text::bigint, clock(NULL), array_agg(a.run_no) FROM added a HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE TRIGGER log_changes AFTER INSERT ON log REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION log_changes();

-- The runs of a tenant are found in `heads`, for each status by itself: a new run is written into one index less.
DROP INDEX runs_tenant;
