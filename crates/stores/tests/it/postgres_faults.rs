//! PostgreSQL when things go wrong.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use stepwell_engine::store::{
    Append, AppendResult, Batch, Chunk, CommitId, Commits as _, Head, Maintenance as _, NewRun,
    PlanNo, Plans as _, RunNo, RunReader as _, SessionNo, Sessions as _, StoreErrorKind,
};
use stepwell_kernel::plan::{Dialect, Net, Plan, RunPolicy, SourceRef, Step, Work};
use stepwell_kernel::time::Time;
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};

use crate::server::cluster::Cluster;
use crate::server::{options, schema, sql, url};

fn plan() -> Plan {
    let work = Work::Task {
        queue: "default".into(),
        operation: "op".into(),
        config: Json::Null,
    };
    let net = Net {
        dialect: Dialect::Plan,
        plan_id: "faults".into(),
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
    Plan::new(net).unwrap()
}

fn append(run: i64, after: u64) -> Append {
    let first = after + 1;
    let mut append = Append::new(RunNo(run), after);
    append.chunk = Some(Chunk {
        first,
        last: first,
        codec: 1,
        body: r#"[[0,{},{"type":"X"}]]"#.into(),
        digests: vec![1; 80],
        keys: vec![first.to_be_bytes().to_vec()],
    });
    append
}

fn start(plan: PlanNo, run: i64) -> Append {
    let mut append = append(run, 0);
    append.create = Some(Box::new(NewRun {
        run_id: format!("run-{run}"),
        plan: Some(plan),
        event_key: format!("run-{run}"),
        ..NewRun::default()
    }));
    append.head = Some(Head::default());
    append
}

fn batch(number: i64, appends: Vec<Append>) -> Batch {
    Batch {
        id: CommitId { session: 1, number },
        session: None,
        now: Time(1000),
        appends,
    }
}

fn kind(opened: stepwell_engine::store::Result<PostgresStore>) -> StoreErrorKind {
    opened.map(|_| ()).unwrap_err().kind
}

#[test]
fn an_address_that_leads_nowhere_is_told_apart() {
    let quick = || PostgresOptions {
        connect_timeout: Duration::from_secs(2),
        ..options(&schema())
    };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let down = format!("postgresql://postgres@127.0.0.1:{port}/postgres");
    let error = PostgresStore::connect(&down, quick()).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("cannot connect"), "{error}");
    assert_eq!(
        kind(PostgresStore::connect("no address", quick())),
        StoreErrorKind::Unusable
    );
    let other = url().rsplit_once('/').unwrap().0.to_owned() + "/no_such_database";
    assert_eq!(
        kind(PostgresStore::connect(&other, quick())),
        StoreErrorKind::Unusable
    );
}

#[test]
fn a_newer_schema_is_left_alone() {
    let schema = schema();
    drop(PostgresStore::connect(&url(), options(&schema)).unwrap());
    sql(
        &url(),
        &format!("INSERT INTO {schema}.migrations (version) VALUES (1000)"),
    );
    let error = PostgresStore::connect(&url(), options(&schema)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Newer, "{error}");
    assert!(error.message.contains("1000"), "{error}");
}

#[test]
fn many_servers_may_start_at_once() {
    let schema = schema();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = PostgresStore::connect(&url(), options(&schema)).unwrap();
                store.put_plan(&plan()).unwrap();
            });
        }
    });
    let store = PostgresStore::connect(&url(), options(&schema)).unwrap();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    let versions = sql(&url(), &format!("SELECT version FROM {schema}.migrations"));
    assert_eq!(versions.len() as i64, store.check().unwrap().schema);
}

#[test]
fn a_server_that_goes_and_comes_back_is_found_again() {
    let cluster = Cluster::start(&[]).unwrap();
    let options = PostgresOptions {
        connect_timeout: Duration::from_secs(2),
        ..options("stepwell")
    };
    let store = PostgresStore::connect(&cluster.url(), options).unwrap();
    let plan = store.put_plan(&plan()).unwrap();
    let committed = store.commit(&batch(1, vec![start(plan, 1)])).unwrap();
    assert_eq!(committed, [AppendResult::Committed]);
    cluster.halt().unwrap();
    let second = batch(2, vec![append(1, 1)]);
    let error = store.commit(&second).unwrap_err();
    assert!(
        matches!(
            error.kind,
            StoreErrorKind::Unavailable | StoreErrorKind::AnswerLost
        ),
        "{error}"
    );
    assert_eq!(
        store.find("run-1").unwrap_err().kind,
        StoreErrorKind::Unavailable
    );
    cluster.resume().unwrap();
    assert_eq!(store.find("run-1").unwrap(), Some(RunNo(1)));
    assert_eq!(store.commit(&second).unwrap(), [AppendResult::Committed]);
    assert_eq!(store.commit(&second).unwrap(), [AppendResult::Again]);
}

/// Sends until there is an answer; what was lost is sent again as it was.
fn insist(store: &PostgresStore, batch: &Batch, lost: &AtomicI64) -> Vec<AppendResult> {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match store.commit(batch) {
            Ok(outcomes) => return outcomes,
            Err(error) if error.kind.may_pass() => {
                lost.fetch_add(1, Ordering::Relaxed);
                assert!(Instant::now() < patience, "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn killed_connections_lose_nothing_and_double_nothing() {
    const RUNS: i64 = 40;
    let schema = schema();
    let store = PostgresStore::connect(&url(), options(&schema)).unwrap();
    let plan = store.put_plan(&plan()).unwrap();
    let (over, lost) = (AtomicBool::new(false), AtomicI64::new(0));
    let answered: Vec<HashMap<i64, u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2_i64)
            .map(|worker| {
                let (store, over, lost) = (&store, &over, &lost);
                scope.spawn(move || {
                    let runs: Vec<i64> = (1..=RUNS).map(|it| worker * 1000 + it).collect();
                    let mut last: HashMap<i64, u64> = HashMap::new();
                    let mut number = worker * 1_000_000;
                    while !over.load(Ordering::Relaxed) {
                        number += 1;
                        let next = |run: &i64| match last.get(run) {
                            None => start(plan, *run),
                            // Some go the long way, with other rows, some the short one.
                            Some(after) => {
                                let mut append = append(*run, *after);
                                append.head = (number % 3 == 0).then(Head::default);
                                append
                            }
                        };
                        let batch = batch(number, runs.iter().map(next).collect());
                        for (run, outcome) in runs.iter().zip(insist(store, &batch, lost)) {
                            assert!(
                                matches!(outcome, AppendResult::Committed | AppendResult::Again),
                                "{outcome:?}"
                            );
                            *last.entry(*run).or_default() += 1;
                        }
                    }
                    last
                })
            })
            .collect();
        let kill = format!(
            "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a \
             JOIN pg_locks l ON l.pid = a.pid JOIN pg_class c ON c.oid = l.relation \
             JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = '{schema}' \
             WHERE a.pid <> pg_backend_pid()"
        );
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            sql(&url(), &kill);
            std::thread::sleep(Duration::from_millis(15));
        }
        over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(lost.load(Ordering::Relaxed) > 0, "nothing was killed");
    for (run, last) in answered.iter().flatten() {
        let chunks = store.chunks(RunNo(*run), 0, usize::MAX).unwrap();
        assert_eq!(chunks.len() as u64, *last, "run {run}");
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_session_is_ended_by_the_databases_clock() {
    let options = PostgresOptions {
        given_time: false,
        ..options(&schema())
    };
    let store = PostgresStore::connect(&url(), options).unwrap();
    // A server whose clock is years behind: what counts is how long, not until when.
    let session = store.open_session("slow", Time(0), Time(60_000)).unwrap();
    assert!(store.renew_session(session, Time(9), Time(300)).unwrap());
    assert_eq!(store.dead_sessions(Time(i64::MAX)).unwrap(), []);
    assert!(store.renew_session(session, Time(9), Time(10)).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!store.renew_session(session, Time(9), Time(300)).unwrap());
    assert_eq!(store.dead_sessions(Time(0)).unwrap(), []);
    assert!(
        !store
            .renew_session(SessionNo(session.0), Time(0), Time(9))
            .unwrap()
    );
}
