//! Clocks: the clock of the machine, made steady, and a virtual clock that moves only when the engine moves it.
//!
//! The time of an engine must never jump: a sleep of ten seconds lasts ten seconds, whatever an administrator or a
//! time server does to the clock of the machine. So the machine's clock is read once, at the start of the process,
//! and from then on the time advances with a clock that cannot be set and goes on while the machine is suspended.
//! It is drawn slowly towards a *reference*: the clock of the machine, or, for servers that share a store with a
//! clock of its own, the clock of the store.
//!
//! | the reference is | what the time does |
//! |---|---|
//! | ahead by at most a day, or behind | advances at most 5 % faster or slower until both agree |
//! | ahead by more than a day | is set forward: the machine had no clock before |

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use stepwell_kernel::time::Time;

use crate::port::Clock;

const NANOS_PER_MS: i128 = 1_000_000;
/// How much faster or slower the time advances than real time at most, while it differs from its reference: a
/// twentieth.
const SLEW: i128 = 20;
/// A reference that is further ahead is followed at once.
const STEP: i128 = 24 * 3600 * 1000 * NANOS_PER_MS;
/// A reference that moves by more than this between two looks was set.
const JUMP: i128 = 1000 * NANOS_PER_MS;

/// The clock of the machine, made steady; one for the whole process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

static OF_PROCESS: LazyLock<SteadyClock> = LazyLock::new(SteadyClock::default);

impl Clock for SystemClock {
    fn now(&self) -> Time {
        OF_PROCESS.now()
    }

    fn steady(&self) -> Time {
        OF_PROCESS.steady()
    }

    fn following(&self, reference: Time) -> Option<Arc<dyn Clock>> {
        Some(Arc::new(SteadyClock::following_store(reference)))
    }
}

/// A clock that never jumps, see the module.
#[derive(Debug)]
pub struct SteadyClock {
    progress: Mutex<Progress>,
}

/// How far a clock has come. All times are nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// What the clock showed last.
    time: i128,
    /// The steady time when it did.
    steady: i128,
    /// How far the reference was ahead of the steady time when it was last looked at.
    offset: i128,
    /// The reference is the clock of a store, of which `offset` is all that is known.
    of_store: bool,
}

impl Default for SteadyClock {
    /// A clock that follows the clock of the machine.
    fn default() -> SteadyClock {
        let (wall, steady) = (wall(), steady());
        SteadyClock {
            progress: Mutex::new(Progress::start(wall, steady, false)),
        }
    }
}

impl SteadyClock {
    /// A clock that follows the clock of a store, which shows `reference` now.
    #[must_use]
    pub fn following_store(reference: Time) -> SteadyClock {
        let time = i128::from(reference.0) * NANOS_PER_MS;
        SteadyClock {
            progress: Mutex::new(Progress::start(time, steady(), true)),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Plain values: a panic elsewhere leaves them whole.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Time {
        let mut progress = self.progress();
        // After the lock: another thread may have come further meanwhile.
        let steady = steady();
        let reference = match progress.of_store {
            true => steady + progress.offset,
            false => wall(),
        };
        let jump = progress.advance(steady, reference);
        let time = progress.shown();
        drop(progress);
        if let Some(jump) = jump {
            let seconds = jump as f64 / 1e9;
            tracing::warn!(
                seconds,
                "the clock of this machine was set; sleeps and timers keep to the time that passes"
            );
        }
        time
    }

    fn steady(&self) -> Time {
        to_time(steady())
    }

    fn follow(&self, reference: Time) {
        let mut progress = self.progress();
        if progress.of_store {
            progress.offset = i128::from(reference.0) * NANOS_PER_MS - steady();
        }
    }
}

impl Progress {
    fn start(time: i128, steady: i128, of_store: bool) -> Progress {
        Progress {
            time,
            steady,
            offset: time - steady,
            of_store,
        }
    }

    fn shown(&self) -> Time {
        to_time(self.time)
    }

    /// The steady time is `steady` and the reference shows `reference`. Says by how much the reference was set since
    /// the last look, if it was.
    fn advance(&mut self, steady: i128, reference: i128) -> Option<i128> {
        let passed = (steady - self.steady).max(0);
        self.steady = self.steady.max(steady);
        self.time += passed;
        let behind = reference - self.time;
        self.time += match behind > STEP {
            true => behind,
            false => behind.clamp(-passed / SLEW, passed / SLEW),
        };
        let offset = reference - steady;
        let jump = offset - std::mem::replace(&mut self.offset, offset);
        (jump.abs() > JUMP).then_some(jump)
    }
}

fn to_time(nanos: i128) -> Time {
    Time(i64::try_from(nanos / NANOS_PER_MS).unwrap_or(i64::MAX))
}

/// How many milliseconds the clock of this machine is ahead of `reference`; negative if it is behind.
pub(crate) fn machine_ahead_of(reference: Time) -> i64 {
    to_time(wall()).0.saturating_sub(reference.0)
}

/// Nanoseconds since 1970 by the clock of the machine.
fn wall() -> i128 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

/// Nanoseconds by a clock that nobody can set and that goes on while the machine is suspended.
#[cfg(unix)]
fn steady() -> i128 {
    // Where the system has one clock with and one without the time of suspensions, the one with it counts.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const STEADY: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const STEADY: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(STEADY);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// Nanoseconds by a clock that nobody can set.
#[cfg(not(unix))]
fn steady() -> i128 {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    i128::try_from(START.elapsed().as_nanos()).unwrap_or(i128::MAX)
}

/// A clock that stands still until it is moved. Many may read it while one moves it.
#[derive(Debug)]
pub struct VirtualClock {
    now: AtomicI64,
}

impl VirtualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Time) -> VirtualClock {
        VirtualClock {
            now: AtomicI64::new(now.0),
        }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn advance_to(&self, time: Time) {
        self.now.fetch_max(time.0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    /// A clock at 1,000,000 s whose reference is set by `jump` seconds at once; what it shows each second, from then
    /// on, in seconds.
    fn after_jump(jump: i128, seconds: i128) -> Vec<f64> {
        let mut progress = Progress::start(1_000_000 * SECOND, 0, false);
        let shown = |second: i128| {
            let (steady, wall) = (second * SECOND, (1_000_000 + jump + second) * SECOND);
            let told = progress.advance(steady, wall);
            assert_eq!(told.is_some(), second == 1 && jump != 0, "told once");
            (progress.time - 1_000_000 * SECOND) as f64 / 1e9
        };
        (1..=seconds).map(shown).collect()
    }

    #[test]
    fn time_passes_as_it_does_whatever_the_machines_clock_shows() {
        assert_eq!(after_jump(0, 3), [1.0, 2.0, 3.0]);
        for jump in [8, -8, 3600, -3600, 80_000, -800_000_000] {
            for (index, shown) in after_jump(jump, 60).into_iter().enumerate() {
                let second = (index + 1) as f64;
                let off = (shown - second).abs();
                assert!(
                    off <= second / 20.0 + 1e-6,
                    "{jump}: {shown} after {second} s"
                );
            }
        }
    }

    #[test]
    fn a_clock_comes_to_agree_with_its_reference() {
        for jump in [8, -8] {
            let shown = after_jump(jump, 200);
            let last = shown.last().copied().unwrap_or_default();
            assert!((last - (200 + jump) as f64).abs() < 1e-6, "{last}");
            assert!(shown.is_sorted(), "it never goes back");
        }
    }

    #[test]
    fn a_machine_that_gets_its_clock_late_is_followed_at_once() {
        let shown = after_jump(400_000_000, 2);
        assert_eq!(shown, [400_000_001.0, 400_000_002.0]);
    }

    #[test]
    fn many_looks_in_a_short_time_follow_as_few_do() {
        let mut progress = Progress::start(0, 0, false);
        for tick in 1..=100_000 {
            // A look every 10 µs, the reference a second ahead.
            progress.advance(tick * 10_000, SECOND + tick * 10_000);
        }
        let ahead = progress.time - SECOND;
        assert!((ahead - SECOND / 20).abs() < SECOND / 1000, "{ahead}");
    }

    #[test]
    fn the_clock_of_the_process_goes_on() {
        let (now, steady) = (SystemClock.now(), SystemClock.steady());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(
            SystemClock.now().since(now) >= 18,
            "at most a twentieth less"
        );
        assert!(SystemClock.steady().since(steady) >= 20);
    }

    #[test]
    fn a_clock_that_follows_a_store_shows_the_stores_time() {
        let clock = SteadyClock::following_store(Time(5_000_000));
        let now = clock.now();
        assert!(now.since(Time(5_000_000)) < 60_000, "{now:?}");
        clock.follow(Time(5_600_000));
        assert!(clock.now().since(now) < 60_000, "it does not jump");
        assert!(clock.now() >= now);
    }

    #[test]
    fn a_virtual_clock_is_never_moved_back() {
        let clock = VirtualClock::at(Time(10));
        clock.advance_to(Time(30));
        clock.advance_to(Time(20));
        assert_eq!(clock.now(), Time(30));
    }
}
