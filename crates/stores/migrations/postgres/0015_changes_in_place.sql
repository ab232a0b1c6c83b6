-- The runs of a large commit stay in the row, as they are: to compress them and to put them elsewhere took five times as
-- long as everything else that the trigger does. A row has at most one page; what is longer is put elsewhere as before.
ALTER TABLE changes ALTER COLUMN runs SET STORAGE EXTERNAL;
ALTER TABLE changes SET (toast_tuple_target = 8160);
