//! PostgreSQL when things go wrong.
