//! CPU time and memory of this process and of the programs that it started, read from `/proc`. All
//! values are zero on systems without `/proc`.

use std::fs;
use std::time::Duration;

/// One clock tick of the CPU times in `/proc`: `USER_HZ` is 100 on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// The name of threads whose CPU time is not counted.
pub(super) const ASIDE: &str = "bench-aside";

/// CPU time used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuUsage {
    /// The thread that decides.
    pub(super) deciding: Duration,
    /// All threads of this process, except threads named [`ASIDE`].
    pub(super) process: Duration,
    /// Programs that this process started, including their child processes.
    pub(super) programs: Duration,
}

impl CpuUsage {
    /// CPU time since the start of the process, read from `/proc`; zero where the system has no `/proc`.
    pub(super) fn now() -> CpuUsage {
        let mut cpu = CpuUsage::default();
        let mut aside = Duration::ZERO;
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
        for task in tasks.flatten() {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let stat = Stat::read(&read("stat"));
            match stat.name.as_str() {
                "stepwell-decide" => cpu.deciding += stat.own,
                ASIDE => aside += stat.own,
                _ => {}
            }
            for child in read("children").split_whitespace() {
                let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
                let stat = Stat::read(&stat);
                cpu.programs += stat.own + stat.ended;
            }
        }
        let stat = Stat::read(&fs::read_to_string("/proc/self/stat").unwrap_or_default());
        cpu.process = stat.own.saturating_sub(aside);
        cpu.programs += stat.ended;
        cpu
    }

    pub(super) fn since(self, before: CpuUsage) -> CpuUsage {
        CpuUsage {
            deciding: self.deciding.saturating_sub(before.deciding),
            process: self.process.saturating_sub(before.process),
            programs: self.programs.saturating_sub(before.programs),
        }
    }
}

/// The used fields of a `stat` line; empty for an empty line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stat {
    name: String,
    /// User and system time.
    own: Duration,
    /// The same of children that have ended.
    ended: Duration,
}

impl Stat {
    fn read(line: &str) -> Stat {
        let Some((head, rest)) = line.rsplit_once(')') else {
            return Stat::default();
        };
        let mut fields = rest.split_whitespace().skip(11);
        let mut both = || -> u32 {
            let two = fields.by_ref().take(2);
            two.filter_map(|it| it.parse::<u32>().ok()).sum()
        };
        Stat {
            name: head.split_once('(').map_or("", |it| it.1).to_owned(),
            own: TICK * both(),
            ended: TICK * both(),
        }
    }
}

/// CPU time that a process has used so far, without that of its children.
pub(super) fn cpu_of(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    Stat::read(&stat).own
}

/// Resident memory in bytes.
pub(super) fn resident() -> u64 {
    resident_of("self")
}

/// Resident memory of a process in bytes.
pub(super) fn resident_of(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_is_read() {
        let stat = "7 (a (b) c) S 1 1 1 0 -1 4194560 1 0 0 0 12 5 3 1 20 0 1 0 1 1 1";
        let expected = Stat {
            name: "a (b) c".into(),
            own: TICK * 17,
            ended: TICK * 4,
        };
        assert_eq!(Stat::read(stat), expected);
    }

    #[test]
    fn this_process_has_memory() {
        assert!(!cfg!(target_os = "linux") || resident() > 1 << 20);
    }
}
