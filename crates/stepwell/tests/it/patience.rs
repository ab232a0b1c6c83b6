//! A store that does not answer is waited for: the command says so, goes on when the store is back, repeats no work
//! that was recorded, and gives up only when its patience is over. Real servers, a real proxy, the real binary.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::proxy::Proxy;
use super::test_store::TestStore;
use super::{call::Call, root};

/// How long a test waits for a line before it fails. Only a test that fails takes so long.
const LONG: Duration = Duration::from_secs(120);
const STEPS: usize = 6;

/// A chain of steps that leave a mark each.
fn chain(store: &TestStore) -> String {
    let marks = store.file("marks", "");
    let mut text =
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: chain\nworkflow:\n".to_owned();
    for step in 1..=STEPS {
        text.push_str(&format!(
            "  - step: s{step}\n    tool:\n      kind: shell\n      cmds: ['echo s{step} >> {marks}; sleep 0.3']\n"
        ));
        if step < STEPS {
            text.push_str(&format!("    next:\n      - step: s{}\n", step + 1));
        }
    }
    store.file("chain.yaml", &text)
}

/// A process whose lines are read as they come.
struct Watched {
    child: Child,
    lines: Receiver<String>,
    text: String,
}

fn start(url: &str, args: &[&str]) -> Watched {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(args)
        .current_dir(root())
        .env("STEPWELL_STORE", url)
        .env_remove("STEPWELL_LOG")
        .env_remove("STEPWELL_STORE_PATIENCE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (said, lines) = mpsc::channel();
    let readers: [Box<dyn std::io::Read + Send>; 2] = [
        Box::new(child.stdout.take().unwrap()),
        Box::new(child.stderr.take().unwrap()),
    ];
    for reader in readers {
        let said = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
    }
    Watched {
        child,
        lines,
        text: String::new(),
    }
}

impl Watched {
    /// Reads until a line says this.
    fn until(&mut self, what: &str) {
        let until = Instant::now() + LONG;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                let _ = self.child.kill();
                panic!("it never said {what:?}: {}", self.text);
            };
            self.text.push_str(&line);
            self.text.push('\n');
            if line.contains(what) {
                return;
            }
        }
    }

    fn end(mut self) -> (i32, String) {
        let until = Instant::now() + LONG;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.text.push_str(&line);
                    self.text.push('\n');
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    panic!("it does not end: {}", self.text);
                }
            }
        }
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (code, self.text)
    }
}

/// A server of its own, and a run on it.
struct Site {
    cluster: Cluster,
    store: TestStore,
    file: String,
}

impl Site {
    fn new(name: &str, settings: &[&str]) -> Site {
        let cluster = Cluster::start(settings).unwrap();
        let mut store = TestStore::sqlite(&format!("patience-{name}"));
        store.url = cluster.url();
        let file = chain(&store);
        Site {
            cluster,
            store,
            file,
        }
    }

    /// Starts the run, and waits until its second step runs.
    fn run(&self, more: &[&str]) -> Watched {
        let args = [&["run", &self.file, "--run-id", "run_a"][..], more].concat();
        let mut process = start(&self.store.url, &args);
        process.until("s2     running");
        process
    }

    fn sql(&self, sql: &str) -> String {
        let mut psql = self.cluster.program("psql");
        let output = psql.args(["-qAt", &self.cluster.url(), "-c", sql]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn terminate(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'stepwell'",
        );
    }

    /// A server that was stopped at once is free again only when all its processes have noticed.
    fn resume(&self) {
        let until = Instant::now() + LONG;
        while let Err(error) = self.cluster.resume() {
            assert!(Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The run has ended well; every step was completed once, and was begun exactly as often as the log says, which
    /// is once unless the session of the process ended meanwhile.
    fn ended_well(&self, (code, text): (i32, String)) {
        assert_eq!(code, 0, "{text}");
        let mut begun: BTreeMap<String, usize> = BTreeMap::new();
        let mut done: BTreeMap<String, usize> = BTreeMap::new();
        for event in self.store.events("run_a") {
            let step = || event["stepId"].as_str().unwrap().to_owned();
            match event["eventType"].as_str().unwrap() {
                "StepStarted" | "StepExecutionStarted" => *begun.entry(step()).or_default() += 1,
                "StepCompleted" => *done.entry(step()).or_default() += 1,
                "StepExecutionFailed" => {
                    let error = event.to_string();
                    assert!(error.contains("LEASE_EXPIRED"), "{error}");
                }
                _ => {}
            }
        }
        assert_eq!(done.len(), STEPS, "{done:?}");
        assert!(done.values().all(|times| *times == 1), "{done:?}");
        let marks = self.store.file_text("marks");
        let mut marked: BTreeMap<String, usize> = BTreeMap::new();
        for line in marks.lines() {
            *marked.entry(line.to_owned()).or_default() += 1;
        }
        assert_eq!(marked, begun, "{text}");
    }
}

const WAITS: &str = "waiting for the store for up to 1 min (--store-patience)";
const BACK: &str = "the store answers again after";

#[test]
fn a_server_that_is_stopped_and_started_is_waited_for() {
    let site = Site::new("restart", &[]);
    let mut process = site.run(&[]);
    site.cluster.stop_fast().unwrap();
    process.until(WAITS);
    site.resume();
    process.until(BACK);
    // Once more, and the connections are told nothing.
    site.cluster.halt().unwrap();
    process.until(WAITS);
    site.resume();
    let end = process.end();
    let said = |what: &str| end.1.matches(what).count();
    assert_eq!((said(WAITS), said(BACK)), (2, 2), "{}", end.1);
    // The engine's own view of every try is not for people.
    assert!(
        !end.1.contains("WARN stepwell_engine::service"),
        "{}",
        end.1
    );
    site.ended_well(end);
}

#[test]
fn connections_that_are_ended_are_replaced_and_nothing_is_said() {
    let site = Site::new("terminate", &[]);
    let mut process = site.run(&[]);
    for step in 3..=5 {
        site.terminate();
        process.until(&format!("s{step}     running"));
    }
    let end = process.end();
    assert!(!end.1.contains("WARN"), "{}", end.1);
    site.ended_well(end);
}

/// Ends the connections over which a session is closed: the first `times` of them.
fn end_connections_that_close(site: &Site, times: u32) {
    site.sql(&format!(
        "CREATE SEQUENCE stepwell.closings; \
         CREATE FUNCTION stepwell.end_connection() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF NEW.dead AND nextval('stepwell.closings') <= {times} THEN \
             PERFORM pg_terminate_backend(pg_backend_pid()); \
           END IF; \
           RETURN NEW; END $$; \
         CREATE TRIGGER closing BEFORE UPDATE ON stepwell.sessions \
           FOR EACH ROW EXECUTE FUNCTION stepwell.end_connection()"
    ));
}

#[test]
fn a_run_that_ended_is_no_failure_because_its_session_cannot_be_closed() {
    const UNCLOSED: &str = "could not be closed and ends by itself";
    for (times, told) in [(1, false), (1_000, true)] {
        let site = Site::new(&format!("closing-{times}"), &[]);
        let process = site.run(&[]);
        end_connections_that_close(&site, times);
        let end = process.end();
        assert_eq!(end.1.contains(UNCLOSED), told, "{}", end.1);
        site.ended_well(end);
        // It was tried at all.
        assert_ne!(site.sql("SELECT is_called FROM stepwell.closings"), "f\n");
    }
}

#[test]
fn a_server_that_is_not_there_yet_is_waited_for_by_every_command() {
    let site = Site::new("late", &[]);
    site.store.good(&["db", "migrate"]);
    site.cluster.stop_fast().unwrap();
    let run = ["run", &site.file, "--run-id", "run_a"];
    let mut processes = [
        start(&site.store.url, &run),
        start(&site.store.url, &["runs", "list"]),
        start(&site.store.url, &["db", "check"]),
    ];
    for process in &mut processes {
        process.until(WAITS);
    }
    site.resume();
    let [run, list, check] = processes;
    assert_eq!(list.end().0, 0);
    assert_eq!(check.end().0, 0);
    site.ended_well(run.end());
}

#[test]
fn patience_ends_with_what_to_do_and_the_run_is_resumed() {
    let site = Site::new("ends", &[]);
    let process = site.run(&["--store-patience", "1s"]);
    site.cluster.halt().unwrap();
    let (code, text) = process.end();
    assert_eq!(code, 1, "{text}");
    for part in [
        "STORE_UNAVAILABLE",
        "waiting for the store for up to 1 s",
        "continue with `stepwell resume run_a",
        "stepwell explain STORE_UNAVAILABLE",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    site.resume();
    site.ended_well(start(&site.store.url, &["resume", "run_a"]).end());
}

#[test]
fn an_interrupt_ends_the_wait_at_once_and_the_run_is_resumed() {
    let site = Site::new("interrupt", &[]);
    let mut process = site.run(&["--store-patience", "forever"]);
    site.cluster.halt().unwrap();
    process.until("waiting for the store without a limit");
    let id = process.child.id().to_string();
    Command::new("kill").args(["-INT", &id]).status().unwrap();
    let (code, text) = process.end();
    assert_eq!(code, 130, "{text}");
    assert!(
        text.contains("continue with: stepwell resume run_a"),
        "{text}"
    );
    site.resume();
    site.ended_well(start(&site.store.url, &["resume", "run_a"]).end());
}

#[test]
fn a_server_with_too_many_connections_is_waited_for() {
    let site = Site::new(
        "crowded",
        &["max_connections = 12", "superuser_reserved_connections = 0"],
    );
    site.store.good(&["db", "migrate"]);
    // Clients that are connected and say nothing.
    let enter = |_| {
        let mut psql = site.cluster.program("psql");
        psql.arg(site.cluster.url()).stdin(Stdio::piped());
        psql.stdout(Stdio::null()).stderr(Stdio::null());
        psql.spawn().unwrap()
    };
    let mut crowd: Vec<Child> = (0..12).map(enter).collect();
    let until = Instant::now() + LONG;
    // The crowd takes a moment to come in, and the command that looks takes a place that a client wanted.
    while site.store.call(&["runs", "list"]).code == 0 {
        assert!(Instant::now() < until);
        for client in &mut crowd {
            if client.try_wait().unwrap().is_some() {
                *client = enter(0);
            }
        }
    }
    let mut process = start(&site.store.url, &["run", &site.file, "--run-id", "run_a"]);
    process.until(WAITS);
    let why = "too many clients";
    assert!(process.text.contains(why), "{}", process.text);
    for mut psql in crowd {
        psql.kill().unwrap();
        psql.wait().unwrap();
    }
    site.ended_well(process.end());
}

#[test]
fn a_server_that_only_reads_for_a_while_is_waited_for() {
    let site = Site::new("reads", &[]);
    let mut process = site.run(&[]);
    site.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    site.terminate();
    process.until(WAITS);
    assert!(process.text.contains("STORE_READ_ONLY"), "{}", process.text);
    site.sql("SET transaction_read_only = off; ALTER DATABASE postgres SET default_transaction_read_only = off");
    site.terminate();
    process.until(BACK);
    site.ended_well(process.end());
}

#[test]
fn a_network_that_swallows_everything_is_noticed_and_waited_for() {
    let mut site = Site::new("silence", &[]);
    let proxy = Proxy::start(site.cluster.port()).unwrap();
    let port = proxy.port();
    site.store.url = format!("postgresql://postgres@127.0.0.1:{port}/postgres?connect_timeout=2");
    let mut process = site.run(&[]);
    proxy.silence(true);
    // Statements have a deadline; new connections have one too.
    process.until(WAITS);
    proxy.silence(false);
    process.until(BACK);
    site.ended_well(process.end());
}

#[test]
fn a_network_that_is_cut_is_waited_for() {
    let mut site = Site::new("cut", &[]);
    let proxy = Proxy::start(site.cluster.port()).unwrap();
    let port = proxy.port();
    site.store.url = format!("postgresql://postgres@127.0.0.1:{port}/postgres");
    let mut process = site.run(&[]);
    proxy.refuse(true);
    proxy.cut_all();
    process.until(WAITS);
    proxy.refuse(false);
    process.until(BACK);
    site.ended_well(process.end());
}

#[test]
fn a_file_that_another_process_owns_is_waited_for_and_its_owner_is_named() {
    let store = TestStore::sqlite("patience-held");
    let file = chain(&store);
    let mut owner = start(&store.url, &["run", &file]);
    owner.until("s1     running");
    let mut second = start(&store.url, &["run", &file, "--run-id", "run_b"]);
    second.until(WAITS);
    let held = format!("belongs to process {}", owner.child.id());
    assert!(second.text.contains(&held), "{}", second.text);
    assert_eq!(owner.end().0, 0);
    let (code, text) = second.end();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(BACK), "{text}");
}

#[test]
fn no_patience_is_no_wait() {
    let store = TestStore::sqlite("patience-none");
    let away = "postgresql://nobody@127.0.0.1:1/nothing";
    let refused = |args: &[&str]| -> Call {
        let call = store.call(&[args, &["--store", away]].concat());
        assert!(!call.err.contains("waiting"), "{}", call.err);
        call
    };
    assert_eq!(refused(&["runs", "list", "--store-patience", "0"]).code, 1);
    let wrong = refused(&["runs", "list", "--store-patience", "soon"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains("30s"), "{}", wrong.err);
}
