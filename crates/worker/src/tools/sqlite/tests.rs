//! The tool `sqlite` on real files.

use std::time::{Duration, Instant};

use crate::tool::{Tool as _, ToolCall};
use crate::tools::sqlite::{Sqlite, SqliteOptions};
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tempfile::TempDir;

use crate::testing::calls::{call, code, cx, cx_for, cx_within, failed, ok};

struct Place {
    tool: Sqlite,
    directory: TempDir,
}

fn place() -> Place {
    let directory = TempDir::new().unwrap();
    let tool = Sqlite::new(SqliteOptions {
        directory: Some(directory.path().to_owned()),
        busy_timeout: Duration::from_millis(300),
        ..SqliteOptions::default()
    });
    Place { tool, directory }
}

fn task(commands: impl Into<Json>, params: Json) -> ToolCall {
    let commands: Json = commands.into();
    call(json!({"database": "data.db", "commands": commands, "params": params}))
}

impl Place {
    fn count(&self) -> i64 {
        let connection = rusqlite::Connection::open(self.directory.path().join("data.db"));
        let counted = connection
            .unwrap()
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0));
        counted.unwrap()
    }
}

#[tokio::test]
async fn values_keep_their_types() {
    let place = place();
    let query =
        "SELECT 9007199254740993 AS i, 1.5 AS r, 'a' AS t, NULL AS n, x'6869' AS b, 9e999 AS x";
    let seen = ok(&place.tool, &task(query, Json::Null)).await;
    let expected = json!({"i": 9_007_199_254_740_993_i64, "r": 1.5, "t": "a", "n": null,
        "b": "\\x6869", "x": "Infinity"});
    assert_eq!(seen["rows"][0], expected);
    assert_eq!(seen["columns"], json!(["i", "r", "t", "n", "b", "x"]));
}

#[tokio::test]
async fn statements_run_in_order_and_triggers_stay_whole() {
    let place = place();
    let commands = "PRAGMA journal_mode = WAL; CREATE TABLE t (a); CREATE TABLE log (a);
        CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log VALUES (CASE WHEN 1 THEN ';' END);
        INSERT INTO log VALUES (2); END;
        INSERT INTO t VALUES (1), (2); SELECT count(*) AS n FROM log";
    let seen = ok(&place.tool, &task(commands, Json::Null)).await;
    assert_eq!(seen["rows"][0]["n"], 4);
    assert_eq!(seen["command_4"]["row_count"], 2);
    assert_eq!(seen["command_1"]["row_count"], 0);
    assert_eq!(seen["command_0"]["rows"][0]["journal_mode"], "wal");
}

#[tokio::test]
async fn parameters_are_bound_however_they_are_written() {
    let place = place();
    let by_name = task(
        "SELECT :a AS a, %(b)s AS b, @c AS c, $d AS d, ':a %(b)s' AS e",
        json!({"a": "it's; --", "b": [1, {"k": 2}], "c": true, "d": null}),
    );
    let row = &ok(&place.tool, &by_name).await["rows"][0];
    let expected =
        json!({"a": "it's; --", "b": "[1,{\"k\":2}]", "c": 1, "d": null, "e": ":a %(b)s"});
    assert_eq!(*row, expected);
    let by_number = task("SELECT ? AS a, ?2 AS b; SELECT $2 AS c", json!([1.5, "x"]));
    let seen = ok(&place.tool, &by_number).await;
    assert_eq!(seen["command_0"]["rows"][0], json!({"a": 1.5, "b": "x"}));
    assert_eq!(seen["rows"][0]["c"], "x");
    for (query, params) in [("SELECT ?2", json!([1])), ("SELECT :b", json!({"a": 1}))] {
        assert_eq!(code(&place.tool, &task(query, params)).await, "SQL_PARAMS");
    }
}

#[tokio::test]
async fn a_failure_takes_everything_back() {
    let place = place();
    ok(
        &place.tool,
        &task("CREATE TABLE t (a INTEGER PRIMARY KEY)", Json::Null),
    )
    .await;
    let commands = "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); SELECT nonsense FROM t";
    let seen = failed(&place.tool, &task(commands, Json::Null)).await;
    let error = seen.error.unwrap();
    assert_eq!(
        (error.class, &*error.code),
        (ErrorClass::Validation, "SQLITE_ERROR")
    );
    assert!(
        error
            .message
            .starts_with("statement 3 (SELECT nonsense FROM t)"),
        "{error}"
    );
    assert_eq!(seen.details["sqlite"]["statement"], 3);
    assert_eq!(place.count(), 0);
    let twice = task(
        "INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)",
        Json::Null,
    );
    let error = failed(&place.tool, &twice).await.error.unwrap();
    assert_eq!(
        (error.class, &*error.code),
        (ErrorClass::Conflict, "SQLITE_CONSTRAINT")
    );
    let open = task("BEGIN; INSERT INTO t VALUES (1)", Json::Null);
    assert_eq!(code(&place.tool, &open).await, "SQL_TRANSACTION");
    assert_eq!(place.count(), 0);
    ok(
        &place.tool,
        &task("INSERT INTO t VALUES (1); VACUUM", Json::Null),
    )
    .await;
    assert_eq!(place.count(), 1);
}

#[tokio::test]
async fn an_endless_query_ends_at_the_deadline() {
    let place = place();
    let endless = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) \
                   SELECT count(*) FROM n";
    let began = Instant::now();
    let cx = cx_for(Duration::from_millis(100));
    let error = place.tool.run(&task(endless, Json::Null), &cx).await.error;
    assert_eq!(error.unwrap().code, "TASK_TIMEOUT");
    assert!(began.elapsed() < Duration::from_secs(2));
    let many = endless.replace("count(*)", "a");
    let seen = place
        .tool
        .run(&task(many, Json::Null), &cx_within(1 << 20))
        .await;
    assert_eq!(seen.error.unwrap().code, "SQL_TOO_LARGE");
}

#[tokio::test]
async fn a_locked_database_is_waited_for_within_bounds() {
    let place = place();
    ok(&place.tool, &task("CREATE TABLE t (a)", Json::Null)).await;
    let other = rusqlite::Connection::open(place.directory.path().join("data.db")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let insert = task("INSERT INTO t VALUES (1)", Json::Null);
    let error = failed(&place.tool, &insert).await.error.unwrap();
    assert_eq!(
        (error.class, &*error.code),
        (ErrorClass::Transient, "SQLITE_BUSY")
    );
    let cx = cx_for(Duration::from_millis(50));
    let error = place.tool.run(&insert, &cx).await.error.unwrap();
    assert_eq!(error.code, "TASK_TIMEOUT");
    other.execute_batch("COMMIT").unwrap();
    ok(&place.tool, &insert).await;
    assert_eq!(place.count(), 1);
}

#[tokio::test]
async fn foreign_keys_hold_and_extensions_stay_out() {
    let place = place();
    let keys = "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (a REFERENCES a (id)); \
                INSERT INTO b VALUES (7)";
    assert_eq!(
        code(&place.tool, &task(keys, Json::Null)).await,
        "SQLITE_CONSTRAINT"
    );
    let load = task("SELECT load_extension('x')", Json::Null);
    assert_eq!(code(&place.tool, &load).await, "SQLITE_ERROR");
}

#[tokio::test]
async fn a_database_in_memory_lives_as_long_as_the_task() {
    let place = place();
    let memory = |commands: &str| call(json!({"database": ":memory:", "commands": [commands]}));
    let seen = ok(
        &place.tool,
        &memory("CREATE TABLE t (a); SELECT count(*) AS n FROM t"),
    )
    .await;
    assert_eq!(seen["rows"][0]["n"], 0);
    assert_eq!(
        code(&place.tool, &memory("SELECT * FROM t")).await,
        "SQLITE_ERROR"
    );
    let nowhere = call(json!({"database": "no/such/place.db", "commands": ["SELECT 1"]}));
    assert_eq!(code(&place.tool, &nowhere).await, "SQLITE_ERROR");
    assert_eq!(place.tool.run(&memory("SELECT 1"), &cx()).await.error, None);
}
