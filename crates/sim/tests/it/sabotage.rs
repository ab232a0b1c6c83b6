//! The simulator finds bugs: each one that is put in on purpose is caught within a few seeds. Here a bounded set of
//! them; `cargo xtask sim --sabotages` tries all.

use stepwell_sim::{Options, Sabotage, simulate};

/// How many seeds it may take.
const SEEDS: u64 = 60;

/// Looks for a world in which the bug shows, and for the words that it is told by.
#[track_caller]
fn is_caught(options: &Options, sabotage: Sabotage, words: &[&str]) {
    let options = Options {
        sabotage: Some(sabotage),
        ..options.clone()
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
        assert!(text.contains(&format!("--sabotage {sabotage:?}")), "{text}");
        return;
    }
    panic!("{sabotage:?} was not caught within {SEEDS} seeds");
}

macro_rules! sabotages {
    ($($test:ident: $sabotage:ident $(in $workload:literal)? by $($words:literal),+;)*) => {
        $(
            #[test]
            fn $test() {
                let options = Options {
                    workload: [$($workload.to_owned())?].first().cloned(),
                    ..Options::default()
                };
                is_caught(&options, Sabotage::$sabotage, &[$($words),+]);
            }
        )*
    };
}

sabotages! {
    ignored_guards_are_caught: IgnoreGuards by "no row", "forgotten", "began", "stuck", "task row";
    accepting_a_moved_append_is_caught: AcceptMoved by "hash chain", "key", "after the end", "earlier", "claimed", "idle", "never answered";
    lost_mail_is_caught: DropMail by "no row", "never ends", "stuck";
    a_lost_wake_up_is_caught: LoseWakeAt by "no row";
    a_forgotten_commit_is_caught: ForgetCommit by "not in", "began", "is gone", "hash chain";
    a_batch_applied_twice_is_caught: ApplyTwice by "hash chain", "key", "after the end", "slots", "earlier", "claimed", "never answered";
    lost_tasks_are_caught: DropTasks by "no row";
    tasks_that_are_kept_are_caught: KeepTasks by "task row";
    lost_waits_are_caught: DropWaits by "no row";
    leaked_slots_are_caught: LeakSlots by "slots of";
    lost_markers_are_caught: DropMarkers by "out of order", "has not got all";
    a_changed_log_is_caught: FlipBit by "hash chain", "event", "chunk";
    a_refusal_that_is_denied_is_caught: LieAboutRefusals by "began", "not in", "is gone";
    a_request_that_is_two_runs_is_caught: LoseRequestKey by "request";
    hidden_dead_servers_are_caught: HideTheDead by "stuck", "never ends", "rest";
    stale_reads_are_caught: StaleReads by "idle", "stuck", "always", "never ends";
    work_before_its_claim_is_caught: StartEarly by "began";
    work_that_begins_twice_is_caught: WorkTwice by "began twice";
    wrong_parameters_are_caught: WrongParams in "drawn-actions" by "parameters";
    fences_that_do_not_rise_are_caught: SameFence by "wrong fence";
    a_forgotten_memo_is_caught: ForgetMemo in "pipelines" by "before a wait";
    a_secret_that_is_reported_is_caught: LeakSecret in "pipelines" by "a secret is in the log";
    too_few_attempts_are_caught: FewerAttempts in "drawn-actions" by "the model";
    too_many_attempts_are_caught: MoreAttempts in "drawn-actions" by "the model";
    missing_undos_are_caught: DropUndo in "drawn-actions" by "the model";
    undos_that_nothing_asks_for_are_caught: AlwaysUndo in "drawn-dag" by "the model";
    a_lost_dependency_is_caught: DropEdge in "drawn-actions" by "the model";
    wrong_backoff_is_caught: NoBackoff in "drawn-linear" by "the model";
    failures_that_are_skipped_are_caught: SkipFailures in "drawn-actions" by "the model";
    tokens_on_wrong_arcs_are_caught: FlipRouteMode in "drawn-playbook" by "the model";
    guards_that_always_hold_are_caught: DropGuards in "drawn-playbook" by "the model";
    lost_arguments_are_caught: DropArgs in "drawn-playbook" by "the model";
    variables_that_are_not_set_are_caught: DropSets in "drawn-playbook" by "the model";
    tokens_that_may_not_enter_are_caught: DropAdmission in "drawn-playbook" by "the model";
    steps_that_do_not_wait_for_all_are_caught: NeverJoin in "drawn-playbook" by "the model";
    loops_that_are_too_wide_are_caught: WidenLoops in "drawn-playbook" by "the model";
    loops_that_go_on_or_end_wrongly_are_caught: FlipLoopFailure in "drawn-playbook" by "the model";
    a_missing_final_step_is_caught: DropFinalStep in "drawn-playbook" by "the model";
    failures_that_are_accepted_are_caught: FlipCompletion in "drawn-playbook" by "the model";
}

/// Without syncs a loss of power takes commits that were answered.
#[test]
fn a_disk_that_lies_is_caught() {
    let options = Options {
        on_disk: Some(true),
        ..Options::default()
    };
    let words = [
        "is gone",
        "not in",
        "cannot be opened",
        "began",
        "forgotten",
        "rewritten",
    ];
    is_caught(&options, Sabotage::LyingDisk, &words);
}

/// Wake-ups, tasks and waits are rows; a migration that loses them leaves runs that nothing wakes.
#[test]
fn rows_that_an_upgrade_loses_are_caught() {
    let options = Options {
        on_disk: Some(true),
        ..Options::default()
    };
    is_caught(&options, Sabotage::LoseInUpgrade, &["no row"]);
}

#[test]
fn there_are_at_least_forty_and_each_has_a_name() {
    assert!(Sabotage::ALL.len() >= 40);
    for sabotage in Sabotage::ALL {
        assert_eq!(Sabotage::find(&format!("{sabotage:?}")), Some(*sabotage));
    }
}
