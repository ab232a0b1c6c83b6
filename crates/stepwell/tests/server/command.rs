//! The commands on a server: the same words as on a store, children, tokens and profiles, and what happens when the server or
//! the user goes away.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::access::{configured, controlled, token};
use crate::harness::{PATIENCE, TestServer, asked};

const CHAIN: &str = "
metadata: {planId: chain, planVersion: '1', schemaVersion: v1.0}
steps:
  - {stepId: one, tool: {kind: shell, cmds: [\"echo first line\"]}}
  - {stepId: two, dependsOn: [one], tool: {kind: shell, cmds: [\"echo second line >&2; exit 3\"]}}
";

/// Waits for a file between its steps.
const HELD: &str = "
metadata: {planId: held, planVersion: '1', schemaVersion: v1.0}
steps:
  - {stepId: one, tool: {kind: shell, cmds: [\"echo one >> witness; while ! test -e go; do sleep 0.05; done\"]}}
  - {stepId: two, dependsOn: [one], tool: {kind: shell, cmds: [\"echo two >> witness\"]}}
";

/// A command in a folder, on nothing but what its arguments and variables say.
fn command(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepwell"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STEPWELL_") {
            command.env_remove(name);
        }
    }
    command
        .args(args)
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("XDG_CONFIG_HOME")
        .env("USER", "ada")
        .env("NO_COLOR", "1")
        .envs(env.iter().copied())
        .stdin(Stdio::null());
    command
}

struct Seen {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Seen {
    fn from(output: Output) -> Seen {
        Seen {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn call(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Seen {
    command(folder, args, env).output().unwrap().into()
}

/// A folder with definitions.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// A text without what differs from call to call: times, numbers and hashes.
fn timeless(text: &str) -> String {
    let mut kept = Vec::new();
    let mut was_number = false;
    let text = text.replace("just now", "ago");
    for word in text.split(|c: char| c.is_whitespace() || c == '(' || c == ')') {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let is_number = bare.starts_with(|c: char| c.is_ascii_digit());
        let is_unit = was_number && matches!(bare, "ms" | "s");
        let is_hash = bare.len() == 12 && bare.chars().all(|c| c.is_ascii_hexdigit());
        if !word.is_empty() && !is_number && !is_unit && !is_hash {
            kept.push(word);
        }
        was_number = is_number;
    }
    kept.join(" ")
}

#[test]
fn a_run_looks_the_same_on_a_store_and_on_a_server() {
    let server = TestServer::start();
    let here = folder(&[("chain.yaml", CHAIN)]);
    let on_both = |args: &[&str]| {
        let env = [("STEPWELL_SERVER", server.url.as_str())];
        (call(here.path(), args, &[]), call(here.path(), args, &env))
    };
    let (store, remote) = on_both(&["run", "chain.yaml", "--run-id", "run_same"]);
    assert_eq!(
        (store.code, remote.code),
        (3, 3),
        "{} {}",
        remote.out,
        remote.err
    );
    assert_eq!(timeless(&remote.out), timeless(&store.out));
    for args in [
        &["runs", "show", "run_same"][..],
        &["runs", "logs", "run_same"],
        &["runs", "logs", "run_same", "two", "--tail", "1"],
        &["runs", "list"],
        &["runs", "evidence", "run_same"],
        &["artifacts", "list", "run_same"],
        &["alerts", "list"],
        &["dlq", "list"],
        &["outbox", "list"],
        &["sinks", "list"],
        &["runs", "watch", "run_same", "--once"],
    ] {
        let (store, remote) = on_both(args);
        assert_eq!(
            (store.code, remote.code),
            (0, 0),
            "{args:?}: {}",
            remote.err
        );
        assert_eq!(timeless(&remote.out), timeless(&store.out), "{args:?}");
    }
    let kinds = |text: &str| -> Vec<Json> {
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Json>(line).unwrap());
        lines
            .map(|it| json!([it["eventType"], it["stepId"], it["runSeq"]]))
            .collect()
    };
    let (store, remote) = on_both(&["runs", "events", "run_same", "--ext"]);
    assert_eq!(kinds(&remote.out), kinds(&store.out));
    // What is refused has the same code.
    for args in [
        &["runs", "show", "run_none"][..],
        &["runs", "cancel", "run_same"],
        &["runs", "signal", "run_same", "RESUME"],
        &[
            "runs",
            "complete",
            "run_same",
            "two",
            "--outcome",
            "succeeded",
        ],
        &["runs", "logs", "run_same", "three"],
    ] {
        let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
        let (store, remote) = on_both(&args);
        assert_eq!(
            (store.code, remote.code),
            (1, 1),
            "{args:?}: {}",
            remote.err
        );
        let code = |err: &str| {
            let line = err.lines().last().unwrap_or_default().to_owned();
            serde_json::from_str::<Json>(&line).unwrap()["error"]["code"].clone()
        };
        assert_eq!(code(&remote.err), code(&store.err), "{args:?}");
    }
}

const PARENT: &str = "
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent}
workflow:
  - step: call
    tool: {kind: playbook, path: leaf}
";

fn leaf(word: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: leaf}}\nworkflow:\n  - step: say\n    \
         tool: {{kind: shell, cmds: [\"echo {word} >> witness\"]}}\n"
    )
}

#[test]
fn children_that_the_server_lacks_are_registered_and_others_are_not_replaced() {
    let server = TestServer::start();
    let here = folder(&[("parent.yaml", PARENT), ("leaf.yaml", &leaf("mine"))]);
    let env = [("STEPWELL_SERVER", server.url.as_str())];
    let first = call(here.path(), &["run", "parent.yaml"], &env);
    assert_eq!(first.code, 0, "{} {}", first.out, first.err);
    assert!(
        first.err.contains("registered the child definition leaf"),
        "{}",
        first.err
    );
    assert!(
        first.out.contains("call/say"),
        "the child is shown: {}",
        first.out
    );
    std::fs::write(here.path().join("leaf.yaml"), leaf("other")).unwrap();
    let second = call(here.path(), &["run", "parent.yaml"], &env);
    assert_eq!(second.code, 0, "{} {}", second.out, second.err);
    assert!(
        second
            .err
            .contains("another revision of the child definition leaf"),
        "{}",
        second.err
    );
    let witness = std::fs::read_to_string(server.folder.path().join("witness")).unwrap();
    assert_eq!(witness, "mine\nmine\n");
}

fn wait_for(what: &str, mut seen: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !seen() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn started(folder: &Path, args: &[&str]) -> Child {
    let mut command = command(folder, args, &[]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn an_interrupt_ends_the_command_and_not_the_run() {
    let server = TestServer::start();
    let here = folder(&[("held.yaml", HELD)]);
    let run = started(
        here.path(),
        &[
            "run",
            "held.yaml",
            "--run-id",
            "run_held",
            "--server",
            &server.url,
        ],
    );
    let witness = server.folder.path().join("witness");
    wait_for("the step has begun", || witness.exists());
    let killed = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    let seen = Seen::from(run.wait_with_output().unwrap());
    assert_eq!(seen.code, 130, "{} {}", seen.out, seen.err);
    for part in [
        "the run goes on in the server",
        "stepwell runs cancel run_held --server",
        "stepwell resume run_held --server",
    ] {
        assert!(seen.out.contains(part), "{part} is not in {}", seen.out);
    }
    let follow = started(
        here.path(),
        &["resume", "run_held", "--server", &server.url],
    );
    std::fs::write(server.folder.path().join("go"), "").unwrap();
    let seen = Seen::from(follow.wait_with_output().unwrap());
    assert_eq!(seen.code, 0, "{} {}", seen.out, seen.err);
    assert_eq!(std::fs::read_to_string(witness).unwrap(), "one\ntwo\n");
}

#[test]
fn a_server_that_dies_in_the_middle_is_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let server = TestServer::in_folder(place, &[]);
    let (url, folder_of_server) = (server.url.clone(), server.folder.path().to_owned());
    let here = folder(&[("held.yaml", HELD)]);
    let said = here.path().join("said");
    let run = command(here.path(), &["run", "held.yaml", "--server", &url], &[])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&said).unwrap();
    let follow = {
        let witness = folder_of_server.join("witness");
        wait_for("the step has begun", || witness.exists());
        let (_, page) = asked(server.get("/api/v1/runs"));
        let id = page["runs"][0]["runId"].as_str().unwrap().to_owned();
        started(
            here.path(),
            &["runs", "events", &id, "--follow", "--server", &url],
        )
    };
    let _place = server.kill();
    std::fs::write(folder_of_server.join("go"), "").unwrap();
    wait_for("the command says that it waits", || {
        said().contains("waiting for the server for up to")
    });
    let address = url.trim_start_matches("http://");
    let mut next = command(&folder_of_server, &["serve", "--listen", address], &[])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let seen = Seen::from(run.wait_with_output().unwrap());
    let events = Seen::from(follow.wait_with_output().unwrap());
    next.kill().unwrap();
    next.wait().unwrap();
    assert_eq!(seen.code, 0, "{} {}", seen.out, said());
    assert!(said().contains("the server answers again"), "{}", said());
    assert_eq!(events.code, 0, "{}", events.err);
    let seqs: Vec<u64> = events
        .out
        .lines()
        .map(|line| {
            serde_json::from_str::<Json>(line).unwrap()["runSeq"]
                .as_u64()
                .unwrap()
        })
        .collect();
    let all: Vec<u64> = (1..=seqs.len() as u64).collect();
    assert_eq!(seqs, all, "every event once, in order");
    assert!(events.out.contains("RunCompleted"), "{}", events.out);
}

#[test]
fn a_server_that_is_not_there_is_said_with_a_code() {
    let here = folder(&[("chain.yaml", CHAIN)]);
    // Nobody listens on the port of a socket that is closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("http://127.0.0.1:{port}");
    for args in [
        &["runs", "list"][..],
        &["run", "chain.yaml"],
        &["runs", "pause", "run_1"],
    ] {
        let args: Vec<&str> = args
            .iter()
            .copied()
            .chain(["--server", &url, "--store-patience", "300ms", "-o", "json"])
            .collect();
        let seen = call(here.path(), &args, &[]);
        assert_eq!(seen.code, 1, "{args:?} {}", seen.err);
        assert!(
            seen.err.contains("waiting for the server for up to 300 ms"),
            "{}",
            seen.err
        );
        let last: Json = serde_json::from_str(seen.err.lines().last().unwrap()).unwrap();
        assert_eq!(last["error"]["code"], "SERVER_UNREACHABLE", "{}", seen.err);
    }
}

#[test]
fn what_makes_no_sense_on_a_server_is_a_usage_error() {
    let here = folder(&[("chain.yaml", CHAIN)]);
    let env = [("STEPWELL_SERVER", "http://127.0.0.1:9")];
    for (args, part) in [
        (
            &["run", "chain.yaml", "--engine", "mock"][..],
            "--engine mock is not for a server",
        ),
        (
            &["run", "chain.yaml", "--virtual-time"],
            "--virtual-time is not for a server",
        ),
        (&["run", "chain.yaml", "--idle"], "waits for the triggers"),
        (
            &["run", "chain.yaml", "--sink", "a=webhook:http://x"],
            "stepwell sinks add",
        ),
        (&["run", "chain.yaml", "--max-runs", "1"], "[limits]"),
        (&["artifacts", "prune", "--older-than", "1d"], "[retention]"),
        (&["db", "check"], "works on a store"),
        (
            &["db", "check", "--server", "http://127.0.0.1:9"],
            "works on a store",
        ),
        (
            &[
                "runs",
                "list",
                "--server",
                "http://127.0.0.1:9",
                "--store",
                "x.db",
            ],
            "--store",
        ),
        (
            &["runs", "list", "--profile", "nowhere"],
            "there is no profile \"nowhere\"",
        ),
    ] {
        let seen = call(here.path(), args, &env);
        assert_eq!(seen.code, 2, "{args:?} {} {}", seen.out, seen.err);
        assert!(
            seen.err.contains(part),
            "{args:?}: {part} is not in {}",
            seen.err
        );
    }
    // An option for a store comes before a variable for a server.
    let seen = call(here.path(), &["runs", "list", "--store", "memory:"], &env);
    assert_eq!(seen.code, 0, "{}", seen.err);
}

#[test]
fn tokens_come_from_variables_files_and_profiles_and_are_never_shown() {
    let server = controlled();
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    let viewer = token(&server.folder, &["vera", "--role", "viewer"]);
    let here = folder(&[
        ("chain.yaml", CHAIN),
        ("admin.token", &format!("{admin}\n")),
    ]);
    let url = server.url.as_str();
    let profiles = format!(
        "[profiles.prod]\nserver = '{url}'\ntoken = {{file = '{}'}}\n[profiles.look]\nserver = '{url}'\ntoken = {{env = \
         'LOOK'}}\n",
        here.path().join("admin.token").display()
    );
    std::fs::create_dir_all(here.path().join(".config/stepwell")).unwrap();
    std::fs::write(here.path().join(".config/stepwell/config.toml"), profiles).unwrap();
    let mut all = String::new();
    let mut see = |args: &[&str], env: &[(&str, &str)]| {
        let seen = call(here.path(), args, env);
        all.push_str(&seen.out);
        all.push_str(&seen.err);
        seen
    };
    let none = see(&["runs", "list", "--server", url], &[]);
    assert_eq!(none.code, 1, "{}", none.err);
    assert!(none.err.contains("TOKEN_INVALID"), "{}", none.err);
    let forged = format!("swt_{}_{}", "0".repeat(16), "0".repeat(64));
    let wrong = see(
        &["runs", "list", "--server", url],
        &[("STEPWELL_TOKEN", &forged)],
    );
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("TOKEN_INVALID"), "{}", wrong.err);
    let run = [
        "run",
        "chain.yaml",
        "--request-id",
        "r1",
        "--profile",
        "prod",
        "-o",
        "json",
    ];
    let started = see(&run, &[]);
    assert_eq!(started.code, 3, "{}", started.err);
    let id: Json = serde_json::from_str(&started.out).unwrap();
    let id = id["runId"].as_str().unwrap().to_owned();
    let again = see(&run, &[]);
    assert!(
        again.err.contains("no other run is started"),
        "{}",
        again.err
    );
    let env = [("LOOK", viewer.as_str()), ("STEPWELL_PROFILE", "look")];
    assert_eq!(see(&["runs", "show", &id], &env).code, 0);
    let denied = see(&["runs", "retry", &id], &env);
    assert_eq!(denied.code, 1);
    assert!(denied.err.contains("AUTHZ_DENIED"), "{}", denied.err);
    let file = [
        "runs",
        "list",
        "--server",
        url,
        "--token-file",
        "admin.token",
    ];
    assert_eq!(see(&file, &[]).code, 0);
    let named = see(&[&file[..], &["--as", "bob"]].concat(), &[]);
    assert_eq!(named.code, 2, "{}", named.err);
    let plain = [
        "runs",
        "list",
        "--server",
        "http://stepwell.example",
        "--token-file",
        "admin.token",
    ];
    let exposed = see(&plain, &[]);
    assert_eq!(exposed.code, 1);
    assert!(exposed.err.contains("TOKEN_EXPOSED"), "{}", exposed.err);
    // Tokens of the server, through the server.
    let made = call(
        here.path(),
        &[
            "token",
            "create",
            "tom",
            "--role",
            "viewer",
            "--profile",
            "prod",
        ],
        &[],
    );
    assert!(made.out.starts_with("swt_"), "{} {}", made.out, made.err);
    let tom = made.out.trim().to_owned();
    let tom_id = tom.split('_').nth(1).unwrap();
    assert!(
        see(&["token", "list", "--profile", "prod"], &[])
            .out
            .contains(tom_id)
    );
    let revoked = see(
        &[
            "token",
            "revoke",
            tom_id,
            "--reason",
            "left",
            "--profile",
            "prod",
        ],
        &[],
    );
    assert!(
        revoked.out.contains("the token") && revoked.code == 0,
        "{}",
        revoked.err
    );
    let gone = see(
        &["runs", "list", "--server", url],
        &[("STEPWELL_TOKEN", &tom)],
    );
    assert!(gone.err.contains("TOKEN_INVALID"), "{}", gone.err);
    for secret in [&admin, &viewer, &tom] {
        assert!(!all.contains(secret.as_str()), "a token was shown");
    }
}

#[test]
fn a_certificate_of_a_private_authority_is_trusted_by_option() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres_access");
    let text = format!(
        "[server]\naccess = 'tokens'\n[server.tls]\ncert = '{}'\nkey = '{}'\n",
        from.join("server.pem").display(),
        from.join("server.key").display()
    );
    let server = configured(&text);
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    let here = folder(&[("t", &admin)]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let args = ["runs", "list", "--server", &url, "--token-file", "t"];
    // At once, with the patience that a command has: waiting changes no certificate.
    let began = Instant::now();
    let seen = call(here.path(), &args, &[]);
    assert_eq!(seen.code, 1, "{}", seen.out);
    assert!(seen.err.contains("SERVER_UNTRUSTED"), "{}", seen.err);
    assert!(began.elapsed() < Duration::from_secs(30), "{}", seen.err);
    let ca = from.join("authority.pem");
    let seen = call(
        here.path(),
        &[&args[..], &["--ca", ca.to_str().unwrap()]].concat(),
        &[],
    );
    assert_eq!(seen.code, 0, "{}", seen.err);
    let seen = call(here.path(), &[&args[..], &["--ca", "t"]].concat(), &[]);
    assert!(seen.err.contains("SERVER_ADDRESS_INVALID"), "{}", seen.err);
}
