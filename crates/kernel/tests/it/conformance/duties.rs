//! Separation of duties: a person who may not decide about a step gets no other road around the decision.

use serde_json::{Value as Json, json};
use stepwell_kernel::command::{Actor, Command, ManualOutcome, Reply, Role};
use stepwell_kernel::decide::{barred, barred_from_run};
use stepwell_kernel::plan::{Completion, Duty, ErrorClass, Gate, Net, OnFailure, Step, WaitOn};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use crate::support::{Sim, actor, chain, code, task, undoable, waits};

fn gated(name: &str, duties: Vec<Duty>) -> Step {
    let gate = Gate {
        duties,
        deadline_ms: None,
    };
    Step {
        gate: Some(gate),
        ..task(name)
    }
}

fn approval(name: &str, duties: Vec<Duty>) -> Step {
    Step {
        duties,
        ..waits(name, WaitOn::Approval, None)
    }
}

fn by_hand(name: &str, duties: Vec<Duty>) -> Step {
    Step {
        completion: Completion::Manual,
        duties,
        ..task(name)
    }
}

fn send(sim: &mut Sim, signal: &str, payload: Json, by: Actor) -> Result<Reply, Code> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let id = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let id = format!("s-{id}");
    match sim.signal_as(&id, signal, payload, Some("because"), by) {
        Ok(Reply::Refused(refused)) => Err(refused.code),
        Ok(reply) => Ok(reply),
        Err(refused) => Err(refused.code),
    }
}

fn skip(sim: &mut Sim, step: &str, by: Actor) -> Result<Reply, Code> {
    send(sim, "SKIP_STEP", json!({ "stepId": step }), by)
}

fn engineer(id: &str) -> Actor {
    actor(id, Role::Engineer)
}

const DENIED: Result<Reply, Code> = Err(Code::SodDenied);

/// The maker of the runs of these tests is `maker`.
fn maker_checker() -> Vec<Duty> {
    vec![Duty::MakerChecker]
}

#[test]
fn the_maker_cannot_skip_what_another_person_must_decide() {
    let steps = [
        gated("a", maker_checker()),
        approval("a", maker_checker()),
        by_hand("a", maker_checker()),
    ];
    for step in steps {
        let net = || chain(vec![task("first"), step.clone(), task("after")]);
        // Before the run has reached the step, while it waits, and by an administrator.
        for (is_reached, role) in [
            (false, Role::Engineer),
            (true, Role::Engineer),
            (true, Role::Admin),
        ] {
            let mut sim = Sim::started(net());
            if is_reached {
                sim.run("first").unwrap();
            }
            let seen = sim.status("a");
            assert_eq!(skip(&mut sim, "a", actor("maker", role)), DENIED);
            assert_eq!(sim.status("a"), seen, "nothing has changed");
            assert_eq!(skip(&mut sim, "a", engineer("other")), Ok(Reply::Done));
            assert_eq!(sim.status("a"), Some(Status::Skipped));
        }
    }
}

#[test]
fn a_rejected_step_that_is_held_is_still_to_be_decided_by_another_person() {
    let step = Step {
        on_failure: OnFailure::Hold { timeout_ms: 60_000 },
        ..gated("a", maker_checker())
    };
    let mut sim = Sim::started(chain(vec![step, task("after")]));
    sim.answer("a", ManualOutcome::Failed, "boss").unwrap();
    assert_eq!(sim.status("a"), Some(Status::Held));
    assert_eq!(skip(&mut sim, "a", engineer("maker")), DENIED);
    // A retry asks again, and the maker is no checker then either.
    let retry = json!({ "stepId": "a" });
    send(&mut sim, "RETRY_STEP", retry, engineer("maker")).unwrap();
    let denied = sim.answer("a", ManualOutcome::Succeeded, "maker");
    assert_eq!(code(denied), Code::SodDenied);
    assert_eq!(skip(&mut sim, "a", engineer("maker")), DENIED);
    sim.answer("a", ManualOutcome::Succeeded, "boss").unwrap();
    // The decision is given: work that was approved and is not done needs no other one.
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    assert_eq!(skip(&mut sim, "a", engineer("maker")), Ok(Reply::Done));
}

#[test]
fn one_person_does_not_skip_what_several_must_approve() {
    let two = || approval("a", vec![Duty::DistinctApprovers { count: 2 }]);
    let mut sim = Sim::started(chain(vec![two(), task("after")]));
    assert_eq!(skip(&mut sim, "a", engineer("ada")), DENIED);
    sim.answer("a", ManualOutcome::Succeeded, "ada").unwrap();
    assert_eq!(skip(&mut sim, "a", engineer("ada")), DENIED, "still alone");
    assert_eq!(skip(&mut sim, "a", engineer("bob")), Ok(Reply::Done));
}

#[test]
fn who_did_an_incompatible_step_cannot_skip_the_other() {
    let keys = vec!["prepare".to_owned()];
    let check = by_hand("check", vec![Duty::IncompatibleDuties { keys }]);
    let prepare = by_hand("prepare", Vec::new());
    let mut sim = Sim::started(chain(vec![prepare, check, task("after")]));
    sim.run("prepare").unwrap();
    sim.answer("prepare", ManualOutcome::Succeeded, "ada")
        .unwrap();
    assert_eq!(skip(&mut sim, "check", engineer("ada")), DENIED);
    assert_eq!(skip(&mut sim, "check", engineer("bob")), Ok(Reply::Done));
}

#[test]
fn who_may_not_answer_cannot_skip_an_approval() {
    let mute = || Actor {
        may_answer: false,
        ..engineer("other")
    };
    for step in [gated("a", Vec::new()), approval("a", Vec::new())] {
        let mut sim = Sim::started(chain(vec![step, task("after")]));
        assert_eq!(skip(&mut sim, "a", mute()), Err(Code::AuthzDenied));
        let answer = Command::CompleteManually {
            step: sim.at("a"),
            token: sim.token("a"),
            outcome: ManualOutcome::Succeeded,
            actor: mute(),
            output: Json::Null,
            details: Default::default(),
        };
        assert_eq!(code(sim.send(answer)), Code::AuthzDenied);
        assert_eq!(skip(&mut sim, "a", engineer("other")), Ok(Reply::Done));
    }
    // Work that a person does, and nobody decides about, is skipped as any other work.
    let mut sim = Sim::started(chain(vec![by_hand("a", Vec::new())]));
    assert_eq!(skip(&mut sim, "a", mute()), Ok(Reply::Done));
}

/// What the maker may try after others have decided.
fn changes(step: &str) -> [(&'static str, Json); 3] {
    [
        (
            "UPDATE_PARAMS",
            json!({ "params": { "amount": 1_000_000 } }),
        ),
        (
            "INJECT_OVERRIDE",
            json!({ "stepId": step, "override": { "amount": 1 } }),
        ),
        (
            "UPDATE_TARGET",
            json!({ "stepId": step, "newTarget": { "host": "x" } }),
        ),
    ]
}

fn patch(sim: &mut Sim, by: &str) -> Result<Reply, Code> {
    let ctx = [("k".to_owned(), json!(1))].into_iter().collect();
    let actor = actor(by, Role::Admin);
    let sent = sim.send(Command::PatchCtx { actor, ctx });
    sent.map_err(|refused| refused.code)
}

#[test]
fn the_maker_does_not_change_what_others_have_approved() {
    let admin = |id: &str| actor(id, Role::Admin);
    let net = || {
        chain(vec![
            approval("ok", maker_checker()),
            gated("pay", maker_checker()),
            task("after"),
        ])
    };
    let mut sim = Sim::started(net());
    // Before the decision the maker prepares what is decided about.
    for (signal, payload) in changes("pay") {
        assert_eq!(
            send(&mut sim, signal, payload, admin("maker")),
            Ok(Reply::Done)
        );
    }
    assert_eq!(patch(&mut sim, "maker"), Ok(Reply::Done));
    sim.answer("ok", ManualOutcome::Succeeded, "boss").unwrap();
    let seq = |sim: &Sim| sim.state.current_params().clone();
    let before = seq(&sim);
    for (signal, payload) in changes("pay") {
        assert_eq!(
            send(&mut sim, signal, payload, admin("maker")),
            DENIED,
            "{signal}"
        );
    }
    assert_eq!(patch(&mut sim, "maker"), DENIED);
    assert_eq!(seq(&sim), before);
    // Someone who could have decided may.
    for (signal, payload) in changes("pay") {
        assert_eq!(
            send(&mut sim, signal, payload, admin("other")),
            Ok(Reply::Done)
        );
    }
    assert_eq!(patch(&mut sim, "other"), Ok(Reply::Done));
}

#[test]
fn after_a_rejection_the_maker_may_change_what_is_to_be_decided_again() {
    let step = Step {
        on_failure: OnFailure::Hold { timeout_ms: 60_000 },
        ..gated("a", maker_checker())
    };
    let mut sim = Sim::started(chain(vec![step, task("after")]));
    sim.answer("a", ManualOutcome::Failed, "boss").unwrap();
    let params = json!({ "params": { "amount": 1 } });
    let maker = || actor("maker", Role::Admin);
    assert_eq!(
        send(&mut sim, "UPDATE_PARAMS", params.clone(), maker()),
        Ok(Reply::Done)
    );
    let retry = json!({ "stepId": "a" });
    send(&mut sim, "RETRY_STEP", retry, maker()).unwrap();
    sim.answer("a", ManualOutcome::Succeeded, "boss").unwrap();
    assert_eq!(send(&mut sim, "UPDATE_PARAMS", params, maker()), DENIED);
}

#[test]
fn the_approval_of_the_whole_run_counts_as_well() {
    let mut net: Net = chain(vec![task("a")]);
    net.policy.needs_approval = true;
    net.policy.duties = maker_checker();
    let mut sim = Sim::new(net);
    sim.create().unwrap();
    assert!(barred_from_run(&sim.plan, &sim.state, "maker").is_some());
    assert_eq!(barred_from_run(&sim.plan, &sim.state, "boss"), None);
    sim.enqueue().unwrap();
    sim.approve("boss").unwrap();
    sim.start_run().unwrap();
    let params = json!({ "params": { "amount": 1 } });
    let maker = actor("maker", Role::Admin);
    assert_eq!(send(&mut sim, "UPDATE_PARAMS", params, maker), DENIED);
}

#[test]
fn the_kernel_says_who_may_not_answer_and_why() {
    let keys = vec!["prepare".to_owned()];
    let both = vec![Duty::MakerChecker, Duty::IncompatibleDuties { keys }];
    let prepare = approval("prepare", Vec::new());
    let mut sim = Sim::started(chain(vec![prepare, approval("check", both)]));
    sim.answer("prepare", ManualOutcome::Succeeded, "ada")
        .unwrap();
    let why = |who: &str| barred(&sim.plan, &sim.state, sim.at("check"), who);
    assert_eq!(
        why("maker").as_deref(),
        Some("maker started the run; another person must do this")
    );
    assert_eq!(
        why("ada").as_deref(),
        Some("ada did prepare; another person must do this")
    );
    assert_eq!(why("bob"), None);
    let prepared = barred(&sim.plan, &sim.state, sim.at("prepare"), "maker");
    assert_eq!(prepared, None, "nothing is asked there any more");
}

#[test]
fn a_cancel_that_keeps_the_undo_is_refused_while_the_run_undoes() {
    let cancel = |keep_undo| Command::CancelRun {
        actor: engineer("ada"),
        reason: None,
        compensate: false,
        keep_undo,
    };
    let mut sim = Sim::started(chain(vec![undoable("a"), task("b")]));
    sim.run("a").unwrap();
    sim.cancel_with(true).unwrap();
    let seq = sim.state.seq();
    assert_eq!(code(sim.send(cancel(true))), Code::RunUndoing);
    assert_eq!(sim.state.seq(), seq);
    assert_eq!(sim.send(cancel(false)), Ok(Reply::Done));
    // Where nothing is being undone it is a cancel as any other.
    let mut sim = Sim::started(chain(vec![task("a")]));
    assert_eq!(sim.send(cancel(true)), Ok(Reply::Done));
}
