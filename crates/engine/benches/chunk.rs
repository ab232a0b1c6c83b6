//! What a happy step costs between the kernel's decision and the store: its two events recorded and
//! written as a chunk.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use stepwell_engine::chunk::{ChunkWriter, decode};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::event::{Body, Event, Lease, Patch};
use stepwell_kernel::plan::{
    Dialect, Edge, Net, Plan, RunPolicy, SourceRef, Step, StepNo, StepRef, Work,
};
use stepwell_kernel::time::Time;

const RUN: &str = "run_01890a5d-ac96-774b-bcce-b302099a8057";
const STEPS: u32 = 500;

fn chain() -> Plan {
    let task = |no: u32| {
        Step::new(
            format!("step-{no}"),
            Work::Task {
                queue: "q".into(),
                operation: "op".into(),
                config: json!(null),
            },
        )
    };
    let net = Net {
        dialect: Dialect::Actions,
        schema_version: "v1".into(),
        plan_id: "bench".into(),
        plan_version: "1".into(),
        source: SourceRef {
            uri: "file:bench".into(),
            sha256: "0".repeat(64),
        },
        workload: json!(null),
        steps: (0..STEPS).map(task).collect(),
        edges: (1..STEPS)
            .map(|no| Edge::plain(StepNo(no - 1), StepNo(no)))
            .collect(),
        policy: RunPolicy::default(),
        library: Default::default(),
        extra: json!(null),
    };
    Plan::new(net).expect("the bench's net is sound")
}

/// `[StepCompleted, StepStarted]` for each step but the first.
fn chunks() -> Vec<Vec<Event>> {
    let at = |no: u32| Time(1_770_805_800_000 + i64::from(no) * 3);
    let completed = |no: u32| Body::StepCompleted {
        step: StepRef::first(StepNo(no)),
        logical: 1,
        execution: 1,
        output: Some(json!({ "ok": true }).into()),
        artifacts: Vec::new(),
        ctx: Patch::new(),
        routing: None,
        by: None,
    };
    let started = |no: u32| Body::StepStarted {
        step: StepRef::first(StepNo(no)),
        logical: 1,
        execution: 1,
        lease: Some(Lease {
            worker: "worker-1".into(),
            until: at(no).plus(30_000),
        }),
        each: None,
    };
    let chunk = |no: u32| {
        [(0, completed(no - 1)), (1, started(no))]
            .map(|(place, body)| Event {
                seq: u64::from(no) * 2 + place,
                at: at(no),
                body,
            })
            .into()
    };
    (1..STEPS).map(chunk).collect()
}

fn record_and_encode(criterion: &mut Criterion) {
    let plan = chain();
    let chunks = chunks();
    let mut group = criterion.benchmark_group("chunk");
    group.throughput(Throughput::Elements(2 * chunks.len() as u64));
    group.bench_function("record and encode", |bencher| {
        let mut writer = ChunkWriter::default();
        bencher.iter(|| {
            let mut recorder = Recorder::new(RUN);
            for events in &chunks {
                black_box(writer.write(&mut recorder, &plan, events)).expect("they fit");
            }
        });
    });
    let (mut writer, mut recorder) = (ChunkWriter::default(), Recorder::new(RUN));
    let encoded: Vec<_> = chunks
        .iter()
        .map(|events| {
            writer
                .write(&mut recorder, &plan, events)
                .expect("they fit")
        })
        .collect();
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            for chunk in &encoded {
                black_box(decode(chunk.first, chunk.codec, &chunk.body)).expect("it reads");
            }
        });
    });
    group.finish();
}

criterion_group!(benches, record_and_encode);
criterion_main!(benches);
