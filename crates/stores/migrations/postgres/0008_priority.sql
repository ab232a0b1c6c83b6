-- Of the runs that wait for a slot, the one with the greatest priority starts first.

ALTER TABLE runs ADD COLUMN priority integer NOT NULL DEFAULT 0;
