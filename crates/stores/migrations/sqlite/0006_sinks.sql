-- The sinks that get every event, no matter which process commits it.

CREATE TABLE sinks (
  name    TEXT PRIMARY KEY,
  address TEXT NOT NULL,
  since   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO tallies VALUES ('sinks', 0, 0);
