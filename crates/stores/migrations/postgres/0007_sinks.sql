-- The sinks that get every event, no matter which process commits it.

CREATE TABLE sinks (
    since   bigint NOT NULL,
    name    text COLLATE "C" PRIMARY KEY,
    address text NOT NULL
);
