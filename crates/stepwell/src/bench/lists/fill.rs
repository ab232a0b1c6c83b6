//! Fills a store with runs in all states, through the engine: they are runs like any others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;
use stepwell_engine::coordinator::{Assignment, Config, Notice, Serves};
use stepwell_engine::service::{Handle, Reporter, Service, Setup, Worker};
use stepwell_engine::store::Store;
use stepwell_engine::{Shard, StartRequest};
use stepwell_kernel::command::{Actor, Command, Role};
use stepwell_kernel::event::{Patch, RunContext, StepError};
use stepwell_kernel::plan::{ErrorClass, Plan};
use stepwell_kernel::time::Time;
use stepwell_stores::OpenMode;

use super::super::workload;
use crate::progress::Progress;

/// So many of the oldest runs have a plan of their own.
pub(super) const RUNS_OF_A_PLAN: u64 = 20;
/// How many runs may be on their way into the store.
const MAX_OPEN: u64 = 4_000;
/// How long nothing may come of the runs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The id of a run by its number, from 0.
pub(super) fn run_id(number: u64) -> String {
    format!("run_list-{number:08}")
}

/// How a run ends, or why it does not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Complete,
    Fail,
    /// Waits for an event that never comes.
    Wait,
    Pause,
    Cancel,
    /// Starts in a hundred years.
    Later,
}

fn fate(number: u64) -> Fate {
    match number % 100 {
        0..=4 => Fate::Fail,
        5..=7 => Fate::Wait,
        8 if number % 500 == 8 => Fate::Pause,
        8 => Fate::Complete,
        9 => Fate::Cancel,
        10 => Fate::Later,
        _ => Fate::Complete,
    }
}

/// Completes every step, and counts the ends.
struct FillWorker(Arc<AtomicU64>);

impl Worker for FillWorker {
    fn start(&mut self, job: Assignment, reporter: &Reporter) {
        let claim = job.claimed.claim.clone();
        let number = job.run_id.rsplit('-').next().and_then(|it| it.parse().ok());
        let result = match number.map(fate) {
            Some(Fate::Fail) => Command::FailStep {
                claim,
                error: StepError::new(ErrorClass::External, "MEASURED", "measured"),
                retryable: Some(false),
                delay_ms: None,
                ctx: Patch::new(),
            },
            _ => Command::CompleteStep {
                claim,
                output: Json::Null,
                ctx: Patch::new(),
                artifacts: Vec::new(),
            },
        };
        reporter.report(&job, result);
    }

    fn notice(&mut self, notice: &Notice, _: &Reporter) {
        if let Notice::Ended { .. } = notice {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Versions of a plan: one that ends and one that waits.
struct Plans {
    ends: Arc<Plan>,
    waits: Arc<Plan>,
}

fn plans(name: &str) -> Result<Plans> {
    let named = |plan: &Plan, version: &str| {
        let mut net = plan.net().clone();
        (net.plan_id, net.plan_version) = (name.to_owned(), version.to_owned());
        Plan::new(net).map(Arc::new)
    };
    let (ends, waits) = (workload::Workload::Chain(1).plan()?, workload::waiting()?);
    Ok(Plans {
        ends: named(&ends, "1")?,
        waits: named(&waits, "2")?,
    })
}

fn request(number: u64) -> StartRequest {
    let tenant = match number % 1_000 {
        999 => "tenant-small".to_owned(),
        _ => format!("tenant-{}", number % 10),
    };
    let labels = [
        ("team".to_owned(), format!("team-{}", number % 50)),
        ("customer".to_owned(), format!("customer-{number}")),
    ];
    StartRequest {
        run_id: run_id(number),
        context: RunContext {
            tenant_id: tenant,
            project_id: format!("project-{}", number % 7),
            environment_id: if number % 5_000 == 1 {
                "rare"
            } else {
                "production"
            }
            .into(),
            labels: BTreeMap::from(labels),
            ..RunContext::default()
        },
        start_after: (fate(number) == Fate::Later).then_some(Time(4_000_000_000_000)),
        ..StartRequest::default()
    }
}

pub(super) fn fill(store: &str, runs: u64) -> Result<()> {
    let store = stepwell_stores::open(store, OpenMode::Own)?;
    let ended = Arc::<AtomicU64>::default();
    let config = Config {
        name: "bench".to_owned(),
        serves: Serves::Everything,
        capacity: 1_000_000,
        ..Config::default()
    };
    let service = Service::start(Setup {
        config,
        shards: Shard::suited(),
        ..Setup::new(Arc::clone(&store), FillWorker(Arc::clone(&ended)))
    })?;
    let filled = start_all(&service.handle(), &ended, &*store, runs);
    service.stop(Duration::from_secs(10))?;
    filled
}

fn start_all(handle: &Handle, ended: &AtomicU64, store: &dyn Store, runs: u64) -> Result<()> {
    let old = plans("list-old")?;
    let plans: Vec<Plans> = (0..20)
        .map(|it| plans(&format!("list-{it}")))
        .collect::<Result<_>>()?;
    let filling = Progress::of_many("starting runs", runs);
    let (mut due, mut last) = (0, Instant::now());
    for number in 0..runs {
        let plan = match number {
            0..RUNS_OF_A_PLAN => &old,
            // Most runs have the first plan.
            _ => match number % 100 {
                part @ 1..=19 => &plans[usize::try_from(part)?],
                _ => &plans[0],
            },
        };
        let fate = fate(number);
        let plan = match fate {
            Fate::Complete | Fate::Fail => &plan.ends,
            Fate::Wait | Fate::Pause | Fate::Cancel | Fate::Later => &plan.waits,
        };
        let answer = handle.start_later(plan, request(number))?;
        due += u64::from(matches!(fate, Fate::Complete | Fate::Fail));
        match fate {
            Fate::Complete | Fate::Fail | Fate::Wait | Fate::Later => drop(answer),
            Fate::Pause | Fate::Cancel => {
                answer.recv().context("the engine has stopped")??;
                handle.submit(&run_id(number), signal(fate))?;
            }
        }
        filling.set(number);
        while due - ended.load(Ordering::SeqCst).min(due) > MAX_OPEN {
            std::thread::sleep(Duration::from_millis(5));
            if last.elapsed() > PATIENCE {
                bail!("the runs do not end");
            }
        }
        last = Instant::now();
    }
    let rested = handle.flush(PATIENCE)?;
    let until = Instant::now() + PATIENCE;
    while ended.load(Ordering::SeqCst) < due && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let found = store.find(&run_id(runs.saturating_sub(1)))?;
    found
        .filter(|_| rested)
        .context("the runs are not all in the store")
        .map(drop)
}

fn signal(fate: Fate) -> Command {
    let signal = match fate {
        Fate::Pause => "PAUSE",
        Fate::Complete | Fate::Fail | Fate::Wait | Fate::Cancel | Fate::Later => "CANCEL",
    };
    Command::Signal {
        signal_id: "bench".to_owned(),
        signal: signal.to_owned(),
        payload: Json::Object(serde_json::Map::new()),
        reason: Some("measured".to_owned()),
        actor: Actor {
            id: "bench".to_owned(),
            role: Role::Admin,
            tenant: None,
            may_answer: true,
        },
    }
}
