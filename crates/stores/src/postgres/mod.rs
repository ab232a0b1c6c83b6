//! PostgreSQL, for many servers on one database.
