//! L: what linear.md says about transactions: the log and the rows that follow from it change
//! together or not at all.

use std::sync::Arc;

use serde_json::json;
use stepwell_dialects::linear::rows::{InstanceRow, StepRow, instance_row, step_rows};
use stepwell_dialects::{Source, load};
use stepwell_engine::clock::VirtualClock;
use stepwell_engine::memory::MemoryStore;
use stepwell_engine::port::{AppendError, NoCatalog, Store};
use stepwell_engine::{Engine, Error, StartRequest};
use stepwell_kernel::command::{Claim, Command, Env, Reply, WaitFor};
use stepwell_kernel::decide::decide;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::evolve::replay;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;

const CHAIN: &str = "\
workflowType: order.process
workflowVersion: 3
steps: [{stepType: VALIDATE}, {stepType: PAY}, {stepType: SHIP}]
";

const START: Time = Time(1_770_805_800_000);

type Flow = Engine<Flaky, VirtualClock, NoCatalog>;

/// A store whose commits can be made to fail.
#[derive(Debug, Default)]
struct Flaky {
    store: MemoryStore,
    refuse: std::cell::Cell<bool>,
}

impl Store for Flaky {
    fn append(
        &mut self,
        plan: &Plan,
        run_id: &str,
        expected: u64,
        events: &[Event],
    ) -> Result<(), AppendError> {
        if self.refuse.get() {
            let actual = expected + 1;
            return Err(AppendError::Moved { expected, actual });
        }
        self.store.append(plan, run_id, expected, events)
    }

    fn events(&self, run_id: &str, after: u64) -> Vec<Event> {
        self.store.events(run_id, after)
    }

    fn claim_request(&mut self, key: &str, run_id: &str) -> Option<String> {
        self.store.claim_request(key, run_id)
    }
}

fn engine() -> Flow {
    let clock = VirtualClock::at(START);
    Engine::new(Flaky::default(), clock, NoCatalog, TokenKey([7; 32]))
}

fn plan(text: &str) -> Arc<Plan> {
    let source = Source::from_bytes("t.yaml", text.as_bytes()).expect("small UTF-8 text");
    Arc::new(load(&source).plan.expect("a plan"))
}

fn request(run_id: &str) -> StartRequest {
    StartRequest {
        run_id: run_id.into(),
        ..StartRequest::default()
    }
}

/// Both tables.
fn rows(engine: &Flow, run_id: &str) -> (InstanceRow, Vec<StepRow>) {
    let live = engine.run(run_id).expect("the run exists");
    (
        instance_row(&live.plan, &live.state, None),
        step_rows(&live.plan, &live.state),
    )
}

fn statuses(engine: &Flow, run_id: &str) -> (&'static str, Vec<&'static str>) {
    let (instance, steps) = rows(engine, run_id);
    (
        instance.status,
        steps.iter().map(|row| row.status).collect(),
    )
}

fn next_task(engine: &mut Flow, run_id: &str) -> Option<Target> {
    let task = engine.tasks.iter().find(|task| task.run_id == run_id);
    let task = task.cloned()?;
    engine.tasks.remove(&task);
    Some(task.target)
}

fn claim_by(target: Target, worker: &str) -> Command {
    Command::ClaimStep {
        target,
        worker: worker.into(),
        lease_until: START.plus(30_000),
    }
}

fn claim(engine: &mut Flow, run_id: &str, target: Target) -> Claim {
    match engine.submit(run_id, claim_by(target, "one")) {
        Ok(Reply::Claimed(claimed)) => claimed.claim,
        other => panic!("{other:?}"),
    }
}

fn completion(claim: Claim) -> Command {
    Command::CompleteStep {
        claim,
        output: json!(null),
        ctx: Default::default(),
        artifacts: Vec::new(),
    }
}

#[test]
fn l1_instance_and_steps_are_inserted_together_or_not_at_all() {
    let plan = plan(CHAIN);
    let mut engine = engine();
    engine.store().refuse.set(true);
    assert!(engine.trigger(&plan, request("run_all")).is_err());
    assert!(engine.run("run_all").is_none());
    assert_eq!(engine.events("run_all", 0), []);
    engine.store().refuse.set(false);
    // From the first commit on the instance and all its steps are there.
    engine.create(&plan, request("run_all")).unwrap();
    assert_eq!(engine.events("run_all", 0).len(), 1);
    assert_eq!(
        statuses(&engine, "run_all"),
        ("RUNNING", vec!["PENDING"; 3])
    );
}

#[test]
fn l3_a_changed_definition_does_not_change_a_run_that_has_started() {
    let mut engine = engine();
    let shorter = CHAIN.replace(", {stepType: PAY}, {stepType: SHIP}", "");
    engine.trigger(&plan(CHAIN), request("run_first")).unwrap();
    engine
        .trigger(&plan(&shorter), request("run_second"))
        .unwrap();
    for run_id in ["run_first", "run_second"] {
        while let Some(target) = next_task(&mut engine, run_id) {
            let claim = claim(&mut engine, run_id, target);
            engine.submit(run_id, completion(claim)).unwrap();
        }
    }
    let done = ("COMPLETED", vec!["DONE"; 3]);
    assert_eq!(statuses(&engine, "run_first"), done);
    let done = ("COMPLETED", vec!["DONE"]);
    assert_eq!(statuses(&engine, "run_second"), done);
    // The log says what it was started with.
    let pinned = |run_id: &str| match &engine.events(run_id, 0)[0].body {
        Body::RunCreated { plan_hash, .. } => plan_hash.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(pinned("run_first"), plan(CHAIN).hash());
    assert_eq!(pinned("run_second"), plan(&shorter).hash());
}

#[test]
fn l7_of_two_claimers_exactly_one_gets_the_step() {
    let plan = plan(CHAIN);
    let mut engine = engine();
    engine.trigger(&plan, request("run_raced")).unwrap();
    let target = next_task(&mut engine, "run_raced").unwrap();
    let log = engine.events("run_raced", 0);
    let seq = log.len() as u64;
    let mut store = MemoryStore::default();
    store.append(&plan, "run_raced", 0, &log).unwrap();
    let env = Env {
        now: START,
        key: TokenKey([7; 32]),
    };
    // Both decide on what they have read before either commits.
    let decided = ["one", "two"].map(|worker| {
        let mut state = replay(&plan, "run_raced", &log);
        let claim = claim_by(target, worker);
        decide(&plan, &mut state, claim, &env).unwrap().events
    });
    store.append(&plan, "run_raced", seq, &decided[0]).unwrap();
    let moved = AppendError::Moved {
        expected: seq,
        actual: seq + 1,
    };
    let second = store.append(&plan, "run_raced", seq, &decided[1]);
    assert_eq!(second, Err(moved));
    // The loser reads what is new, decides again and is refused.
    let mut state = replay(&plan, "run_raced", &store.events("run_raced", 0));
    let again = decide(&plan, &mut state, claim_by(target, "two"), &env);
    assert_eq!(again.unwrap_err().code, Code::StepNotEligible);
    assert_eq!(
        step_rows(&plan, &state)[0].locked_by.as_deref(),
        Some("one")
    );
}

#[test]
fn l14_what_a_wait_announces_is_committed_with_it_or_not_at_all() {
    let mut engine = engine();
    engine.trigger(&plan(CHAIN), request("run_asks")).unwrap();
    let target = next_task(&mut engine, "run_asks").unwrap();
    let claim = claim(&mut engine, "run_asks", target);
    let wait = || Command::WaitStep {
        claim: claim.clone(),
        wait: WaitFor::Event {
            event_type: "paid".into(),
        },
        timeout_ms: Some(1_000),
        outbound: vec![json!({ "type": "ask-bank" })],
    };
    let before = rows(&engine, "run_asks");
    let seq = engine.run("run_asks").unwrap().state.seq;
    // The commit fails: no row, no announcement.
    engine.store().refuse.set(true);
    let sent = engine.submit("run_asks", wait());
    assert!(matches!(sent, Err(Error::Append { .. })), "{sent:?}");
    assert_eq!(rows(&engine, "run_asks"), before);
    assert!(engine.published.is_empty());
    // It succeeds: both, in one event.
    engine.store().refuse.set(false);
    engine.submit("run_asks", wait()).unwrap();
    let events = engine.events("run_asks", seq);
    let [
        Event {
            body: Body::StepWaiting { outbound, .. },
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(*outbound, [json!({ "type": "ask-bank" })]);
    let announced = ("run_asks".to_owned(), json!({ "type": "ask-bank" }));
    assert_eq!(engine.published, [announced]);
    assert_eq!(rows(&engine, "run_asks").1[0].status, "WAITING");
}
