//! The built-in tools, one file or folder each. What a tool is given and must keep to is in
//! `crate::tool`; which fields a kind has is the dialects' table.

pub mod duckdb;
pub mod postgres;
mod sql;
pub mod sqlite;
