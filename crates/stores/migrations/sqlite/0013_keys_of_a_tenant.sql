-- A unique key belongs to one open run of a tenant; before, to one open run of the store.
CREATE TABLE keys_of_tenants (
  tenant TEXT NOT NULL,
  key    TEXT NOT NULL,
  run_no INTEGER NOT NULL,
  PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

INSERT INTO keys_of_tenants (tenant, key, run_no)
SELECT runs.tenant, unique_keys.key, unique_keys.run_no FROM unique_keys JOIN runs USING (run_no);

DROP TABLE unique_keys;
ALTER TABLE keys_of_tenants RENAME TO unique_keys;
