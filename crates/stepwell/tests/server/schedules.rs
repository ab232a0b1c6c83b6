//! Due times and event triggers: each starts one run, over several servers and their deaths.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::harness::{PATIENCE, TestServer, asked, postgres};

fn playbook(name: &str, cmd: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {name}}}\nworkflow:\n\
         - step: start\n  tool: {{kind: shell, cmds: [\"{cmd}\"]}}\n"
    )
}

fn triggered(name: &str, trigger: &str) -> String {
    format!(
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: {name}}}\nspec:\n  timeout: 1h\n  \
         trigger: {trigger}\n  steps:\n    - {{name: s, timeout: 1m, tool: {{kind: shell, cmds: ['echo {name} >> witness']}}}}\n"
    )
}

fn register(server: &TestServer, text: &str) {
    let (status, answer) = asked(server.post("/api/v1/definitions", &json!({ "text": text })));
    assert!(status < 300, "{answer}");
}

fn put(server: &TestServer, name: &str, body: &Json) -> (u16, Json) {
    let path = format!("{}/api/v1/schedules/{name}", server.url);
    asked(server.client.put(path).json(body))
}

/// The schedule once it is as wanted.
fn wait_for(server: &TestServer, name: &str, wanted: impl Fn(&Json) -> bool) -> Json {
    let until = Instant::now() + PATIENCE;
    loop {
        let (_, seen) = asked(server.get(&format!("/api/v1/schedules/{name}")));
        if wanted(&seen) {
            return seen;
        }
        assert!(Instant::now() < until, "{seen:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn len(list: &Json) -> usize {
    list.as_array().map_or(0, Vec::len)
}

fn runs(server: &TestServer) -> Vec<Json> {
    let (_, list) = asked(server.get("/api/v1/runs?limit=500"));
    list["runs"].as_array().unwrap().clone()
}

#[test]
fn two_servers_start_one_run_for_each_second_also_if_one_of_them_is_killed() {
    let store = postgres("ticks");
    let servers = [(); 2].map(|()| TestServer::with(&["--store", &store]));
    let [first, second] = servers;
    register(&first, &playbook("tick", "true"));
    let body = json!({ "definition": "tick", "cron": "* * * * * *", "catchUp": "all", "catchUpMost": 1000 });
    let (status, made) = put(&first, "ticks", &body);
    assert_eq!((status, len(&made["next"])), (201, 10), "{made}");
    wait_for(&second, "ticks", |it| len(&it["lastRuns"]) >= 5);
    drop(first.kill());
    let before = len(&wait_for(&second, "ticks", |_| true)["lastRuns"]);
    wait_for(&second, "ticks", |it| len(&it["lastRuns"]) >= before + 6);
    let (_, paused) = asked(second.post("/api/v1/schedules/ticks/pause", &json!({})));
    assert_eq!(paused["paused"], true, "{paused}");
    let last = wait_for(&second, "ticks", |it| len(&it["waiting"]) == 0);
    let mut dues: Vec<i64> = Vec::new();
    let mut ids = BTreeSet::new();
    for run in last["lastRuns"].as_array().unwrap() {
        let due = run["dueAt"].as_str().unwrap();
        dues.push(stepwell_kernel::time::Time::from_rfc3339(due).unwrap().0);
        ids.insert(run["runId"].as_str().unwrap().to_owned());
    }
    dues.reverse();
    for pair in dues.windows(2) {
        assert_eq!(pair[1] - pair[0], 1_000, "{last:#}");
    }
    assert_eq!(last["missedTotal"], 0, "{last:#}");
    let started: BTreeSet<String> = runs(&second)
        .iter()
        .map(|it| it["runId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(started, ids, "one run for each due time, and no other");
    for run in &started {
        second.wait_for(run, |it| it["status"] == "COMPLETED");
    }
}

#[test]
fn a_schedule_is_read_paused_resumed_and_deleted() {
    let server = TestServer::start();
    register(&server, &playbook("nightly", "true"));
    let body = json!({
        "definition": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "params": { "a": 1 },
    });
    let (status, made) = put(&server, "night", &body);
    assert_eq!((status, &made["paused"]), (201, &json!(false)), "{made}");
    let (_, list) = asked(server.get("/api/v1/schedules"));
    assert_eq!(list["schedules"][0]["name"], "night", "{list}");
    let (_, paused) = asked(server.post("/api/v1/schedules/night/pause", &json!({})));
    assert_eq!(
        (&paused["paused"], &paused["next"]),
        (&json!(true), &json!([])),
        "{paused}"
    );
    let (_, going) = asked(server.post("/api/v1/schedules/night/resume", &json!({})));
    assert_eq!(len(&going["next"]), 10, "{going}");
    let (status, _) = put(&server, "night", &body);
    assert_eq!(status, 200);
    for (name, wrong, status, code) in [
        (
            "a",
            json!({ "definition": "nightly", "cron": "99 * * * *" }),
            422,
            "SCHEDULE_INVALID",
        ),
        (
            "a",
            json!({ "definition": "nightly", "cron": "@daily", "timezone": "Mars/North" }),
            422,
            "SCHEDULE_INVALID",
        ),
        (
            "a b",
            json!({ "definition": "nightly", "cron": "@daily" }),
            422,
            "SCHEDULE_INVALID",
        ),
        (
            "a",
            json!({ "definition": "nightly", "cron": "@daily", "catchUpMost": 0 }),
            422,
            "SCHEDULE_INVALID",
        ),
        (
            "a",
            json!({ "definition": "nobody", "cron": "@daily" }),
            404,
            "DEFINITION_UNKNOWN",
        ),
        (
            "a",
            json!({ "definition": "nightly", "cron": "@daily", "params": { "trigger": 1 } }),
            400,
            "REQUEST_INVALID",
        ),
    ] {
        let (seen, problem) = put(&server, name, &wrong);
        assert_eq!(
            (seen, &problem["code"]),
            (status, &json!(code)),
            "{problem}"
        );
    }
    let other = |it: reqwest::blocking::RequestBuilder| it.header("stepwell-tenant", "umbrella");
    let (status, theirs) = asked(other(server.get("/api/v1/schedules/night")));
    assert_eq!(
        (status, &theirs["code"]),
        (404, &json!("SCHEDULE_UNKNOWN")),
        "{theirs}"
    );
    let (status, _) = asked(other(
        server.post("/api/v1/schedules/night/pause", &json!({})),
    ));
    assert_eq!(status, 404);
    let delete = || {
        server
            .client
            .delete(format!("{}/api/v1/schedules/night", server.url))
    };
    assert_eq!(asked(other(delete())).0, 404);
    assert_eq!(asked(delete()).0, 204);
    assert_eq!(asked(delete()).0, 404);
}

#[test]
fn a_due_time_is_skipped_or_waits_while_the_run_before_is_open() {
    let server = TestServer::start();
    register(&server, &playbook("slow", "sleep 3"));
    for overlap in ["skip", "queue"] {
        let body = json!({ "definition": "slow", "cron": "* * * * * *", "overlap": overlap });
        assert_eq!(put(&server, overlap, &body).0, 201);
    }
    let skip = wait_for(&server, "skip", |it| len(&it["lastRuns"]) >= 2);
    assert_eq!(skip["missed"][0]["reason"], "OVERLAP", "{skip:#}");
    let queue = wait_for(&server, "queue", |it| len(&it["lastRuns"]) >= 2);
    assert!(len(&queue["waiting"]) > 0, "{queue:#}");
    assert_eq!(queue["missedTotal"], 0, "{queue:#}");
    let due = |at: usize| queue["lastRuns"][at]["dueAt"].as_str().unwrap().to_owned();
    assert!(due(1) < due(0), "in their order: {queue:#}");
    let open = runs(&server)
        .iter()
        .filter(|it| it["endedAt"].is_null())
        .count();
    assert!(open <= 2, "one of each schedule");
}

#[test]
fn due_times_that_passed_while_no_server_ran_are_missed_or_made_good() {
    let server = TestServer::start();
    register(&server, &playbook("each", "true"));
    for (name, catch_up) in [("never", "none"), ("once", "latest"), ("some", "all")] {
        let body = json!({ "definition": "each", "cron": "* * * * *", "catchUp": catch_up, "catchUpMost": 3 });
        assert_eq!(put(&server, name, &body).0, 201);
    }
    let folder = server.kill();
    let database = folder.path().join(".stepwell/stepwell.db");
    let db = rusqlite::Connection::open(database).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ago = i64::try_from(now.as_millis()).unwrap() - 10 * 60_000;
    db.execute(
        "UPDATE documents SET body = json_set(body, '$.decidedTo', ?1) WHERE kind = 'schedule'",
        [ago],
    )
    .unwrap();
    drop(db);
    let server = TestServer::in_folder(folder, &[]);
    let never = wait_for(&server, "never", |it| it["missedTotal"].as_u64() > Some(7));
    assert_eq!(never["missed"][0]["reason"], "LATE", "{never:#}");
    for (name, least) in [("never", 0), ("once", 1), ("some", 3)] {
        let seen = wait_for(&server, name, |it| {
            len(&it["lastRuns"]) >= least && len(&it["waiting"]) == 0
        });
        // One or two due times of the last minute start in any case.
        assert!(len(&seen["lastRuns"]) <= least + 2, "{seen:#}");
        let all = len(&seen["lastRuns"]) as u64 + seen["missedTotal"].as_u64().unwrap();
        assert!((10..=11).contains(&all), "{seen:#}");
    }
}

#[test]
fn triggers_of_registered_definitions_act_in_the_server() {
    let server = TestServer::start();
    register(
        &server,
        &triggered(
            "nightly",
            "{schedule: '0 2 * * *', timezone: Europe/Berlin}",
        ),
    );
    register(
        &server,
        &triggered(
            "paid",
            "{event: order.paid, condition: '{{ event.sum > 10 }}'}",
        ),
    );
    let own = wait_for(&server, "definition:nightly", |it| it["cron"].is_string());
    assert_eq!(
        (&own["timezone"], &own["definition"]),
        (&json!("Europe/Berlin"), &json!("nightly")),
        "{own}"
    );
    let send = |server: &TestServer, id: &str, sum: u32| {
        let body = json!({ "id": id, "type": "order.paid", "payload": { "sum": sum } });
        assert_eq!(asked(server.post("/api/v1/events", &body)).0, 200);
    };
    send(&server, "e1", 11);
    send(&server, "e1", 11);
    send(&server, "e2", 10);
    let until = Instant::now() + PATIENCE;
    while runs(&server).is_empty() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
    }
    // Another server reads the same events again, and starts nothing for those that have a run.
    let folder = server.kill();
    let server = TestServer::in_folder(folder, &[]);
    send(&server, "e3", 12);
    let until = Instant::now() + PATIENCE;
    while runs(&server).len() < 2 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(600));
    let all = runs(&server);
    assert_eq!(all.len(), 2, "{all:#?}");
    // Without the trigger the schedule is gone, and events start nothing.
    let plain = |name: &str| triggered(name, "X").replace("  trigger: X\n", "");
    register(&server, &plain("nightly"));
    register(&server, &plain("paid"));
    wait_for(&server, "definition:nightly", |it| {
        it["code"] == "SCHEDULE_UNKNOWN"
    });
    send(&server, "e4", 99);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(runs(&server).len(), 2);
}

#[test]
fn the_next_ten_times_keep_to_the_days_on_which_clocks_are_set() {
    let server = TestServer::start();
    register(&server, &playbook("nightly", "true"));
    let next = |name: &str, cron: &str| -> Vec<String> {
        let body = json!({ "definition": "nightly", "cron": cron, "timezone": "Europe/Berlin" });
        let (status, made) = put(&server, name, &body);
        assert_eq!(status, 201, "{made}");
        let next: Vec<String> = serde_json::from_value(made["next"].clone()).unwrap();
        assert_eq!(next.len(), 10, "{made}");
        next
    };
    // Clocks are set on the last Sunday of the month: 02:30 in winter is 01:30 UTC, in summer 00:30 UTC.
    let spring = next("spring", "30 2 25-31 3 *");
    let at =
        |times: &[String], time: &str| times.iter().filter(|it| it[10..].starts_with(time)).count();
    assert!(
        at(&spring, "T01:00:00") >= 1,
        "02:30 does not exist, 03:00 is due: {spring:?}"
    );
    let known = ["T01:00:00", "T01:30:00", "T00:30:00"].map(|time| at(&spring, time));
    assert_eq!(known.iter().sum::<usize>(), 10, "{spring:?}");
    let autumn = next("autumn", "30 2 25-31 10 *");
    let days: BTreeSet<&str> = autumn.iter().map(|it| &it[..10]).collect();
    assert_eq!(
        days.len(),
        10,
        "a time that happens twice is due once: {autumn:?}"
    );
    let known = ["T00:30:00", "T01:30:00"].map(|time| at(&autumn, time));
    assert_eq!(known.iter().sum::<usize>(), 10, "{autumn:?}");
    // A line that repeats within the hour goes on through both hours: the same number of minutes each day but one.
    let every = next("every", "0 */6 * * *");
    assert!(every.is_sorted(), "{every:?}");
}
