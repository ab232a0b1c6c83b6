//! Servers that are killed, cut off from their database, or whose clock is set, under load and with a schedule that is due
//! every second: nothing is lost, doubled or stuck, and each due time starts one run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use stepwell_kernel::time::Time;

use crate::harness::{PATIENCE, TestServer, asked, postgres, until};
use crate::preload;
use crate::proxy::Proxy;

/// How long a takeover may take, and how much more on a machine that others use.
const TAKEOVER: Duration = Duration::from_secs(10);
const SLACK: Duration = Duration::from_secs(15);

/// Three steps that take a moment each.
const WORK: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: work, path: work}\nworkflow:\n\
                    - {step: start, tool: {kind: sleep, seconds: 0.3}, next: [{step: middle}]}\n\
                    - {step: middle, tool: {kind: sleep, seconds: 0.3}, next: [{step: last}]}\n\
                    - {step: last, tool: {kind: sleep, seconds: 0.3}}\n";
const TICK: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: tick, path: tick}\nworkflow:\n\
                    - {step: start, tool: {kind: sleep, seconds: 0}}\n";

/// The runs that each due time of a schedule has started, as far as they were seen.
#[derive(Default)]
struct Ticks(BTreeMap<i64, String>);

impl Ticks {
    /// A schedule that is due every second.
    fn begin(server: &TestServer) -> Ticks {
        let (status, answer) = asked(server.post("/api/v1/definitions", &json!({ "text": TICK })));
        assert!(status < 300, "{answer}");
        let body = json!({ "definition": "tick", "cron": "* * * * * *", "catchUp": "all", "catchUpMost": 1000 });
        let path = format!("{}/api/v1/schedules/ticks", server.url);
        let (status, answer) = asked(server.client.put(path).json(&body));
        assert_eq!(status, 201, "{answer}");
        Ticks::default()
    }

    /// Looks at the schedule; what a server that is cut off answers does not count.
    fn look(&mut self, server: &TestServer) {
        let Ok(answer) = server.get("/api/v1/schedules/ticks").send() else {
            return;
        };
        let Ok(seen) = answer.json::<Json>() else {
            return;
        };
        for run in seen["lastRuns"].as_array().into_iter().flatten() {
            let due = Time::from_rfc3339(run["dueAt"].as_str().unwrap())
                .unwrap()
                .0;
            let id = run["runId"]
                .as_str()
                .unwrap_or_else(|| panic!("{run}"))
                .to_owned();
            let known = self.0.entry(due).or_insert_with(|| id.clone());
            assert_eq!(*known, id, "two runs for {due}");
        }
    }

    /// Looks until so many more due times have started runs.
    fn more(&mut self, server: &TestServer, count: usize) {
        let (wanted, until) = (self.0.len() + count, Instant::now() + PATIENCE);
        while self.0.len() < wanted {
            assert!(Instant::now() < until, "{:?}", self.0);
            self.look(server);
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Pauses the schedule: every second between the first and the last due time has one run, and there are no others.
    fn judge(mut self, server: &TestServer) {
        let steer = |how: &str| {
            let path = format!("/api/v1/schedules/ticks/{how}");
            assert_eq!(asked(server.post(&path, &json!({}))).0, 200);
        };
        let until_paused = Instant::now() + PATIENCE;
        let last = loop {
            steer("pause");
            std::thread::sleep(Duration::from_millis(500));
            let seen = asked(server.get("/api/v1/schedules/ticks")).1;
            if seen["waiting"].as_array().is_some_and(Vec::is_empty) {
                break seen;
            }
            // A run that was decided on when the pause came waits until the schedule goes on.
            assert!(Instant::now() < until_paused, "{seen:#}");
            steer("resume");
            std::thread::sleep(Duration::from_millis(250));
        };
        assert_eq!(last["missedTotal"], 0, "{last:#}");
        self.look(server);
        let dues: Vec<i64> = self.0.keys().copied().collect();
        for pair in dues.windows(2) {
            assert_eq!(pair[1] - pair[0], 1_000, "{:?}", self.0);
        }
        let mut runs = Vec::new();
        let mut path = "/api/v1/runs?plan=tick&limit=500".to_owned();
        loop {
            let (_, page) = asked(server.get(&path));
            runs.extend(
                page["runs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|it| it["runId"].clone()),
            );
            let Some(next) = page["next"].as_str() else {
                break;
            };
            path = format!("/api/v1/runs?plan=tick&limit=500&before={next}");
        }
        assert_eq!(runs.len(), dues.len(), "one run for each due time");
        ended(server, runs.iter().map(|it| it.as_str().unwrap()));
    }
}

/// Every run ends well, and each of its steps has one result.
fn ended<'a>(server: &TestServer, runs: impl Iterator<Item = &'a str>) {
    for run in runs {
        let seen = server.wait_for(run, |seen| seen["completedAt"].is_string());
        assert_eq!(seen["status"], "COMPLETED", "{seen}");
        let (_, page) = asked(server.get(&format!("/api/v1/runs/{run}/events?limit=1000")));
        let mut done = BTreeMap::new();
        for event in page["events"].as_array().unwrap() {
            if event["eventType"] == "StepCompleted" {
                *done.entry(event["stepId"].to_string()).or_insert(0) += 1;
            }
        }
        assert!(done.values().all(|it| *it == 1), "{run}: {done:?}");
        assert_eq!(done.len(), seen["steps"].as_array().unwrap().len(), "{run}");
    }
}

/// Starts runs at some servers until it is told to stop; the ids of those that were accepted.
fn load(servers: &[&TestServer], stop: &AtomicBool) -> Vec<String> {
    let accepted = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for server in servers {
            scope.spawn(|| {
                let body = json!({ "definition": { "text": WORK } });
                while !stop.load(Ordering::SeqCst) {
                    // A refusal is an answer too; what was accepted must be done.
                    if let Ok(answer) = server.post("/api/v1/runs", &body).send()
                        && answer.status() == 201
                        && let Ok(started) = answer.json::<Json>()
                    {
                        let id = started["runId"].as_str().unwrap().to_owned();
                        accepted.lock().unwrap().push(id);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
    accepted.into_inner().unwrap()
}

fn no_broken_invariant(server: &TestServer) {
    let (_, alerts) = asked(server.get("/api/v1/alerts?code=ENGINE_INVARIANT"));
    assert_eq!(alerts, json!([]));
}

#[test]
fn a_server_that_is_killed_under_load_is_replaced_within_seconds() {
    let store = postgres("load");
    let [first, second] = [(); 2].map(|()| TestServer::with(&["--store", &store]));
    let mut ticks = Ticks::begin(&first);
    ticks.more(&second, 2);
    let stop = AtomicBool::new(false);
    let (runs, took) = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| load(&[&first, &second], &stop));
        std::thread::sleep(Duration::from_secs(3));
        // What the first server has begun now is for the other one to finish: a program runs in its process.
        let text = WORK.replace(
            "{kind: sleep, seconds: 0.3}, next: [{step: middle}]",
            "{kind: shell, cmds: ['sleep 2']}, next: [{step: middle}]",
        );
        let body = json!({ "definition": { "text": text } });
        let begun: Vec<String> = (0..10)
            .filter_map(|_| {
                asked(first.post("/api/v1/runs", &body)).1["runId"]
                    .as_str()
                    .map(ToOwned::to_owned)
            })
            .collect();
        assert_eq!(begun.len(), 10);
        let status = std::process::Command::new("kill")
            .args(["-9", &first.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
        let killed = Instant::now();
        ended(&second, begun.iter().map(String::as_str));
        let took = killed.elapsed();
        stop.store(true, Ordering::SeqCst);
        let mut runs = loaded.join().unwrap();
        runs.extend(begun);
        (runs, took)
    });
    println!(
        "{} runs; those of the killed server were done after {took:?}",
        runs.len()
    );
    assert!(
        took < TAKEOVER + SLACK,
        "taken over and done only after {took:?}"
    );
    ended(&second, runs.iter().map(String::as_str));
    ticks.more(&second, 3);
    ticks.judge(&second);
    no_broken_invariant(&second);
}

#[test]
fn the_only_server_that_is_killed_under_load_goes_on_where_it_was() {
    let mut server = TestServer::start();
    let mut ticks = Ticks::begin(&server);
    ticks.more(&server, 2);
    let mut runs = Vec::new();
    for _ in 0..2 {
        let stop = AtomicBool::new(false);
        runs.extend(std::thread::scope(|scope| {
            let loaded = scope.spawn(|| load(&[&server], &stop));
            std::thread::sleep(Duration::from_secs(2));
            let status = std::process::Command::new("kill")
                .args(["-9", &server.child.id().to_string()])
                .status();
            assert!(status.unwrap().success());
            stop.store(true, Ordering::SeqCst);
            loaded.join().unwrap()
        }));
        let killed = Instant::now();
        server = TestServer::in_folder(server.kill(), &[]);
        ticks.more(&server, 2);
        let took = killed.elapsed();
        assert!(took < TAKEOVER + SLACK, "{took:?}");
    }
    assert!(runs.len() > 10, "{} runs", runs.len());
    ended(&server, runs.iter().map(String::as_str));
    ticks.judge(&server);
    no_broken_invariant(&server);
}

#[test]
fn a_server_that_is_cut_off_from_its_database_loses_and_doubles_nothing() {
    let direct = postgres("cut");
    let port: u16 = std::env::var("STEPWELL_TEST_POSTGRES")
        .ok()
        .and_then(|url| {
            let rest = url.rsplit_once(':')?.1.to_owned();
            rest.split('/').next()?.parse().ok()
        })
        .expect("the address of the test server has a port");
    let proxy = Proxy::start(port).unwrap();
    let through = direct.replacen(&format!(":{port}/"), &format!(":{}/", proxy.port()), 1);
    let cut_off = TestServer::with(&["--store", &through]);
    let other = TestServer::with(&["--store", &direct]);
    let mut ticks = Ticks::begin(&other);
    ticks.more(&other, 2);
    let stop = AtomicBool::new(false);
    let runs = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| load(&[&cut_off, &other], &stop));
        std::thread::sleep(Duration::from_secs(2));
        // The network stalls for longer than a session, breaks, and comes back.
        proxy.silence(true);
        ticks.more(&other, 8);
        proxy.refuse(true);
        proxy.cut_all();
        ticks.more(&other, 3);
        proxy.silence(false);
        proxy.refuse(false);
        proxy.cut_silent();
        until(
            || {
                cut_off
                    .get("/readyz")
                    .send()
                    .map(|it| it.status().as_u16())
                    .ok()
            },
            |it| *it == Some(200),
        );
        ticks.more(&other, 3);
        stop.store(true, Ordering::SeqCst);
        loaded.join().unwrap()
    });
    assert!(runs.len() > 10, "{} runs", runs.len());
    ended(&other, runs.iter().map(String::as_str));
    // The server that was cut off works again.
    let again = cut_off.start_run(WORK, &json!({}));
    cut_off.wait_for(&again, |seen| seen["status"] == "COMPLETED");
    ticks.judge(&cut_off);
    no_broken_invariant(&other);
}

#[test]
fn a_clock_that_is_set_starts_no_due_time_twice_and_misses_none() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = preload::clock(folder.path()) else {
        return;
    };
    let clock = folder.path().join("clock");
    let set = |seconds: i64| {
        use std::os::unix::fs::FileExt as _;
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&clock)
            .unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    };
    std::fs::write(&clock, 0_i64.to_ne_bytes()).unwrap();
    let (library, path) = (library.display().to_string(), clock.display().to_string());
    let env = [
        ("LD_PRELOAD", library.as_str()),
        ("TEST_CLOCK", path.as_str()),
    ];
    let start = |folder| TestServer::with_env(folder, &[], &env);
    let mut server = start(tempfile::tempdir().unwrap());
    let mut ticks = Ticks::begin(&server);
    ticks.more(&server, 2);
    let mut runs = Vec::new();
    // While a server runs its time goes on as before.
    for jump in [7_200, -7_200] {
        set(jump);
        runs.push(server.start_run(WORK, &json!({})));
        ticks.more(&server, 3);
    }
    // A server that starts begins with the clock of the machine: what it seems to have missed is made good, and due times
    // that were acted on are not due again.
    for jump in [10, -10] {
        set(jump);
        runs.push(server.start_run(WORK, &json!({})));
        server = start(server.kill());
        ticks.more(&server, 3);
    }
    ended(&server, runs.iter().map(String::as_str));
    ticks.judge(&server);
    no_broken_invariant(&server);
}

/// The audit log has rows that can never be written.
#[cfg(unix)]
#[test]
fn a_server_whose_store_was_deleted_says_so_and_can_be_stopped() {
    let mut server = TestServer::start();
    std::fs::remove_dir_all(server.folder.path().join(".stepwell")).unwrap();
    let event = json!({ "id": "1", "type": "paid" });
    let asks = || asked(server.post("/api/v1/events", &event));
    let (_, problem) = until(asks, |(status, _)| *status == 503);
    assert_eq!(problem["code"], "STORE_GONE", "{problem}");
    assert_eq!(asked(server.get("/readyz")).0, 503);
    let pid = server.child.id().to_string();
    let told = std::process::Command::new("kill").arg(&pid).status();
    assert!(told.unwrap().success());
    let since = Instant::now();
    while server.child.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < PATIENCE, "the server still runs");
        std::thread::sleep(Duration::from_millis(50));
    }
}
