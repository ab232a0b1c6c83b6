//! The tool `duckdb` with the real program: `STEPWELL_DUCKDB`, or `duckdb` in PATH. Where there is
//! none, the tests say so and do nothing.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::tool::{Tool as _, ToolCall};
use crate::tools::duckdb::{Duckdb, DuckdbOptions};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tempfile::TempDir;

use crate::testing::calls::{call, code, cx_for, cx_within, failed, ok};

fn program() -> Option<PathBuf> {
    let named = std::env::var_os("STEPWELL_DUCKDB").map(PathBuf::from);
    let program = named.unwrap_or_else(|| PathBuf::from("duckdb"));
    let found = std::process::Command::new(&program)
        .arg("--version")
        .output();
    if found.is_err() {
        eprintln!(
            "SKIPPED: there is no {}; `pip install duckdb-cli`, or set STEPWELL_DUCKDB",
            program.display()
        );
        return None;
    }
    Some(program)
}

fn tool(directory: &TempDir) -> Option<Duckdb> {
    Some(Duckdb::new(DuckdbOptions {
        program: program()?,
        directory: Some(directory.path().to_owned()),
    }))
}

fn task(commands: impl Into<Json>, params: Json) -> ToolCall {
    let commands: Json = commands.into();
    call(json!({"database": "data.duckdb", "commands": commands, "params": params}))
}

fn memory(commands: &str, params: Json) -> ToolCall {
    call(json!({"commands": [commands], "params": params}))
}

#[tokio::test]
async fn the_program_knows_which_execution_started_it() {
    let directory = TempDir::new().unwrap();
    let Some(tool) = tool(&directory) else { return };
    let query =
        "SELECT getenv('STEPWELL_FENCE') AS fence, getenv('STEPWELL_EXECUTION') AS execution";
    let seen = ok(&tool, &memory(query, Json::Null)).await;
    assert_eq!(seen["rows"][0], json!({"fence": "41", "execution": "3"}));
}

#[tokio::test]
async fn values_keep_their_types() {
    let directory = TempDir::new().unwrap();
    let Some(tool) = tool(&directory) else { return };
    let query = "SELECT 42 AS i, 9007199254740993::BIGINT AS big, 1.50::DECIMAL(5,2) AS d, \
        170141183460469231731687303715884105727::HUGEINT AS h, 'nan'::DOUBLE AS n, \
        '-inf'::DOUBLE AS inf, 1.5::DOUBLE AS f, true AS b, '1.50' AS t, NULL AS none, \
        [1, 2] AS l, {'a': [1]} AS s, TIMESTAMP '2024-01-02 03:04:05' AS ts, \
        DATE '2024-01-02' AS dt, 1 AS twice, 2 AS twice, 'NaN \"Infinity\"' AS words";
    let seen = ok(&tool, &memory(query, Json::Null)).await;
    let expected = json!({"i": 42, "big": 9_007_199_254_740_993_i64, "d": 1.5,
        "h": "170141183460469231731687303715884105727", "n": "NaN", "inf": "-Infinity", "f": 1.5,
        "b": true, "t": "1.50", "none": null, "l": [1, 2], "s": {"a": [1]},
        "ts": "2024-01-02T03:04:05", "dt": "2024-01-02", "twice": 1, "twice_2": 2,
        "words": "NaN \"Infinity\""});
    assert_eq!(seen["rows"][0], expected);
}

#[tokio::test]
async fn every_statement_has_its_answer() {
    let directory = TempDir::new().unwrap();
    let Some(tool) = tool(&directory) else { return };
    let commands = json!([
        "CREATE TABLE t (a INT, b VARCHAR); INSERT INTO t VALUES (1, 'x;y'), (2, NULL);",
        "SELECT * FROM t ORDER BY a -- the end",
        "UPDATE t SET b = 'changes: 5' WHERE a = 2; SELECT a, b FROM t WHERE a > 5"
    ]);
    let seen = ok(&tool, &task(commands, Json::Null)).await;
    assert_eq!(seen["command_0"]["row_count"], 0);
    assert_eq!(seen["command_1"]["row_count"], 2);
    assert_eq!(seen["command_2"]["rows"][0], json!({"a": 1, "b": "x;y"}));
    assert_eq!(seen["command_3"]["row_count"], 1);
    assert_eq!(
        (&seen["rows"], &seen["columns"]),
        (&json!([]), &json!(["a", "b"]))
    );
    let kept = ok(&tool, &task("FROM t WHERE a = 2", Json::Null)).await;
    assert_eq!(kept["rows"], json!([{"a": 2, "b": "changes: 5"}]));
}

#[tokio::test]
async fn a_failure_takes_everything_back() {
    let directory = TempDir::new().unwrap();
    let Some(tool) = tool(&directory) else { return };
    ok(
        &tool,
        &task("CREATE TABLE t (a INT PRIMARY KEY)", Json::Null),
    )
    .await;
    for (wrong, class) in [
        ("SELECT nonsense", ErrorClass::Validation),
        ("SELEC 1", ErrorClass::Validation),
        ("SELECT 'a'::INT", ErrorClass::Validation),
        ("SELECT * FROM nowhere", ErrorClass::Validation),
        ("INSERT INTO t VALUES (1)", ErrorClass::Conflict),
        (
            "SELECT * FROM read_csv('nowhere.csv')",
            ErrorClass::Transient,
        ),
        ("SELECT 'never closed", ErrorClass::Validation),
    ] {
        let commands = format!("INSERT INTO t VALUES (1); {wrong}; INSERT INTO t VALUES (2)");
        let seen = failed(&tool, &task(commands, Json::Null)).await;
        let error = seen.error.unwrap();
        assert_eq!(
            (error.class, &*error.code),
            (class, "DUCKDB_ERROR"),
            "{error}"
        );
        assert!(error.message.starts_with("statement 2 ("), "{error}");
        assert_eq!(seen.details["duckdb"]["statement"], 2);
    }
    let count = ok(&tool, &task("SELECT count(*) AS n FROM t", Json::Null)).await;
    assert_eq!(count["rows"][0]["n"], 0);
}

#[tokio::test]
async fn parameters_are_written_as_values() {
    let directory = TempDir::new().unwrap();
    let Some(tool) = tool(&directory) else { return };
    let call = memory(
        "SELECT 1 - :n AS n, %(t)s AS t, $l AS l, :m AS m, :none AS none, :b AS b, ':n' AS q",
        json!({"n": -5, "t": "it's; --\n.shell true\n", "l": ["a", null], "m": {"k 1": [1]},
            "none": null, "b": false}),
    );
    let expected = json!({"n": 6, "t": "it's; --\n.shell true\n", "l": ["a", null],
        "m": {"k 1": [1]}, "none": null, "b": false, "q": ":n"});
    assert_eq!(ok(&tool, &call).await["rows"][0], expected);
    let listed = memory("SELECT ? AS a, $1 AS b", json!(["x"]));
    assert_eq!(
        ok(&tool, &listed).await["rows"][0],
        json!({"a": "x", "b": "x"})
    );
    let dotted = memory("-- a note\n.shell true", Json::Null);
    assert_eq!(code(&tool, &dotted).await, "SQL_UNSUPPORTED");
}

#[test]
fn any_text_survives_as_a_parameter() {
    let directory = TempDir::new().unwrap();
    let Some(tool) = tool(&directory) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Each case is a process, so a case has many texts.
    let texts = proptest::collection::vec("\\PC{0,20}|['\"\\\\$:;%.\n\r\t\0-]{0,10}|.{0,9}", 40);
    proptest!(ProptestConfig::with_cases(8), |(texts in texts)| {
        let call = memory("SELECT unnest(:texts) AS t", json!({"texts": texts}));
        let seen = runtime.block_on(ok(&tool, &call));
        let rows = seen["rows"].as_array().unwrap();
        let back: Vec<&str> = rows.iter().map(|row| row["t"].as_str().unwrap()).collect();
        prop_assert_eq!(back, texts);
    });
}

#[tokio::test]
async fn an_endless_query_is_killed_at_the_deadline() {
    let directory = TempDir::new().unwrap();
    let Some(tool) = tool(&directory) else { return };
    let endless =
        "SELECT count(*) FROM range(100000000) a, range(1000000) b WHERE a.range % 7 = b.range";
    let began = Instant::now();
    let cx = cx_for(Duration::from_millis(300));
    let error = tool.run(&task(endless, Json::Null), &cx).await.error;
    assert_eq!(error.unwrap().code, "TASK_TIMEOUT");
    assert!(began.elapsed() < Duration::from_secs(3));
    // The process is gone, and with it its hold on the file.
    ok(&tool, &task("CREATE TABLE t (a INT)", Json::Null)).await;
}

#[tokio::test]
async fn many_rows_are_stopped_at_the_limit() {
    let directory = TempDir::new().unwrap();
    let Some(tool) = tool(&directory) else { return };
    let call = memory("SELECT range AS n FROM range(10000000)", Json::Null);
    let seen = tool.run(&call, &cx_within(1 << 20)).await;
    assert_eq!(seen.error.unwrap().code, "SQL_TOO_LARGE");
}

#[tokio::test]
async fn a_missing_program_is_told() {
    let tool = Duckdb::new(DuckdbOptions {
        program: "no-such-duckdb".into(),
        directory: None,
    });
    let error = failed(&tool, &memory("SELECT 1", Json::Null))
        .await
        .error
        .unwrap();
    assert_eq!(error.code, "DUCKDB_MISSING");
    assert!(error.message.contains("pip install duckdb-cli"), "{error}");
}
