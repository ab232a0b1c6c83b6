-- What the rows of a table add up to, for tables whose rows follow from no log. The program keeps it in the transaction
-- of each change (triggers of its own connections); a change by anyone else is found by `stepwell db check`. The rows
-- are counted after this migration.

CREATE TABLE tallies (
  table_name TEXT PRIMARY KEY,
  rows       INTEGER NOT NULL,
  total      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
