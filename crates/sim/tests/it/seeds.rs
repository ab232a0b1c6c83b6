//! Worlds that must be right.

use std::time::Duration;

use stepwell_sim::{NAMES, Options, Sabotage, Summary, shrink, simulate};

#[track_caller]
fn is_right(seed: u64, options: &Options) {
    if let Err(violation) = simulate(seed, options) {
        panic!("{violation}");
    }
}

#[test]
fn worlds_are_right() {
    for seed in 0..24 {
        is_right(seed, &Options::default());
    }
}

/// Each of these found a bug of the engine when the simulator drew its steps in another way: a result that came late was lost; a live server's run
/// was taken from it; a commit that was given up came through and nobody knew; a wake-up was lost when
/// a run was read again; capacity leaked; tasks were left over; a child's end was lost; a run that started
/// and ended in one commit kept its slot; what was asked of a run whose creation was in doubt was
/// answered and not done, or never answered; a run that only waits was taken over by a commit that was given up and came
/// through, and nobody saw to its timer; work that a worker had done was offered once more, to no end; work that only others can do was withdrawn when a run was no longer shared; a result that waited
/// until its run could be read was passed by, so that nobody would have noticed the end of its server.
#[test]
fn seeds_that_found_bugs_are_right() {
    for seed in [
        68,
        71,
        85,
        131,
        193,
        256,
        315,
        367,
        399,
        457,
        630,
        690,
        4_800,
        200_000_073,
        200_000_109,
        100_004_062,
        200_003_774,
        200_015_763,
        100_211_160,
        200_383_933,
    ] {
        is_right(seed, &Options::default());
    }
    let alone = Options {
        max_servers: Some(1),
        steps: 305,
        ..Options::default()
    };
    is_right(200_383_933, &alone);
    for seed in [300_025, 300_062] {
        let options = Options {
            workload: Some("playbook".to_owned()),
            steps: 800,
            ..Options::default()
        };
        is_right(seed, &options);
    }
}

#[test]
fn every_language_alone_is_right() {
    for name in NAMES {
        for seed in 1_000..1_004 {
            let options = Options {
                workload: Some(name.to_owned()),
                ..Options::default()
            };
            is_right(seed, &options);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let options = Options {
        trace: true,
        ..Options::default()
    };
    for seed in 0..6 {
        let first = simulate(seed, &options).unwrap();
        let second = simulate(seed, &options).unwrap();
        assert!(first.trace.lines().count() > 20);
        assert!(first.trace == second.trace, "seed {seed}");
    }
}

/// The power is lost, writes and syncs fail, the disk is full: what was committed stays.
#[test]
fn sqlite_on_a_faulty_disk_is_right() {
    let options = Options {
        on_disk: Some(true),
        ..Options::default()
    };
    for seed in 2_000..2_010 {
        is_right(seed, &options);
    }
}

/// The previous release wrote the store: its tables, events and snapshots are read, and the runs go on.
#[test]
fn stores_of_earlier_releases_are_brought_up_to_date() {
    let options = Options {
        on_disk: Some(true),
        ..Options::default()
    };
    let mut summary = Summary::default();
    for seed in 4_000..4_006 {
        let report = simulate(seed, &options).unwrap_or_else(|violation| panic!("{violation}"));
        summary.add(&report, Duration::from_millis(5));
    }
    let text = summary.to_string();
    assert!(text.contains("a store of version 2 is opened"), "{text}");
    assert!(text.contains("a store of version 3 is opened"), "{text}");
}

#[test]
fn a_summary_names_faults_and_coverage() {
    let mut summary = Summary::default();
    for seed in 3_000..3_004 {
        let report = simulate(seed, &Options::default()).unwrap();
        summary.add(&report, Duration::from_millis(5));
    }
    let text = summary.to_string();
    for words in [
        "judged by the model",
        "a server crashes",
        "StepCompleted",
        "simulated hours a minute",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_violation_is_made_smaller_and_stays_the_same() {
    let options = Options {
        sabotage: Some(Sabotage::ForgetEnd),
        ..Options::default()
    };
    let large = simulate(0, &options).unwrap_err();
    let small = shrink(&large);
    assert!(small.options.steps < large.options.steps);
    assert!(small.what.contains("disagree"), "{}", small.what);
    let again = simulate(small.seed, &small.options).unwrap_err();
    assert_eq!(again.what, small.what);
}
