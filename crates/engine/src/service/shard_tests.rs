//! Shards change nothing: the same starts, signals and events give every run the same log, however many shards share
//! the runs. All shards run on one thread with one virtual clock, and the store is never polled: whatever one
//! shard finds for another must be handed over, or the run would stand still.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_kernel::command::{Actor, Command, Role};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::service_loop::{ServiceLoop, ShardSetup};
use super::shared::SharedWorker;
use super::{ExternalEvent, Handle, Setup};
use crate::clock::VirtualClock;
use crate::coordinator::{Config, SharedParts};
use crate::limits::Limits;
use crate::mock::Mock;
use crate::port::{Catalog, Clock};
use crate::read;
use crate::shard::Shard;
use crate::start::StartRequest;
use crate::store::{MemoryStore, RunFilter, RunReader as _, Store};

static DEFINITIONS: LazyLock<Vec<Arc<Plan>>> = LazyLock::new(definitions);

const START: Time = Time(1_770_805_800_000);

const PARENT: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent}
workflow:
- step: fan
  loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
  tool: {kind: playbook, path: child, args: {n: "{{ n }}"}, return_step: answer}
  next: after
- step: after
"#;

const CHILD: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child}
workflow:
- step: answer
  next: tidy
- step: tidy
"#;

/// A step that waits for an event.
const EVENT: &str = r#"
workflowType: shop.order
workflowVersion: 1
steps: [{stepType: PACK}, {stepType: PAID, waitFor: {event: paid}}, {stepType: SHIP}]
"#;

fn plan(name: &str, text: &[u8]) -> Option<Arc<Plan>> {
    let source = Source::from_bytes(name, text).ok()?;
    load(&source).plan.map(Arc::new)
}

/// All example files that can be loaded by themselves, and the definitions above.
fn definitions() -> Vec<Arc<Plan>> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files = Vec::new();
    for folder in ["actions", "dag", "linear", "plan", "playbook"] {
        let entries = std::fs::read_dir(examples.join(folder)).expect("the examples are there");
        files.extend(entries.map(|entry| entry.expect("a file").path()));
    }
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let text = std::fs::read(file).expect("an example is a file");
        plan(&file.display().to_string(), &text)
    };
    let mut plans: Vec<Arc<Plan>> = files.iter().filter_map(read).collect();
    assert!(plans.len() >= 15, "most examples can be loaded");
    plans.extend([plan("parent.yaml", PARENT.as_bytes()).expect("a playbook")]);
    plans
}

struct Children(Arc<Plan>);

impl Catalog for Children {
    fn find(&self, _: &Plan, path: &str) -> Option<Arc<Plan>> {
        (path == "child").then(|| self.0.clone())
    }
}

/// What happens from outside, and when.
#[derive(Clone, Debug)]
struct Act {
    at: u32,
    run: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Start { definition: usize },
    Signal(&'static str),
    Cancel,
    Event,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let what = prop_oneof![
        4 => any::<usize>().prop_map(|definition| What::Start { definition }),
        2 => prop::sample::select(vec!["PAUSE", "RESUME", "RETRY_RUN"]).prop_map(What::Signal),
        1 => Just(What::Cancel),
        1 => Just(What::Event),
    ];
    let act = (0..20_000_u32, 0..6_usize, what).prop_map(|(at, run, what)| Act { at, run, what });
    prop::collection::vec(act, 1..24)
}

/// The shards of one engine on one thread.
struct Shards {
    store: Arc<MemoryStore>,
    clock: Arc<VirtualClock>,
    handle: Handle,
    loops: Vec<ServiceLoop<SharedWorker<Mock>>>,
}

impl Shards {
    fn new(count: usize, limits: &Limits) -> Shards {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(VirtualClock::at(START));
        let mut mock = Mock::new(store.clone(), clock.clone()).expect("a memory store");
        mock.work_ms = 700;
        let worker = SharedWorker::new(mock);
        let config = Mock::configure(Config {
            limits: limits.clone(),
            poll_ms: u64::MAX / 4,
            session_ms: u64::MAX / 4,
            ..Config::default()
        });
        let child = plan("child.yaml", CHILD.as_bytes()).expect("a playbook");
        let (handle, inputs) = Handle::new(count);
        let shared = Arc::<SharedParts>::default();
        let loops = Shard::all(count).zip(inputs).map(|(shard, inputs)| {
            let setup = Setup {
                catalog: Box::new(Children(child.clone())),
                config: config.clone(),
                clock: clock.clone(),
                ..Setup::new(store.clone(), worker.clone())
            };
            let part = ShardSetup {
                shard,
                shared: shared.clone(),
                ..ShardSetup::of_all(handle.clone(), inputs)
            };
            ServiceLoop::new(setup, part).expect("a memory store")
        });
        Shards {
            loops: loops.collect(),
            store,
            clock,
            handle,
        }
    }

    /// Does everything that can be done without time passing.
    fn settle(&mut self) {
        loop {
            let before = self.handle.handed.load(super::Ordering::SeqCst);
            let mut acted = false;
            for service in &mut self.loops {
                acted |= service.act().expect("a memory store");
            }
            if !acted && before == self.handle.handed.load(super::Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Lets time pass until `until`, or until nothing happens any more.
    fn pass(&mut self, until: Option<Time>) {
        loop {
            self.settle();
            let due = self.loops.iter().filter_map(ServiceLoop::next_due).min();
            match (due, until) {
                (Some(due), Some(until)) if due <= until => self.clock.advance_to(due),
                (Some(due), None) => self.clock.advance_to(due),
                (_, Some(until)) => {
                    self.clock.advance_to(until);
                    return self.settle();
                }
                (None, None) => return,
            }
        }
    }

    fn perform(&mut self, number: usize, act: &Act, definitions: &[Arc<Plan>]) {
        let run_id = format!("run_{}", act.run);
        let actor = || Actor {
            id: "ops".into(),
            role: Role::Admin,
            tenant: None,
            may_answer: true,
        };
        let command = match &act.what {
            What::Start { definition } => {
                let plan = &definitions[definition % definitions.len()];
                let request = StartRequest {
                    run_id,
                    params: json!({}),
                    context: RunContext {
                        tenant_id: "tenant".into(),
                        project_id: "project".into(),
                        environment_id: "test".into(),
                        ..RunContext::default()
                    },
                    ..StartRequest::default()
                };
                drop(self.handle.start_later(plan, request));
                return;
            }
            What::Event => {
                let event = ExternalEvent {
                    tenant: "tenant".into(),
                    id: format!("event-{number}"),
                    event_type: "paid".into(),
                    key: run_id,
                    payload: Json::Null,
                };
                self.handle.deliver_with(event, drop).expect("it runs");
                return;
            }
            What::Signal(signal) => Command::Signal {
                signal_id: format!("signal-{number}"),
                signal: (*signal).to_owned(),
                payload: Json::Null,
                reason: None,
                actor: actor(),
            },
            What::Cancel => Command::CancelRun {
                actor: actor(),
                reason: None,
                compensate: true,
                keep_undo: false,
            },
        };
        self.handle
            .submit_with(&run_id, command, drop)
            .expect("it runs");
    }

    /// The log of every run, without the names of sessions and the numbers of pretended people, which are counted
    /// over all runs.
    fn logs(&self) -> BTreeMap<String, Vec<String>> {
        let runs = self.store.list(&RunFilter {
            limit: 10_000,
            ..RunFilter::default()
        });
        let store: &dyn Store = &*self.store;
        let log = |run_id: &str| {
            let events = read::events(store, run_id, 0).expect("the run is there");
            let text = |event| plain(&serde_json::to_string(event).expect("an event is JSON"));
            events.iter().map(text).collect()
        };
        let runs = runs.expect("a memory store").into_iter();
        runs.map(|run| (run.run_id.clone(), log(&run.run_id)))
            .collect()
    }
}

/// Leaves out the digits of what is counted over all runs, and of what depends on the secret of a store.
fn plain(event: &str) -> String {
    let is_counted = |c: char| c.is_ascii_digit();
    let is_hex = |c: char| c.is_ascii_hexdigit();
    let left_out: [(&str, &dyn Fn(char) -> bool); 4] = [
        ("\"@", &is_counted),
        ("mock-person-", &is_counted),
        ("\"mock-", &is_counted),
        ("\"token_hash\":\"", &is_hex),
    ];
    left_out
        .iter()
        .fold(event.to_owned(), |text, (before, left_out)| {
            let mut parts = text.split(before);
            let first = parts.next().into_iter().map(str::to_owned);
            let rest = parts.map(|part| part.trim_start_matches(left_out).to_owned());
            first.chain(rest).collect::<Vec<String>>().join(before)
        })
}

fn logs(
    count: usize,
    acts: &[Act],
    limits: &Limits,
    definitions: &[Arc<Plan>],
) -> BTreeMap<String, Vec<String>> {
    let mut shards = Shards::new(count, limits);
    for (number, act) in acts.iter().enumerate() {
        shards.pass(Some(START.plus(u64::from(act.at))));
        shards.perform(number, act, definitions);
    }
    shards.pass(None);
    shards.logs()
}

fn compare(count: usize, mut acts: Vec<Act>, limits: &Limits) -> Result<(), TestCaseError> {
    acts.sort_by_key(|act| act.at);
    let one = logs(1, &acts, limits, &DEFINITIONS);
    let many = logs(count, &acts, limits, &DEFINITIONS);
    let ids = |logs: &BTreeMap<String, Vec<String>>| logs.keys().cloned().collect::<Vec<String>>();
    prop_assert_eq!(ids(&one), ids(&many));
    for (run_id, log) in &one {
        for (event, sharded) in log.iter().zip(&many[run_id]) {
            prop_assert_eq!(event, sharded, "{}", run_id);
        }
        prop_assert_eq!(log.len(), many[run_id].len(), "{}", run_id);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn shards_change_nothing(count in 2..=5_usize, acts in acts()) {
        compare(count, acts, &Limits::default())?;
    }

    #[test]
    fn shards_share_the_slots_of_runs(count in 2..=5_usize, acts in acts()) {
        let limits = Limits { total: Some(2), ..Limits::default() };
        compare(count, acts, &limits)?;
    }
}

#[test]
fn a_run_of_each_shard_gets_its_event() {
    let event = plan("event.yaml", EVENT.as_bytes()).expect("a chain");
    let acts: Vec<Act> = (0..6)
        .flat_map(|run| {
            let start = Act {
                at: 0,
                run,
                what: What::Start { definition: 0 },
            };
            let event = Act {
                at: 1_500,
                run,
                what: What::Event,
            };
            [start, event]
        })
        .collect();
    let mut acts = acts;
    acts.sort_by_key(|act| act.at);
    let many = logs(3, &acts, &Limits::default(), &[event]);
    assert_eq!(many.len(), 6);
    for log in many.values() {
        let last = log.last().expect("a run has events");
        assert!(last.contains("RunCompleted"), "{log:#?}");
    }
}
