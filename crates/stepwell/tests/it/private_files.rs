//! Files that only their owner may read, links that are not followed, and files that are none.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use rusqlite::Connection;

use super::test_store::TestStore;

const SAGA: &str = "examples/actions/order-saga.yaml";

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_store_is_private_and_an_open_one_is_told_and_repaired() {
    let test_store = TestStore::sqlite("private");
    test_store.good(&["run", SAGA, "--engine", "mock", "--run-id", "run_a"]);
    let database = test_store.database();
    let lock = database.with_file_name("runs.db-lock");
    assert_eq!((mode(&database), mode(&lock)), (0o600, 0o600));
    let quiet = test_store.call(&["runs", "list"]);
    assert!(!quiet.err.contains("db protect"), "{}", quiet.err);

    fs::set_permissions(&database, fs::Permissions::from_mode(0o644)).unwrap();
    let told = test_store.call(&["runs", "list"]);
    assert_eq!(told.code, 0);
    assert!(told.err.contains("other users can read"), "{}", told.err);
    assert!(told.err.contains("stepwell db protect"), "{}", told.err);
    test_store.good(&["db", "protect"]);
    assert_eq!(mode(&database), 0o600);
    let logs = database.with_file_name("logs");
    fs::create_dir_all(&logs).unwrap();
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o755)).unwrap();
    let told = test_store.call(&["runs", "list"]);
    assert!(told.err.contains("/logs;"), "{}", told.err);
    test_store.good(&["db", "protect"]);
    assert_eq!(mode(&logs), 0o700);
    let quiet = test_store.call(&["runs", "list"]);
    assert!(!quiet.err.contains("db protect"), "{}", quiet.err);
}

#[test]
fn a_link_in_the_place_of_the_lock_is_not_followed() {
    let test_store = TestStore::sqlite("linked-lock");
    let elsewhere = test_store.database().with_file_name("elsewhere");
    symlink(
        &elsewhere,
        test_store.database().with_file_name("runs.db-lock"),
    )
    .unwrap();
    let refused = test_store.call(&["run", SAGA, "--engine", "mock"]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    assert!(refused.err.contains("STORE_UNUSABLE"), "{}", refused.err);
    assert!(!elsewhere.exists());
    fs::write(&elsewhere, "as it was").unwrap();
    let refused = test_store.call(&["run", SAGA, "--engine", "mock"]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "as it was");
}

/// A step that prints, and one whose result is too large for the log of events.
const TALK: &str = "apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: talk}
workflow:
  - step: talk
    tool: {kind: shell, cmds: ['echo to the log']}
    next: [{step: large}]
  - step: large
    tool: {kind: shell, cmds: ['head -c 300000 /dev/zero | tr \"\\\\0\" x']}
";

#[test]
fn the_logs_of_a_memory_store_are_gone_with_it() {
    let test_store = TestStore::sqlite("memory-logs");
    let file = test_store.file("talk.yaml", TALK);
    let temporary = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["run", &file, "--store", "memory:"])
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("to the log"), "{said}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn a_link_in_the_place_of_a_log_is_not_followed() {
    let test_store = TestStore::sqlite("linked-log");
    let file = test_store.file("talk.yaml", TALK);
    let victim = test_store.file("victim", "as it was\n");
    let folder = test_store.database().with_file_name("logs");
    // In the place of the file.
    fs::create_dir_all(folder.join("run_a/talk")).unwrap();
    symlink(&victim, folder.join("run_a/talk/1.jsonl")).unwrap();
    let ran = test_store.call(&["run", &file, "--run-id", "run_a"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("is a symbolic link"), "{}", ran.err);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was\n");
    let shown = test_store.call(&["runs", "logs", "run_a"]);
    assert!(!shown.out.contains("as it was"), "{}", shown.out);
    // In the place of a folder.
    let elsewhere = test_store.database().with_file_name("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    symlink(&elsewhere, folder.join("run_b")).unwrap();
    test_store.good(&["run", &file, "--run-id", "run_b"]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_link_in_the_place_of_an_artifact_is_not_followed() {
    let test_store = TestStore::sqlite("linked-artifact");
    let file = test_store.file("talk.yaml", TALK);
    let folder = test_store.database().with_file_name("artifacts");
    let elsewhere = test_store.database().with_file_name("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::create_dir_all(folder.join("runs")).unwrap();
    symlink(&elsewhere, folder.join("runs/run_a")).unwrap();
    let ran = test_store.call(&["run", &file, "--run-id", "run_a"]);
    let said = ran.out + &ran.err;
    assert_eq!(ran.code, 3, "{said}");
    assert!(said.contains("ARTIFACT_STORE"), "{said}");
    assert!(said.contains("is a symbolic link"), "{said}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    test_store.good(&["run", &file, "--run-id", "run_b"]);
    assert!(folder.join("runs/run_b").is_dir());
}

#[test]
fn a_pipe_or_a_device_is_no_definition_and_no_input() {
    let test_store = TestStore::sqlite("pipes");
    let pipe = test_store.database().with_file_name("pipe.yaml");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let pipe = pipe.to_str().unwrap();
    for path in [pipe, "/dev/zero"] {
        for args in [&["check", path][..], &["run", path, "--engine", "mock"]] {
            let refused = test_store.call(args);
            assert_eq!(refused.code, 1, "{args:?}: {}", refused.out);
            let said = refused.out + &refused.err;
            assert!(said.contains("SOURCE_UNREADABLE"), "{args:?}: {said}");
            assert!(
                said.contains("a pipe, a socket or a device"),
                "{args:?}: {said}"
            );
        }
    }
}

#[test]
fn a_nul_in_a_value_does_not_break_the_view_of_the_log() {
    let test_store = TestStore::sqlite("nul");
    let params = test_store.file("params.json", "{\"text\": \"a\\u0000b\"}");
    test_store.good(&[
        "run",
        SAGA,
        "--engine",
        "mock",
        "--input-file",
        &params,
        "--run-id",
        "run_a",
    ]);
    let conn = Connection::open(test_store.database()).unwrap();
    let query = "SELECT count(*), sum(json_valid(event)), sum(json_valid(ext)), \
                 sum(ext LIKE '%a\\u0000b%') FROM events WHERE run_id = 'run_a'";
    let seen: (i64, i64, i64, i64) = conn
        .query_row(query, [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    assert!(seen.0 > 5, "{seen:?}");
    assert_eq!((seen.1, seen.2), (seen.0, seen.0));
    assert!(seen.3 > 0, "{seen:?}");
    drop(conn);
    test_store.good(&["db", "check"]);
}

#[test]
fn a_nul_in_a_value_breaks_no_query_on_postgres() {
    let test_store = TestStore::postgres("nul");
    let params = test_store.file(
        "params.json",
        "{\"text\": \"a\\u0000b\", \"paymentId\": \"p-1\", \"amount\": 3}",
    );
    let (run, mock) = ("--run-id", ["--engine", "mock", "--input-file", &params]);
    let payment = "examples/linear/payment.yaml";
    for (file, id) in [(SAGA, "run_a"), (payment, "run_b")] {
        test_store.good(&[&["run", file, run, id][..], &mock].concat());
    }
    let (url, schema) = test_store.url.split_once("schema=").unwrap();
    let sql = format!(
        "SELECT count(*) FROM {schema}.events WHERE event->>'runId' = 'run_a' AND ext->>'type' <> '';
         SELECT position('a\\ufffdb' IN ext::text) > 0 FROM {schema}.events WHERE run_id = 'run_a' AND run_seq = 1;
         SELECT count(*) FROM {schema}.workflow_instance WHERE biz_key LIKE 'p%1';"
    );
    let url = url.trim_end_matches(['?', '&']);
    let asked = Command::new("psql")
        .args([url, "-XAtqc", &sql])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{said}");
    let shown = String::from_utf8_lossy(&asked.stdout).into_owned();
    let shown: Vec<&str> = shown.lines().collect();
    assert!(shown[0].parse::<u32>().unwrap() > 5, "{shown:?}");
    assert_eq!(shown[1..], ["t", "1"]);
    test_store.good(&["db", "check"]);
    // A business key is a column, which cannot have it: the start is refused with a code.
    let key = test_store.file("key.json", "{\"paymentId\": \"p\\u00001\", \"amount\": 3}");
    let refused = test_store.call(&["run", payment, "--engine", "mock", "--input-file", &key]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("VALUE_REFUSED"), "{}", refused.err);
    // The command shows the value as it is.
    let events = test_store.good(&["runs", "events", "run_a", "--ext"]);
    assert!(events.contains("a\\u0000b"), "{events}");
}
