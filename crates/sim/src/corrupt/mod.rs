//! Damage on purpose: copies of a real store are damaged, one change for each copy, and the command `stepwell` is asked
//! what it makes of them. Wrong data that is served without an error is the only failure. `cargo xtask corrupt` does it a
//! thousand times; a test of `crates/stepwell` includes this module for a bounded part, with the command that was just
//! built.
//!
//! `samples` makes the stores, `damage` and `row_damage` change a copy, `doors` asks the command.

mod damage;
mod doors;
mod listener;
#[path = "../rng.rs"]
#[allow(dead_code, unreachable_pub, reason = "the simulator uses the rest")]
mod rng;
mod row_damage;
mod samples;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use damage::Damage;
use doors::Doors;
use rng::Rng;
use samples::Samples;

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Corruptions {
    /// The command `stepwell`.
    pub(crate) program: PathBuf,
    /// The folder with the examples of this repository.
    pub(crate) examples: PathBuf,
    /// The same seed makes the same damage to a store of the same form.
    pub(crate) seed: u64,
    pub(crate) count: u64,
    /// How many stores at a time.
    pub(crate) lanes: usize,
    /// Ends early after this time.
    pub(crate) limit: Option<Duration>,
    /// Only damage of this kind.
    pub(crate) only: Option<String>,
    /// The address of a PostgreSQL, for a tenth of the damage; without it all of it is done to SQLite.
    pub(crate) postgres: Option<String>,
}

/// The result of a damaged store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// `stepwell db check`, or the command that reads, says so.
    Noticed(String),
    /// Everything is read as before, and the open runs end as they would have.
    Harmless,
    /// Something else is read, and nobody says so.
    Silent(String),
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    count: u64,
    noticed: u64,
    /// Among the noticed ones: a list showed a wrong row, and only `stepwell db check` says so.
    by_check: u64,
    harmless: u64,
    silent: u64,
}

/// The count of what was done.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: BTreeMap<&'static str, Row>,
    silent: Vec<String>,
    took: Duration,
}

impl Report {
    /// Counts a store; says a line if there is something to say.
    fn add(
        &mut self,
        number: u64,
        damage: Damage,
        (verdict, by_check, what): (Verdict, bool, String),
    ) -> Option<String> {
        let row = self.rows.entry(damage.kind()).or_default();
        row.count += 1;
        row.by_check += u64::from(by_check);
        match verdict {
            Verdict::Noticed(_) => row.noticed += 1,
            Verdict::Harmless => row.harmless += 1,
            Verdict::Silent(why) => {
                row.silent += 1;
                let line = format!("number {number}, {}: {what}: {why}", damage.kind());
                self.silent.push(line.clone());
                return Some(format!("SILENT {line}"));
            }
        }
        let done = self.count();
        done.is_multiple_of(50)
            .then(|| format!("{done} stores, {} silent", self.silent.len()))
    }

    /// How many stores were damaged.
    pub(crate) fn count(&self) -> u64 {
        self.rows.values().map(|it| it.count).sum()
    }

    /// Descriptions of the damage that nobody noticed.
    pub(crate) fn silent(&self) -> &[String] {
        &self.silent
    }

    pub(crate) fn table(&self) -> String {
        let mut text =
            "| damage | stores | noticed | of these only by `db check` | harmless | silent |\n\
                        |---|---|---|---|---|---|\n"
                .to_owned();
        let mut all = Row::default();
        for (kind, row) in &self.rows {
            line(&mut text, kind, row);
            all.count += row.count;
            all.noticed += row.noticed;
            all.by_check += row.by_check;
            all.harmless += row.harmless;
            all.silent += row.silent;
        }
        line(&mut text, "all", &all);
        let _ = writeln!(text, "\ntime: {:.0} s", self.took.as_secs_f64());
        text
    }
}

fn line(text: &mut String, kind: &str, row: &Row) {
    // Writing to a text cannot fail.
    let _ = writeln!(
        text,
        "| {kind} | {} | {} | {} | {} | {} |",
        row.count, row.noticed, row.by_check, row.harmless, row.silent
    );
}

impl Corruptions {
    /// Damages as many stores as were asked for. `watch` gets a line now and then.
    pub(crate) fn run(&self, watch: &mut (dyn FnMut(&str) + Send)) -> Result<Report> {
        let home = Home::new()?;
        watch("making the stores");
        let samples = Samples::make(self, &home.0).context("the stores cannot be made")?;
        let began = Instant::now();
        let report = Mutex::new(Report::default());
        let (next, watch) = (AtomicU64::new(0), Mutex::new(watch));
        let lane = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= self.count || self.limit.is_some_and(|limit| began.elapsed() > limit) {
                    return Ok(());
                }
                // Each has numbers of its own, so that the order does not matter.
                let mut own = Rng::new(self.seed.wrapping_mul(1_000_003).wrapping_add(number));
                let mut damage = Damage::draw(&samples, &mut own);
                while self.only.as_ref().is_some_and(|it| it != damage.kind()) {
                    damage = Damage::draw(&samples, &mut own);
                }
                let folder = home.0.join(format!("copy-{number}"));
                let judged = trial(self, &samples, damage, &folder, &mut own)
                    .with_context(|| format!("number {number}, {}", damage.kind()))?;
                fs::remove_dir_all(&folder).ok();
                let mut report = lock(&report);
                if let Some(line) = report.add(number, damage, judged) {
                    (lock(&watch))(&line);
                }
            }
        };
        thread::scope(|scope| -> Result<()> {
            let lanes: Vec<_> = (0..self.lanes.max(1)).map(|_| scope.spawn(lane)).collect();
            for lane in lanes {
                let done = lane.join();
                done.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))?;
            }
            Ok(())
        })?;
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.took = began.elapsed();
        Ok(report)
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Damages a copy and asks all doors. Says whether only the check noticed it, and what was damaged.
fn trial(
    corruptions: &Corruptions,
    samples: &Samples,
    damage: Damage,
    folder: &Path,
    rng: &mut Rng,
) -> Result<(Verdict, bool, String)> {
    let sample = samples.of(&damage);
    let copy = sample.copy_to(folder)?;
    let what = damage.apply(&copy, rng)?;
    let doors = Doors::new(corruptions, &copy);
    let check = doors.check()?;
    let reads = doors.reads()?;
    let mut refused = None;
    let mut shown_wrong = None;
    for (name, door) in &reads {
        match (&door.answer, sample.reads.get(name).map(|it| &it.answer)) {
            (Err(error), _) => refused = Some(format!("{name}: {error}")),
            (Ok(now), Some(Ok(before))) if now == before => {}
            (Ok(now), before) => {
                let why = doors::difference(name, before, now);
                // What is read from a log is verified with each reading: the check is no excuse. Only that a log
                // once was longer cannot be seen in the log.
                let is_shorter = before.is_some_and(|it| {
                    it.as_ref()
                        .is_ok_and(|before| before.starts_with(now.as_str()))
                });
                if door.verified && !is_shorter {
                    return Ok((Verdict::Silent(why), false, what));
                }
                shown_wrong.get_or_insert(why);
            }
        }
    }
    if let Some(found) = check {
        return Ok((Verdict::Noticed(found), shown_wrong.is_some(), what));
    }
    if let Some(why) = shown_wrong {
        return Ok((Verdict::Silent(why), false, what));
    }
    if let Some(error) = refused {
        return Ok((Verdict::Noticed(error), false, what));
    }
    let verdict = match doors.finish()? {
        Err(error) => Verdict::Noticed(error),
        Ok(ends) if ends == sample.ends => Verdict::Harmless,
        Ok(ends) => {
            let differs = |(name, end): &(&String, &String)| sample.ends.get(*name) != Some(*end);
            let end = ends.iter().find(differs);
            let end = end.or_else(|| ends.iter().next());
            let (name, end) = end.map_or(("", ""), |(name, end)| (name.as_str(), end.as_str()));
            let before = sample.ends.get(name);
            Verdict::Silent(doors::difference(name, before, &end.to_owned()))
        }
    };
    Ok((verdict, false, what))
}

/// A folder that is gone with its owner.
#[derive(Debug)]
struct Home(PathBuf);

impl Home {
    fn new() -> Result<Home> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let name = format!(
            "stepwell-corrupt-{}-{}",
            std::process::id(),
            now.map_or(0, |it| it.as_nanos())
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Home(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A folder that cannot be deleted harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
