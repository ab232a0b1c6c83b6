//! A server that is really started, on a store of its own, and asked over HTTP.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::stores::store_of;

/// How long a server may take to start, and a run to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that ends with its value.
pub(crate) struct TestServer {
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) child: Child,
    /// What the server has written to its log.
    pub(crate) log: Arc<Mutex<String>>,
}

impl TestServer {
    /// On a SQLite store in a folder of its own.
    pub(crate) fn start() -> TestServer {
        TestServer::with(&[])
    }

    /// On a schema of its own of the PostgreSQL server that the tests have, if they have one.
    pub(crate) fn on_postgres(args: &[&str]) -> Option<TestServer> {
        let store = TestServer::postgres_store()?;
        let args: Vec<&str> = args.iter().copied().chain(["--store", &store]).collect();
        Some(TestServer::with(&args))
    }

    /// A schema of its own of the PostgreSQL server that the tests have, if they have one.
    pub(crate) fn postgres_store() -> Option<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var("STEPWELL_TEST_POSTGRES").ok()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = now.as_millis() % 1_000_000_000;
        let sign = if url.contains('?') { '&' } else { '?' };
        Some(format!(
            "{url}{sign}schema=server_{now}_{}_{count}",
            std::process::id()
        ))
    }

    /// With more arguments.
    pub(crate) fn with(args: &[&str]) -> TestServer {
        TestServer::in_folder(tempfile::tempdir().unwrap(), args)
    }

    /// On the store of a folder that may be there already.
    pub(crate) fn in_folder(folder: TempDir, args: &[&str]) -> TestServer {
        TestServer::with_env(folder, args, &[])
    }

    /// With variables of its environment.
    pub(crate) fn with_env(folder: TempDir, args: &[&str], env: &[(&str, &str)]) -> TestServer {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .current_dir(folder.path())
            .env_remove("STEPWELL_STORE")
            .env_remove("STEPWELL_CONFIG")
            .env("STEPWELL_SECRET_OF_TESTS", "of-tests")
            .envs(store_of(folder.path()).map(|store| ("STEPWELL_STORE", store)))
            .envs(env.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let (tell, told) = mpsc::channel();
        let log = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&log);
        // Read to the end, so that the server never waits for its log to be read.
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                eprintln!("server: {line}");
                written.lock().unwrap().push_str(&format!("{line}\n"));
                if let Some(at) = line.find("serving on ") {
                    let _ = tell.send(line[at + "serving on ".len()..].trim().to_owned());
                }
            }
        });
        let url = told.recv_timeout(PATIENCE).expect("the server starts");
        TestServer {
            folder,
            url,
            client: Client::builder().timeout(PATIENCE).build().unwrap(),
            child,
            log,
        }
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.url))
    }

    pub(crate) fn post(&self, path: &str, body: &Json) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.url)).json(body)
    }

    /// Starts a run of a definition, and returns its id.
    pub(crate) fn start_run(&self, text: &str, params: &Json) -> String {
        let body = serde_json::json!({ "definition": { "text": text }, "params": params });
        let (status, answer) = asked(self.post("/api/v1/runs", &body));
        assert_eq!(status, 201, "{answer}");
        answer["runId"].as_str().unwrap().to_owned()
    }

    /// The run once it is as wanted.
    pub(crate) fn wait_for(&self, run: &str, wanted: impl Fn(&Json) -> bool) -> Json {
        let until = Instant::now() + PATIENCE;
        loop {
            let (_, seen) = asked(self.get(&format!("/api/v1/runs/{run}")));
            if wanted(&seen) {
                return seen;
            }
            assert!(Instant::now() < until, "{seen:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server as a crash would.
    pub(crate) fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.folder, folder)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status and the body of an answer.
pub(crate) fn asked(request: RequestBuilder) -> (u16, Json) {
    let response = request.send().unwrap();
    let status = response.status().as_u16();
    let text = response.text().unwrap();
    let json = serde_json::from_str(&text).unwrap_or(Json::String(text));
    (status, json)
}

/// An event of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) event: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Json,
}

/// The events of a stream, until the server or the reader ends it.
pub(crate) fn stream(request: RequestBuilder) -> impl Iterator<Item = Told> {
    let response = request.send().unwrap();
    assert_eq!(response.status(), 200);
    let mut lines = BufReader::new(response).lines();
    std::iter::from_fn(move || {
        let mut told = Told::default();
        for line in lines.by_ref().map_while(Result::ok) {
            match line.split_once(": ") {
                Some(("event", name)) => told.event = name.to_owned(),
                Some(("id", id)) => told.id = Some(id.to_owned()),
                Some(("data", data)) => told.data = serde_json::from_str(data).unwrap(),
                // An empty line ends an event; comments keep the connection open.
                _ if line.is_empty() && !told.event.is_empty() => return Some(told),
                _ => {}
            }
        }
        None
    })
}

/// A schema of its own on the PostgreSQL that `cargo xtask test` starts.
pub(crate) fn postgres(name: &str) -> String {
    let url = std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL"
        )
    });
    let sign = if url.contains('?') { '&' } else { '?' };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = now.as_millis() % 1_000_000_000;
    format!(
        "{url}{sign}schema=server_{name}_{now}_{}",
        std::process::id()
    )
}

/// Asks again until the answer is as wanted.
pub(crate) fn until<T: std::fmt::Debug>(ask: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = ask();
        if wanted(&seen) {
            return seen;
        }
        assert!(Instant::now() < until, "{seen:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A chain of steps that take so many seconds each.
pub(crate) fn chain(steps: usize, seconds: &str) -> String {
    let mut text =
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: chain, path: chain}\nworkflow:\n".to_owned();
    for step in 0..steps {
        let name = if step == 0 {
            "start".to_owned()
        } else {
            format!("s{step}")
        };
        let next = if step + 1 < steps {
            format!(", next: [{{step: s{}}}]", step + 1)
        } else {
            String::new()
        };
        text.push_str(&format!(
            "- {{step: {name}, tool: {{kind: sleep, seconds: {seconds}}}{next}}}\n"
        ));
    }
    text
}
