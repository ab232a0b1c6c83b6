//! SQLite, inside the process.
