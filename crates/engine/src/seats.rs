//! Seats: workers in other processes that wait at this server. Work that becomes ready here is given to a seat in the very
//! commit that makes it ready, so that finding a worker costs no commit of its own. A seat is only in memory. What it is
//! given is a lease in the store, like any other, once the commit is there.
//!
//! Work that finds no seat lies in the store as a task. Whether some may lie there is known here too, so that a worker that
//! asks again and again looks only if there may be something.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepwell_kernel::time::Time;

use crate::coordinator::Assignment;
use crate::remote::RemoteWorker;
use crate::store::{RunNo, TaskRow};

/// Of so many queues and operations it is known that nothing lies in the store; with more, all are looked at again.
const MAX_CLEAR: usize = 10_000;

/// The seats of one engine, for all its shards.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    book: Mutex<SeatBook>,
    /// How many seats there are: an engine without any has nothing to look for.
    taken: AtomicUsize,
}

/// A queue and an operation.
type Pair = (String, String);

#[derive(Debug, Default)]
struct SeatBook {
    /// By queue; who came first is first.
    seats: HashMap<String, Vec<Arc<SeatShared>>>,
    /// Nothing lies in the store for a tenant (none: for all tenants) before the time.
    clear: HashMap<Pair, HashMap<Option<String>, Time>>,
    /// Counts the tasks that were put into the store since the start.
    put: u64,
    /// Tasks that are about to be claimed, where no other process can claim them.
    reserved: HashSet<(RunNo, String)>,
}

/// What is known of the tasks in the store at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookedAt(u64);

impl Seats {
    fn book(&self) -> MutexGuard<'_, SeatBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anyone waits for work.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.load(Ordering::Acquire) == 0
    }

    /// A worker takes a seat with so many places. `wake` is called, from any thread, when something was given, when nothing
    /// more is on its way, and when something lies in the store; it must not block.
    pub(crate) fn sit(
        self: &Arc<Seats>,
        worker: RemoteWorker,
        places: usize,
        lease_ms: u64,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Seat {
        let mut serves: HashMap<String, HashSet<String>> = HashMap::new();
        for (queue, op) in worker.serves {
            serves.entry(queue).or_default().insert(op);
        }
        let shared = Arc::new(SeatShared {
            worker: worker.name,
            tenant: worker.tenant,
            serves,
            lease_ms,
            state: Mutex::new(SeatState {
                places,
                is_left: false,
                is_reporting: false,
                coming: 0,
                given: Vec::new(),
            }),
            wake: Box::new(wake),
        });
        let mut book = self.book();
        for queue in shared.serves.keys() {
            let line = book.seats.entry(queue.clone()).or_default();
            line.push(Arc::clone(&shared));
        }
        drop(book);
        self.taken.fetch_add(1, Ordering::AcqRel);
        Seat {
            seats: Arc::clone(self),
            shared,
        }
    }

    /// A place for some work, of the worker that has waited longest; none if nobody waits for such work. Of the seats of
    /// one worker the one whose request reports something comes first: that request is answered soon in any case, and
    /// the others can go on waiting.
    pub(crate) fn place(&self, queue: &str, op: &str, tenant: &str) -> Option<Place> {
        let book = self.book();
        let line = book.seats.get(queue)?;
        let mut suited = line.iter().filter(|it| it.suits(queue, op, tenant));
        let first = suited.find(|it| it.state().has_room())?;
        let mut others = suited.filter(|it| it.worker == first.worker);
        let is_reporting = first.state().is_reporting;
        let reporting = match is_reporting {
            true => None,
            false => others.find(|it| it.state().reports_with_room()),
        };
        let placed = reporting.and_then(SeatShared::place);
        placed.or_else(|| first.place())
    }

    /// A task was put into the store. A worker that has come meanwhile is told to look there.
    pub(crate) fn put(&self, queue: &str, op: &str, tenant: &str) {
        let mut book = self.book();
        book.put += 1;
        // Few are clear while nobody asks for work.
        if !book.clear.is_empty() {
            book.clear.remove(&(queue.to_owned(), op.to_owned()));
        }
        let line = book.seats.get(queue).into_iter().flatten();
        let seat = line
            .filter(|it| it.suits(queue, op, tenant))
            .find(|it| it.state().has_room())
            .cloned();
        drop(book);
        if let Some(seat) = seat {
            (seat.wake)();
        }
    }

    /// Whether something may lie in the store for a worker; if not, until when that is known.
    pub(crate) fn may_lie(&self, worker: &RemoteWorker, now: Time) -> Result<LookedAt, Time> {
        let book = self.book();
        let clear = |pair: &Pair| {
            let until = book.clear.get(pair)?.get(&worker.tenant).copied();
            until.filter(|until| *until > now)
        };
        let mut earliest = Time(i64::MAX);
        for pair in &worker.serves {
            match clear(pair) {
                Some(until) => earliest = earliest.min(until),
                None => return Ok(LookedAt(book.put)),
            }
        }
        Err(earliest)
    }

    /// Nothing lay in the store for a worker when it was looked at, and nothing will become visible before `until`.
    pub(crate) fn set_clear(&self, worker: &RemoteWorker, looked: LookedAt, until: Time) {
        let mut book = self.book();
        if book.put != looked.0 {
            return;
        }
        if book.clear.len() + worker.serves.len() > MAX_CLEAR {
            book.clear.clear();
        }
        for pair in &worker.serves {
            let of_pair = book.clear.entry(pair.clone()).or_default();
            of_pair.insert(worker.tenant.clone(), until);
        }
    }

    /// How many tasks are about to be claimed.
    pub(crate) fn reserved(&self) -> usize {
        self.book().reserved.len()
    }

    /// Keeps those tasks, `limit` at most, that nobody else is about to claim, for who asks.
    pub(crate) fn reserve(&self, tasks: Vec<TaskRow>, limit: usize) -> Vec<TaskRow> {
        let mut book = self.book();
        let free = tasks
            .into_iter()
            .filter(|it| book.reserved.insert((it.run, it.target.clone())));
        let mut kept = Vec::with_capacity(limit);
        for task in free {
            kept.push(task);
            if kept.len() == limit {
                break;
            }
        }
        kept
    }

    /// The claim of a task is committed or refused.
    pub(crate) fn unreserve(&self, run: RunNo, target: &str) {
        self.book().reserved.remove(&(run, target.to_owned()));
    }

    fn stand_up(&self, seat: &Arc<SeatShared>) {
        let mut book = self.book();
        for queue in seat.serves.keys() {
            if let Some(line) = book.seats.get_mut(queue) {
                line.retain(|it| !Arc::ptr_eq(it, seat));
                if line.is_empty() {
                    book.seats.remove(queue);
                }
            }
        }
        drop(book);
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a seat and the places of it have together.
struct SeatShared {
    worker: String,
    tenant: Option<String>,
    /// The operations that the worker serves, by their queue.
    serves: HashMap<String, HashSet<String>>,
    lease_ms: u64,
    state: Mutex<SeatState>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct SeatState {
    /// How much more may be given.
    places: usize,
    /// The worker gets no more.
    is_left: bool,
    /// The request of this seat has brought results that are not answered yet.
    is_reporting: bool,
    /// How much is on its way to the store.
    coming: usize,
    given: Vec<Assignment>,
}

impl SeatState {
    fn has_room(&self) -> bool {
        self.places > 0 && !self.is_left
    }

    fn reports_with_room(&self) -> bool {
        self.is_reporting && self.has_room()
    }

    /// Whether the end of something that was on its way is worth waking the worker: who leaves waits for all of it.
    fn is_news(&self) -> bool {
        !self.is_left || self.coming == 0
    }
}

impl fmt::Debug for SeatShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeatShared")
            .field("worker", &self.worker)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl SeatShared {
    fn state(&self) -> MutexGuard<'_, SeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn suits(&self, queue: &str, op: &str, tenant: &str) -> bool {
        let bound = self.tenant.as_deref();
        bound.is_none_or(|it| it == tenant)
            && self.serves.get(queue).is_some_and(|ops| ops.contains(op))
    }

    fn place(self: &Arc<SeatShared>) -> Option<Place> {
        let mut state = self.state();
        if !state.has_room() {
            return None;
        }
        state.places -= 1;
        state.coming += 1;
        Some(Place(Some(Arc::clone(self))))
    }
}

/// A place of a seat for work whose claim is on its way to the store. A place that is dropped is free again: the claim
/// was not committed.
#[derive(Debug)]
pub(crate) struct Place(Option<Arc<SeatShared>>);

impl Place {
    /// The name that the lease of the work has.
    pub(crate) fn worker(&self) -> &str {
        self.0.as_ref().map_or("", |seat| &seat.worker)
    }

    /// How long the work belongs to the worker without a heartbeat.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.0.as_ref().map_or(0, |seat| seat.lease_ms)
    }

    /// The claim is committed: the worker gets the work.
    pub(crate) fn give(mut self, work: Assignment) {
        if let Some(seat) = self.0.take() {
            let mut state = seat.state();
            state.coming -= 1;
            state.given.push(work);
            let is_news = state.is_news();
            drop(state);
            if is_news {
                (seat.wake)();
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(seat) = self.0.take() {
            let mut state = seat.state();
            state.coming -= 1;
            state.places += 1;
            let is_news = state.is_news();
            drop(state);
            if is_news {
                (seat.wake)();
            }
        }
    }
}

/// The seat of a worker that waits for work. Nothing more is given to a seat that is dropped; what was given and not taken
/// is offered again when its lease ends.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    shared: Arc<SeatShared>,
}

impl Seat {
    /// The work that was given since this was asked last. The claims of all of it are committed.
    #[must_use]
    pub fn take(&self) -> Vec<Assignment> {
        std::mem::take(&mut self.shared.state().given)
    }

    /// Takes up to so many places away, for work that is found another way. Says how many.
    #[must_use]
    pub fn set_aside(&self, places: usize) -> usize {
        let mut state = self.shared.state();
        let aside = places.min(state.places);
        state.places -= aside;
        aside
    }

    /// Puts places back that were not needed.
    pub fn put_back(&self, places: usize) {
        self.shared.state().places += places;
    }

    /// Says whether the request of this seat has brought results that are not answered yet.
    pub fn set_reporting(&self, is_reporting: bool) {
        self.shared.state().is_reporting = is_reporting;
    }

    /// No more work is given, beside what is on its way to the store.
    pub fn leave(&self) {
        self.shared.state().is_left = true;
    }

    /// Whether work is on its way to the store for this seat: it is given, or its place is free again, soon.
    #[must_use]
    pub fn is_expecting(&self) -> bool {
        self.shared.state().coming > 0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
        self.seats.stand_up(&self.shared);
    }
}
