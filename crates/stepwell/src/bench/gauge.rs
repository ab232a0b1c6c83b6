//! What this process has used: processor time by thread, memory. From `/proc`, where there is one.

use std::fs;
use std::time::Duration;

/// One tick of `/proc`'s processor times: `USER_HZ`, which is 100 everywhere that Linux runs.
const TICK: Duration = Duration::from_millis(10);

/// Processor time that threads have used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cpu {
    /// The thread that decides.
    pub(super) keeper: Duration,
    /// All threads of this process.
    pub(super) process: Duration,
}

impl Cpu {
    /// As it is now; zero where there is no `/proc`.
    pub(super) fn now() -> Cpu {
        let mut cpu = Cpu::default();
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
        for task in tasks.flatten() {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let Some((used, name)) = used(&stat) else {
                continue;
            };
            if name == "stepwell-keeper" {
                cpu.keeper += used;
            }
        }
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        cpu.process = used(&stat).map(|(used, _)| used).unwrap_or_default();
        cpu
    }

    pub(super) fn since(self, before: Cpu) -> Cpu {
        Cpu {
            keeper: self.keeper.saturating_sub(before.keeper),
            process: self.process.saturating_sub(before.process),
        }
    }
}

/// User and system time of a `stat` line, and the thread's name.
fn used(stat: &str) -> Option<(Duration, &str)> {
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((TICK * (user + system), name))
}

/// Memory that is resident now, in bytes.
pub(super) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_is_read() {
        let stat = "7 (a (b) c) S 1 1 1 0 -1 4194560 1 0 0 0 12 5 0 0 20 0 1 0 1 1 1";
        assert_eq!(used(stat), Some((TICK * 17, "a (b) c")));
    }

    #[test]
    fn this_process_has_memory() {
        assert!(!cfg!(target_os = "linux") || resident() > 1 << 20);
    }
}
