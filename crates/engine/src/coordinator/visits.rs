//! Visits: someone outside looks at a run as it is in memory. For engines that move runs from outside, which must not read the
//! whole log of a run for each step of it.

use stepwell_kernel::time::Time;

use super::{Coordinator, HotRun};
use crate::error::Error;
use crate::store::RunNo;

impl Coordinator {
    /// Makes a run ready to be looked at: reads it again if other processes have moved it, and with `wake` fires what is due
    /// and sees to everything else that the run needs.
    pub(crate) fn prepare_visit(&mut self, run: RunNo, wake: bool, now: Time) -> Result<(), Error> {
        if !self.is_alone(run)
            && let Some(hot) = self.runs.get(run)
        {
            let run_id = hot.run_id().to_string();
            self.forget_if_moved(&run_id)?;
        }
        self.rejoin(run, now);
        let room = self.room();
        let run_id = self.runs.load(run, room)?.run_id().to_string();
        if wake {
            self.work_on(&run_id);
            self.wake(run, now);
        }
        Ok(())
    }

    /// Whether something is decided for a run, or on its way to the store.
    pub(crate) fn is_changing(&self, run: RunNo) -> bool {
        self.runs.get(run).is_some_and(HotRun::is_changing)
    }

    /// A run as it is in memory; read from the store if it is not there.
    pub(crate) fn visited(&mut self, run: RunNo) -> Result<&HotRun, Error> {
        let room = self.room();
        self.runs.load(run, room).map(|hot| &*hot)
    }
}
