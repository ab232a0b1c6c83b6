//! Tasks that workers outside claim through this server: the run of a reserved task is read, and the claim is a command
//! like any other, guarded by the reservation where another process could claim the task too.

use std::sync::Arc;

use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::time::Time;
use stepwell_kernel::trace::TraceContext;

use super::{Assignment, Coordinator, Tenancy};
use crate::error::Error;
use crate::rows::parse_target;
use crate::store::{Guard, RunNo, TaskRow};

/// A task that is about to be claimed for a worker outside.
pub(crate) struct OutsideClaim {
    run: RunNo,
    pub(crate) run_id: Arc<str>,
    parent: Option<Arc<str>>,
    tenancy: Tenancy,
    plan: Arc<Plan>,
    /// The place of the run in a distributed trace.
    trace: Option<TraceContext>,
    /// Must hold when the claim is committed.
    pub(crate) guard: Option<Guard>,
}

impl OutsideClaim {
    /// The work, once its claim is committed.
    pub(crate) fn assignment(self, reply: Reply) -> Result<Assignment, Error> {
        match reply {
            Reply::Claimed(claimed) => Ok(Assignment {
                run: self.run,
                trace: Assignment::trace(
                    self.trace.as_ref(),
                    &self.run_id,
                    &self.plan,
                    &claimed.claim,
                ),
                run_id: self.run_id,
                parent: self.parent,
                tenancy: self.tenancy,
                plan: self.plan,
                claimed: *claimed,
            }),
            Reply::Refused(rejection) => Err(rejection.into()),
            Reply::Done | Reply::Created { .. } | Reply::Duplicate(_) | Reply::RetryRun { .. } => {
                Err(gone().into())
            }
        }
    }
}

fn gone() -> Rejection {
    Rejection::new(Code::LeaseLost, "the task is no longer offered")
}

impl Coordinator {
    /// The command that claims a reserved task for its worker, and what the worker gets.
    pub(crate) fn reserved_for_outside(
        &mut self,
        task: &TaskRow,
        lease_until: Time,
    ) -> Result<(Command, OutsideClaim), Error> {
        self.refresh(task.run);
        let (session, alone) = (self.lease.session(), self.store_is_ours());
        let hot = self.runs.load(task.run, self.room())?;
        let worker = task.worker.clone().ok_or_else(gone)?;
        let Some(target) = parse_target(hot.plan(), &task.target) else {
            let what = "a task is named after no step of its run's plan";
            self.invariants.broken(task.run, what);
            return Err(gone().into());
        };
        if alone && hot.is_owned_by_other(session) {
            // The server that had the run is dead, and this one is about to take the run over.
            return Err(gone().into());
        }
        let guard = (!alone).then(|| Guard::Lease {
            target: task.target.clone(),
            worker: worker.clone(),
        });
        let parent = hot.state().parent().map(|it| it.run_id.as_str().into());
        let given = OutsideClaim {
            run: task.run,
            run_id: Arc::clone(hot.run_id()),
            parent,
            tenancy: Tenancy::of(hot.state().context()),
            plan: Arc::clone(hot.plan()),
            trace: hot.state().context().trace.clone(),
            guard,
        };
        let claim = Command::ClaimStep {
            target,
            worker,
            lease_until,
        };
        Ok((claim, given))
    }
}
