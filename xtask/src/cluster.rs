//! A private PostgreSQL: a cluster of its own in a temporary directory, on a free loopback port,
//! gone when its owner is. Only the standard library, because the fault tests of the stores include
//! this file to have a server that they can stop.

use std::fs;
use std::io::{Error, Read as _, Result};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The oldest PostgreSQL that the store works with.
const OLDEST: u32 = 15;

/// Where distributions keep the programs that they do not put into PATH.
const SHELVES: &[&str] = &[
    "/usr/lib/postgresql",
    "/usr/local/pgsql",
    "/opt/homebrew/opt",
];

/// A running PostgreSQL server with its own data directory.
#[derive(Debug)]
pub(crate) struct Cluster {
    bin: PathBuf,
    home: PathBuf,
    user: Option<String>,
    port: u16,
    /// Stops the server and removes its files when our end of its pipe closes, however we end.
    janitor: Child,
}

impl Cluster {
    /// Makes and starts one, or says why not.
    pub(crate) fn start(settings: &[&str]) -> Result<Cluster> {
        let bin = programs()?;
        let user = unprivileged()?;
        let home = fresh_directory()?;
        if let Some(user) = &user {
            let (uid, gid) = (id(user, "-u")?, id(user, "-g")?);
            chown(&home, Some(uid), Some(gid))?;
        }
        let janitor = janitor(&bin, &home, user.as_deref())?;
        let mut cluster = Cluster {
            bin,
            home,
            user,
            port: 0,
            janitor,
        };
        cluster.run(
            "initdb",
            &[
                "-U",
                "postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ],
        )?;
        // Another process may take the port before the server does.
        let mut attempts = 0;
        loop {
            attempts += 1;
            cluster.port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            cluster.write_settings(settings)?;
            match cluster.resume() {
                Ok(()) => return Ok(cluster),
                Err(error) if attempts == 3 => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// The address of the server for the superuser.
    pub(crate) fn url(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops the server at once, as a crash would.
    #[allow(dead_code, reason = "the fault tests stop servers, xtask does not")]
    pub(crate) fn halt(&self) -> Result<()> {
        self.run("pg_ctl", &["stop", "-s", "-w", "-m", "immediate"])
    }

    /// Stops the server as an administrator does: connections are ended with a word.
    #[allow(dead_code, reason = "the fault tests stop servers, xtask does not")]
    pub(crate) fn stop_fast(&self) -> Result<()> {
        self.run("pg_ctl", &["stop", "-s", "-w", "-m", "fast"])
    }

    /// The port of the server on the loopback address.
    #[allow(dead_code, reason = "the fault tests put a proxy before servers")]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A program of PostgreSQL, as the user of the server: `psql`.
    #[allow(dead_code, reason = "the fault tests ask the server themselves")]
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = as_user(self.user.as_deref(), &self.bin.join(name));
        command.current_dir(&self.home);
        command
    }

    /// Kills the server's first process, and lets the others find out by themselves.
    #[allow(dead_code, reason = "the fault tests kill servers, xtask does not")]
    pub(crate) fn kill(&self) -> Result<()> {
        let file = fs::read_to_string(self.home.join("data/postmaster.pid"))?;
        let pid = file.lines().next().unwrap_or_default();
        let killed = Command::new("kill").args(["-KILL", pid]).status()?;
        match killed.success() {
            true => Ok(()),
            false => Err(Error::other(format!("there is no process {pid}"))),
        }
    }

    /// Starts the server again.
    pub(crate) fn resume(&self) -> Result<()> {
        let log = self.home.join("server.log").display().to_string();
        self.run("pg_ctl", &["start", "-s", "-w", "-t", "60", "-l", &log])
    }

    fn write_settings(&self, settings: &[&str]) -> Result<()> {
        let mut text = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n\
             max_connections = 100\n",
            self.port,
            self.home.display()
        );
        for setting in settings {
            text.push_str(setting);
            text.push('\n');
        }
        fs::write(self.home.join("data/postgresql.auto.conf"), text)
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        let mut command = as_user(self.user.as_deref(), &self.bin.join(program));
        command.args(args).arg("-D").arg(self.home.join("data"));
        // The server must not hold our terminal, nor our pipes.
        let output = command
            .current_dir(&self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(fs::File::create(self.home.join("stderr"))?))
            .status()?;
        if output.success() {
            return Ok(());
        }
        let mut said = fs::read_to_string(self.home.join("stderr")).unwrap_or_default();
        if let Ok(mut log) = fs::File::open(self.home.join("server.log")) {
            log.read_to_string(&mut said)?;
        }
        Err(Error::other(format!(
            "{program} ended with {output}:\n{said}"
        )))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        // It says on stderr what it could not do; there is nobody else to tell.
        let _ = self.janitor.wait();
    }
}

/// A shell that waits until our end of its pipe closes, which happens also when we are killed.
fn janitor(bin: &Path, home: &Path, user: Option<&str>) -> Result<Child> {
    let stop = as_user(user, &bin.join("pg_ctl"));
    let mut words: Vec<String> = vec![stop.get_program().to_string_lossy().into_owned()];
    words.extend(
        stop.get_args()
            .map(|arg| arg.to_string_lossy().into_owned()),
    );
    Command::new("sh")
        .arg("-c")
        .arg(
            "trap '' INT TERM HUP; home=$1; shift; cat >/dev/null; cd /; \
             if [ -f \"$home/data/postmaster.pid\" ]; then \
             \"$@\" stop -s -w -m immediate -D \"$home/data\"; fi; rm -rf \"$home\"",
        )
        .arg("janitor")
        .arg(home)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
}

/// The directory of the newest programs that are new enough.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::env::var_os("PATH")
        .iter()
        .flat_map(|path| std::env::split_paths(path).collect::<Vec<_>>())
        .chain(SHELVES.iter().flat_map(|shelf| {
            fs::read_dir(shelf)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path().join("bin"))
        }))
        .filter_map(|bin| {
            // `initdb` may be a link into the directory that has the others.
            let initdb = fs::canonicalize(bin.join("initdb")).ok()?;
            let bin = initdb.parent()?.to_path_buf();
            (bin.join("pg_ctl").is_file()).then_some(())?;
            Some((major(&bin)?, bin))
        })
        .collect();
    found.sort();
    match found.pop() {
        Some((version, bin)) if version >= OLDEST => Ok(bin),
        Some((version, bin)) => Err(Error::other(format!(
            "PostgreSQL {version} in {} is too old: {OLDEST} or newer is needed",
            bin.display()
        ))),
        None => Err(Error::new(
            std::io::ErrorKind::NotFound,
            "no PostgreSQL server is installed (no initdb in PATH or /usr/lib/postgresql)",
        )),
    }
}

/// The major version that `postgres --version` says.
fn major(bin: &Path) -> Option<u32> {
    let output = Command::new(bin.join("postgres"))
        .arg("--version")
        .output()
        .ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let number = said
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Whom the server runs as: PostgreSQL refuses root. `None` is ourselves.
fn unprivileged() -> Result<Option<String>> {
    if !is_root() {
        return Ok(None);
    }
    for user in ["postgres", "nobody"] {
        if id(user, "-u").is_ok() {
            return Ok(Some(user.to_owned()));
        }
    }
    Err(Error::other(
        "PostgreSQL refuses root, and there is no user `postgres` or `nobody`",
    ))
}

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    let said = Command::new("id").arg("-u").output();
    said.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn id(user: &str, which: &str) -> Result<u32> {
    let output = Command::new("id").args([which, user]).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.trim()
        .parse()
        .map_err(|_| Error::other(format!("there is no user `{user}`")))
}

fn as_user(user: Option<&str>, program: &Path) -> Command {
    let Some(user) = user else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", user, "--regid"])
        .arg(id(user, "-g").map_or_else(|_| "65534".to_owned(), |gid| gid.to_string()))
        .arg("--clear-groups")
        .arg(program);
    command
}

/// A directory that nobody else has. Not below a home, which another user could not enter.
fn fresh_directory() -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stepwell-pg-{}-{count}", std::process::id());
        let home = std::env::temp_dir().join(name);
        match fs::create_dir(&home) {
            Ok(()) => return Ok(home),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}
