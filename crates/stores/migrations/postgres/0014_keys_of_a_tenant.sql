-- A unique key belongs to one open run of a tenant; before, to one open run of the store. Servers of the version before this
-- one go on beside a new one: they write and delete rows by `plan_id` (always empty) and `key`, and know no tenant, so the
-- tenant of their rows is read from the run. They look for a key with all tenants, so they refuse more than they must.
ALTER TABLE unique_keys ADD COLUMN tenant text COLLATE "C";
UPDATE unique_keys u SET tenant = COALESCE((SELECT r.tenant FROM runs r WHERE r.run_no = u.run_no), '');
ALTER TABLE unique_keys
    ALTER COLUMN tenant SET NOT NULL,
    ALTER COLUMN plan_id SET DEFAULT '',
    DROP CONSTRAINT unique_keys_pkey,
    ADD PRIMARY KEY (key, tenant);

CREATE FUNCTION unique_key_tenant() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS
$$ BEGIN
    NEW.tenant := COALESCE((SELECT r.tenant FROM runs r WHERE r.run_no = NEW.run_no), '');
    RETURN NEW;
END $$;

CREATE TRIGGER unique_key_tenant BEFORE INSERT ON unique_keys
FOR EACH ROW WHEN (NEW.tenant IS NULL) EXECUTE FUNCTION unique_key_tenant();
