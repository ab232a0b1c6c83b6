//! What the tests of tools share: calls and their context, programs, and a PostgreSQL server.

pub(crate) mod calls;
pub(crate) mod postgres_server;
pub(crate) mod programs;
