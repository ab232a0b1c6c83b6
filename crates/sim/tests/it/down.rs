//! The database goes away, is not there, is full or is broken, under a real process: it waits and goes
//! on by itself where waiting helps, and says what is wrong where it does not.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use stepwell_engine::store::{RunFilter, Store};
use stepwell_sim::Rng;

use crate::site::{Site, VICTIM, Victim, judge_or_tell};

/// Only the standard library is in it, so it can be included here as it is.
#[path = "../../../../xtask/src/cluster.rs"]
#[allow(dead_code, reason = "xtask uses the rest")]
mod cluster;

use cluster::Cluster;

/// A server whose processes were killed one by one is free again only when the last one has noticed.
fn resume(cluster: &Cluster) {
    let until = Instant::now() + Duration::from_secs(30);
    while let Err(error) = cluster.resume() {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn any_open(store: &dyn Store) -> bool {
    let filter = RunFilter {
        open: true,
        limit: 1,
        ..RunFilter::default()
    };
    !store.list(&filter).unwrap().is_empty()
}

/// A server that is stopped and killed several times while a process works: once until the process says `sign`.
fn down_again_and_again(name: &str, session_ms: &str, sign: &str) {
    let cluster = Cluster::start(&[]).unwrap();
    let site = Site::new(name, Some(cluster.url()));
    let mut rng = Rng::new(site.seed);
    let more = [
        "--runs",
        "90",
        "--long-ms",
        "4000",
        "--session-ms",
        session_ms,
        "--tell",
    ];
    let mut victim = site.spawn("victim", &more, 0);
    assert!(victim.hears("ready"));
    let long = rng.between(1, 3);
    for round in 0..4 {
        if round == long {
            assert!(victim.hears("started"));
        }
        std::thread::sleep(Duration::from_micros(rng.between(100_000, 900_000)));
        match rng.one_in(2) {
            true => cluster.halt().unwrap(),
            false => cluster.kill().unwrap(),
        }
        if round == long {
            victim.complains_of(sign);
            // Some work that was begun before ends only now.
            std::thread::sleep(Duration::from_millis(1_500));
        }
        std::thread::sleep(Duration::from_micros(rng.below(500_000)));
        resume(&cluster);
        assert!(victim.is_alive(), "it ended in round {round}");
    }
    assert!(any_open(&*site.open()), "there was nothing left to disturb");
    let (status, complaint) = victim.ends_with();
    assert!(status.success(), "{complaint}");
    assert!(!complaint.contains("panicked"), "{complaint}");
    judge_or_tell(&site, 90, "");
}

#[test]
fn a_server_that_goes_away_is_waited_for_by_a_session_that_dies_meanwhile() {
    // Its work is ended before its commits are given up.
    down_again_and_again("down_short", "800", "the session is lost");
}

#[test]
fn a_server_that_goes_away_is_waited_for_by_a_session_that_lives_on() {
    // Commits were given up, and their runs cannot be read.
    down_again_and_again("down_long", "30000", "its commands wait");
}

/// It ends by itself, not by a panic, and says what is wrong.
fn refuses(victim: Victim, code: &str) {
    let (status, complaint) = victim.ends_with();
    println!("{complaint}");
    assert_eq!(status.code(), Some(1), "{complaint}");
    assert!(complaint.contains(code), "{complaint}");
    for noise in ["panicked", "backtrace"] {
        assert!(!complaint.contains(noise), "{complaint}");
    }
}

#[test]
fn a_server_that_is_not_there_yet_is_named() {
    let cluster = Cluster::start(&[]).unwrap();
    let site = Site::new("down_absent", Some(cluster.url()));
    cluster.halt().unwrap();
    refuses(
        site.spawn("victim", &["--runs", "20"], 0),
        "STORE_UNAVAILABLE",
    );
    cluster.resume().unwrap();
    let (status, complaint) = site.spawn("victim", &["--runs", "20"], 0).ends_with();
    assert!(status.success(), "{complaint}");
    judge_or_tell(&site, 20, &complaint);
}

#[test]
fn a_disk_that_is_full_is_waited_for() {
    let site = Site::new("down_full", None);
    let mut shell = Command::new("sh");
    // With the signal ignored, a file that would grow too large is an error of the write.
    shell.args(["-c", "trap '' XFSZ; ulimit -S -f 1500; exec \"$@\"", "sh"]);
    shell.arg(VICTIM);
    let more = ["--runs", "400", "--long-ms", "100", "--tell"];
    let mut victim = site.spawn_by(shell, "victim", &more, 0);
    victim.complains_of("STORE_FULL");
    victim.complains_of("given up");
    assert!(victim.is_alive());
    victim.unlimited();
    let (status, complaint) = victim.ends_with();
    assert!(status.success(), "{complaint}");
    assert!(!complaint.contains("panicked"), "{complaint}");
    judge_or_tell(&site, 400, "");
}

#[test]
fn a_broken_file_is_refused() {
    let site = Site::new("down_broken", None);
    let path = site.folder.join("kill.db");
    fs::write(&path, "this is no database\n".repeat(1_000)).unwrap();
    refuses(site.spawn("victim", &["--runs", "20"], 0), "STORE_");
    fs::remove_file(&path).unwrap();
    let (status, complaint) = site.spawn("victim", &["--runs", "20"], 0).ends_with();
    assert!(status.success(), "{complaint}");
    // The process that closes the database last deletes the write-ahead log.
    assert!(!site.folder.join("kill.db-wal").exists());
    // Its first page is as it was; the others are not.
    let mut bytes = fs::read(&path).unwrap();
    assert!(bytes.len() > 8_192);
    bytes[4_096..].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    refuses(site.spawn("victim", &[], 0), "STORE_CORRUPT");
    fs::remove_dir_all(&site.folder).unwrap();
}
