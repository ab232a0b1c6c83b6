//! Real processes that are really killed, on both databases, and what must hold afterwards: every run
//! has ended, no event is lost or doubled, and no side effect happened that the log does not know.

use std::time::{Duration, Instant};

use stepwell_sim::Rng;

use crate::site::{Site, Victim, judge_or_tell, postgres};

fn kills() -> u32 {
    let asked = std::env::var("STEPWELL_KILLS").ok();
    asked.and_then(|it| it.parse().ok()).unwrap_or(100)
}

/// One process at a time, killed at random instants until it gets through.
fn killed_again_and_again(site: &Site, runs: u32) {
    let mut rng = Rng::new(site.seed);
    let count = runs.to_string();
    for round in 0..kills() {
        // New runs each time, so that there is always something to interrupt.
        let first = (round * runs).to_string();
        let more = ["--first", &first, "--runs", &count, "--stay"];
        let mut victim = site.spawn("victim", &more, u64::from(round));
        if rng.one_in(3) {
            // While it starts.
            std::thread::sleep(Duration::from_micros(rng.below(40_000)));
        } else if victim.hears("ready") {
            std::thread::sleep(Duration::from_micros(rng.below(200_000)));
        }
        victim.kill();
    }
    // What was never started is started now; what was started is not started again.
    let total = runs * kills();
    let last = site.spawn("victim", &["--runs", &total.to_string()], u64::MAX);
    let complaint = last.ends();
    judge_or_tell(site, total as usize, &complaint);
}

#[test]
fn nothing_is_lost_or_doubled_when_the_process_is_killed_on_sqlite() {
    killed_again_and_again(&Site::new("sqlite", None), 20);
}

#[test]
fn nothing_is_lost_or_doubled_when_the_process_is_killed_on_postgres() {
    killed_again_and_again(&Site::new("pg", Some(postgres())), 20);
}

/// Two servers and four workers on one PostgreSQL: frozen past their sessions, thawed, killed, replaced.
#[test]
fn servers_and_workers_may_freeze_and_die_in_turn() {
    let site = Site::new("many", Some(postgres()));
    let mut rng = Rng::new(site.seed);
    let mut begun = 0;
    let names = [
        "server-a", "server-b", "worker-a", "worker-b", "worker-c", "worker-d",
    ];
    let mut start = |index: usize, salt: u64| {
        let role = match index {
            0 | 1 => "server",
            _ => "worker",
        };
        let first = begun.to_string();
        begun += 60;
        let more = [
            "--role",
            role,
            "--first",
            &first,
            "--runs",
            "60",
            "--stay",
            "--session-ms",
            "600",
        ];
        site.spawn(names[index], &more, salt)
    };
    let mut all: Vec<Victim> = (0..names.len())
        .map(|index| start(index, index as u64))
        .collect();
    let length = std::env::var("STEPWELL_CHAOS_SECONDS")
        .ok()
        .and_then(|it| it.parse().ok());
    let until = Instant::now() + Duration::from_secs(length.unwrap_or(60));
    let mut salt = 100;
    while Instant::now() < until {
        std::thread::sleep(Duration::from_micros(rng.between(50_000, 400_000)));
        let index = rng.index(all.len());
        if rng.one_in(2) {
            // A partition: it does nothing for longer than its session lives, then goes on as if nothing
            // had happened.
            all[index].signal("-STOP");
            std::thread::sleep(Duration::from_micros(rng.between(100_000, 1_500_000)));
            all[index].signal("-CONT");
        } else {
            salt += 1;
            let fresh = start(index, salt);
            std::mem::replace(&mut all[index], fresh).kill();
        }
    }
    let all_of_them = begun.to_string();
    let last = site.spawn("last", &["--runs", &all_of_them, "--session-ms", "5000"], 7);
    let complaint = last.ends();
    for victim in all {
        victim.kill();
    }
    judge_or_tell(&site, begun, &complaint);
}
