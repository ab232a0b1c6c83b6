//! The tool `postgres` on a real server.

mod faults;
mod login;

use crate::tool::Tool as _;
use crate::tools::postgres::{Postgres, PostgresOptions};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;

use crate::testing::calls::{call_with, code, cx, failed, kept, ok};
use crate::testing::postgres_server::{Place, url};

fn tool() -> Postgres {
    Postgres::new(PostgresOptions::default())
}

async fn one(query: &str) -> Json {
    let place = Place::new().await;
    ok(&tool(), &place.call(query)).await["rows"][0].clone()
}

#[tokio::test]
async fn values_keep_their_types() {
    let row = one(
        "SELECT 1::int2 AS i2, 2::int4 AS i4, 9007199254740993::int8 AS i8, true AS yes, \
        1.50::numeric AS n, 0.12345678901234567890::numeric AS exact, 1.5::float8 AS f, \
        'NaN'::float8 AS nan, '-Infinity'::float8 AS inf, 'a' AS t, NULL AS none, \
        '2024-01-02 03:04:05.678'::timestamp AS ts, \
        '2024-01-02'::date AS d, '03:04:05'::time AS tm, '1 day 02:00'::interval AS iv, \
        '00000000-0000-0000-0000-000000000001'::uuid AS id, '{\"a\": [1]}'::jsonb AS j, \
        ARRAY[1,NULL,3] AS list, ARRAY[ARRAY['a','b,c']] AS texts, '\\x6869'::bytea AS bytes",
    )
    .await;
    let expected = json!({"i2": 1, "i4": 2, "i8": 9_007_199_254_740_993_i64, "yes": true,
        "n": 1.5, "exact": "0.12345678901234567890", "f": 1.5, "nan": "NaN", "inf": "-Infinity",
        "t": "a", "none": null, "ts": "2024-01-02T03:04:05.678", "d": "2024-01-02",
        "tm": "03:04:05", "iv": "1 day 02:00:00", "id": "00000000-0000-0000-0000-000000000001",
        "j": {"a": [1]}, "list": [1, null, 3], "texts": [["a", "b,c"]], "bytes": "\\x6869"});
    assert_eq!(row, expected);
}

#[tokio::test]
async fn types_that_nobody_thought_of_are_text() {
    let place = Place::new().await;
    let row = ok(
        &tool(),
        &place.call(
            "CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TYPE pair AS (a int, b text); \
             CREATE DOMAIN small AS int CHECK (VALUE < 9); SET TIME ZONE 'Asia/Kolkata'; \
             SELECT '[1,5)'::int4range AS r, '10.0.0.1/8'::inet AS ip, '1.00'::money AS m, \
             'good'::mood AS e, (1, 'x')::pair AS c, 3::small AS s, '(1,2)'::point AS p, \
             ARRAY['bad'::mood] AS es, '2024-01-02 00:00+00'::timestamptz AS ts, B'101' AS bits",
        ),
    )
    .await["rows"][0]
        .clone();
    assert_eq!(
        row,
        json!({"r": "[1,5)", "ip": "10.0.0.1/8", "m": "$1.00", "e": "good", "c": "(1,x)", "s": 3,
            "p": "(1,2)", "es": ["bad"], "ts": "2024-01-02T05:30:00+05:30", "bits": "101"})
    );
}

#[tokio::test]
async fn every_statement_has_its_answer() {
    let place = Place::new().await;
    let commands = json!([
        "CREATE TABLE t (id int, name text); INSERT INTO t VALUES (1, 'a;b'), (2, NULL);",
        "SELECT id, name, id FROM t ORDER BY id -- the end",
        "UPDATE t SET name = 'x' RETURNING id; DELETE FROM t"
    ]);
    let seen = ok(&tool(), &place.call(commands)).await;
    assert_eq!(seen["command_1"]["row_count"], 2);
    assert_eq!(seen["command_2"]["columns"], json!(["id", "name", "id_2"]));
    assert_eq!(seen["command_2"]["rows"][0]["name"], "a;b");
    assert_eq!(seen["command_3"]["row_count"], 2);
    assert_eq!(seen["command_4"]["row_count"], 2);
    assert_eq!(seen["rows"], seen["command_3"]["rows"]);
    assert_eq!(seen["result"]["command_2"], seen["command_2"]);
    let none = ok(&tool(), &place.call("SELECT * FROM t")).await;
    assert_eq!(
        (&none["rows"], &none["columns"]),
        (&json!([]), &json!(["id", "name"]))
    );
}

#[tokio::test]
async fn parameters_become_what_the_server_expects() {
    let place = Place::new().await;
    let table = "CREATE TABLE t (n int, big int8, b bool, d date, l int[], t text[], j jsonb, \
                 jl jsonb, raw text, x numeric)";
    let insert = "INSERT INTO t VALUES (:n, %(big)s, :b, :d::date, :l, :t, :j, :jl, :raw, :x) \
                  RETURNING *; SELECT count(*) FROM t WHERE n = ANY(:l) AND raw = :raw";
    let params = json!({"n": "42", "big": 9_007_199_254_740_993_i64, "b": true, "d": "2024-01-02",
        "l": [41, 42], "t": ["a,b", null, "\"q\"\\"], "j": {"k": "it's"}, "jl": [1, {"a": []}],
        "raw": "'; DROP TABLE t; --", "x": -1.25});
    let seen = ok(&tool(), &place.call_with(json!([table, insert]), params)).await;
    let row = &seen["command_1"]["rows"][0];
    let expected = json!({"n": 42, "big": 9_007_199_254_740_993_i64, "b": true, "d": "2024-01-02",
        "l": [41, 42], "t": ["a,b", null, "\"q\"\\"], "j": {"k": "it's"}, "jl": [1, {"a": []}],
        "raw": "'; DROP TABLE t; --", "x": -1.25});
    assert_eq!(*row, expected);
    assert_eq!(seen["rows"][0]["count"], 1);
    let listed = place.call_with(
        "SELECT $2::int - $1::int AS d, $3 AS n",
        json!([-1, 5, null]),
    );
    assert_eq!(
        ok(&tool(), &listed).await["rows"][0],
        json!({"d": 6, "n": null})
    );
}

#[test]
fn any_text_survives_as_a_parameter() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tool = tool();
    let place = runtime.block_on(Place::new());
    let texts = proptest::collection::vec("[^\0]{0,20}|['\"\\\\$:;%{}-]{0,10}", 1..5);
    proptest!(ProptestConfig::with_cases(64), |(texts in texts)| {
        let query = "SELECT $1::text AS one, $2::text[] AS list, $3::jsonb AS json";
        let params = json!([texts[0], texts, {"list": texts}]);
        let seen = runtime.block_on(ok(&tool, &place.call_with(query, params)));
        let expected = json!({"one": texts[0], "list": texts, "json": {"list": texts}});
        prop_assert_eq!(&seen["rows"][0], &expected);
    });
}

#[tokio::test]
async fn a_failure_takes_everything_back() {
    let place = Place::new().await;
    let tool = tool();
    ok(&tool, &place.call("CREATE TABLE t (id int PRIMARY KEY)")).await;
    let commands = "INSERT INTO t VALUES (1);\nINSERT INTO t VALUES (2);\nSELECT\n  nonsense\nFROM t;\n\
                    INSERT INTO t VALUES (3); SELECT 1";
    let seen = failed(&tool, &place.call(commands)).await;
    let error = seen.error.unwrap();
    assert_eq!(
        (error.class, &*error.code),
        (ErrorClass::Validation, "PG_42703")
    );
    assert!(
        error
            .message
            .starts_with("statement 3 (SELECT nonsense FROM t), line 4:"),
        "{error}"
    );
    assert_eq!(seen.details["pg"]["sqlstate"], "42703");
    assert_eq!(seen.details["pg"]["statement"], 3);
    assert_eq!(place.count("t").await, 0);
    // The same connection is good for the next task.
    ok(&tool, &place.call("INSERT INTO t VALUES (1)")).await;
    let twice = failed(&tool, &place.call("INSERT INTO t VALUES (2), (1)")).await;
    assert_eq!(twice.error.unwrap().class, ErrorClass::Conflict);
    assert_eq!(twice.details["pg"]["constraint"], "t_pkey");
    assert_eq!(place.count("t").await, 1);
}

#[tokio::test]
async fn what_cannot_be_in_a_transaction_runs_alone() {
    let place = Place::new().await;
    let tool = tool();
    let commands = "CREATE TABLE t (id int); VACUUM t; CREATE INDEX CONCURRENTLY i ON t (id)";
    ok(&tool, &place.call(commands)).await;
    ok(
        &tool,
        &place.call("DO $$ BEGIN INSERT INTO t VALUES (1); COMMIT; END $$"),
    )
    .await;
    let own = "BEGIN; INSERT INTO t VALUES (2); COMMIT; BEGIN; INSERT INTO t VALUES (3); ROLLBACK";
    ok(&tool, &place.call(own)).await;
    assert_eq!(place.count("t").await, 2);
    let open = place.call("BEGIN; INSERT INTO t VALUES (4)");
    assert_eq!(code(&tool, &open).await, "SQL_TRANSACTION");
    assert_eq!(place.count("t").await, 2);
}

#[tokio::test]
async fn a_session_leaves_nothing_to_the_next() {
    let place = Place::new().await;
    let tool = tool();
    let pid = "SELECT pg_backend_pid() AS pid, current_setting('datestyle') AS style";
    let first = place.call(format!(
        "SET datestyle = 'SQL'; CREATE TEMP TABLE s (a int); {pid}"
    ));
    let first = ok(&tool, &first).await;
    let second = ok(&tool, &place.call(pid)).await;
    assert_eq!(
        first["rows"][0]["pid"], second["rows"][0]["pid"],
        "it is reused"
    );
    assert!(
        second["rows"][0]["style"]
            .as_str()
            .unwrap()
            .starts_with("ISO")
    );
    assert_eq!(
        code(&tool, &place.call("SELECT * FROM s")).await,
        "PG_42P01"
    );
}

#[tokio::test]
async fn the_server_knows_which_execution_asks() {
    let place = Place::new().await;
    let tool = tool();
    let told = "SELECT current_setting('stepwell.run_id', true) AS run, \
                current_setting('stepwell.step_id', true) AS step, \
                current_setting('stepwell.execution', true) AS execution, \
                current_setting('stepwell.attempt', true) AS attempt, \
                current_setting('stepwell.idempotency_key', true) AS key, \
                current_setting('stepwell.fence', true) AS fence";
    let wanted = json!({"run": "run", "step": "it's \\ a \"step\"", "execution": "3", "attempt": "1",
        "key": "key", "fence": "41"});
    let mut cx = cx();
    cx.step_id = "it's \\ a \"step\"".into();
    // In the transaction of the task, in one of the text's own, in the one that follows it, and in none.
    for text in [
        format!("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; {told}"),
        format!("BEGIN; SET TRANSACTION READ ONLY; {told}; COMMIT"),
        format!("START TRANSACTION; COMMIT AND CHAIN; {told}; END"),
        format!("CREATE TABLE v (a int); VACUUM v; {told}"),
    ] {
        let outcome = tool.run(&place.call(text.as_str()), &cx).await;
        assert_eq!(outcome.error, None, "{text}");
        assert_eq!(outcome.result["rows"][0], wanted, "{text}");
    }
    // What the text sets for the session does not outlast its next transaction.
    let text = format!("SET stepwell.fence = '1'; BEGIN; {told}; COMMIT");
    let outcome = tool.run(&place.call(text.as_str()), &cx).await;
    assert_eq!(outcome.result["rows"][0], wanted);
}

#[tokio::test]
async fn notices_go_to_the_log() {
    let place = Place::new().await;
    let (log, lines) = kept();
    let mut cx = cx();
    cx.log = log;
    let call = place.call("DO $$ BEGIN RAISE NOTICE 'so far so good'; END $$");
    assert_eq!(tool().run(&call, &cx).await.error, None);
    assert_eq!(*lines.0.lock().unwrap(), ["NOTICE: so far so good"]);
}

#[tokio::test]
async fn values_do_not_get_into_messages() {
    let place = Place::new().await;
    let call = place.call_with("SELECT :secret::int", json!({"secret": "hunter2"}));
    let error = failed(&tool(), &call).await.error.unwrap();
    assert_eq!(error.code, "PG_22P02");
    assert!(!error.message.contains("hunter2"), "{error}");
    let missing = place.call_with("SELECT :other", json!({"secret": "hunter2"}));
    assert_eq!(code(&tool(), &missing).await, "SQL_PARAMS");
}

#[tokio::test]
async fn what_the_tool_cannot_do_is_said_at_once() {
    let place = Place::new().await;
    let copy = place.call("COPY (SELECT 1) TO STDOUT");
    assert_eq!(code(&tool(), &copy).await, "SQL_UNSUPPORTED");
    let nowhere = call_with(json!({"commands": ["SELECT 1"]}), Json::Null);
    assert_eq!(code(&tool(), &nowhere).await, "PG_ADDRESS");
    let encrypted = call_with(
        json!({"commands": ["SELECT 1"]}),
        json!({"dsn": url(), "sslmode": "require"}),
    );
    let error = failed(&tool(), &encrypted).await.error.unwrap();
    assert_eq!(
        (error.class, &*error.code),
        (ErrorClass::Transport, "PG_UNREACHABLE")
    );
    assert!(error.message.contains("TLS"), "{error}");
}
