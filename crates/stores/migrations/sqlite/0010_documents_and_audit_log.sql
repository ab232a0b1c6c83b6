-- Small documents of the installation. `version` counts the changes: a change names the version that it is based on.
CREATE TABLE documents (
  kind       TEXT NOT NULL,
  tenant     TEXT NOT NULL,
  key        TEXT NOT NULL,
  version    INTEGER NOT NULL,
  body       TEXT NOT NULL,
  changed_at INTEGER NOT NULL,
  PRIMARY KEY (kind, tenant, key)
) STRICT, WITHOUT ROWID;

-- Who did what. Numbers are never used again: pages are read by them.
CREATE TABLE audit_log (
  audit_no INTEGER PRIMARY KEY AUTOINCREMENT,
  at       INTEGER NOT NULL,
  tenant   TEXT,
  actor    TEXT NOT NULL,
  token    TEXT,
  source   TEXT NOT NULL,
  action   TEXT NOT NULL,
  target   TEXT NOT NULL,
  accepted INTEGER NOT NULL,
  code     TEXT,
  reason   TEXT
) STRICT;
CREATE INDEX audit_log_by_at ON audit_log (at);
CREATE INDEX audit_log_by_tenant ON audit_log (tenant);
CREATE INDEX audit_log_by_actor ON audit_log (actor);
CREATE INDEX audit_log_by_target ON audit_log (target);

-- Rows are added. Only rows before the time in the settings may be deleted, and the setting is there only in the
-- transaction that deletes them.
CREATE TRIGGER audit_log_stays BEFORE UPDATE ON audit_log
BEGIN
  SELECT RAISE(ABORT, 'audit_log: rows of the audit log are never changed');
END;

CREATE TRIGGER audit_log_is_kept BEFORE DELETE ON audit_log
WHEN OLD.at >= coalesce(
  (SELECT value FROM settings WHERE name = 'audit_pruned_before'), -9223372036854775808)
BEGIN
  SELECT RAISE(ABORT, 'audit_log: rows of the audit log are deleted by their age only');
END;

-- A row that is replaced is deleted without the trigger above, unless the connection asks for it.
CREATE TRIGGER audit_log_is_added_to BEFORE INSERT ON audit_log
WHEN EXISTS (SELECT 1 FROM audit_log WHERE audit_no = NEW.audit_no)
BEGIN
  SELECT RAISE(ABORT, 'audit_log: rows of the audit log are never replaced');
END;

INSERT INTO tallies VALUES ('documents', 0, 0), ('audit_log', 0, 0);
