//! How fast the kernel is: a step, a replay, a wide loop. Storage and serialisation are not in it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use stepwell_kernel::command::{Actor, Claim, Command, Env, Reply, Role};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::decide::decide;
use stepwell_kernel::effect::{Effect, Target};
use stepwell_kernel::event::{Event, Patch, RunContext};
use stepwell_kernel::evolve::replay;
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::{
    Dialect, Edge, Loop, LoopMode, MaxInFlight, Net, OnLoopFailure, Plan, RunPolicy, SourceRef,
    Step, StepNo, StepRef, Work,
};
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;

const RUN: &str = "run_bench";

fn task(name: String) -> Step {
    let mut step = Step::new(
        name,
        Work::Task {
            queue: "q".into(),
            operation: "op".into(),
            config: json!(null),
        },
    );
    step.timeout_ms = Some(300_000);
    step
}

fn net(steps: Vec<Step>, edges: Vec<Edge>, workload: serde_json::Value) -> Plan {
    let net = Net {
        dialect: Dialect::Actions,
        plan_id: "bench".into(),
        plan_version: "1".into(),
        schema_version: "v1.0".into(),
        source: SourceRef {
            uri: "bench:".into(),
            sha256: "0".repeat(64),
        },
        workload,
        steps,
        edges,
        policy: RunPolicy::default(),
        library: Default::default(),
        extra: json!(null),
    };
    Plan::new(net).expect("the bench's net is sound")
}

fn chain(length: u32) -> Plan {
    let steps = (0..length).map(|no| task(format!("step-{no}"))).collect();
    let edges = (1..length)
        .map(|no| Edge::plain(StepNo(no - 1), StepNo(no)))
        .collect();
    net(steps, edges, json!(null))
}

fn looped(items: usize) -> Plan {
    let mut step = task("each".into());
    step.each = Some(Loop {
        items: TemplateValue::parse(&json!("{{ workload.items }}")).expect("a template"),
        iterator: "item".into(),
        mode: LoopMode::Parallel,
        max_in_flight: MaxInFlight::Fixed(100),
        on_failure: OnLoopFailure::Fail,
    });
    net(
        vec![step],
        vec![],
        json!({ "items": (0..items).collect::<Vec<_>>() }),
    )
}

fn env() -> Env {
    Env {
        now: Time(1_000_000),
        key: TokenKey([1; 32]),
    }
}

struct Bench<'a> {
    plan: &'a Plan,
    state: State,
    env: Env,
    /// What was decided, if anyone wants it: keeping a long log costs more than deciding it.
    events: Option<Vec<Event>>,
    ready: std::collections::VecDeque<Target>,
}

impl<'a> Bench<'a> {
    fn started(plan: &'a Plan, log: bool) -> Bench<'a> {
        let mut bench = Bench {
            plan,
            state: State::new(RUN, plan),
            env: env(),
            events: log.then(Vec::new),
            ready: Default::default(),
        };
        bench.send(Command::CreateRun {
            run_id: RUN.into(),
            params: json!(null),
            context: RunContext::default(),
            parent: None,
            original_run_id: None,
            start_after: None,
        });
        bench.send(Command::StartRun {
            engine: "mock".into(),
            engine_run_ref: "m".into(),
            fetched_sha256: None,
        });
        bench
    }

    fn send(&mut self, command: Command) -> Reply {
        let decision = decide(self.plan, &mut self.state, command, &self.env)
            .expect("the bench sends what is lawful");
        if let Some(events) = &mut self.events {
            events.extend(decision.events);
        }
        self.ready
            .extend(decision.effects.iter().filter_map(|effect| match effect {
                Effect::Dispatch { target, .. } => Some(*target),
                _ => None,
            }));
        decision.reply
    }

    /// Claims and completes one step: two commands, two events.
    fn one_step(&mut self) -> bool {
        let Some(target) = self.ready.pop_front() else {
            return false;
        };
        let claim = Command::ClaimStep {
            target,
            worker: "w".into(),
            lease_until: Time(9_000_000),
        };
        let Reply::Claimed(claimed) = self.send(claim) else {
            return false;
        };
        self.send(Command::CompleteStep {
            claim: Claim { ..claimed.claim },
            output: json!({ "ok": true }),
            ctx: Patch::new(),
            artifacts: vec![],
        });
        true
    }
}

fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide+evolve");
    for length in [10u32, 1_000, 10_000] {
        let plan = chain(length);
        group.throughput(Throughput::Elements(1));
        group.bench_function(
            BenchmarkId::new("a step of a chain of", length),
            |bencher| {
                bencher.iter_custom(|iterations| {
                    let mut spent = Duration::ZERO;
                    let mut left = iterations;
                    while left > 0 {
                        let mut bench = Bench::started(&plan, false);
                        let begin = Instant::now();
                        while left > 0 && bench.one_step() {
                            left -= 1;
                        }
                        spent += begin.elapsed();
                        black_box(&bench.state);
                    }
                    spent
                });
            },
        );
    }
    group.finish();
}

fn hydrate(criterion: &mut Criterion) {
    let plan = chain(5_000);
    let mut bench = Bench::started(&plan, true);
    while bench.one_step() {}
    let events = bench.events.unwrap_or_default();
    let mut group = criterion.benchmark_group("hydrate");
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function(BenchmarkId::new("events", events.len()), |bencher| {
        bencher.iter_batched(
            || (),
            |()| replay(&plan, RUN, None, black_box(&events)),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// The contract's form of an event, checked against its schema and linked to the hash chain.
fn record(criterion: &mut Criterion) {
    let plan = chain(500);
    let mut bench = Bench::started(&plan, true);
    while bench.one_step() {}
    let events = bench.events.unwrap_or_default();
    let mut group = criterion.benchmark_group("record");
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function(BenchmarkId::new("events", events.len()), |bencher| {
        bencher.iter(|| {
            let mut recorder = Recorder::new(RUN);
            for event in &events {
                black_box(recorder.record(&plan, event).expect("it fits its schema"));
            }
        });
    });
    group.finish();
}

/// A pause, a resume and a cancel of a run whose steps are all ready: the cost of a step must not
/// depend on how many there are.
fn large_run(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pause, resume and cancel");
    group.sample_size(10);
    for size in [1_000u32, 10_000] {
        let steps = (0..size).map(|no| task(format!("step-{no}"))).collect();
        let plan = net(steps, vec![], json!(null));
        group.throughput(Throughput::Elements(u64::from(size)));
        group.bench_function(BenchmarkId::new("ready steps", size), |bencher| {
            bencher.iter_batched(
                || Bench::started(&plan, false),
                |mut bench| {
                    bench.send(signal("1", "PAUSE"));
                    bench.send(signal("2", "RESUME"));
                    bench.send(signal("3", "CANCEL"));
                    while !bench.state.phase().is_ended() {
                        bench.send(Command::Proceed);
                    }
                    bench.state
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn signal(id: &str, signal: &str) -> Command {
    Command::Signal {
        signal_id: id.into(),
        signal: signal.into(),
        payload: json!(null),
        reason: None,
        actor: Actor {
            id: "bench".into(),
            role: Role::System,
            tenant: None,
            may_answer: true,
        },
    }
}

fn wide_loop(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("loop");
    group.sample_size(10);
    for items in [1_000usize, 100_000] {
        let plan = looped(items);
        group.throughput(Throughput::Elements(items as u64));
        group.bench_function(BenchmarkId::new("items", items), |bencher| {
            bencher.iter_batched(
                || Bench::started(&plan, false),
                |mut bench| {
                    while bench.one_step() {}
                    assert!(bench.state.phase().is_ended());
                    assert_eq!(
                        bench
                            .state
                            .visit(StepRef::first(StepNo(0)))
                            .map(|v| v.run().execution()),
                        Some(1)
                    );
                    bench.state
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, step, hydrate, record, wide_loop, large_run);
criterion_main!(benches);
