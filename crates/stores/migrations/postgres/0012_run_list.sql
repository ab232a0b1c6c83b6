-- What lists of runs are searched by. A list has the newest runs first, that is the greatest numbers: an index on the
-- columns that are asked for has the numbers in order.

CREATE TABLE run_labels (
    run_no bigint NOT NULL,
    name   text COLLATE "C" NOT NULL,
    value  text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_no, name)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX run_labels_value ON run_labels (name, value, run_no);

-- Also in `runs`: the runs of a tenant with a status are found by one index.
ALTER TABLE heads ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT '';
UPDATE heads h SET tenant = r.tenant FROM runs r WHERE r.run_no = h.run_no;

CREATE INDEX heads_tenant ON heads (tenant, status, run_no);
CREATE INDEX heads_status ON heads (status, run_no);
CREATE INDEX heads_open ON heads (run_no) WHERE ended_at IS NULL;
CREATE INDEX heads_end ON heads (ended_at, run_no) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_tenant ON runs (tenant, run_no);
CREATE INDEX runs_plan ON runs (plan_no, run_no);
CREATE INDEX runs_creation ON runs (created_at, run_no);
CREATE INDEX runs_parent ON runs (parent, run_no) WHERE parent IS NOT NULL;
-- Most runs have no key but their id.
CREATE INDEX runs_event_key ON runs (event_key, run_no) WHERE event_key <> run_id;
CREATE INDEX plans_plan_id ON plans (plan_id, plan_no);

-- The language of a plan. A net that PostgreSQL cannot look into has none.
CREATE FUNCTION plan_dialect(net text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
$$ BEGIN RETURN replace(net, '\u0000', '')::json->>'dialect';
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END $$;
