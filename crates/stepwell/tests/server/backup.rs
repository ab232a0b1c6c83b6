//! Backups of stores that are in use, and servers that are started on what was restored from them.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked};

/// Two steps that say who they are, with their fence.
fn definition(witness: &Path) -> String {
    let step = |name: &str, next: &str| {
        format!(
            "- step: {name}\n  tool: {{kind: shell, cmds: ['echo $STEPWELL_RUN_ID {name} $STEPWELL_FENCE $STEPWELL_IDEMPOTENCY_KEY >> {}']}}\n{next}",
            witness.display()
        )
    };
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: kept, path: kept}}\nworkflow:\n{}\
         - step: pause\n  tool: {{kind: sleep, seconds: 3}}\n  next: [{{step: last}}]\n{}",
        step("start", "  next: [{step: pause}]\n"),
        step("last", ""),
    )
}

fn stepwell(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(args)
        .current_dir(folder)
        .env_remove("STEPWELL_STORE")
        .env_remove("STEPWELL_CONFIG")
        .output()
        .unwrap()
}

fn good(folder: &Path, args: &[&str]) -> Json {
    let output = stepwell(folder, args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {text}{err}");
    serde_json::from_str(&text).unwrap_or(Json::String(text))
}

/// Starts runs with request ids until it is told to stop; returns how many.
fn load(server: &TestServer, text: &str, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<usize> {
    let (url, client) = (format!("{}/api/v1/runs", server.url), server.client.clone());
    let (text, stop) = (text.to_owned(), Arc::clone(stop));
    std::thread::spawn(move || {
        for number in 0.. {
            if stop.load(Ordering::SeqCst) {
                return number;
            }
            let body = json!({ "definition": { "text": text }, "requestId": format!("r{number}") });
            let (status, answer) = asked(client.post(&url).json(&body));
            assert_eq!(status, 201, "{answer}");
        }
        0
    })
}

#[test]
fn a_store_that_was_backed_up_under_load_goes_on_elsewhere() {
    let server = TestServer::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let witness = elsewhere.path().join("witness");
    let text = definition(&witness);
    let stop = Arc::<AtomicBool>::default();
    let starting = load(&server, &text, &stop);
    let begun = || std::fs::read_to_string(&witness).unwrap_or_default();
    let until = std::time::Instant::now() + crate::harness::PATIENCE;
    while begun().lines().count() < 5 {
        assert!(std::time::Instant::now() < until, "no step begins");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let backup = elsewhere.path().join("backup.db");
    let backup = backup.to_str().unwrap();
    let told = good(
        server.folder.path(),
        &["db", "backup", backup, "-o", "json"],
    );
    let kept = told["runs"].as_u64().unwrap();
    assert_eq!(told["verified"], true, "{told}");
    let again = stepwell(server.folder.path(), &["db", "backup", backup]);
    assert!(!again.status.success(), "a backup is never overwritten");
    assert!(told["open"].as_u64().unwrap() > 0, "{told}");
    // What happens from here on is lost, with the effects that it had outside.
    std::thread::sleep(std::time::Duration::from_millis(500));
    stop.store(true, Ordering::SeqCst);
    assert!(starting.join().unwrap() as u64 >= kept);
    drop(server.kill());
    let before = begun();

    let told = good(elsewhere.path(), &["db", "restore", backup, "-o", "json"]);
    assert_eq!(told["runs"].as_u64(), Some(kept), "{told}");
    let again = stepwell(elsewhere.path(), &["db", "restore", backup]);
    assert!(!again.status.success(), "a store is never overwritten");
    let server = TestServer::in_folder(elsewhere, &[]);
    let until = std::time::Instant::now() + crate::harness::PATIENCE;
    loop {
        let (_, counts) = asked(server.get("/api/v1/runs/counts"));
        if counts["counts"]["COMPLETED"].as_u64() == Some(kept) {
            break;
        }
        assert!(std::time::Instant::now() < until, "{kept}: {counts}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // Work that is done again has the same idempotency key and a greater fence.
    let all = std::fs::read_to_string(server.folder.path().join("witness")).unwrap();
    let after = all.strip_prefix(&before).unwrap();
    for line in after.lines() {
        let [run, step, fence, key] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let earlier = before.lines().map(|it| it.split(' ').collect::<Vec<_>>());
        for seen in earlier.filter(|it| it[0] == run && it[1] == step) {
            assert_eq!(seen[3], key, "{line}");
            assert!(
                seen[2].parse::<u64>().unwrap() < fence.parse().unwrap(),
                "{line}"
            );
        }
    }
    // A start that was lost and is asked for again gets the same id; one that was kept is found.
    let body = json!({ "definition": { "text": text }, "requestId": "r0" });
    let (status, answer) = asked(server.post("/api/v1/runs", &body));
    assert_eq!(
        (status, &answer["created"]),
        (200, &json!(false)),
        "{answer}"
    );
    let checked = good(server.folder.path(), &["db", "check", "-o", "json"]);
    assert_eq!(checked["ok"], true, "{checked}");
}

#[test]
fn a_backup_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let output = stepwell(folder.path(), args);
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let missing = said(&["db", "backup", "b.db"]);
    assert!(missing.contains("does not exist"), "{missing}");
    let postgres = said(&["db", "backup", "b.db", "--store", "postgresql://u@h/d"]);
    assert!(postgres.contains("pg_dump"), "{postgres}");
    std::fs::write(
        folder.path().join("text.db"),
        "this is no database, but a text",
    )
    .unwrap();
    let text = said(&["db", "restore", "text.db"]);
    assert!(text.contains("not a database"), "{text}");
    let none: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(none.len(), 1, "nothing but text.db: {none:?}");
}

#[test]
fn what_a_killed_backup_has_left_is_used_by_the_next_one() {
    let dir = TestServer::start().kill();
    let folder = dir.path();
    let part = folder.join("copy.db-part");
    std::fs::write(&part, vec![7; 1 << 20]).unwrap();
    // Another process that is still writing keeps its file.
    let writing = std::fs::File::open(&part).unwrap();
    writing.lock().unwrap();
    let output = stepwell(folder, &["db", "backup", "copy.db"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("STORE_HELD") && said.contains("copy.db-part"),
        "{said}"
    );
    assert_eq!(std::fs::metadata(&part).unwrap().len(), 1 << 20);
    drop(writing);
    let copied = good(folder, &["db", "backup", "copy.db", "-o", "json"]);
    assert_eq!(copied["verified"], true, "{copied}");
    assert!(!part.exists());
    good(
        folder,
        &["db", "check", "--store", "sqlite:copy.db", "-o", "json"],
    );
}

/// A program of PostgreSQL, which distributions do not put into PATH.
fn program(name: &str) -> std::path::PathBuf {
    let shelves = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let found = shelves.flatten().map(|it| it.path().join("bin").join(name));
    let newest = found.filter(|it| it.exists()).max();
    newest.unwrap_or_else(|| name.into())
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {err}");
}

#[test]
fn a_postgresql_store_is_dumped_under_load_and_restored_elsewhere() {
    let url = std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL"
        )
    });
    let sign = if url.contains('?') { '&' } else { '?' };
    let schema = format!("dumped_{}", std::process::id());
    let store = format!("{url}{sign}schema={schema}");
    let elsewhere = tempfile::tempdir().unwrap();
    let witness = elsewhere.path().join("witness");
    let text = definition(&witness);
    let server = TestServer::with(&["--store", &store]);
    let stop = Arc::<AtomicBool>::default();
    let starting = load(&server, &text, &stop);
    let until = std::time::Instant::now() + crate::harness::PATIENCE;
    while std::fs::read_to_string(&witness)
        .unwrap_or_default()
        .lines()
        .count()
        < 5
    {
        assert!(std::time::Instant::now() < until, "no step begins");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let dump = elsewhere.path().join("stepwell.dump");
    succeeds(
        Command::new(program("pg_dump"))
            .args([
                "--format=custom",
                "--schema",
                &schema,
                "--dbname",
                &url,
                "--file",
            ])
            .arg(&dump),
    );
    stop.store(true, Ordering::SeqCst);
    let started = starting.join().unwrap() as u64;
    drop(server.kill());
    let database = format!("restored_{}", std::process::id());
    let sql = format!("CREATE DATABASE {database}");
    succeeds(Command::new(program("psql")).args(["--dbname", &url, "--command", &sql]));
    let (place, query) = url.split_once('?').unwrap_or((&url, ""));
    let place = place.rsplit_once('/').unwrap().0;
    let restored = format!("{place}/{database}?{query}");
    succeeds(
        Command::new(program("pg_restore"))
            .args(["--no-owner", "--dbname", &restored])
            .arg(&dump),
    );
    let sign = if query.is_empty() { "" } else { "&" };
    let store = format!("{restored}{sign}schema={schema}");
    let server = TestServer::with(&["--store", &store]);
    let until = std::time::Instant::now() + crate::harness::PATIENCE;
    let kept = loop {
        let (_, counts) = asked(server.get("/api/v1/runs/counts"));
        let total = counts["total"].as_u64().unwrap();
        if counts["counts"]["COMPLETED"].as_u64() == Some(total) && total > 0 {
            break total;
        }
        assert!(std::time::Instant::now() < until, "{counts}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert!((1..=started).contains(&kept), "{kept} of {started}");
    let checked = good(
        elsewhere.path(),
        &["db", "check", "--store", &store, "-o", "json"],
    );
    assert_eq!(checked["ok"], true, "{checked}");
    drop(server.kill());
    let sql = format!("DROP DATABASE {database} WITH (FORCE)");
    succeeds(Command::new(program("psql")).args(["--dbname", &url, "--command", &sql]));
}
