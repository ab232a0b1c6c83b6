//! The count of a test that goes on in several threads: what is still to be done, what was done, and the table of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use stepwell_sim::verdict::Verdict;

/// How often the progress is shown.
const PROGRESS: Duration = Duration::from_secs(15);

/// What several threads count together.
#[derive(Debug)]
pub(crate) struct Tally {
    noun: &'static str,
    wanted: u64,
    began: Instant,
    until: Option<Instant>,
    stop: Arc<AtomicBool>,
    /// How many are promised to a thread, and how many have happened.
    taken: AtomicU64,
    happened: AtomicU64,
    rows: Mutex<BTreeMap<String, Row>>,
    kinds: Mutex<BTreeMap<&'static str, u64>>,
    also: Mutex<BTreeMap<&'static str, u64>>,
}

/// What was judged, by database.
#[derive(Debug, Default)]
struct Row {
    count: u64,
    episodes: u64,
    verdict: Verdict,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    /// A test of `wanted` events, at most for some minutes. An interrupt ends it with the table of what was done.
    pub(crate) fn new(noun: &'static str, wanted: u64, minutes: Option<u64>) -> Result<Tally> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            println!("interrupted: what was begun is finished and judged; once more ends at once");
        })?;
        let began = Instant::now();
        Ok(Tally {
            noun,
            wanted,
            began,
            until: minutes.map(|it| began + Duration::from_secs(60 * it)),
            stop,
            taken: AtomicU64::new(0),
            happened: AtomicU64::new(0),
            rows: Mutex::default(),
            kinds: Mutex::default(),
            also: Mutex::default(),
        })
    }

    /// Whether the test is to end now.
    pub(crate) fn is_over(&self) -> bool {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        late || self.stop.load(Ordering::SeqCst)
    }

    /// Takes some of what is still to be done; zero if nothing is.
    pub(crate) fn take(&self, most: u64) -> u64 {
        if self.is_over() {
            return 0;
        }
        let before = self.taken.fetch_add(most, Ordering::SeqCst);
        self.wanted.saturating_sub(before).min(most)
    }

    /// Something was wrong: nothing new is begun.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// One more has happened.
    pub(crate) fn count(&self, kind: &'static str) {
        self.happened.fetch_add(1, Ordering::SeqCst);
        *lock(&self.kinds).entry(kind).or_default() += 1;
    }

    /// Something else that happened meanwhile and is in the rows.
    pub(crate) fn also(&self, what: &'static str, count: u64) {
        *lock(&self.also).entry(what).or_default() += count;
    }

    /// An episode with so many events was judged.
    pub(crate) fn judged(&self, database: &str, count: u64, verdict: Verdict) {
        for violation in verdict.violations() {
            println!("VIOLATION on {database}: {violation}");
        }
        let mut rows = lock(&self.rows);
        let row = rows.entry(database.to_owned()).or_default();
        row.count += count;
        row.episodes += 1;
        row.verdict.add(verdict);
    }

    /// Shows the progress until all threads have ended.
    pub(crate) fn watch(&self, mut ended: impl FnMut() -> bool) {
        let mut shown = Instant::now();
        while !ended() {
            std::thread::sleep(Duration::from_millis(200));
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                println!("{}", self.progress());
            }
        }
    }

    fn progress(&self) -> String {
        let happened = self.happened.load(Ordering::SeqCst);
        let seconds = self.began.elapsed().as_secs_f64();
        let rows = lock(&self.rows);
        let runs: u64 = rows.values().map(|it| it.verdict.runs).sum();
        let wrong: usize = rows.values().map(|it| it.verdict.violations().len()).sum();
        format!(
            "{happened} of {} {} in {seconds:.0} s ({:.1}/s); {runs} runs judged, {wrong} violations",
            self.wanted,
            self.noun,
            happened as f64 / seconds.max(0.001),
        )
    }

    /// The table of everything that was judged.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "| database | {} | episodes | runs | events | effects | lost | doubled after commit | stuck | damaged |\n\
             |---|---|---|---|---|---|---|---|---|---|\n",
            self.noun
        );
        for (database, row) in lock(&self.rows).iter() {
            let it = &row.verdict;
            let _ = writeln!(
                text,
                "| {database} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.count,
                row.episodes,
                it.runs,
                it.events,
                it.effects,
                it.lost.len(),
                it.doubled.len(),
                it.stuck.len(),
                it.damaged.len()
            );
        }
        let kinds = lock(&self.kinds);
        let kinds: Vec<String> = kinds
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        let _ = writeln!(text, "\nby kind: {}", kinds.join(", "));
        for (what, count) in lock(&self.also).iter() {
            let _ = writeln!(text, "among the runs: {count} of `{what}`");
        }
        let _ = writeln!(text, "time: {:.0} s", self.began.elapsed().as_secs_f64());
        text
    }

    /// Whether nothing was wrong and something was judged.
    pub(crate) fn is_good(&self) -> bool {
        let rows = lock(&self.rows);
        let good = |row: &Row| row.verdict.violations().is_empty();
        !rows.is_empty() && rows.values().all(good)
    }
}
