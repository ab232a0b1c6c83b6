//! The store of a simulation, and what goes wrong on the way to it. Every server has a connection of its own to
//! the one store (`connection`).

mod connection;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use stepwell_engine::chunk;
use stepwell_engine::store::{
    AppendResult, Batch, MemoryStore, PlanNo, Result, RunNo, SessionNo, Store, StoreError,
    StoreErrorKind, StoredRun,
};
use stepwell_faulty_disk::{DiskFault, FaultyDisk};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::Body;
use stepwell_kernel::time::Time;
use stepwell_stores::sqlite::{SqliteOptions, SqliteStore};

use crate::older::{self, Aged};
use crate::report::{Faults, StoreKind};
use crate::rng::Rng;
use crate::sabotage::{Sabotage, Saboteur};

pub(crate) use connection::StoreConnection;

/// A session as the sim_store remembers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRecord {
    pub(crate) until: Time,
    pub(crate) dead: bool,
}

#[derive(Debug)]
struct Inner {
    rng: Rng,
    now: Time,
    /// One call in so many fails; zero for none.
    fault_rate: u64,
    /// One commit in so many meets a fault; zero for none.
    commit_faults: u64,
    /// Batches that nobody waits for any more and that may still arrive.
    late: Vec<Batch>,
    /// Claims that a sabotaged server acts on before they are committed.
    early: Vec<EarlyClaim>,
    sessions: BTreeMap<SessionNo, SessionRecord>,
    /// Something was written since this was asked last.
    touched: bool,
    commits: u64,
    /// The first plan that was kept.
    first_plan: Option<PlanNo>,
    saboteur: Saboteur,
    faults: Faults,
}

/// A claim that a sabotaged server acts on before it is committed.
#[derive(Clone, Debug)]
pub(crate) struct EarlyClaim {
    pub(crate) run: RunNo,
    pub(crate) target: Target,
    pub(crate) execution: u32,
    pub(crate) worker: String,
}

/// The one store of a simulation.
#[derive(Debug)]
pub(crate) struct SimStore {
    /// Opened anew after a crash, if it is on a disk.
    store: Mutex<Arc<dyn Store>>,
    disk: Option<FaultyDisk>,
    /// The store, if it is not on a disk.
    memory: Option<Arc<MemoryStore>>,
    /// Several servers share it, as they do PostgreSQL.
    shared: bool,
    /// How many commits may be under way at a time.
    committers: usize,
    sabotage: Option<Sabotage>,
    inner: Mutex<Inner>,
}

impl SimStore {
    pub(crate) fn new(
        seed: u64,
        now: Time,
        (shared, committers): (bool, usize),
        sabotage: Option<Sabotage>,
        on_disk: bool,
    ) -> std::result::Result<SimStore, String> {
        let disk = match on_disk {
            true => Some(new_disk(seed, sabotage)?),
            false => None,
        };
        let memory = Arc::new(MemoryStore::with_secret([7; 32]));
        let store: Arc<dyn Store> = match &disk {
            Some(disk) => open(disk)?,
            None => memory.clone(),
        };
        Ok(SimStore {
            store: Mutex::new(store),
            memory: disk.is_none().then_some(memory),
            disk,
            shared,
            committers,
            sabotage,
            inner: Mutex::new(Inner {
                rng: Rng::new(seed ^ 0xdead),
                now,
                fault_rate: 0,
                commit_faults: 0,
                late: Vec::new(),
                early: Vec::new(),
                sessions: BTreeMap::new(),
                touched: true,
                commits: 0,
                first_plan: None,
                faults: Faults::default(),
                saboteur: Saboteur::default(),
            }),
        })
    }

    /// What kind of store it is, for the figures.
    pub(crate) fn kind(&self) -> StoreKind {
        match (&self.disk, self.shared) {
            (Some(_), _) => StoreKind::Sqlite,
            (None, true) => StoreKind::SharedMemory,
            (None, false) => StoreKind::Memory,
        }
    }

    /// The rows of a run as they are now. The log may be missing.
    pub(crate) fn rows(&self, run: RunNo) -> Option<StoredRun> {
        match &self.memory {
            Some(memory) => memory.load_rows(run),
            None => self.store().load(run).ok().flatten(),
        }
    }

    /// The store itself, past all connections.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.clone()
    }

    /// Whether the store is on a disk, which a crash of its process or a loss of power concerns.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// The process that has the store on its disk is gone, or the power with `loses`: the store is opened anew. With `ages`
    /// an earlier release had written it; says which runs have another log then.
    pub(crate) fn crash(
        &self,
        loses: bool,
        ages: Option<&mut Rng>,
    ) -> std::result::Result<Vec<RunNo>, String> {
        let Some(disk) = &self.disk else {
            self.end_sessions()?;
            return Ok(Vec::new());
        };
        disk.power_off();
        disk.set_fault_rate(0);
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        *store = Arc::new(MemoryStore::default());
        disk.restart(loses).map_err(|error| error.to_string())?;
        let file = disk.folder().join(FILE);
        let aged = match ages {
            Some(rng) => older::age(&file, rng)?,
            None => Aged::default(),
        };
        if aged.version > 0 && self.sabotage == Some(Sabotage::LoseInUpgrade) {
            older::lose_rows(&file)?;
        }
        *store = open(disk)?;
        drop(store);
        let mut inner = self.inner();
        if aged.version > 0 {
            // The process of the earlier release is gone, and so is what it had sent.
            inner.late.clear();
        }
        match aged.version {
            2 => inner.faults.count("a store of version 2 is opened"),
            3 => inner.faults.count("a store of version 3 is opened"),
            _ => {}
        }
        disk.set_fault_rate(inner.fault_rate);
        inner.touched = true;
        // The process that opens the store knows that all earlier owners are gone.
        inner.sessions.values_mut().for_each(|it| it.dead = true);
        Ok(aged.rewritten)
    }

    /// A store of one process knows that a process which is gone has no session any more. Servers that share a store wait
    /// until the session is over.
    fn end_sessions(&self) -> std::result::Result<(), String> {
        if self.shared {
            return Ok(());
        }
        let mut inner = self.inner();
        inner.touched = true;
        for (session, record) in &mut inner.sessions {
            let ended = self.store().close_session(*session);
            ended.map_err(|error| error.to_string())?;
            record.dead = true;
        }
        Ok(())
    }

    /// The power will go in the middle of what the store is doing then.
    pub(crate) fn power_off_after(&self, changes: u64) {
        if let Some(disk) = &self.disk {
            disk.power_off_after(changes);
        }
    }

    /// Copies the write-ahead log of a store on a disk into its database, as the thread of the store does.
    pub(crate) fn checkpoint(&self) -> std::result::Result<(), String> {
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        let copied = rusqlite::Connection::open(disk.folder().join(FILE))
            .and_then(|conn| conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())));
        copied.map_err(|error| error.to_string())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_now(&self, now: Time) {
        self.inner().now = now;
    }

    /// From now on one call in `calls` fails, and one commit in `commits`; none with zero.
    pub(crate) fn set_fault_rate(&self, calls: u64, commits: u64) {
        let mut inner = self.inner();
        inner.fault_rate = calls;
        inner.commit_faults = commits;
        if let Some(disk) = &self.disk {
            disk.set_fault_rate(calls);
        }
    }

    /// Takes out one of the batches that nobody waits for any more.
    pub(crate) fn take_late(&self, rng: &mut Rng) -> Option<Batch> {
        let mut inner = self.inner();
        let index = (!inner.late.is_empty()).then(|| rng.index(inner.late.len()))?;
        Some(inner.late.remove(index))
    }

    /// Takes out the claims that were acted on too early.
    pub(crate) fn take_early(&self) -> Vec<EarlyClaim> {
        std::mem::take(&mut self.inner().early)
    }

    pub(crate) fn session(&self, no: SessionNo) -> Option<SessionRecord> {
        self.inner().sessions.get(&no).copied()
    }

    pub(crate) fn sessions(&self) -> Vec<(SessionNo, SessionRecord)> {
        let inner = self.inner();
        inner.sessions.iter().map(|(no, it)| (*no, *it)).collect()
    }

    pub(crate) fn take_touched(&self) -> bool {
        std::mem::take(&mut self.inner().touched)
    }

    /// Counts a fault that is injected.
    pub(crate) fn count(&self, fault: &'static str) {
        self.inner().faults.count(fault);
    }

    pub(crate) fn faults(&self) -> Faults {
        let mut faults = self.inner().faults.clone();
        let disk = { self.disk.as_ref() }.map_or_else(Default::default, FaultyDisk::faults);
        for (fault, count) in disk {
            let name = match fault {
                DiskFault::Write => "the disk cannot write",
                DiskFault::Full => "the disk is full",
                DiskFault::Sync => "the disk cannot sync",
                DiskFault::Lost => "a write that was not synced is lost or torn",
            };
            faults.count_many(name, count);
        }
        faults
    }

    pub(crate) fn commits(&self) -> u64 {
        self.inner().commits
    }

    fn touch(&self) {
        self.inner().touched = true;
    }

    /// A batch arrives. Shared stores go by their own clock.
    pub(crate) fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        let mut inner = self.inner();
        inner.touched = true;
        let mut batch = batch.clone();
        if self.shared {
            batch.now = inner.now;
        }
        let outcomes = match self.sabotage {
            None => self.store().commit(&batch)?,
            Some(how) => {
                let Inner { saboteur, rng, .. } = &mut *inner;
                saboteur.commit(how, &*self.store(), &batch, rng)?
            }
        };
        let done = |it: &&AppendResult| **it == AppendResult::Committed;
        inner.commits += outcomes.iter().filter(done).count() as u64;
        Ok(outcomes)
    }

    /// A batch is sent: it may meet a fault on its way there, or its answer on the way back.
    fn send(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        if self.sabotage == Some(Sabotage::StartEarly) {
            self.inner().early.extend(claims(batch));
        }
        let drawn = {
            let mut inner = self.inner();
            let one_in = inner.commit_faults;
            match one_in > 0 && inner.rng.one_in(one_in) {
                true => inner.rng.below(5),
                false => u64::MAX,
            }
        };
        match drawn {
            0 => {
                self.count("a commit finds no store");
                Err(unavailable())
            }
            1 => {
                self.count("a commit finds no room");
                Err(StoreError::new(StoreErrorKind::Full, "simulated: no room"))
            }
            2 => {
                self.count("a commit arrives late or never");
                self.inner().late.push(batch.clone());
                Err(lost())
            }
            3 | 4 => {
                self.count("the answer to a commit is lost");
                self.commit(batch)?;
                Err(lost())
            }
            _ => self.commit(batch),
        }
    }

    fn fault_rate(&self) -> Result<()> {
        let mut inner = self.inner();
        let one_in = inner.fault_rate;
        if one_in > 0 && inner.rng.one_in(one_in) {
            inner.faults.count("a call finds no store");
            return Err(unavailable());
        }
        Ok(())
    }

    /// The time, and how much later something is.
    fn time(&self, now: Time, later: Time) -> (Time, Time) {
        if !self.shared {
            return (now, later);
        }
        let own = self.inner().now;
        (own, own.plus(later.since(now)))
    }
}

/// The file of a store on a disk.
const FILE: &str = "sim.db";

/// The folder of a new store. In memory where the system has that: what is lost in a crash is for the simulation to say.
fn new_folder() -> PathBuf {
    static FOLDERS: AtomicU64 = AtomicU64::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let name = format!("stepwell-sim-{}-{number}", std::process::id());
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.join(name),
        false => std::env::temp_dir().join(name),
    }
}

/// An empty store as a file: most simulations begin with a copy of it, because making one takes longer than what follows.
fn empty_store() -> Option<&'static [u8]> {
    static EMPTY: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let make = || {
        let folder = new_folder();
        std::fs::create_dir_all(&folder).ok()?;
        let file = folder.join(FILE);
        drop(SqliteStore::open(&file, SqliteOptions::default()).ok()?);
        let bytes = std::fs::read(&file).ok();
        let _ = std::fs::remove_dir_all(&folder);
        bytes
    };
    EMPTY.get_or_init(make).as_deref()
}

fn new_disk(seed: u64, sabotage: Option<Sabotage>) -> std::result::Result<FaultyDisk, String> {
    let mut rng = Rng::new(seed ^ 0xd15c);
    let copies = !rng.one_in(8);
    let draw = move |below| rng.below(below);
    let disk = FaultyDisk::new(&new_folder(), draw);
    let disk = disk.map_err(|error| error.to_string())?;
    if copies && let Some(bytes) = empty_store() {
        disk.put(FILE, bytes).map_err(|error| error.to_string())?;
    }
    if sabotage == Some(Sabotage::LyingDisk) {
        disk.lie();
    }
    Ok(disk)
}

fn open(disk: &FaultyDisk) -> std::result::Result<Arc<dyn Store>, String> {
    let options = SqliteOptions {
        cache_bytes: 1 << 20,
        ..SqliteOptions::default()
    };
    // What comes from a disk without faults must be opened: damage would be found here.
    let store = SqliteStore::open(disk.folder().join(FILE), options);
    Ok(Arc::new(store.map_err(|error| {
        format!("the store cannot be opened: {error}")
    })?))
}

pub(crate) fn unavailable() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "simulated: the store is not there",
    )
}

fn lost() -> StoreError {
    StoreError::new(StoreErrorKind::AnswerLost, "simulated: the answer was lost")
}

/// The claims that a batch has.
fn claims(batch: &Batch) -> Vec<EarlyClaim> {
    let mut claims = Vec::new();
    for append in &batch.appends {
        let Some(it) = &append.chunk else { continue };
        let events = chunk::decode(it.first, it.codec, &it.body);
        for event in events.unwrap_or_default() {
            if let Body::StepStarted {
                step,
                execution,
                lease: Some(lease),
                ..
            } = event.body
            {
                claims.push(EarlyClaim {
                    run: append.run,
                    target: Target::Step(step),
                    execution,
                    worker: lease.worker,
                });
            }
        }
    }
    claims
}
