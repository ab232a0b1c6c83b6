//! The snapshots of the projector over HTTP: watermark, STALE, both resyncs, and its alerts, with a hole in a log.

use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked, stream, until};

const SLOW: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: slow, path: slow}\nworkflow:\n\
                    - {step: start, tool: {kind: sleep, seconds: 0.3}, next: [{step: middle}]}\n\
                    - {step: middle, tool: {kind: sleep, seconds: 0.3}, next: [{step: last}]}\n\
                    - {step: last, tool: {kind: sleep, seconds: 3600}}\n";

/// A chunk of the log as it is stored.
type Chunk = (i64, i64, i64, i64, i64, i64, String, Vec<u8>);

/// Takes the second chunk of the only log away.
fn cut(db: &Connection) -> Chunk {
    let count = db.query_row("SELECT count(*) FROM log", [], |row| row.get::<_, i64>(0));
    assert!(
        count.unwrap() > 2,
        "there are chunks before and after the hole"
    );
    let columns = "run_no, first_seq, last_seq, session, number, codec, body, digests";
    let chunk = db
        .query_row(
            &format!("SELECT {columns} FROM log ORDER BY first_seq LIMIT 1 OFFSET 1"),
            [],
            |row| {
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    row.get(3)?,
                    row.get(4)?,
                    row.get(5)?,
                    row.get(6)?,
                    row.get(7)?,
                ))
            },
        )
        .unwrap();
    let gone = db.execute("DELETE FROM log WHERE first_seq = ?1", [chunk.1]);
    assert_eq!(gone.unwrap(), 1);
    // What was projected is made again from the log.
    db.execute("DELETE FROM projections", []).unwrap();
    chunk
}

fn put_back(db: &Connection, chunk: &Chunk) {
    db.execute(
        "INSERT INTO log (run_no, first_seq, last_seq, session, number, codec, body, digests)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        rusqlite::params![
            chunk.0, chunk.1, chunk.2, chunk.3, chunk.4, chunk.5, chunk.6, chunk.7
        ],
    )
    .unwrap();
}

#[test]
fn a_hole_in_a_log_is_told_with_the_watermark_and_is_bridged() {
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
    // A kill between two commits cannot make a hole; somebody does it by hand.
    let folder = server.kill();
    let db = Connection::open(folder.path().join(".stepwell/stepwell.db")).unwrap();
    let chunk = cut(&db);
    let server = TestServer::in_folder(folder, &["--no-worker"]);
    let stale = until(|| snapshot(&server), |it| it["stale"] == true);
    let mark = stale["lastEventSeq"].as_u64().unwrap();
    assert!(mark < u64::try_from(chunk.1).unwrap(), "{stale}");
    assert!(stale["observedSeq"].as_u64() > Some(mark), "{stale}");
    let mut watched = stream(server.get(&format!("/api/v1/runs/{run}/watch")));
    let first = watched.next().unwrap();
    assert_eq!(
        (&first.event[..], &first.data["stale"]),
        ("snapshot", &json!(true))
    );
    let resync = |mode: &str| {
        asked(server.post(
            &format!("/api/v1/runs/{run}/resync?mode={mode}"),
            &json!({}),
        ))
    };
    assert_eq!(
        resync("full").1["stale"],
        true,
        "what is missing is still missing"
    );
    let alerts = |query: &str, tenant: &str| -> Vec<Json> {
        let request = server.get(&format!("/api/v1/alerts?{query}"));
        let (status, found) = asked(request.header("stepwell-tenant", tenant));
        assert_eq!(status, 200, "{found}");
        found.as_array().unwrap().clone()
    };
    // The events after the hole are more than five seconds old in a moment.
    for code in [
        "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED",
        "PROJECTOR_LAG_HIGH",
    ] {
        let found = until(
            || {
                snapshot(&server);
                alerts(&format!("code={code}"), "acme")
            },
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
    put_back(&db, &chunk);
    let bridged = until(|| snapshot(&server), |it| it["stale"] == false);
    assert!(bridged["lastEventSeq"].as_u64() >= Some(last), "{bridged}");
    assert!(
        watched.any(|it| it.data["stale"] == false),
        "who watches is told"
    );
    for (mode, word) in [("full", "FULL"), ("from_snapshot", "FROM_SNAPSHOT")] {
        let (status, again) = resync(mode);
        assert_eq!((status, &again["resync"]), (200, &json!(word)), "{again}");
        assert_eq!(again["stale"], false, "{again}");
    }
}
