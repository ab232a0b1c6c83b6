//! The parts of a scenario, as they are read from its file.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value as Json;

use crate::want::{ListWant, TextWant};

/// What a store can do beyond running one process to its end. A scenario names what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ability {
    /// Runs are there for a second process.
    Kept,
    /// Runs can be read through SQL views.
    Sql,
    /// Several processes work on the store at the same time.
    Shared,
    /// The store is a file that one process owns at a time.
    Owned,
    /// The time of a run can be moved (`--virtual-time`).
    Clock,
    /// There is a program that embeds the engine.
    Program,
}

impl Ability {
    pub(crate) const NAMES: [&'static str; 6] =
        ["kept", "sql", "shared", "owned", "clock", "program"];

    pub(crate) fn of(name: &str) -> Option<Ability> {
        Some(match name {
            "kept" => Ability::Kept,
            "sql" => Ability::Sql,
            "shared" => Ability::Shared,
            "owned" => Ability::Owned,
            "clock" => Ability::Clock,
            "program" => Ability::Program,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Ability::Kept => "kept",
            Ability::Sql => "sql",
            Ability::Shared => "shared",
            Ability::Owned => "owned",
            Ability::Clock => "clock",
            Ability::Program => "program",
        }
    }
}

/// What one scenario file says.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The path of the file below its folder: `actions/a24-maker-checker.yaml`.
    pub file: String,
    /// The numbers of the statements that it shows.
    pub statements: Vec<String>,
    /// The name of a promise of the program that is no numbered statement.
    pub promise: Option<String>,
    pub title: String,
    pub(crate) needs: Vec<Ability>,
    /// Engines and stores that need not do this, with the reason.
    pub(crate) exempt: BTreeMap<String, String>,
    /// What is wrong with the program today: everywhere (`*`) or on one column.
    pub(crate) known: BTreeMap<String, String>,
    pub(crate) servers: Vec<(String, Vec<ServerAnswer>)>,
    pub(crate) files: Vec<(String, String)>,
    pub(crate) steps: Vec<ScenarioStep>,
}

impl Scenario {
    /// What is wrong with the program on this column, if that is known.
    pub(crate) fn known_on(&self, column: &str) -> Option<&str> {
        let known = self.known.get(column).or_else(|| self.known.get("*"));
        known.map(String::as_str)
    }
}

/// One thing that happens, or that must be seen.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioStep {
    pub(crate) line: usize,
    /// The first line of the step as it is written, for messages.
    pub(crate) text: String,
    pub(crate) verb: Verb,
}

#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Call {
        command: CommandLine,
        limit: Duration,
        within: Option<Duration>,
        want: EndWant,
    },
    Start {
        name: String,
        command: CommandLine,
    },
    Signal {
        process: String,
        signal: Blow,
    },
    Finish {
        process: String,
        limit: Duration,
        want: EndWant,
    },
    Output {
        process: String,
        within: Duration,
        out: Vec<TextWant>,
        err: Vec<TextWant>,
    },
    Events {
        run: String,
        is_extended: bool,
        list: ListStep,
    },
    Write {
        path: String,
        text: String,
        is_appended: bool,
    },
    File {
        path: String,
        is_absent: bool,
        list: ListStep,
    },
    Requests {
        server: String,
        list: ListStep,
    },
    Answer {
        server: String,
        answers: Vec<ServerAnswer>,
    },
    Sql {
        sql: String,
        list: ListStep,
    },
    ChangeSql {
        sql: String,
        /// A part of the database's refusal, which must come.
        refused: Option<String>,
    },
    /// Appends events to the log of a run behind the program's back.
    Plant {
        run: String,
        events: Vec<Json>,
    },
    /// Keeps the program from writing its database for a time.
    Hold {
        time: Duration,
        /// The times of its beginning, its middle and its end are kept under this name.
        name: Option<String>,
    },
    Sleep(Duration),
    Equal(Vec<String>),
    Differ(Vec<String>),
}

/// What is done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    Kill,
    Freeze,
    Thaw,
    Terminate,
    Interrupt,
}

/// A command of the binary, before variables are filled in.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    pub(crate) words: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) stdin: String,
    /// The command is for the program that embeds the engine.
    pub(crate) is_program: bool,
}

/// What must be seen of a command that has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndWant {
    /// The exit codes that will do; none asked: 0, or 1 with `refused`.
    pub(crate) exit: Vec<i64>,
    /// The code of the refusal on standard error.
    pub(crate) refused: Option<String>,
    pub(crate) out: Vec<TextWant>,
    pub(crate) err: Vec<TextWant>,
    /// JSON pointers into standard output, and what must be there.
    pub(crate) json: Vec<(String, Json)>,
    pub(crate) lines: ListWant,
    pub(crate) capture: Vec<Capture>,
}

/// What must be seen of a list: events, lines of a file, requests, rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListStep {
    pub(crate) within: Option<Duration>,
    pub(crate) want: ListWant,
    pub(crate) capture: Vec<Capture>,
}

/// A value that is kept under a name.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    pub(crate) name: String,
    /// The first item of the list that matches; absent: the whole value.
    pub(crate) of: Option<Json>,
    pub(crate) pointer: String,
}

/// What a witness answers.
#[derive(Clone, Debug)]
pub(crate) struct ServerAnswer {
    pub(crate) method: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Json,
    pub(crate) delay: Duration,
    /// Closes the connection without an answer.
    pub(crate) is_dropped: bool,
    /// How often this answer is given; absent: always.
    pub(crate) times: Option<u64>,
}
