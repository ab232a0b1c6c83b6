//! Workers in other processes: what this server knows of them, and the tokens of the tasks that they were given. What a
//! task is and whether its lease holds is the engine's matter.

mod attendance;
mod registry;
mod token;

use std::fmt;
use std::sync::Arc;

use stepwell_engine::coordinator::Serves;
use stepwell_engine::port::Clock;
use stepwell_engine::remote::{RemoteClaim, RemoteWork};
use stepwell_engine::service::Handle;
use stepwell_engine::store::{Store, StoreError};
use stepwell_worker::OutsideInputs;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;

use crate::access::Caller;
use crate::codes;
use crate::problem::ApiProblem;
pub(crate) use attendance::{Attendance, OwnNote, ServedWork, announce};
pub(crate) use registry::{Registry, SeenWorker};
use token::TaskTokens;

/// What the server has for workers in other processes.
pub(crate) struct Workers {
    pub(crate) remote: RemoteWork,
    pub(crate) inputs: OutsideInputs,
    pub(crate) registry: Registry,
    /// Which work somebody does.
    pub(crate) attendance: Attendance,
    tokens: TaskTokens,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Workers {
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        engine: Handle,
        clock: Arc<dyn Clock>,
        (artifacts, logs): (Artifacts, Logs),
        serves: Serves,
    ) -> Result<Workers, StoreError> {
        Ok(Workers {
            tokens: TaskTokens::new(&store.secret()?),
            remote: RemoteWork::new(Arc::clone(store), engine, clock),
            inputs: OutsideInputs::new(artifacts, logs),
            registry: Registry::default(),
            attendance: Attendance::new(serves),
        })
    }

    /// The token that stands for a claim of the caller's worker.
    pub(crate) fn token(&self, caller: &Caller, claim: &RemoteClaim) -> String {
        self.tokens.make(caller.tenant.as_deref(), claim)
    }

    /// The claim that a token stands for. A token of another tenant is as good as none.
    pub(crate) fn claim(&self, caller: &Caller, token: &str) -> Result<RemoteClaim, ApiProblem> {
        let claim = self.tokens.open(caller.tenant.as_deref(), token);
        // Whoever is bound to a project was never given a task.
        claim.filter(|_| caller.project.is_none()).ok_or_else(|| {
            ApiProblem::not_found(
                codes::TASK_TOKEN_UNKNOWN,
                "this server has given no task with this token",
            )
        })
    }
}
