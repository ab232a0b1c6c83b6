//! A Conductor server of a task: the server's own jar with SQLite files, on a free port; killed, and started again.

use super::server::{Ended, Started, free_port};
use anyhow::{Context, Result, bail};
use serde_json::{Value as Json, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The version of the server.
const SERVER: &str = "3.32.3";
/// The oldest Java that the server runs on.
const JAVA: u32 = 21;
/// How long the server may take to start.
const START: Duration = Duration::from_secs(240);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(20);

/// A server that ends with its value.
#[derive(Debug)]
pub(super) struct ConductorServer {
    java: PathBuf,
    jar: PathBuf,
    folder: PathBuf,
    pub(super) port: u16,
    started: Started,
}

/// The programs of the server; an error says what is missing and how it is had.
pub(super) fn programs() -> Result<(PathBuf, PathBuf)> {
    let named = std::env::var_os("STEPWELL_CONDUCTOR_JAR").map(PathBuf::from);
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let name = format!("{SERVER}/conductor-server-{SERVER}-boot.jar");
    let kept = home
        .join(".m2/repository/org/conductoross/conductor-server")
        .join(name);
    let jar = named.unwrap_or(kept);
    if !jar.is_file() {
        bail!(
            "the jar of the server is missing; have it with `mvn dependency:get \
             -Dartifact=org.conductoross:conductor-server:{SERVER}:jar:boot -Dtransitive=false` (458 MB), or name it in \
             STEPWELL_CONDUCTOR_JAR"
        );
    }
    Ok((java()?, jar))
}

/// The newest Java of the machine.
fn java() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(std::env::var_os("JAVA_HOME").map(|it| PathBuf::from(it).join("bin")));
    if let Ok(all) = fs::read_dir("/usr/lib/jvm") {
        places.extend(all.flatten().map(|it| it.path().join("bin")));
    }
    let programs = places
        .into_iter()
        .map(|it| it.join("java"))
        .filter(|it| it.is_file());
    let newest = programs.filter_map(|it| Some((version(&it)?, it))).max();
    match newest.filter(|it| it.0 >= JAVA) {
        Some((_, program)) => Ok(program),
        None => bail!("the server needs Java {JAVA} or newer, in PATH, JAVA_HOME or /usr/lib/jvm"),
    }
}

fn version(java: &Path) -> Option<u32> {
    let output = Command::new(java).arg("-version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let number = said.split('"').nth(1)?.split('.').next()?.to_owned();
    number.parse().ok()
}

impl ConductorServer {
    pub(super) fn start((java, jar): (PathBuf, PathBuf), folder: &Path) -> Result<ConductorServer> {
        fs::create_dir_all(folder)?;
        let server = ConductorServer {
            java,
            jar,
            folder: folder.to_owned(),
            port: free_port()?,
            started: Started::default(),
        };
        server.again()?;
        Ok(server)
    }

    /// What `--engine` names it.
    pub(super) fn engine(&self) -> String {
        format!("conductor+http://127.0.0.1:{}/api", self.port)
    }

    pub(super) fn kill(&self) -> Result<()> {
        self.started.kill()
    }

    /// Starts the server again, with the same database and port.
    pub(super) fn again(&self) -> Result<()> {
        let database = self.folder.join("conductor.db");
        let url = format!(
            "--spring.datasource.url=jdbc:sqlite:{}?busy_timeout=15000&journal_mode=WAL",
            database.display()
        );
        let mut command = Command::new(&self.java);
        command
            .args([
                "-Xmx768m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-jar",
            ])
            .arg(&self.jar)
            .args([
                "--server.address=127.0.0.1",
                &format!("--server.port={}", self.port),
                &url,
            ])
            .args([
                "--conductor.grpc-server.enabled=false",
                "--conductor.integrations.ai.enabled=false",
            ])
            .arg("--conductor.app.workflowOffsetTimeout=1s")
            // The server would use the keys of AI providers that it finds.
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.folder)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        self.started.spawn(command, &self.folder.join("log"))?;
        let is_healthy = || {
            let said = self.ask("GET", "/health", None).ok();
            said.is_some_and(|it| it["healthy"] == true)
        };
        self.started
            .wait("Conductor", &self.folder.join("log"), START, is_healthy)
    }

    /// How the workflow of a run stands, by its correlation id.
    pub(super) fn status(&self, id: &str) -> Result<Ended> {
        let path = "/api/workflow/stepwell_run/correlated?includeClosed=true&includeTasks=true";
        let found = self.ask("POST", path, Some(&json!([id])))?;
        let all = found[id].as_array().cloned().unwrap_or_default();
        let first = all
            .first()
            .with_context(|| format!("the server has no workflow {id}: {found}"))?;
        Ok(Ended {
            status: first["status"].as_str().unwrap_or_default().to_owned(),
            tasks: first["tasks"].as_array().map_or(0, Vec::len),
            drivers: all.len(),
        })
    }

    /// A request. HTTP/1.0, so that the answer ends with the connection.
    fn ask(&self, method: &str, path: &str, body: Option<&Json>) -> Result<Json> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(ANSWER))?;
        let body = body.map(ToString::to_string).unwrap_or_default();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .context("the answer has no body")?;
        if !head.lines().next().is_some_and(|it| it.contains(" 200")) {
            bail!("{method} {path}: {answer}");
        }
        Ok(serde_json::from_str(body)?)
    }
}
