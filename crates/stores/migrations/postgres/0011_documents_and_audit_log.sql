-- Small documents of the installation. `version` counts the changes: a change names the version that it is based on.
CREATE TABLE documents (
    version    bigint NOT NULL,
    changed_at bigint NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (kind, tenant, key)
);

-- Who did what.
CREATE TABLE audit_log (
    audit_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    accepted boolean NOT NULL,
    tenant   text COLLATE "C",
    actor    text COLLATE "C" NOT NULL,
    token    text,
    source   text NOT NULL,
    action   text COLLATE "C" NOT NULL,
    target   text COLLATE "C" NOT NULL,
    code     text,
    reason   text
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX audit_log_at ON audit_log (at, audit_no);
CREATE INDEX audit_log_tenant ON audit_log (tenant, audit_no);
CREATE INDEX audit_log_actor ON audit_log (actor, audit_no);
CREATE INDEX audit_log_target ON audit_log (target, audit_no);

-- Rows are added. Only rows before the time in the settings may be deleted, and the setting is there only in the
-- transaction that deletes them.
CREATE FUNCTION audit_log_stays() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS
$$ BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.at < (SELECT convert_from(s.value, 'UTF8')::bigint FROM settings s
                     WHERE s.name = 'audit_pruned_before') THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'audit_log: rows of the audit log are never changed, and deleted by their age only'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_log_stays', TABLE = 'audit_log';
END $$;

CREATE TRIGGER audit_log_stays BEFORE UPDATE OR DELETE ON audit_log
FOR EACH ROW EXECUTE FUNCTION audit_log_stays();

CREATE TRIGGER audit_log_is_kept BEFORE TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION audit_log_stays();
