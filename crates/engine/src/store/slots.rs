//! Slots: how many runs of a key may run at a time. Slots are taken and freed by appends
//! (`SlotChange`) and only read here.

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Reads slots and the runs that wait for one.
pub trait Slots {
    /// Queued runs that may start by their time: the greatest priority first, of equal ones the one that was created
    /// first. Numbers of runs say nothing about age: each server takes them from a block of its own.
    ///
    /// Durable on return: reads only; a run leaves the queue by an append that takes its slot.
    /// Crash: nothing to recover. Twice: the runs as they are then.
    fn queued(&self, now: Time, limit: usize) -> Result<Vec<RunNo>>;

    /// How many slots of a key are taken.
    ///
    /// Durable on return: reads only. Crash: nothing to recover; a run's slots are in its head, so
    /// exactly these are freed when it ends, by whichever server. Twice: the number as it is then.
    fn slots_taken(&self, key: &str) -> Result<u32>;
}
