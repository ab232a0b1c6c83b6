//! What one scenario has on one column: a folder, a store, processes, witnesses and captured values.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;
use stepwell_kernel::time::Time;

use crate::kit::{Column, StoreKind};
use crate::plant::{self, Templates};
use crate::process::Process;
use crate::scenario::{Ability, Blow, CommandLine, Scenario, Verb};
use crate::sql;
use crate::witness::Witness;
use crate::words::{self, Variables};

/// The user that every command sees.
const USER: &str = "kit";

/// What steps call the server that the commands go to.
const SERVER: &str = "server";

/// How long a server may take to start.
const SERVER_START: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct World {
    binary: PathBuf,
    /// The program that embeds the engine, if there is one.
    program: Option<PathBuf>,
    engine: String,
    store: Place,
    pub(crate) folder: PathBuf,
    pub(crate) is_kept: bool,
    pub(crate) variables: Variables,
    pub(crate) processes: BTreeMap<String, Process>,
    pub(crate) witnesses: BTreeMap<String, Witness>,
    has_server: bool,
    server_env: Vec<(String, String)>,
    /// The server that the commands go to, and its address.
    server: Option<(Process, String)>,
    /// Threads that keep the program from writing its database.
    holds: Vec<JoinHandle<()>>,
    started: u32,
}

/// Where the runs of a scenario are.
#[derive(Debug)]
pub(crate) enum Place {
    Memory,
    File(PathBuf),
    Schema {
        url: String,
        schema: String,
    },
    /// A store that the kit does not know: it is named in full.
    Other(String),
}

impl World {
    pub(crate) fn new(
        scenario: &Scenario,
        column: &Column,
        (binary, program): (&Path, Option<&Path>),
        folder: PathBuf,
    ) -> Result<World, String> {
        // The notes of the kit are beside the folder that the scenario sees.
        let broken = |error: std::io::Error| format!("cannot prepare the folder: {error}");
        fs::create_dir_all(folder.join("work")).map_err(broken)?;
        fs::create_dir_all(folder.join("notes")).map_err(broken)?;
        fs::create_dir_all(folder.join("home")).map_err(broken)?;
        let needs_clock = scenario.needs.contains(&Ability::Clock);
        let store = match &column.store {
            _ if needs_clock => Place::Memory,
            StoreKind::Memory => Place::Memory,
            StoreKind::Sqlite => Place::File(folder.join("work/.stepwell/stepwell.db")),
            StoreKind::Postgres(url) => Place::Schema {
                url: url.clone(),
                schema: schema_name(&folder),
            },
            StoreKind::Other(url) => Place::Other(url.clone()),
        };
        let mut world = World {
            binary: binary.to_owned(),
            program: program.map(Path::to_owned),
            engine: column.engine.clone(),
            store,
            folder,
            is_kept: false,
            variables: Variables::new(),
            processes: BTreeMap::new(),
            witnesses: BTreeMap::new(),
            has_server: column.has_server,
            server_env: Vec::new(),
            server: None,
            holds: Vec::new(),
            started: 0,
        };
        let work = world.work().display().to_string();
        world.set("dir", work);
        world.set("store", world.address());
        world.set("engine", column.engine.clone());
        world.set("user", USER.to_owned());
        world.set("stepwell", binary.display().to_string());
        for (name, answers) in &scenario.servers {
            let witness = Witness::start(answers.clone())
                .map_err(|error| format!("cannot start the server {name}: {error}"))?;
            world.set(&format!("{name}.url"), witness.url.clone());
            let host = witness.url.trim_start_matches("http://").to_owned();
            world.set(&format!("{name}.host"), host);
            world.witnesses.insert(name.clone(), witness);
        }
        for (path, text) in &scenario.files {
            let text = words::fill(text, &world.variables)?;
            world.write(path, &text, false)?;
        }
        if column.has_server {
            world.server_env = world.env_of_steps(scenario);
            world.serve()?;
        }
        Ok(world)
    }

    /// The variables that the commands of a scenario have and that its steps see: those of the server, which has the
    /// engine. What is captured only later is not there.
    fn env_of_steps(&self, scenario: &Scenario) -> Vec<(String, String)> {
        let lines = scenario.steps.iter().filter_map(|step| match &step.verb {
            Verb::Call { command, .. } | Verb::Start { command, .. } => Some(command),
            _ => None,
        });
        let seen =
            |name: &str| !name.starts_with("STEPWELL_") || name.starts_with("STEPWELL_SECRET");
        let all = lines.flat_map(|line| &line.env);
        let all = all.filter(|(name, _)| seen(name));
        all.filter_map(|(name, value)| {
            let value = words::fill(value, &self.variables).ok()?;
            Some((name.clone(), value))
        })
        .collect()
    }

    /// Starts the server that the commands go to, in the folder of the scenario.
    fn serve(&mut self) -> Result<(), String> {
        let mut command = self.command(&self.binary);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        // Scenarios ask servers and write files on this machine, which definitions on a server may not.
        command.env("STEPWELL_CONFINE", "false");
        command.envs(self.server_env.iter().cloned());
        let notes = self.folder.join("notes");
        self.started += 1;
        let name = format!("{:03}-server", self.started);
        let mut server = Process::start(command, "", &notes, &name)?;
        let begin = Instant::now();
        loop {
            let said = server.err();
            let mut lines = said.lines().filter_map(|it| it.split_once("serving on "));
            if let Some((_, url)) = lines.next().filter(|_| said.ends_with('\n')) {
                let url = url.trim().to_owned();
                self.server = Some((server, url));
                return Ok(());
            }
            if server.exit().is_some() || begin.elapsed() > SERVER_START {
                return Err(format!("the server does not start: {}", said.trim_end()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A command in the folder of the scenario, as the user of the kit, on the store of this column.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.work());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STEPWELL_") {
                command.env_remove(name);
            }
        }
        command
            .env("STEPWELL_STORE", self.address())
            .env("USER", USER)
            .env("LOGNAME", USER)
            .env("HOME", self.folder.join("home"))
            .env_remove("XDG_CONFIG_HOME")
            .env("NO_COLOR", "1");
        command
    }

    fn set(&mut self, name: &str, value: String) {
        self.variables.insert(name.to_owned(), Json::from(value));
    }

    /// The folder in which commands run.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    fn address(&self) -> String {
        match &self.store {
            Place::Memory => "memory:".to_owned(),
            Place::File(path) => format!("sqlite:{}", path.display()),
            Place::Schema { url, schema } => {
                let sign = if url.contains('?') { '&' } else { '?' };
                format!("{url}{sign}schema={schema}")
            }
            Place::Other(url) => url.clone(),
        }
    }

    pub(crate) fn write(&self, path: &str, text: &str, is_appended: bool) -> Result<(), String> {
        let path = self.work().join(path);
        let write = || -> std::io::Result<()> {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            let mut bytes = match is_appended {
                true if path.exists() => fs::read(&path)?,
                _ => Vec::new(),
            };
            bytes.extend(text.as_bytes());
            fs::write(&path, bytes)
        };
        write().map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// The lines of a file; nothing if the file is not there.
    pub(crate) fn lines(&self, path: &str) -> Option<Vec<Json>> {
        let bytes = fs::read(self.work().join(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.lines().map(Json::from).collect())
    }

    /// Sends a signal to a process. Where a server has the engine, the crash of a process that works on a run is that of
    /// the server; the next command finds a new one.
    pub(crate) fn strike(&mut self, name: &str, blow: Blow) -> Result<(), String> {
        if name == SERVER {
            return self.strike_server(blow);
        }
        let unknown = || format!("there is no process {name:?}");
        let process = self.processes.get_mut(name).ok_or_else(unknown)?;
        process.strike(blow)?;
        if blow == Blow::Kill && process.is_work {
            self.server = None;
        }
        Ok(())
    }

    /// The server that the commands go to; nothing where there is none.
    fn strike_server(&mut self, blow: Blow) -> Result<(), String> {
        if let Some((server, _)) = &mut self.server {
            server.strike(blow)?;
        }
        if blow == Blow::Kill {
            self.server = None;
        }
        Ok(())
    }

    /// Starts a command of the binary, or the program that embeds the engine, on the store and the engine of this column.
    pub(crate) fn start(&mut self, line: &CommandLine) -> Result<Process, String> {
        let fill = |text: &String| words::fill(text, &self.variables);
        let mut words: Vec<String> = line.words.iter().map(fill).collect::<Result<_, _>>()?;
        let program = match (line.is_program, &self.program) {
            (false, _) => &self.binary,
            (true, Some(program)) => program,
            (true, None) => return Err("there is no program; add `needs: [program]`".to_owned()),
        };
        let is_work = matches!(words.first().map(String::as_str), Some("run" | "resume"));
        if is_work && !line.is_program {
            words.insert(1, format!("--engine={}", self.engine));
        }
        let program = program.clone();
        let mut command = self.command(&program);
        command.args(&words);
        if self.has_server && self.server.is_none() {
            self.serve()?;
        }
        if let Some((_, url)) = &self.server {
            command.env("STEPWELL_SERVER", url);
        }
        for (name, value) in &line.env {
            command.env(name, words::fill(value, &self.variables)?);
        }
        let stdin = words::fill(&line.stdin, &self.variables)?;
        self.started += 1;
        let name = format!("{:03}", self.started);
        let mut process = Process::start(command, &stdin, &self.folder.join("notes"), &name)?;
        process.is_work = is_work;
        Ok(process)
    }

    pub(crate) fn rows(&self, sql: &str) -> Result<Vec<Json>, String> {
        match &self.store {
            Place::File(path) => sql::sqlite_rows(path, sql),
            Place::Schema { url, schema } => sql::postgres_rows(url, schema, sql),
            Place::Memory | Place::Other(_) => Err(no_sql()),
        }
    }

    /// Appends events to the run with this log.
    pub(crate) fn plant(&self, log: &[Json], events: &[Json]) -> Result<(), String> {
        let templates = Templates::read(&self.rows(&Templates::sql(&self.store)?)?);
        self.change(&plant::statement(&self.store, &templates, log, events)?)
    }

    /// Keeps the program from writing its database for a time, which begins before this returns. The times of its
    /// beginning, middle and end become variables.
    pub(crate) fn hold(&mut self, time: Duration, name: Option<&str>) -> Result<(), String> {
        let (tell, told) = mpsc::channel();
        let held = {
            let tell = tell.clone();
            move || drop(tell.send(Ok(())))
        };
        let done = move |done: Result<(), String>| drop(tell.send(done));
        let thread = match &self.store {
            Place::File(path) => {
                let path = path.clone();
                thread::spawn(move || done(sql::sqlite_hold(&path, time, held)))
            }
            Place::Schema { url, schema } => {
                let (url, schema) = (url.clone(), schema.clone());
                thread::spawn(move || done(sql::postgres_hold(&url, &schema, time, held)))
            }
            Place::Memory | Place::Other(_) => return Err(no_sql()),
        };
        self.holds.push(thread);
        told.recv()
            .map_err(|_| "the thread that holds the database has ended".to_owned())?
            .map_err(|why| format!("the database cannot be held: {why}"))?;
        if let Some(name) = name {
            let begin = SystemTime::now().duration_since(UNIX_EPOCH);
            let begin = begin.map_err(|error| error.to_string())?;
            let at = |after: Duration| {
                let millis = i64::try_from((begin + after).as_millis()).unwrap_or(i64::MAX);
                Time(millis).to_rfc3339()
            };
            self.set(&format!("{name}.from"), at(Duration::ZERO));
            self.set(&format!("{name}.middle"), at(time / 2));
            self.set(&format!("{name}.until"), at(time));
        }
        Ok(())
    }

    pub(crate) fn change(&self, sql: &str) -> Result<(), String> {
        match &self.store {
            Place::File(path) => sql::sqlite_change(path, sql),
            Place::Schema { url, schema } => sql::postgres_change(url, schema, sql),
            Place::Memory | Place::Other(_) => Err(no_sql()),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Processes first: they use the rest.
        self.processes.clear();
        self.server = None;
        self.witnesses.clear();
        for hold in self.holds.drain(..) {
            let _ = hold.join();
        }
        if self.is_kept {
            return;
        }
        if let Place::Schema { url, schema } = &self.store {
            // A schema that is left behind disturbs no other scenario.
            let _ = sql::drop_schema(url, schema);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn no_sql() -> String {
    "this store has no SQL; add `needs: [sql]` to the scenario".to_owned()
}

/// A name that no other scenario has: that of its folder, which is unique.
fn schema_name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    name.chars().take(60).collect::<String>().to_lowercase()
}
