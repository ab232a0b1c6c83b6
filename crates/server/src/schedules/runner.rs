//! The thread that acts on due times and event triggers. Each server has one; they need not know of each other.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use stepwell_dialects::document;
use stepwell_dialects::trigger::Trigger;
use stepwell_engine::Error;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::time::Time;

use super::decide::decide;
use super::{CatchUp, OF_DEFINITION, Overlap, ScheduleDocument, Schedules, StartedDue};
use crate::access::LOCAL;
use crate::app::App;
use crate::codes;
use crate::definitions::Registry;
use crate::problem::ApiProblem;
use crate::triggers::{EventWatches, Triggered, params_with, start_once};

/// How long the thread sleeps at most before it looks for due times and events.
const NAP: Duration = Duration::from_millis(250);
/// How long the thread sleeps at the least.
const PAUSE: Duration = Duration::from_millis(10);
/// How often all schedules and definitions are read again at most, while the store tells of changes by others.
const REFRESH: Duration = Duration::from_secs(2);
/// How often schedules, definitions and events are read without a word of a change.
const FALLBACK: Duration = Duration::from_secs(10);
/// How many documents are read at a time.
const PAGE: usize = 500;
/// How many missed due times of a definition's own trigger are made good.
const OWN_MOST: u32 = 1_000;

/// Tells the thread that something has happened.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    wake: SyncSender<()>,
    /// Whether schedules or definitions have changed since they were read.
    is_stale: Arc<AtomicBool>,
}

impl Waker {
    pub(crate) fn new() -> (Waker, Receiver<()>) {
        let (wake, woken) = sync_channel(1);
        let is_stale = Arc::default();
        (Waker { wake, is_stale }, woken)
    }

    /// A schedule or a definition has changed.
    pub(crate) fn changed(&self) {
        self.is_stale.store(true, Ordering::SeqCst);
        self.event();
    }

    /// An event has come.
    pub(crate) fn event(&self) {
        // One word is enough; if there is one already, or nobody is left to hear it, that is as good.
        let _ = self.wake.try_send(());
    }
}

/// What is known of a schedule between two reads.
#[derive(Debug)]
struct Known {
    version: u64,
    /// The next due time; none if it is paused or never due again.
    next: Option<Time>,
    /// Whether runs are decided on and not started.
    is_pending: bool,
}

/// Acts on due times and events.
pub(crate) struct Runner {
    app: Arc<App>,
    known: HashMap<(String, String), Known>,
    watches: EventWatches,
}

impl Runner {
    /// Begins to act, until the server stops.
    pub(crate) fn start(app: Arc<App>, woken: Receiver<()>) -> io::Result<JoinHandle<()>> {
        let runner = Runner {
            app,
            known: HashMap::new(),
            watches: EventWatches::default(),
        };
        std::thread::Builder::new()
            .name("stepwell-due".into())
            .spawn(move || runner.run(&woken))
    }

    fn run(mut self, woken: &Receiver<()>) {
        let mut refreshed: Option<Instant> = None;
        let mut looked: Option<Instant> = None;
        let (mut news, mut is_stale, mut is_woken) = (None, true, true);
        let is_over = |since: Option<Instant>, pace| since.is_none_or(|it| it.elapsed() >= pace);
        while !self.app.stopping.is_cancelled() {
            // Other processes have written something. Cheap to ask for, so the store itself is left alone.
            let heard = self.app.store.news().ok();
            let is_news = heard.is_some() && heard != news;
            news = heard.or(news);
            is_stale |= is_news;
            if is_over(refreshed, if is_stale { REFRESH } else { FALLBACK }) {
                (refreshed, looked, is_stale) = (Some(Instant::now()), None, false);
                if let Err(problem) = self.refresh() {
                    tracing::warn!(why = %problem.detail, "schedules cannot be read now");
                    is_stale = true;
                }
            }
            self.act();
            let waits = self.watches.has_put_off();
            if is_news || is_woken || waits || is_over(looked, FALLBACK) {
                looked = Some(Instant::now());
                if !self.watches.look(&self.app) {
                    looked = None;
                }
            }
            let now = self.app.now();
            let next = self.known.values().filter_map(|it| it.next).min();
            let nap = next.map_or(NAP, |it| Duration::from_millis(it.since(now)).min(NAP));
            // Many words in a short time are heard as one.
            std::thread::sleep(PAUSE);
            // The server has the other end as long as this thread runs.
            is_woken = woken.recv_timeout(nap.saturating_sub(PAUSE)).is_ok();
            if self.app.due.is_stale.swap(false, Ordering::SeqCst) {
                refreshed = None;
            }
        }
    }

    /// Reads all schedules and the triggers of all definitions.
    fn refresh(&mut self) -> Result<(), ApiProblem> {
        let app = Arc::clone(&self.app);
        let now = app.now();
        let plans = self.plans_with_triggers()?;
        self.follow_definitions(&plans, now)?;
        self.watches.set(plans, now);
        let schedules = Schedules::new(&*app.store);
        let mut all = HashMap::new();
        let mut after = None;
        loop {
            let page = schedules.list((None, None), after, PAGE)?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|it| (it.0.clone(), it.1.name.clone()));
            for (tenant, document, version) in page {
                let key = (tenant, document.name.clone());
                let same = self.known.remove(&key).filter(|it| it.version == version);
                all.insert(key, same.unwrap_or_else(|| known(&document, version)));
            }
            if is_last {
                break;
            }
        }
        self.known = all;
        Ok(())
    }

    /// The definitions whose current revision has a trigger.
    fn plans_with_triggers(&self) -> Result<Vec<Triggered>, ApiProblem> {
        let registry = Registry::new(&*self.app.store);
        let mut plans = Vec::new();
        let mut after = None;
        loop {
            let page = registry.heads(None, after, PAGE)?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|it| (it.0.clone(), it.1.name.clone()));
            for (tenant, head) in page {
                if !head.has_trigger || head.deprecated.contains_key(&head.current) {
                    continue;
                }
                let plan = self
                    .app
                    .plans
                    .plan(&registry, &tenant, &head.name, head.current);
                match plan {
                    Ok(plan) => plans.push(Triggered {
                        tenant,
                        project: head.project.unwrap_or_else(|| LOCAL.to_owned()),
                        name: head.name,
                        plan,
                    }),
                    // Not read is not gone.
                    Err(problem) if problem.status >= 500 => return Err(problem),
                    Err(problem) => {
                        let (name, why) = (&head.name, &problem.detail);
                        tracing::warn!(tenant, name, why, "a trigger cannot be read");
                    }
                }
            }
            if is_last {
                return Ok(plans);
            }
        }
    }

    /// Makes, changes and deletes the schedules that follow from triggers of definitions.
    fn follow_definitions(&self, plans: &[Triggered], now: Time) -> Result<(), ApiProblem> {
        let schedules = Schedules::new(&*self.app.store);
        let mut wanted = HashMap::new();
        for definition in plans {
            if let Some(Trigger::Schedule(schedule)) = document::trigger(&definition.plan) {
                let key = format!("{OF_DEFINITION}{}", definition.name);
                wanted.insert((definition.tenant.clone(), key), (definition, schedule));
            }
        }
        for ((tenant, key), (definition, schedule)) in &wanted {
            let (cron, zone) = (schedule.text(), schedule.zone_name());
            match schedules.find(tenant, key)? {
                Some((mut known, version)) => {
                    if known.cron != cron || known.timezone.as_deref() != Some(zone) {
                        cron.clone_into(&mut known.cron);
                        known.timezone = Some(zone.to_owned());
                        known.changed_at = now.to_rfc3339();
                        // Due times of the new line that have passed were never promised.
                        known.decided_to = now.0;
                        // Another server may be faster: it writes the same.
                        schedules.put(tenant, &known, Some(version), now)?;
                    }
                }
                None => {
                    let new = of_trigger(key, definition, cron, zone, now);
                    schedules.put(tenant, &new, None, now)?;
                }
            }
        }
        for (tenant, key) in self.known.keys() {
            let is_own = key.starts_with(OF_DEFINITION);
            if is_own && !wanted.contains_key(&(tenant.clone(), key.clone())) {
                match schedules.delete(tenant, None, key) {
                    // Another server may have deleted it.
                    Err(problem) if problem.status != 404 => return Err(problem),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Acts on the schedules that are due, or have runs to start.
    fn act(&mut self) {
        let now = self.app.now();
        let due = |it: &Known| it.is_pending || it.next.is_some_and(|next| next <= now);
        let due = self.known.iter().filter(|it| due(it.1));
        let due: Vec<(String, String)> = due.map(|it| it.0.clone()).collect();
        for (tenant, name) in due {
            if self.app.stopping.is_cancelled() {
                return;
            }
            let acted = self.act_on(&tenant, &name);
            let key = (tenant, name);
            match acted {
                Ok(Some(known)) => drop(self.known.insert(key, known)),
                Ok(None) => drop(self.known.remove(&key)),
                Err(problem) => {
                    let (name, why) = (&key.1, &problem.detail);
                    tracing::warn!(name, why, "a schedule cannot act now");
                    // Read again, and tried again, with the next refresh.
                    self.known.remove(&key);
                }
            }
        }
    }

    /// Decides about the due times of a schedule and starts the runs that were decided on. None if the schedule is gone.
    fn act_on(&self, tenant: &str, name: &str) -> Result<Option<Known>, ApiProblem> {
        let app = &self.app;
        let schedules = Schedules::new(&*app.store);
        let Some((mut document, mut version)) = schedules.find(tenant, name)? else {
            return Ok(None);
        };
        if document.paused {
            return Ok(Some(known(&document, version)));
        }
        let schedule = document.schedule()?;
        let now = app.now();
        let is_open = self.is_last_open(&document)?;
        let missed_before = document.missed_total;
        if decide(&mut document, &schedule, is_open, now) {
            match schedules.put(tenant, &document, Some(version), now)? {
                Some(new) => {
                    version = new;
                    let missed = document.missed_total.saturating_sub(missed_before);
                    app.metrics.missed(missed);
                }
                // Another server was faster: what it has decided is read the next time.
                None => return Ok(schedules.find(tenant, name)?.map(|it| known(&it.0, it.1))),
            }
        }
        let had_failed = document
            .started
            .last()
            .is_some_and(|it| it.problem.is_some());
        let (mut changed, mut failed) = (false, Vec::new());
        while let Some(due) = document.pending.first().copied().map(Time) {
            if document.overlap != Overlap::Allow && self.is_last_open(&document)? {
                break;
            }
            let Some(started) = self.start_run(tenant, &document, due)? else {
                break;
            };
            document.pending.remove(0);
            if let Some(problem) = &started.problem {
                failed.push(format!(
                    "schedule {name} of tenant {tenant} started no run for {}: {problem}",
                    started.due_at
                ));
            }
            document.note_started(started);
            changed = true;
        }
        if changed {
            document.missed_total += failed.len() as u64;
            // If another server was faster, it has started the same runs.
            match schedules.put(tenant, &document, Some(version), now)? {
                Some(new) => {
                    version = new;
                    app.metrics.missed(failed.len() as u64);
                    // The first of a series: a schedule of every second must not fill the list.
                    if let Some(message) = failed.into_iter().next().filter(|_| !had_failed) {
                        app.alert(codes::SCHEDULE_FAILED, message);
                    }
                }
                None => return Ok(schedules.find(tenant, name)?.map(|it| known(&it.0, it.1))),
            }
        }
        Ok(Some(known(&document, version)))
    }

    /// Whether the last run that the schedule has started is open.
    fn is_last_open(&self, document: &ScheduleDocument) -> Result<bool, ApiProblem> {
        if document.overlap == Overlap::Allow {
            return Ok(false);
        }
        let last = document
            .started
            .iter()
            .rev()
            .find_map(|it| it.run_id.as_deref());
        let Some(last) = last else { return Ok(false) };
        let Some(run) = self.app.store.find(last)? else {
            // Deleted by its age, so it has ended.
            return Ok(false);
        };
        let found = self.app.store.load(run)?;
        Ok(found.is_some_and(|it| it.head.ended_at.is_none()))
    }

    /// Starts the run of a due time; none if that must be tried again.
    fn start_run(
        &self,
        tenant: &str,
        document: &ScheduleDocument,
        due: Time,
    ) -> Result<Option<StartedDue>, ApiProblem> {
        let due_at = due.to_rfc3339();
        let failed = |problem: ApiProblem| StartedDue {
            due_at: due_at.clone(),
            run_id: None,
            problem: Some(format!("{}: {}", problem.code, problem.detail)),
        };
        let registry = Registry::of_project(&*self.app.store, Some(&document.project));
        let (name, revision) = (&document.definition, document.revision);
        let plan = match registry.plan_of_new_run(&self.app.plans, tenant, name, revision) {
            Ok(plan) => plan,
            Err(problem) if problem.status >= 500 => return Err(problem),
            Err(problem) => return Ok(Some(failed(problem))),
        };
        let context = RunContext {
            tenant_id: tenant.to_owned(),
            project_id: document.project.clone(),
            environment_id: document.environment.clone(),
            priority: document.priority,
            triggered_by: Some(format!("schedule {}", document.name)),
            trigger_source: Some("schedule".to_owned()),
            ..RunContext::default()
        };
        let schedule = document.schedule()?;
        let params = params_with(&document.params, &schedule.params(due));
        let cause = document.cause(due);
        match start_once(&self.app, &plan, context, &cause, params) {
            Ok(started) => Ok(Some(StartedDue {
                due_at,
                run_id: Some(started.run_id),
                problem: None,
            })),
            // A slot becomes free, and nobody else tries again.
            Err(Error::Busy { .. }) => Ok(None),
            Err(error @ (Error::Rejected(_) | Error::Refused { .. } | Error::Schema { .. })) => {
                Ok(Some(failed(error.into())))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What is known of a schedule that was read.
fn known(document: &ScheduleDocument, version: u64) -> Known {
    let next = document.schedule().ok();
    let next = next.and_then(|it| it.next_after(Time(document.decided_to)));
    Known {
        version,
        next: next.filter(|_| !document.paused),
        is_pending: !document.paused && !document.pending.is_empty(),
    }
}

/// The schedule of a definition's own trigger.
fn of_trigger(
    key: &str,
    definition: &Triggered,
    cron: &str,
    zone: &str,
    now: Time,
) -> ScheduleDocument {
    let name = &definition.name;
    ScheduleDocument {
        name: key.to_owned(),
        definition: name.to_owned(),
        revision: None,
        cron: cron.to_owned(),
        timezone: Some(zone.to_owned()),
        params: json!({}),
        project: definition.project.clone(),
        environment: LOCAL.to_owned(),
        priority: 0,
        catch_up: CatchUp::All,
        catch_up_most: OWN_MOST,
        overlap: Overlap::Allow,
        paused: false,
        by: format!("the trigger of {name}"),
        changed_at: now.to_rfc3339(),
        decided_to: now.0,
        pending: Vec::new(),
        started: Vec::new(),
        missed: Vec::new(),
        missed_total: 0,
    }
}
