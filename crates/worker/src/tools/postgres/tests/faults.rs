//! The tool `postgres` when things go wrong.

use std::time::{Duration, Instant};

use crate::outcome::ToolError;
use crate::tool::Tool as _;
use crate::tools::postgres::{Postgres, PostgresOptions};
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;

use crate::testing::calls::{call_with, cx, cx_for, cx_within, failed, ok};
use crate::testing::postgres_server::cluster::Cluster;
use crate::testing::postgres_server::{Place, client, url};

fn tool() -> Postgres {
    Postgres::new(PostgresOptions::default())
}

async fn error_at(auth: Json) -> ToolError {
    let call = call_with(json!({"commands": ["SELECT 1"]}), auth);
    failed(&tool(), &call).await.error.unwrap()
}

/// Waits until a query says true.
async fn until(query: &str) {
    let client = client().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !client
        .query_one(query, &[])
        .await
        .unwrap()
        .get::<_, bool>(0)
    {
        assert!(Instant::now() < deadline, "never: {query}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn whatever_it_does_it_ends_at_the_deadline() {
    let place = Place::new().await;
    let tool = tool();
    for endless in [
        "SELECT pg_sleep(60)",
        "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000) b",
        "DO $$ BEGIN LOOP END LOOP; END $$",
    ] {
        let began = Instant::now();
        let cx = cx_for(Duration::from_millis(200));
        let error = tool.run(&place.call(endless), &cx).await.error.unwrap();
        assert_eq!(
            (error.class, &*error.code),
            (ErrorClass::Timeout, "TASK_TIMEOUT")
        );
        assert!(began.elapsed() < Duration::from_secs(2), "{endless}");
    }
}

#[tokio::test]
async fn a_lock_is_waited_for_until_the_deadline() {
    let place = Place::new().await;
    ok(&tool(), &place.call("CREATE TABLE t (id int)")).await;
    let (locked, waiting) = (tool(), tool());
    let holder = place.call("LOCK TABLE t; SELECT pg_sleep(60) AS holder_of_lock");
    let long = cx();
    let cancel = long.cancelled.clone();
    let hold = async { locked.run(&holder, &long).await };
    let wait = async {
        until(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%AS holder_of_lock' \
               AND wait_event = 'PgSleep')",
        )
        .await;
        let cx = cx_for(Duration::from_millis(200));
        let error = waiting.run(&place.call("SELECT * FROM t"), &cx).await.error;
        assert_eq!(error.unwrap().code, "TASK_TIMEOUT");
        let impatient = place.call("SET lock_timeout = '10ms'; SELECT * FROM t");
        let error = failed(&waiting, &impatient).await.error.unwrap();
        assert_eq!(
            (error.class, &*error.code),
            (ErrorClass::Transient, "PG_55P03")
        );
        cancel.cancel();
    };
    let (held, ()) = tokio::join!(hold, wait);
    assert_eq!(held.error.unwrap().code, "TASK_CANCELLED");
    // The next task finds the lock free immediately.
    let call = place.call("SET lock_timeout = '1ms'; LOCK TABLE t NOWAIT");
    ok(&tool(), &call).await;
}

#[tokio::test]
async fn a_task_that_is_dropped_is_cancelled_on_the_server() {
    let place = Place::new().await;
    let tool = tool();
    let call = place.call("SELECT pg_sleep(60) AS dropped_task");
    let running = "SELECT EXISTS (SELECT FROM pg_stat_activity \
                   WHERE state = 'active' AND query LIKE '%pg_sleep(60) AS dropped_task')";
    let cx = cx();
    tokio::select! {
        _ = tool.run(&call, &cx) => panic!("it cannot be done"),
        () = until(running) => {}
    }
    until(&format!("SELECT NOT ({running})")).await;
}

#[tokio::test]
async fn ten_million_rows_are_stopped_at_the_limit() {
    let place = Place::new().await;
    let call = place.call("SELECT generate_series(1, 10000000) AS n, repeat('x', 100) AS x");
    let began = Instant::now();
    let seen = tool().run(&call, &cx_within(1 << 20)).await;
    assert_eq!(seen.error.unwrap().code, "SQL_TOO_LARGE");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn servers_that_cannot_be_used_are_told_apart() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let down = error_at(json!({"host": "127.0.0.1", "port": port, "user": "u"})).await;
    assert_eq!(
        (down.class, &*down.code),
        (ErrorClass::Transport, "PG_UNREACHABLE")
    );
    assert!(
        down.is_retryable() && down.message.contains(&port.to_string()),
        "{down}"
    );
    let other = error_at(json!({"dsn": url(), "database": "no_such_database"})).await;
    assert_eq!(
        (other.class, &*other.code),
        (ErrorClass::Validation, "PG_3D000")
    );
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port();
    let auth = json!({"host": "127.0.0.1", "port": port, "user": "u"});
    let call = call_with(json!({"commands": ["SELECT 1"]}), auth);
    let began = Instant::now();
    let cx = cx_for(Duration::from_millis(200));
    let error = tool().run(&call, &cx).await.error.unwrap();
    assert!(
        ["TASK_TIMEOUT", "PG_UNREACHABLE"].contains(&&*error.code),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_server_that_dies_is_noticed_and_found_again() {
    let cluster = Cluster::start(&[]).unwrap();
    let tool = tool();
    let auth = json!({"dsn": cluster.url()});
    let sleep = call_with(json!({"commands": "SELECT pg_sleep(60)"}), auth.clone());
    let alone = "DO $$ BEGIN PERFORM pg_sleep(60); END $$";
    let alone = call_with(json!({"commands": alone}), auth.clone());
    let quick = call_with(json!({"commands": "SELECT 1 AS one"}), auth);
    ok(&tool, &quick).await;
    let cx = cx();
    let halt = async {
        let client = tokio_postgres::connect(&cluster.url(), tokio_postgres::NoTls).await;
        let (client, connection) = client.unwrap();
        tokio::spawn(connection);
        let busy = "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        let deadline = Instant::now() + Duration::from_secs(10);
        while !client.query_one(busy, &[]).await.unwrap().get::<_, bool>(0) {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cluster.halt().unwrap();
    };
    let (seen, alone, ()) = tokio::join!(tool.run(&sleep, &cx), tool.run(&alone, &cx), halt);
    let error = seen.error.unwrap();
    assert_eq!(error.class, ErrorClass::Transport, "{error}");
    assert!(error.is_retryable());
    // What was in no transaction may have been done.
    let doubtful = alone.error.unwrap();
    assert_eq!(doubtful.class, ErrorClass::Transport, "{doubtful}");
    assert!(!doubtful.is_retryable());
    cluster.resume().unwrap();
    // No connection of the pool lives any more, and none is handed out.
    assert_eq!(ok(&tool, &quick).await["rows"][0]["one"], 1);
}
