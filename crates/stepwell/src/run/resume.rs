//! Finding a run that has not ended, and taking it up where the last process left it.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;
use stepwell_dialects::words::quote;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::read::RunSource;
use stepwell_engine::store::{Patience, RunFilter, Store};

use crate::progress::Progress;
use crate::store::StoreArgs;
use crate::usage;
use stepwell_engine::service::Handle;
use stepwell_kernel::plan::Plan;
use stepwell_views::{ChildRuns, RunView};

/// How many open runs are looked at for one of the definition.
const CANDIDATES: usize = 200;
/// How long to wait for a process that has the run and may be dead.
const PATIENCE: Duration = Duration::from_secs(20);

/// The last event of each run that is not shown again.
pub(super) type Watermarks = HashMap<String, u64>;

/// The latest run of a definition that has not ended: of exactly this one, else of one with its name.
pub(super) fn latest(
    store: &dyn Store,
    plan: &Plan,
    place: &StoreArgs,
    tenant: Option<String>,
) -> Result<RunView> {
    let plan_id = &plan.net().plan_id;
    let filter = RunFilter {
        plan_id: Some(plan_id.clone()),
        tenant,
        open: true,
        limit: CANDIDATES,
        ..RunFilter::default()
    };
    let open = store.list(&filter)?;
    let ids: Vec<&str> = open.iter().map(|it| it.run_id.as_str()).collect();
    match choose(store, plan, &ids)? {
        Some(found) => Ok(found),
        None => usage(format!(
            "{} has no run of {} that has not ended; without --resume a new one is started",
            place.shown(),
            quote(plan_id)
        )),
    }
}

/// Of these runs the first that has not ended: of exactly this definition, else of one with its name.
pub(super) fn choose(runs: &dyn RunSource, plan: &Plan, ids: &[&str]) -> Result<Option<RunView>> {
    let mut changed = None;
    for id in ids {
        let found = RunView::read(runs, id)?;
        // A child goes on with its parent.
        if found.state.parent().is_some() || found.state.phase().is_ended() {
            continue;
        }
        if found.plan.hash() == plan.hash() {
            return Ok(Some(found));
        }
        changed.get_or_insert(found);
    }
    if let Some(found) = &changed {
        writeln!(
            io::stderr(),
            "note: the definition is not the one that {} was started with; the run goes on with its own",
            found.state.run_id()
        )?;
    }
    Ok(changed)
}

/// Waits until no living process has the run. SQLite has one owner, which is this process now; on
/// PostgreSQL a process that was killed counts as alive until its time is over.
pub(super) fn wait_for_owner(store: &dyn Store, found: &RunView) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut waiting = None;
    loop {
        let stored = store.load(found.run)?;
        let session = stored.and_then(|stored| stored.head.session);
        let Some(session) = session else {
            return Ok(());
        };
        if store.dead_sessions(SystemClock.now())?.contains(&session) {
            return Ok(());
        }
        let id = found.state.run_id();
        if Instant::now() > until {
            anyhow::bail!(
                "another process works on {id}; `stepwell runs events {id} --follow` shows what it \
                 does, and once it has ended the run can be resumed"
            );
        }
        waiting.get_or_insert_with(|| Progress::of(format!("waiting for the owner of {id}")));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// How far the runs are: what came before is not shown again.
pub(super) fn watermarks(top: &RunView, below: &ChildRuns) -> Watermarks {
    let all = below.views.iter().chain([top]);
    all.map(|it| (it.state.run_id().to_owned(), it.state.seq()))
        .collect()
}

/// Takes a run and those below it over from the process that had them.
pub(super) fn take_over(
    engine: &Handle,
    waiting: &Patience,
    run_id: &str,
    below: &ChildRuns,
) -> Result<()> {
    let children = below.views.iter();
    let open = children.filter(|it| !it.state.phase().is_ended());
    let ids = open.map(|it| it.state.run_id());
    for id in ids.chain([run_id]) {
        waiting.keep_engine(|| engine.recover(id))?;
    }
    Ok(())
}
