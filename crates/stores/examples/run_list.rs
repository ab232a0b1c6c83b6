//! How fast lists of runs are on SQLite and PostgreSQL: `cargo xtask postgres -- cargo run --release -p stepwell-stores
//! --example run_list -- 100000`. What is asked for is common, rare, or only in the oldest runs.

use std::time::{Duration, Instant};

use serde_json::Value as Json;
use stepwell_engine::store::{
    Append, AppendResult, Batch, Chunk, CommitId, Head, NewRun, PlanNo, RunFilter, RunNo, Store,
};
use stepwell_kernel::plan::{Dialect, Net, Plan, RunPolicy, SourceRef, Step, Work};
use stepwell_kernel::time::Time;
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};
use stepwell_stores::sqlite::{Durability, SqliteOptions, SqliteStore};

type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// How often each list is asked for.
const CALLS: usize = 300;

/// Plans, of which most runs have the first.
const PLANS: i64 = 20;

fn main() -> Done {
    let runs: i64 = std::env::args()
        .nth(1)
        .map_or(Ok(100_000), |it| it.parse())?;
    let folder = std::env::temp_dir().join(format!("stepwell-run-list-{}", std::process::id()));
    let options = SqliteOptions {
        durability: Durability::Off,
        ..SqliteOptions::default()
    };
    let sqlite = SqliteStore::open(folder.join("s.db"), options)?;
    measure(&sqlite, runs)?;
    drop(sqlite);
    std::fs::remove_dir_all(&folder)?;
    let Ok(url) = std::env::var("STEPWELL_TEST_POSTGRES") else {
        println!("no PostgreSQL: run it with `cargo xtask postgres -- cargo run --release …`");
        return Ok(());
    };
    let options = PostgresOptions {
        schema: format!("run_list_{}", std::process::id()),
        ..PostgresOptions::default()
    };
    measure(&PostgresStore::connect(&url, options)?, runs)
}

fn measure(store: &dyn Store, runs: i64) -> Done {
    let begin = Instant::now();
    fill(store, runs)?;
    println!(
        "{}: {runs} runs in {:.1} s",
        store.name(),
        begin.elapsed().as_secs_f64()
    );
    for (name, filter) in lists(runs) {
        timed(name, || Ok(store.list(&filter)?.len()))?;
    }
    for (name, filter) in [
        ("count all", RunFilter::default()),
        ("count of a tenant", of(|it| it.tenant = Some("big".into()))),
    ] {
        timed(name, || Ok(store.count_runs(&filter)?.by_status.len()))?;
    }
    Ok(())
}

fn of(change: impl FnOnce(&mut RunFilter)) -> RunFilter {
    let mut filter = RunFilter {
        limit: 50,
        ..RunFilter::default()
    };
    change(&mut filter);
    filter
}

fn lists(runs: i64) -> Vec<(&'static str, RunFilter)> {
    let tenant_and_status = |tenant: &'static str, status: &'static str| {
        of(|it| {
            it.tenant = Some(tenant.into());
            it.statuses = vec![status.into()];
        })
    };
    let status = |status: &'static str| of(|it| it.statuses = vec![status.into()]);
    let plan = |number: i64| of(|it| it.plan_id = Some(format!("plan-{number}")));
    let label = |name: &'static str, value: String| of(|it| it.labels = vec![(name.into(), value)]);
    let created = |from: i64, until: i64| {
        of(|it| {
            it.created_from = Some(Time(from * 1_000));
            it.created_until = Some(Time(until * 1_000));
        })
    };
    vec![
        ("no filter", of(|_| {})),
        ("second half", of(|it| it.before = Some(RunNo(runs / 2)))),
        ("status, common", status("COMPLETED")),
        ("status, only oldest", status("PAUSED")),
        (
            "four statuses",
            of(|it| {
                it.statuses = ["COMPLETED", "PAUSED", "FAILED", "NONE"]
                    .map(ToOwned::to_owned)
                    .to_vec();
            }),
        ),
        ("tenant", of(|it| it.tenant = Some("big".into()))),
        ("tenant and status", tenant_and_status("big", "COMPLETED")),
        (
            "tenant and status, rare",
            tenant_and_status("small", "FAILED"),
        ),
        (
            "tenant and status, none",
            tenant_and_status("small", "RUNNING"),
        ),
        (
            "tenant and status, only oldest",
            tenant_and_status("big", "PAUSED"),
        ),
        ("plan, common", plan(0)),
        ("plan, rare", plan(7)),
        ("plan, only oldest", plan(PLANS - 1)),
        ("label, common", label("team", "team-1".into())),
        ("label, one run", label("customer", "customer-77".into())),
        (
            "label and status",
            of(|it| {
                it.labels = vec![("team".into(), "team-1".into())];
                it.statuses = vec!["FAILED".into()];
            }),
        ),
        ("created, oldest", created(0, 100)),
        ("created, middle", created(runs / 2, runs / 2 + 1_000)),
        ("created, all", created(0, runs * 2)),
        ("text, in every run", of(|it| it.text = Some("RUN".into()))),
        (
            "text, one run",
            of(|it| it.text = Some("Customer-77".into())),
        ),
        ("text, none", of(|it| it.text = Some("nothing".into()))),
    ]
}

fn timed(name: &str, call: impl Fn() -> Result<usize, stepwell_engine::store::StoreError>) -> Done {
    let rows = call()?;
    let mut times: Vec<Duration> = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begin = Instant::now();
        call()?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times[(CALLS * part / 100).min(CALLS - 1)].as_secs_f64() * 1e3;
    println!(
        "  {name:32} {rows:3} rows   p50 {:7.2} ms   p99 {:7.2} ms",
        at(50),
        at(99)
    );
    Ok(())
}

fn fill(store: &dyn Store, runs: i64) -> Done {
    let plans = (0..PLANS).map(|number| Ok(store.put_plan(&plan(number)?)?));
    let plans: Vec<PlanNo> =
        plans.collect::<Result<_, Box<dyn std::error::Error + Send + Sync>>>()?;
    let numbers: Vec<i64> = store.reserve_numbers(u32::try_from(runs)?)?.collect();
    for (batch, numbers) in (1..).zip(numbers.chunks(500)) {
        let batch = Batch {
            id: CommitId {
                session: 0,
                number: batch,
            },
            session: None,
            now: Time(0),
            appends: numbers.iter().map(|no| append(*no, &plans)).collect(),
        };
        let results = store.commit(&batch)?;
        if let Some(lost) = results.iter().find(|it| **it != AppendResult::Committed) {
            return Err(format!("an append was lost: {lost:?}").into());
        }
    }
    Ok(())
}

fn append(no: i64, plans: &[PlanNo]) -> Append {
    let oldest = no <= 20;
    let status = match no % 20 {
        _ if oldest => "PAUSED",
        0 => "FAILED",
        1 => "RUNNING",
        _ => "COMPLETED",
    };
    let plan = match no % 100 {
        _ if oldest => plans.len() - 1,
        part @ 1..=18 => usize::try_from(part).unwrap_or(0),
        _ => 0,
    };
    let mut append = Append::new(RunNo(no), 0);
    append.create = Some(Box::new(NewRun {
        run_id: format!("run_{no:032x}"),
        plan: plans.get(plan).copied(),
        // The runs of the small tenant have other statuses than RUNNING.
        tenant: if no % 1_000 == 0 { "small" } else { "big" }.into(),
        project: "project".into(),
        environment: "production".into(),
        event_key: format!("run_{no:032x}"),
        created_at: Time(no * 1_000),
        labels: [
            ("team".to_owned(), format!("team-{}", no % 50)),
            ("customer".to_owned(), format!("customer-{no}")),
        ]
        .into(),
        ..NewRun::default()
    }));
    append.chunk = Some(Chunk {
        first: 1,
        last: 1,
        codec: 1,
        body: format!("[[{no},{{}},{{\"type\":\"RunCreated\"}}]]"),
        digests: vec![0; 80],
        keys: vec![b"created".to_vec()],
    });
    append.head = Some(Head {
        status: status.into(),
        ended_at: (status == "COMPLETED" || status == "FAILED").then_some(Time(no * 1_000 + 500)),
        ..Head::default()
    });
    append
}

fn plan(number: i64) -> Result<Plan, Box<dyn std::error::Error + Send + Sync>> {
    let work = Work::Task {
        queue: "default".into(),
        operation: "op".into(),
        config: Json::Null,
    };
    let net = Net {
        dialect: Dialect::Plan,
        plan_id: format!("plan-{number}"),
        plan_version: "1".into(),
        schema_version: "v1.2".into(),
        source: SourceRef::default(),
        workload: Json::Null,
        edges: Vec::new(),
        steps: vec![Step::new("one", work)],
        policy: RunPolicy::default(),
        library: std::collections::BTreeMap::new(),
        extra: Json::Null,
    };
    Plan::new(net).map_err(|error| format!("{error:?}").into())
}
