//! Logs of steps: written by hostile programs, read while they are written.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use stepwell_worker::artifacts::{Artifacts, Pruned};
use stepwell_worker::logs::{LogLine, LogWriter, Logs};
use stepwell_worker::secrets::Redactor;
use stepwell_worker::step_log::{LogSink as _, StepLog, Stream};
use stepwell_worker::tool::TaskLimits;
use tempfile::TempDir;

fn logs() -> (TempDir, Logs) {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::open(dir.path());
    (dir, logs)
}

fn begin(logs: &Logs, step: &str, execution: u32) -> Arc<LogWriter> {
    logs.begin(
        "run-1",
        step,
        execution,
        &Redactor::new(),
        &TaskLimits::default(),
    )
}

fn texts(lines: &[LogLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[tokio::test]
async fn what_was_said_is_read_back() {
    let (dir, logs) = logs();
    let writer = begin(&logs, "load[3]", 1);
    let log = StepLog::new(writer.clone());
    log.of("first").line(Stream::Out, "one");
    log.of("second")
        .line(Stream::Err, "two\t\"quoted\" \u{1b}[0m");
    log.note("three");
    writer.finish().await;
    let lines = logs.read("run-1", "load[3]", Some(1)).await.unwrap();
    assert_eq!(texts(&lines), ["one", "two\t\"quoted\" \u{1b}[0m", "three"]);
    assert_eq!(
        (lines[0].task.as_str(), lines[0].stream),
        ("first", Stream::Out)
    );
    assert_eq!(
        (lines[2].task.as_str(), lines[2].stream),
        ("", Stream::Note)
    );
    let file = dir.path().join("logs/run-1/load(3)/1.jsonl");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let raw = fs::read_to_string(file).unwrap();
    assert!(raw.starts_with("{\"at\":\"20"), "{raw}");
}

#[tokio::test]
async fn who_says_nothing_has_no_file() {
    let (dir, logs) = logs();
    begin(&logs, "quiet", 1).finish().await;
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(logs.read("run-1", "quiet", None).await.unwrap().is_empty());
    assert!(logs.list("run-1").await.unwrap().is_empty());
}

#[tokio::test]
async fn executions_are_listed_and_read_in_order() {
    let (_dir, logs) = logs();
    for execution in [2, 10, 1] {
        let writer = begin(&logs, "fetch#2", execution);
        for n in 0..3 {
            writer.line("t", Stream::Out, &format!("{execution}.{n}"));
        }
        writer.finish().await;
    }
    begin(&logs, "other", 1).line("t", Stream::Out, "x");
    let listed = logs.list("run-1").await.unwrap();
    let ids: Vec<_> = listed
        .iter()
        .map(|it| (it.step_id.as_str(), it.execution))
        .collect();
    assert_eq!(
        ids,
        [
            ("fetch#2", 1),
            ("fetch#2", 2),
            ("fetch#2", 10),
            ("other", 1)
        ]
    );
    let all = logs.read("run-1", "fetch#2", None).await.unwrap();
    assert_eq!(all.len(), 9);
    let last = logs.tail("run-1", "fetch#2", 4).await.unwrap();
    assert_eq!(texts(&last), ["2.2", "10.0", "10.1", "10.2"]);
}

#[tokio::test]
async fn a_gigabyte_printed_is_bounded_and_quick() {
    let (dir, logs) = logs();
    let limits = TaskLimits {
        log_bytes: 1 << 20,
        ..TaskLimits::default()
    };
    let redactor = Redactor::new();
    redactor.add("hunter22");
    let writer = logs.begin("run-1", "yes", 1, &redactor, &limits);
    let line = "y".repeat(1023);
    let began = Instant::now();
    for _ in 0..1 << 20 {
        writer.line("t", Stream::Out, &line);
    }
    writer.finish().await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    let size = fs::metadata(dir.path().join("logs/run-1/yes/1.jsonl"))
        .unwrap()
        .len();
    assert!(size < (1 << 20) + 1024, "{size}");
    let last = logs.tail("run-1", "yes", 1).await.unwrap().remove(0);
    assert_eq!(last.stream, Stream::Note);
    let kept = logs.read("run-1", "yes", None).await.unwrap().len() - 1;
    let left_out = (1 << 20) - kept;
    let said = format!("{} bytes in {left_out} more lines", left_out * 1023);
    assert!(last.text.contains(&said), "{}", last.text);
}

#[tokio::test]
async fn a_line_without_end_does_not_take_the_whole_log() {
    let (_dir, logs) = logs();
    let writer = begin(&logs, "s", 1);
    writer.line("t", Stream::Out, &"ä".repeat(5_000_000));
    writer.line("t", Stream::Out, "next");
    writer.finish().await;
    let lines = logs.read("run-1", "s", None).await.unwrap();
    assert!(lines[0].text.len() < 70_000);
    assert!(lines[0].text.ends_with("bytes more)"));
    assert_eq!(lines[1].text, "next");
}

#[tokio::test]
async fn secrets_do_not_reach_the_file_nor_those_who_watch() {
    let (dir, logs) = logs();
    let redactor = Redactor::new();
    redactor.add("-----BEGIN KEY-----\nAAAAsecretline1\nBBBBsecretline2\n-----END KEY-----");
    let writer = logs.begin("run-1", "s", 1, &redactor, &TaskLimits::default());
    let mut live = logs.subscribe();
    writer.line("t", Stream::Out, "AAAAsecretline1");
    writer.line("t", Stream::Out, "key: BBBBsecretline2 end");
    redactor.add("learnt-later");
    writer.line("t", Stream::Err, "token=learnt-later");
    writer.finish().await;
    let raw = fs::read_to_string(dir.path().join("logs/run-1/s/1.jsonl")).unwrap();
    assert!(
        !raw.contains("secretline") && !raw.contains("learnt"),
        "{raw}"
    );
    assert_eq!(live.recv().await.unwrap().line.text, "***");
    assert_eq!(live.recv().await.unwrap().line.text, "key: *** end");
    let third = live.recv().await.unwrap();
    assert_eq!(
        (
            third.run_id.as_str(),
            third.step_id.as_str(),
            third.execution
        ),
        ("run-1", "s", 1)
    );
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_silences_the_log_only() {
    let dir = tempfile::tempdir().unwrap();
    // A file where the folder should be refuses even a superuser.
    fs::write(dir.path().join("logs"), "").unwrap();
    let logs = Logs::open(dir.path());
    let writer = begin(&logs, "s", 1);
    let mut live = logs.subscribe();
    for _ in 0..1000 {
        writer.line("t", Stream::Out, "said");
    }
    writer.finish().await;
    assert_eq!(live.recv().await.unwrap().line.text, "said");
    assert!(logs.read("run-1", "s", None).await.unwrap().is_empty());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_silences_the_log_only() {
    let (dir, logs) = logs();
    let folder = dir.path().join("logs/run-1/s");
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.join("1.jsonl")).unwrap();
    let writer = begin(&logs, "s", 1);
    for _ in 0..10_000 {
        writer.line("t", Stream::Out, "said");
    }
    writer.finish().await;
    writer.line("t", Stream::Out, "after the end");
}

#[tokio::test]
async fn no_name_leaves_the_folder() {
    let (dir, logs) = logs();
    for name in ["../../up", "/abs", "..", ""] {
        let writer = logs.begin(name, name, 1, &Redactor::new(), &TaskLimits::default());
        writer.line("t", Stream::Out, name);
        writer.finish().await;
        let lines = logs.read(name, name, None).await.unwrap();
        assert_eq!(texts(&lines), [name]);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(dir.path().join("logs")).unwrap().count(), 4);
}

#[test]
fn a_step_whose_name_is_too_long_for_a_folder_is_followed_too() {
    let (_dir, logs) = logs();
    let step = "schritt-für-schritt-".repeat(20);
    begin(&logs, &step, 1).line("t", Stream::Out, "said");
    let mut lines = logs.follow("run-1", Some(&step), || true);
    assert_eq!(lines.next().unwrap().unwrap().line.text, "said");
    assert!(lines.next().is_none());
}

#[tokio::test]
async fn a_line_that_a_crash_tore_is_skipped() {
    let (dir, logs) = logs();
    let writer = begin(&logs, "s", 1);
    writer.line("t", Stream::Out, "before");
    writer.finish().await;
    let path = dir.path().join("logs/run-1/s/1.jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(b"{\"at\":\"2026-01-01T00:00:00.000Z\",\"ta")
        .unwrap();
    let lines = logs.read("run-1", "s", None).await.unwrap();
    assert_eq!(texts(&lines), ["before"]);
    let writer = begin(&logs, "s", 1);
    writer.line("t", Stream::Out, "after");
    writer.finish().await;
    let lines = logs.read("run-1", "s", None).await.unwrap();
    assert_eq!(texts(&lines), ["before", "after"]);
}

#[tokio::test]
async fn many_threads_write_whole_lines() {
    let (_dir, logs) = logs();
    let writer = begin(&logs, "s", 1);
    let second = begin(&logs, "s", 1);
    thread::scope(|scope| {
        for n in 0..8 {
            let writer = if n % 2 == 0 { &writer } else { &second };
            scope.spawn(move || {
                for line in 0..500 {
                    writer.line("t", Stream::Out, &format!("{n}:{line}:{}", "x".repeat(100)));
                }
            });
        }
    });
    writer.finish().await;
    second.finish().await;
    let lines = logs.read("run-1", "s", None).await.unwrap();
    assert_eq!(lines.len(), 8 * 500);
    for n in 0..8 {
        let own = format!("{n}:");
        let seen: Vec<_> = lines
            .iter()
            .filter(|it| it.text.starts_with(&own))
            .collect();
        let in_order = seen
            .iter()
            .enumerate()
            .all(|(at, line)| line.text.starts_with(&format!("{n}:{at}:")));
        assert!(in_order, "thread {n}");
    }
}

#[tokio::test]
async fn lines_reach_the_file_while_the_step_works() {
    let (_dir, logs) = logs();
    let writer = begin(&logs, "s", 1);
    writer.line("t", Stream::Out, "first");
    writer.line("t", Stream::Out, "second");
    let deadline = Instant::now() + Duration::from_secs(5);
    while logs.read("run-1", "s", None).await.unwrap().len() < 2 {
        assert!(Instant::now() < deadline, "still in the buffer");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(writer);
}

#[test]
fn following_goes_on_with_the_next_execution() {
    let (dir, logs) = logs();
    // As another process would: nothing is shared but the folder.
    let reader = Logs::open(dir.path());
    let is_over = Arc::new(AtomicBool::new(false));
    let (seen, heard) = std::sync::mpsc::channel();
    let follower = thread::spawn({
        let is_over = is_over.clone();
        move || {
            let over = || is_over.load(Ordering::Acquire);
            for entry in reader.follow("run-1", Some("s"), over) {
                let entry = entry.unwrap();
                seen.send((entry.execution, entry.line.text)).unwrap();
            }
        }
    });
    let next = || heard.recv_timeout(Duration::from_secs(5)).unwrap();
    let first = begin(&logs, "s", 1);
    first.line("t", Stream::Out, "one");
    assert_eq!(next(), (1, "one".to_owned()));
    first.line("t", Stream::Out, "two");
    assert_eq!(next(), (1, "two".to_owned()));
    drop(first);
    let second = begin(&logs, "s", 2);
    second.line("t", Stream::Out, "again");
    assert_eq!(next(), (2, "again".to_owned()));
    second.line("t", Stream::Out, "last words");
    drop(second);
    is_over.store(true, Ordering::Release);
    assert_eq!(next(), (2, "last words".to_owned()));
    follower.join().unwrap();
}

#[tokio::test]
async fn where_artifacts_are_remote_a_finished_log_is_read_from_elsewhere() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let artifacts = Artifacts::open("memory:").unwrap();
    let logs = Logs::beside(here.path(), &artifacts);
    let writer = begin(&logs, "load[3]", 2);
    writer.line("t", Stream::Out, "uploaded");
    writer.finish().await;
    let elsewhere = Logs::beside(there.path(), &artifacts);
    let listed = elsewhere.list("run-1").await.unwrap();
    assert_eq!(
        (listed[0].step_id.as_str(), listed[0].execution),
        ("load[3]", 2)
    );
    let lines = elsewhere.read("run-1", "load[3]", None).await.unwrap();
    assert_eq!(texts(&lines), ["uploaded"]);
    assert_eq!(logs.list("run-1").await.unwrap().len(), 1);
}

#[tokio::test]
async fn pruning_takes_only_old_runs_that_nobody_keeps() {
    let (_dir, logs) = logs();
    for run in ["old", "kept"] {
        let writer = logs.begin(run, "s", 1, &Redactor::new(), &TaskLimits::default());
        writer.line("t", Stream::Out, "x");
        writer.finish().await;
    }
    let is_kept = |run: &str| run == "kept";
    let (earlier, later) = (
        SystemTime::now() - Duration::from_secs(60),
        SystemTime::now() + Duration::from_secs(60),
    );
    assert_eq!(
        logs.prune(is_kept, earlier, false).unwrap(),
        Pruned::default()
    );
    assert_eq!(logs.prune(is_kept, later, true).unwrap().objects, 1);
    assert_eq!(logs.prune(is_kept, later, false).unwrap().objects, 1);
    assert!(logs.list("old").await.unwrap().is_empty());
    assert_eq!(logs.list("kept").await.unwrap().len(), 1);
    assert_eq!(logs.remove_run("kept").unwrap().objects, 1);
    assert_eq!(logs.remove_run("kept").unwrap().objects, 0);
}
