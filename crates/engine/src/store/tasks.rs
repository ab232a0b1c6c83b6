//! Tasks: work for workers outside the server. A task is put, leased and deleted by appends
//! (`TaskChange`); here it is offered to workers and its lease is extended.

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Offers tasks and keeps leases.
pub trait Tasks {
    /// Reserves tasks of the runs of all tenants, as `reserve_for` does.
    ///
    /// Durable on return: the reservations. Crash after the return: they end by themselves after `until`. Twice: the second
    /// call does not get the tasks of the first until `until`.
    fn reserve(
        &self,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        self.reserve_for(None, serves, worker, now, until, limit)
    }

    /// Reserves visible tasks of these queues and operations for a worker until `until`; no two workers
    /// get the same task. By priority, time, run and target. A reservation is not a lease: the claim
    /// must be committed first. With a tenant: only tasks of this tenant's runs.
    ///
    /// Durable on return: the reservations.
    ///
    /// Crash after the return: a reservation ends by itself after `until`, and the task is offered again.
    ///
    /// Twice: the second call does not get the tasks of the first until `until`.
    fn reserve_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>>;

    /// Tasks that `reserve_for` would reserve, in the same order, at most `limit`.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the same tasks, until they are reserved or claimed;
    /// only where no other process can claim them (`Store::is_shared`) is a look enough to claim them next.
    fn open_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        now: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>>;

    /// Extends a lease that has not ended. Returns whether the worker still has the lease; it has not if
    /// the run stops.
    ///
    /// Durable on return: the new end, if the worker has the lease.
    ///
    /// Crash before the return: the lease lasts until its old or its new end.
    ///
    /// Twice: the later call counts.
    fn heartbeat(
        &self,
        run: RunNo,
        target: &str,
        worker: &str,
        now: Time,
        until: Time,
    ) -> Result<bool>;

    /// Tasks whose lease (not mere reservation) has ended, at most `limit`; by its end, run and target.
    ///
    /// Durable on return: reads only; the loss of the lease is an event that the reader appends with
    /// `Guard::Expired`, so that of a late result and the expiry exactly one wins.
    /// Crash: nothing to recover. Twice: the same tasks until their loss is appended.
    fn expired(&self, now: Time, limit: usize) -> Result<Vec<TaskRow>>;

    /// Tasks that are leased, of one worker or of all, of one tenant or of all; at most `limit`, by run and target.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the leases as they are then.
    fn leases(
        &self,
        worker: Option<&str>,
        tenant: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TaskRow>>;

    /// The queues and operations of tasks that no worker has leased and that need not stop, each once, in order, at most
    /// `limit`. The cost follows the number of queues and operations, not that of the tasks.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the names as they are then.
    fn open_kinds(&self, limit: usize) -> Result<Vec<(String, String)>>;

    /// When `reserve` has its next task of these queues and operations to give: when one becomes
    /// visible, or the instant after its reservation ends.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the time as it is then.
    fn next_visible(&self, serves: &[(String, String)]) -> Result<Option<Time>>;
}

/// A row of `tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    pub run: RunNo,
    /// The step's id, with `~undo` for its undo.
    pub target: String,
    /// Name of the queue.
    pub queue: String,
    /// Name of the operation.
    pub op: String,
    /// Workers get tasks with smaller numbers first; the order of the step in its plan.
    pub priority: i32,
    /// Workers do not see the task before this time.
    pub visible_at: Time,
    /// The worker that reserved or leased the task; absent if the task is free.
    pub worker: Option<String>,
    /// The last instant of the reservation or lease.
    pub until: Option<Time>,
    /// The claim is committed.
    pub leased: bool,
    /// The worker must stop: its heartbeats are refused.
    pub stopping: bool,
}
