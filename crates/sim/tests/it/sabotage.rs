//! The simulator finds bugs: each one that is put in on purpose is caught within a few seeds.

use stepwell_sim::{Options, Sabotage, simulate};

/// How many seeds it may take.
const SEEDS: u64 = 60;

/// Looks for a world in which the bug shows, and for the words that it is told by.
#[track_caller]
fn is_caught(sabotage: Sabotage, words: &[&str]) {
    let options = Options {
        sabotage: Some(sabotage),
        ..Options::default()
    };
    for seed in 0..SEEDS {
        let Err(violation) = simulate(seed, &options) else {
            continue;
        };
        let text = violation.to_string();
        assert!(
            words.iter().any(|word| violation.what.contains(word)),
            "{sabotage:?} was caught, but not by what it breaks: {text}"
        );
        assert!(text.contains(&format!("--seed {seed} ")), "{text}");
        return;
    }
    panic!("{sabotage:?} was not caught within {SEEDS} seeds");
}

macro_rules! sabotages {
    ($($test:ident: $sabotage:ident by $($words:literal),+;)*) => {
        const TESTED: &[Sabotage] = &[$(Sabotage::$sabotage),*];

        $(
            #[test]
            fn $test() {
                is_caught(Sabotage::$sabotage, &[$($words),+]);
            }
        )*
    };
}

sabotages! {
    ignored_guards_are_caught: IgnoreGuards by "no row", "forgotten", "began", "stuck", "task row";
    accepting_a_moved_append_is_caught: AcceptMoved by "hash chain", "key", "after the end", "earlier", "claimed";
    lost_mail_is_caught: DropMail by "no row", "never ends", "stuck";
    a_lost_wake_up_is_caught: LoseWakeAt by "no row";
    a_forgotten_commit_is_caught: ForgetCommit by "not in", "began", "is gone", "hash chain";
    a_batch_applied_twice_is_caught: ApplyTwice by "hash chain", "key", "after the end", "slots", "earlier", "claimed";
    lost_tasks_are_caught: DropTasks by "no row";
    lost_waits_are_caught: DropWaits by "no row";
    leaked_slots_are_caught: LeakSlots by "slots of";
    lost_markers_are_caught: DropMarkers by "out of order", "has not got all";
    hidden_dead_servers_are_caught: HideTheDead by "stuck", "never ends", "rest";
    work_before_its_claim_is_caught: StartEarly by "began";
}

#[test]
fn every_sabotage_has_a_test() {
    for sabotage in Sabotage::ALL {
        assert!(TESTED.contains(&sabotage), "{sabotage:?}");
    }
}
