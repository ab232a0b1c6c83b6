//! The runs that a trigger has started and that have not ended: what is shown of them, and those whose process has died.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};

use anyhow::Result;
use stepwell_dialects::document::run_word;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::run_id_of_trigger;
use stepwell_engine::store::{RunFilter, RunNo};
use stepwell_kernel::command::Actor;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;

use super::super::args::GoArgs;
use super::super::engine_kind;
use super::super::follow::Follower;
use super::super::local_engine::LocalEngine;
use super::super::report::{self, Ending};
use super::super::resume::{self, Watermarks};
use super::super::view::View;
use super::super::{RunStore, tail};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::{log, term};
use stepwell_server::triggers::id_of;
use stepwell_views::may_see;
use stepwell_views::snapshot;
use stepwell_views::stuck::End;
use stepwell_views::{ChildRuns, RunView};

/// How many open runs of the definition are looked at for those that nobody works on.
const CANDIDATES: usize = 1_000;

/// The runs that are followed.
pub(super) struct UnderWay<'a> {
    args: &'a GoArgs,
    place: &'a RunStore,
    runs: BTreeMap<String, (Follower, View)>,
    /// The worst end so far.
    worst: Exit,
}

impl<'a> UnderWay<'a> {
    pub(super) fn new(args: &'a GoArgs, place: &'a RunStore) -> UnderWay<'a> {
        UnderWay {
            args,
            place,
            runs: BTreeMap::new(),
            worst: Exit::Ok,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs have not ended.
    pub(super) fn open(&self) -> usize {
        self.runs.len()
    }

    /// The exit code of the worst end; a run that has not ended is stuck.
    pub(super) fn worst(&self) -> Exit {
        match (self.worst, self.is_empty()) {
            (Exit::Ok, false) => Exit::RunStuck,
            (worst, _) => worst,
        }
    }

    /// Follows a run that was started here, for a reason, or is continued.
    pub(super) fn add(&mut self, run_id: &str, why: Option<&str>) -> Result<()> {
        let known = match why {
            Some(_) => Watermarks::new(),
            None => {
                let found = RunView::read(&*self.place.store, run_id)?;
                let below = ChildRuns::read(&*self.place.store, &found)?;
                resume::watermarks(&found, &below)
            }
        };
        self.say(
            run_id,
            &match why {
                Some(why) => format!("started: {why}"),
                None => "continued: its process has ended".to_owned(),
            },
        )?;
        let mut view = match self.args.events {
            true => View::events(known),
            false => View::quiet(),
        };
        let mut follower = Follower::new(self.place.store.clone(), run_id)?;
        follower.follow_all(&mut view)?;
        self.runs.insert(run_id.to_owned(), (follower, view));
        Ok(())
    }

    /// A line for people, where people read standard output.
    fn say(&self, run_id: &str, what: &str) -> Result<()> {
        match self.args.events || self.args.output == OutputFormat::Json {
            true => log::line(&format!("{run_id}  {what}")),
            false => {
                term::print(&format!(
                    "{}\n",
                    term::one_line(&format!("{run_id}  {what}"))
                ))?;
                io::stdout().flush()?;
            }
        }
        Ok(())
    }

    /// Tells the events of a run, which may be one of these or below one of them.
    pub(super) fn follow(&mut self, run: RunNo, seq: u64) -> Result<()> {
        for (follower, view) in self.runs.values_mut() {
            follower.follow(run, seq, view)?;
        }
        Ok(())
    }

    /// Where many processes share a store, others may have moved what waits for them.
    pub(super) fn look(&mut self, engine: &LocalEngine) -> Result<()> {
        for (run_id, (follower, view)) in &mut self.runs {
            engine.handle.catch_up(run_id);
            follower.follow_all(view)?;
        }
        Ok(())
    }

    /// Shows the runs that have ended, and forgets them.
    pub(super) fn show_ends(&mut self) -> Result<()> {
        let mut ended = BTreeSet::new();
        for (run_id, (follower, view)) in &mut self.runs {
            if follower.root()?.state.phase().is_ended() {
                follower.follow_all(view)?;
                ended.insert(run_id.clone());
            }
        }
        for run_id in ended {
            if let Some((follower, _)) = self.runs.remove(&run_id) {
                self.show_end(&run_id, &follower)?;
            }
        }
        io::stdout().flush()?;
        Ok(())
    }

    fn show_end(&mut self, run_id: &str, follower: &Follower) -> Result<()> {
        let root = follower.root()?;
        let exit = report::exit(&root.state, &End::Over);
        if self.worst == Exit::Ok || exit == Exit::RunFailed {
            self.worst = exit;
        }
        self.say(run_id, run_word(&root.plan, &root.state))?;
        let mut ending = Ending {
            kept: self.place.durable.then(|| self.args.store.flag()),
            ..Ending::default()
        };
        if self.args.output == OutputFormat::Json {
            let snapshot = snapshot::snapshot(&*self.place.store, root, ending.end, &ending.notes)?;
            term::print(&format!("{}\n", serde_json::to_value(snapshot)?))?;
        } else if exit != Exit::Ok {
            let below = follower.live();
            ending.tail = tail(self.args, root.live(), &below);
            let text = report::summary(root.live(), &below, &ending, term::stderr_paint());
            io::stderr().write_all(text.as_bytes())?;
        }
        Ok(())
    }
}

/// Finds runs that the trigger of the definition has started and that no living process works on.
pub(super) struct Orphans<'a> {
    who: &'a Actor,
    plan: &'a Plan,
    context: RunContext,
}

impl<'a> Orphans<'a> {
    pub(super) fn new(who: &'a Actor, plan: &'a Plan, context: &RunContext) -> Orphans<'a> {
        Orphans {
            who,
            plan,
            context: context.clone(),
        }
    }

    /// Takes such runs over: their process has died, or was stopped.
    pub(super) fn take_over(
        &self,
        under_way: &mut UnderWay<'_>,
        engine: &LocalEngine,
    ) -> Result<()> {
        let place = under_way.place;
        if !place.durable {
            return Ok(());
        }
        let filter = RunFilter {
            plan_id: Some(self.plan.net().plan_id.clone()),
            open: true,
            limit: CANDIDATES,
            ..RunFilter::default()
        };
        let dead = place.store.dead_sessions(SystemClock.now())?;
        for summary in place.store.list(&filter)? {
            let alone = summary.head.session.is_none_or(|it| dead.contains(&it));
            if !alone || under_way.runs.contains_key(&summary.run_id) {
                continue;
            }
            let found = RunView::read(&*place.store, &summary.run_id)?;
            let same_engine = engine_kind::must_be_of(under_way.args, &found.state).is_ok();
            if same_engine && self.is_ours(&found) {
                let below = ChildRuns::read(&*place.store, &found)?;
                resume::take_over(
                    &engine.handle,
                    &place.open.patience,
                    &summary.run_id,
                    &below,
                )?;
                under_way.add(&summary.run_id, None)?;
            }
        }
        Ok(())
    }

    fn is_ours(&self, found: &RunView) -> bool {
        let state = &found.state;
        let cause = id_of(&state.current_params());
        let id = cause.map(|cause| run_id_of_trigger(self.plan, &self.context, &cause));
        id.as_deref() == Some(state.run_id())
            && !state.phase().is_ended()
            && may_see(self.who, state.context()).is_ok()
    }
}
