//! A store that only one test has, and processes that run on it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value as Json;

use super::{Call, root};

/// A store that only one test has.
pub(crate) struct TestStore {
    pub(crate) url: String,
    folder: PathBuf,
}

impl TestStore {
    /// A SQLite database that is not there yet.
    pub(crate) fn sqlite(name: &str) -> TestStore {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("stores")
            .join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        TestStore {
            url: format!("sqlite:{}", folder.join("runs.db").display()),
            folder,
        }
    }

    /// A schema of the server that `cargo xtask test` starts. Tests never skip.
    pub(crate) fn postgres(name: &str) -> TestStore {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
            panic!(
                "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, or `cargo xtask postgres \
                 -- cargo test -p stepwell`, which start a PostgreSQL; or set it to the address of \
                 one, like postgresql://user@host:5432/database"
            )
        });
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap().as_millis() % 1_000_000_000;
        let sign = if url.contains('?') { '&' } else { '?' };
        let schema = format!("cli_{now}_{}_{count}", std::process::id());
        TestStore {
            url: format!("{url}{sign}schema={schema}"),
            ..TestStore::sqlite(&format!("postgres-{name}"))
        }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.join("runs.db")
    }

    /// A file beside the store.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The text of a file beside the store.
    pub(crate) fn file_text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stepwell"));
        command
            .args(args)
            .current_dir(root())
            .env("STEPWELL_STORE", &self.url)
            .env("USER", "ada")
            .env("STEPWELL_SINK_SECRET", "between us")
            .env_remove("STEPWELL_LOG")
            .env_remove("STEPWELL_AS")
            .env_remove("STEPWELL_ROLE")
            .env_remove("STEPWELL_TENANT")
            // A test of patience asks for it.
            .env("STEPWELL_STORE_PATIENCE", "0")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }

    /// Calls the binary and waits for its end.
    pub(crate) fn call(&self, args: &[&str]) -> Call {
        Call::of(self.command(args).output().unwrap())
    }

    /// Calls the binary with variables.
    pub(crate) fn call_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Call {
        let mut command = self.command(args);
        command.envs(variables.iter().copied());
        Call::of(command.output().unwrap())
    }

    /// Calls it and expects that it went well.
    pub(crate) fn good(&self, args: &[&str]) -> String {
        self.call(args).good(args)
    }

    /// Starts it and leaves it running.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        let mut child = self.command(args).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Process {
            child,
            out,
            text: String::new(),
        }
    }

    /// Starts it and leaves it running; what it writes to stderr is in the file `stderr` of the folder.
    pub(crate) fn start_heard(&self, args: &[&str]) -> Process {
        let err = std::fs::File::create(self.folder.join("stderr")).unwrap();
        let mut command = self.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(err).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Process {
            child,
            out,
            text: String::new(),
        }
    }

    /// What the process of `start_heard` wrote to stderr.
    pub(crate) fn heard(&self) -> String {
        std::fs::read_to_string(self.folder.join("stderr")).unwrap()
    }

    /// The run as the contract's snapshot.
    pub(crate) fn show(&self, run: &str) -> Json {
        let text = self.good(&["runs", "show", run, "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// The completion tokens of a run, by step.
    pub(crate) fn show_tokens(&self, run: &str) -> Json {
        let text = self.good(&["runs", "show", run, "-o", "json", "--tokens"]);
        let shown: Json = serde_json::from_str(&text).unwrap();
        shown["ext"]["tokens"].clone()
    }

    /// The events of a run, as `runs events --ext` prints them.
    pub(crate) fn events(&self, run: &str) -> Vec<Json> {
        let text = self.good(&["runs", "events", run, "--ext"]);
        let lines = text.lines();
        lines.map(|it| serde_json::from_str(it).unwrap()).collect()
    }

    /// How many events of a type a step has.
    pub(crate) fn count(&self, run: &str, event: &str, step: &str) -> usize {
        let events = self.events(run).into_iter();
        let is = |it: &Json| it["eventType"] == event && it["stepId"] == step;
        events.filter(is).count()
    }
}

/// A process that runs.
pub(crate) struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) text: String,
}

impl Process {
    /// Reads until a line has said this.
    pub(crate) fn until(&mut self, what: &str) {
        while !self.text.contains(what) {
            let read = self.out.read_line(&mut self.text).unwrap();
            assert!(read > 0, "it ended before it said {what:?}: {}", self.text);
        }
    }

    /// Kills the process like `kill -9`: it cannot clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Interrupts the process like Ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.send("INT");
    }

    /// Sends it a signal of the system.
    pub(crate) fn send(&self, signal: &str) {
        let id = self.child.id().to_string();
        let signal = format!("-{signal}");
        let sent = Command::new("kill").args([&signal, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Reads to its end.
    pub(crate) fn end(mut self) -> (i32, String) {
        self.out.read_to_string(&mut self.text).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (code, self.text)
    }
}
