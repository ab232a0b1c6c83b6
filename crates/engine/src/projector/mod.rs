//! The projector: keeps for each run the contract's snapshot, made from the contract's events alone.
//!
//! It is told which runs have changed and reads the rest from the log, from its watermark on; so it may
//! be told late, twice or not at all, and after a crash it goes on where the kept snapshot ends. A
//! snapshot that someone asks for (`project`) is caught up with the log first, whatever was told.
//!
//! - `behind`: what is not projected yet, and since when: that is the lag.
//! - `follow`: one run: fetch, gap, resync.

mod behind;
mod follow;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepwell_kernel::codes;
use stepwell_kernel::effect::Priority;
use stepwell_kernel::snapshot::{Dependencies, RunSnapshot};
use stepwell_kernel::time::Time;

use crate::clock::SystemClock;
use crate::error::Error;
use crate::port::Clock as _;
use crate::store::{NewAlert, NewProjection, PlanNo, RunNo, Store, StoreError, StoreErrorKind};
use crate::ticker::{Ticker, Ticks, Waker};

use behind::Behind;
use follow::Followed;
pub use follow::{Gap, ResyncMode};

/// How a projector works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Above this lag someone is told.
    pub high_lag: Duration,
    /// At or below this lag the episode is over; the next high lag is a new episode.
    pub normal_lag: Duration,
    /// How many runs are projected in a tick.
    pub batch: usize,
    /// How many chunks are fetched at a time.
    pub page: usize,
    /// How many runs are followed in memory.
    pub cache: usize,
    /// How long a change waits for others of its run: a run that changes often is projected once for many of its
    /// commits. Who asks for a snapshot does not wait.
    pub collect: Duration,
    /// How long a run rests whose log does not reach what is known of it.
    pub rest: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            high_lag: Duration::from_secs(5),
            normal_lag: Duration::from_secs(1),
            batch: 64,
            page: 256,
            cache: 1_000,
            collect: Duration::ZERO,
            rest: Duration::from_millis(500),
        }
    }
}

/// What a projector has not done yet; shared, so that it can be asked while the projector is busy.
#[derive(Clone, Debug, Default)]
struct Todo(Arc<Mutex<Behind>>);

impl Todo {
    fn get(&self) -> MutexGuard<'_, Behind> {
        // Each change of it is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lag(&self, now: Time) -> Duration {
        let first = self.get().first();
        Duration::from_millis(first.map_or(0, |(_, since)| now.since(since)))
    }
}

/// A run as the projector has it, and what came of looking at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Projected {
    pub snapshot: RunSnapshot,
    /// A gap was seen that is not bridged yet: the snapshot may be behind.
    pub is_stale: bool,
    /// The highest event that was seen; the last event of the snapshot, unless the run is stale.
    pub observed: u64,
    /// The gap that was seen now.
    pub gap: Option<Gap>,
    /// How the snapshot was made again, if it was.
    pub resynced: Option<ResyncMode>,
    /// How long the oldest event that was not projected had been in the store.
    pub lag: Duration,
}

impl Projected {
    /// Whether there is something to tell that the earlier one does not say.
    #[must_use]
    pub fn is_news_after(&self, earlier: &Projected) -> bool {
        self.snapshot != earlier.snapshot || self.is_stale != earlier.is_stale || self.gap.is_some()
    }
}

pub struct Projector {
    store: Arc<dyn Store>,
    config: Config,
    todo: Todo,
    runs: HashMap<RunNo, Followed>,
    plans: HashMap<PlanNo, (Arc<str>, Dependencies)>,
    /// To be raised: kept until the store has them.
    alerts: VecDeque<(RunNo, NewAlert)>,
    /// To be kept, in one transaction for the runs of a tick.
    keeps: BTreeMap<RunNo, NewProjection>,
    lagging: bool,
    clock: u64,
}

impl fmt::Debug for Projector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projector")
            .field("runs", &self.runs.len())
            .field("behind", &self.todo.get().len())
            .field("lagging", &self.lagging)
            .finish_non_exhaustive()
    }
}

impl Projector {
    /// A projector over a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, config: Config) -> Projector {
        Projector {
            store,
            config,
            todo: Todo::default(),
            runs: HashMap::new(),
            plans: HashMap::new(),
            alerts: VecDeque::new(),
            keeps: BTreeMap::new(),
            lagging: false,
            clock: 0,
        }
    }

    /// This process has committed events of a run up to `seq` at this time.
    pub fn committed(&self, run: RunNo, seq: u64, at: Time) {
        self.todo.get().committed(run, seq, at);
    }

    /// The age of the oldest change that was committed and is not projected.
    #[must_use]
    pub fn lag(&self, now: Time) -> Duration {
        self.todo.lag(now)
    }

    /// How many runs have changed and are not projected.
    #[must_use]
    pub fn behind(&self) -> usize {
        self.todo.get().len()
    }

    /// Whether a gap was seen in the log of a run that is not bridged yet.
    #[must_use]
    pub fn is_stale(&self, run: RunNo) -> bool {
        self.runs.get(&run).is_some_and(Followed::is_stale)
    }

    /// Projects what has changed. Says when to tick again: now, if there is more to do.
    pub fn tick(&mut self, now: Time) -> Result<Time, StoreError> {
        self.watch_lag(now);
        self.raise(now)?;
        let before = Time(now.0.saturating_sub_unsigned(millis(self.config.collect)));
        let runs = self.todo.get().oldest((before, now), self.config.batch);
        for run in &runs {
            match self.catch_up(*run, None, now) {
                Ok(_) => {}
                Err(Error::Store(error)) => {
                    self.keep_all(now)?;
                    return Err(error);
                }
                Err(error) => {
                    tracing::error!(%error, "a run cannot be projected");
                    self.runs.remove(run);
                    self.todo.get().give_up(*run);
                }
            }
        }
        self.raise(now)?;
        self.keep_all(now)?;
        self.forget();
        let (rest, collect) = (millis(self.config.rest), millis(self.config.collect));
        Ok(match runs.is_empty() {
            false => now,
            true if collect > 0 && self.behind() > 0 => now.plus(rest.min(collect)),
            true => now.plus(rest),
        })
    }

    /// Keeps the snapshots that are to be kept. Those that the store does not take are kept later.
    fn keep_all(&mut self, now: Time) -> Result<(), StoreError> {
        if self.keeps.is_empty() {
            return Ok(());
        }
        let all: Vec<NewProjection> = self.keeps.values().cloned().collect();
        self.store.put_projections(&all, now)?;
        self.keeps.clear();
        Ok(())
    }

    /// A run as its log has it now.
    pub fn project(&mut self, run: RunNo, now: Time) -> Result<RunSnapshot, Error> {
        Ok(self.refresh(run, now)?.snapshot)
    }

    /// A run as its log has it now, and what came of reading it.
    pub fn refresh(&mut self, run: RunNo, now: Time) -> Result<Projected, Error> {
        self.look_at(run, None, now)
    }

    /// Makes the snapshot of a run again. The run is stale if that does not reach what was projected before.
    pub fn resync(&mut self, run: RunNo, mode: ResyncMode, now: Time) -> Result<Projected, Error> {
        self.look_at(run, Some(mode), now)
    }

    /// Looks for events of a run that nobody has told of, such as those of other processes.
    pub fn look(&mut self, run: RunNo) -> Result<(), Error> {
        let store = Arc::clone(&self.store);
        if let Some((seq, at)) = self.followed(run)?.unread(&*store)? {
            self.todo.get().found(run, seq, at);
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        run: RunNo,
        asked: Option<ResyncMode>,
        now: Time,
    ) -> Result<Projected, Error> {
        self.watch_lag(now);
        let projected = self.catch_up(run, asked, now);
        self.raise(now)?;
        self.keep_all(now)?;
        self.forget();
        projected
    }

    /// A run that is followed from now on.
    fn followed(&mut self, run: RunNo) -> Result<&mut Followed, Error> {
        if !self.runs.contains_key(&run) {
            let followed = self.follow(run)?;
            self.runs.insert(run, followed);
        }
        self.clock += 1;
        let used = self.clock;
        let followed = self.runs.get_mut(&run);
        let followed = followed.ok_or_else(|| Error::UnknownRun(run.0.to_string()))?;
        followed.used = used;
        Ok(followed)
    }

    fn catch_up(
        &mut self,
        run: RunNo,
        asked: Option<ResyncMode>,
        now: Time,
    ) -> Result<Projected, Error> {
        let (since, own) = {
            let todo = self.todo.get();
            (todo.since(run), todo.own(run))
        };
        let (store, page) = (Arc::clone(&self.store), self.config.page);
        let followed = self.followed(run)?;
        let mut raised = Vec::new();
        let caught = followed.catch_up(&*store, asked, (page, own), &mut raised);
        self.alerts.extend(raised.into_iter().map(|it| (run, it)));
        caught?;
        // Before anything is kept: a projector that goes on from there does not raise them again.
        self.raise(now)?;
        let followed = self.followed(run)?;
        let (gap, resynced) = (followed.gap.clone(), followed.resynced);
        let stale = followed.is_stale();
        let (seq, observed) = (followed.snapshot().last_event_seq, followed.observed());
        // What was read of a run that is stale was not applied.
        let at = followed.last_at.filter(|_| !stale);
        let keep = followed.take_to_keep();
        let snapshot = followed.snapshot().clone();
        self.keeps.extend(keep.map(|it| (run, it)));
        let mut todo = self.todo.get();
        todo.reached(run, seq, at);
        // Whatever is missing is not there to be read yet.
        todo.rest(run, now.plus(millis(self.config.rest)));
        drop(todo);
        if snapshot.status.is_terminal() && !stale {
            self.runs.remove(&run);
        }
        Ok(Projected {
            snapshot,
            is_stale: stale,
            observed,
            gap,
            resynced,
            lag: Duration::from_millis(since.map_or(0, |since| now.since(since))),
        })
    }

    /// Begins with what was kept of a run.
    fn follow(&mut self, run: RunNo) -> Result<Followed, Error> {
        let stored = self.store.load(run)?;
        let stored = stored.ok_or_else(|| Error::UnknownRun(run.0.to_string()))?;
        let (version, dependencies) = self.plan(stored.plan, &stored.run_id)?;
        let kept = self.store.projection(run)?;
        Ok(Followed::new(
            run,
            stored.run_id,
            version,
            kept,
            dependencies,
        ))
    }

    fn plan(&mut self, no: PlanNo, run_id: &str) -> Result<(Arc<str>, Dependencies), Error> {
        if let Some(known) = self.plans.get(&no) {
            return Ok(known.clone());
        }
        let row = self.store.plan(no)?;
        let known = follow::plan(row, run_id)?;
        if self.plans.len() >= self.config.cache {
            self.plans.clear();
        }
        self.plans.insert(no, known.clone());
        Ok(known)
    }

    fn watch_lag(&mut self, now: Time) {
        let first = self.todo.get().first();
        let lag = first.map_or(0, |(_, since)| now.since(since));
        if lag <= millis(self.config.normal_lag) {
            self.lagging = false;
        }
        let Some((run, _)) = first else { return };
        if lag > millis(self.config.high_lag) && !self.lagging {
            self.lagging = true;
            let message = format!(
                "projection is {lag} ms behind the log; {} runs have changed and are not projected",
                self.todo.get().len()
            );
            let alert = NewAlert {
                code: codes::PROJECTOR_LAG_HIGH.into(),
                priority: Priority::P2,
                message,
            };
            self.alerts.push_back((run, alert));
        }
    }

    fn raise(&mut self, now: Time) -> Result<(), StoreError> {
        while let Some((run, alert)) = self.alerts.front() {
            let (code, priority) = (&alert.code, alert.priority);
            tracing::warn!(run = run.0, code, ?priority, "{}", alert.message);
            self.store.alert(Some(*run), alert, now)?;
            self.alerts.pop_front();
        }
        Ok(())
    }

    /// Drops the runs that were used least recently. They are read again when they are needed.
    fn forget(&mut self) {
        let extra = self.runs.len().saturating_sub(self.config.cache);
        if extra == 0 {
            return;
        }
        let idle = self.runs.iter().filter(|(_, it)| !it.is_stale());
        let mut idle: Vec<(u64, RunNo)> = idle.map(|(run, it)| (it.used, *run)).collect();
        idle.sort_unstable();
        // More than needed, so that this is not done each time.
        for (_, run) in idle.into_iter().take(extra + self.config.cache / 8) {
            self.runs.remove(&run);
        }
    }
}

/// A projector with a thread.
#[derive(Debug)]
pub struct Running {
    thread: Ticker,
    handle: Handle,
}

/// A way to talk to a projector that runs by itself.
#[derive(Clone, Debug)]
pub struct Handle {
    store: Arc<dyn Store>,
    projector: Arc<Mutex<Projector>>,
    todo: Todo,
    waker: Waker,
    /// Changes wait a while for others.
    collects: bool,
}

struct Shared(Arc<Mutex<Projector>>);

/// A tick or a question is over, or was given up with a panic: then the runs in memory may be half done.
fn lock(projector: &Mutex<Projector>) -> MutexGuard<'_, Projector> {
    projector.lock().unwrap_or_else(|poisoned| {
        projector.clear_poison();
        let mut projector = poisoned.into_inner();
        projector.runs.clear();
        projector
    })
}

impl Ticks for Shared {
    fn tick(&mut self, now: Time) -> Result<Time, StoreError> {
        lock(&self.0).tick(now)
    }
}

/// Starts the thread of the projector. Fails if the system cannot start a thread.
pub fn spawn(store: Arc<dyn Store>, config: Config) -> Result<Running, StoreError> {
    let collects = !config.collect.is_zero();
    let projector = Projector::new(store.clone(), config);
    let todo = projector.todo.clone();
    let projector = Arc::new(Mutex::new(projector));
    let thread = Ticker::spawn("stepwell-projector", Shared(projector.clone()));
    let thread = thread.map_err(|error| StoreError::new(StoreErrorKind::Unusable, error))?;
    let waker = thread.waker();
    let handle = Handle {
        store,
        projector,
        todo,
        waker,
        collects,
    };
    Ok(Running { thread, handle })
}

impl Running {
    /// A way to talk to it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops. What is not projected is caught up with when someone asks.
    pub fn stop(mut self) {
        self.thread.ask_to_stop(Duration::ZERO);
        self.thread.join();
    }
}

impl Handle {
    /// This process has committed events of a run up to `seq` just now. Costs next to nothing.
    pub fn committed(&self, run: RunNo, seq: u64) {
        let is_first = self.todo.get().committed(run, seq, SystemClock.now());
        // Whatever comes later is seen with it, or a little later.
        if is_first || !self.collects {
            self.waker.wake();
        }
    }

    /// The age of the oldest change that was committed and is not projected.
    #[must_use]
    pub fn lag(&self) -> Duration {
        self.todo.lag(SystemClock.now())
    }

    /// How many runs have changed and are not projected.
    #[must_use]
    pub fn behind(&self) -> usize {
        self.todo.get().len()
    }

    /// A run as its log has it now.
    pub fn project(&self, run_id: &str) -> Result<RunSnapshot, Error> {
        let run = self.store.find(run_id)?;
        let run = run.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
        lock(&self.projector).project(run, SystemClock.now())
    }

    /// A run as its log has it now, and what came of reading it; also what other processes have committed.
    pub fn refresh(&self, run: RunNo) -> Result<Projected, Error> {
        let mut projector = lock(&self.projector);
        projector.look(run)?;
        projector.refresh(run, SystemClock.now())
    }

    /// Makes the snapshot of a run again.
    pub fn resync(&self, run: RunNo, mode: ResyncMode) -> Result<Projected, Error> {
        lock(&self.projector).resync(run, mode, SystemClock.now())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
