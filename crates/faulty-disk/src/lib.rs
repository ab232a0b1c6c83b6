//! A disk for SQLite that fails on purpose: writes that fail, no room, syncs that fail or lie, and a loss of power that
//! takes any part of what was not synced, in any order, whole sectors or not at all. For the simulator only.
//!
//! The files are real files. `vfs` stands between SQLite and the functions of the system and tells `disk` what SQLite
//! writes and syncs in the folder of a disk; files of other folders are left alone. No sync reaches the system, so
//! thousands of crashes take seconds.

mod disk;
mod vfs;

pub use disk::{DiskFault, FaultyDisk};
