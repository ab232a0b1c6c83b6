//! The snapshots of the projector over HTTP: watermark, STALE, both resyncs, and its alerts, with a hole in a log.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked, stream, until};

const SLOW: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: slow, path: slow}\nworkflow:\n\
                    - {step: start, tool: {kind: sleep, seconds: 0.3}, next: [{step: middle}]}\n\
                    - {step: middle, tool: {kind: sleep, seconds: 0.3}, next: [{step: last}]}\n\
                    - {step: last, tool: {kind: sleep, seconds: 3600}}\n";

/// Takes the second chunk of the only log away: its first and its last event.
fn cut(db: &Connection) -> (i64, i64) {
    let count = db.query_row("SELECT count(*) FROM log", [], |row| row.get::<_, i64>(0));
    assert!(
        count.unwrap() > 2,
        "there are chunks before and after the hole"
    );
    let second = "SELECT first_seq, last_seq FROM log ORDER BY first_seq LIMIT 1 OFFSET 1";
    let hole = db.query_row(second, [], |row| Ok((row.get(0)?, row.get(1)?)));
    let hole: (i64, i64) = hole.unwrap();
    let gone = db.execute("DELETE FROM log WHERE first_seq = ?1", [hole.0]);
    assert_eq!(gone.unwrap(), 1);
    // What was projected is made again from the log.
    db.execute("DELETE FROM projections", []).unwrap();
    hole
}

#[test]
fn a_hole_in_a_log_is_told_as_stale_with_alerts_and_is_bridged() {
    let server = TestServer::start();
    let body = json!({ "definition": { "text": SLOW }, "tenant": "acme" });
    let run = asked(server.post("/api/v1/runs", &body)).1["runId"].clone();
    let run = run.as_str().unwrap().to_owned();
    server.wait_for(&run, |seen| {
        seen["steps"].as_array().is_some_and(|it| it.len() == 3)
    });
    let snapshot =
        |server: &TestServer| asked(server.get(&format!("/api/v1/runs/{run}/snapshot"))).1;
    let whole = until(
        || snapshot(&server),
        |it| {
            it["snapshot"]["steps"]
                .as_array()
                .is_some_and(|it| it.len() == 3)
        },
    );
    let last = whole["lastEventSeq"].as_u64().unwrap();
    assert_eq!(
        (&whole["stale"], &whole["observedSeq"], &whole["gap"]),
        (&json!(false), &json!(last), &json!(null)),
        "{whole}"
    );
    assert!(whole["lagMs"].is_u64(), "{whole}");
    // A kill between two commits cannot make a hole; the test makes it by hand.
    let folder = server.kill();
    let db = Connection::open(folder.path().join(".stepwell/stepwell.db")).unwrap();
    let hole = cut(&db);
    drop(db);
    // Lag is high above five seconds.
    std::thread::sleep(Duration::from_secs(6));
    let server = TestServer::in_folder(folder, &["--no-worker"]);
    let mut watched = stream(server.get(&format!("/api/v1/runs/{run}/watch")));
    let [stale, bridged] = [(); 2].map(|()| watched.next().unwrap());
    assert_eq!(
        (&stale.event[..], &stale.data["stale"]),
        ("snapshot", &json!(true))
    );
    let before = hole.0 - 1;
    assert_eq!(
        stale.data["lastEventSeq"], before,
        "the run before the hole: {stale:?}"
    );
    assert_eq!(
        stale.data["gap"],
        json!({ "after": before, "next": hole.1 + 1 })
    );
    assert!(
        stale.data["observedSeq"].as_i64() > Some(hole.1),
        "{stale:?}"
    );
    assert!(stale.data["lagMs"].as_u64() > Some(5_000), "{stale:?}");
    // Numbers need not be without gaps: the resync has reached what was seen, so the run goes on after the hole.
    assert_eq!(
        (&bridged.data["stale"], &bridged.data["resync"]),
        (&json!(false), &json!("FULL"))
    );
    assert!(
        bridged.data["lastEventSeq"].as_u64() >= Some(last),
        "{bridged:?}"
    );
    let now = snapshot(&server);
    assert_eq!(
        (&now["stale"], &now["lastEventSeq"]),
        (&json!(false), &bridged.data["lastEventSeq"])
    );
    let alerts = |query: &str, tenant: &str| -> Vec<Json> {
        let request = server.get(&format!("/api/v1/alerts?{query}"));
        let (status, found) = asked(request.header("stepwell-tenant", tenant));
        assert_eq!(status, 200, "{found}");
        found.as_array().unwrap().clone()
    };
    for code in [
        "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED",
        "PROJECTOR_LAG_HIGH",
    ] {
        let found = until(
            || alerts(&format!("code={code}"), "acme"),
            |it| !it.is_empty(),
        );
        assert_eq!(
            (&found[0]["runId"], &found[0]["priority"]),
            (&json!(run), &json!("P2"))
        );
    }
    assert!(
        alerts("", "umbrella").is_empty(),
        "they are about a run of acme"
    );
    let all = alerts(&format!("run={run}"), "acme");
    let mut paged = Vec::new();
    while paged.len() < all.len() {
        let before = paged
            .last()
            .map_or(i64::MAX, |it: &Json| it["no"].as_i64().unwrap());
        paged.extend(alerts(&format!("limit=1&before={before}"), "acme"));
    }
    assert_eq!(paged, all);
    let (_, metrics) = asked(server.get("/metrics"));
    assert!(
        metrics
            .as_str()
            .unwrap()
            .contains("stepwell_projector_lag_seconds")
    );
    for (mode, word) in [("full", "FULL"), ("from_snapshot", "FROM_SNAPSHOT")] {
        let path = format!("/api/v1/runs/{run}/resync?mode={mode}");
        let (status, again) = asked(server.post(&path, &json!({})));
        assert_eq!((status, &again["resync"]), (200, &json!(word)), "{again}");
        assert_eq!(again["stale"], false, "{again}");
    }
}
