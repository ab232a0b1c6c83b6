-- What lists of runs are searched by. A list has the newest runs first, that is the greatest numbers: an index on the
-- columns that are asked for has the numbers in order.

CREATE TABLE run_labels (
  run_no INTEGER NOT NULL,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_no, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_labels_by_value ON run_labels (name, value, run_no);

-- Also in `runs`: the runs of a tenant with a status are found by one index.
ALTER TABLE heads ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
UPDATE heads SET tenant = runs.tenant FROM runs WHERE runs.run_no = heads.run_no;

CREATE INDEX heads_by_tenant ON heads (tenant, status);
CREATE INDEX heads_by_end ON heads (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_by_tenant ON runs (tenant);
CREATE INDEX runs_by_plan ON runs (plan_no);
CREATE INDEX runs_by_creation ON runs (created_at);
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
-- Most runs have no key but their id.
CREATE INDEX runs_by_event_key ON runs (event_key) WHERE event_key <> run_id;
