//! Reads a scenario file. Everything that is wrong with it is reported, with line, column and what to write instead.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value as Json;
use stepwell_dialects::duration::DurationRule;
use stepwell_dialects::{Field, Fields, Node, Problems, Source, Span, Value, problem, tree};

use crate::scenario::{
    Ability, Blow, Capture, CommandLine, EndWant, ListStep, Scenario, ScenarioStep, ServerAnswer,
    Verb,
};
use crate::want::{CONDITIONS, ListWant};
use crate::words;

/// How long a command may take if its step does not say.
const LIMIT: Duration = Duration::from_secs(60);

/// How long the output of a process is waited for if the step does not say.
const OUTPUT_LIMIT: Duration = Duration::from_secs(20);

const WRONG_VALUE: &str = "FIELD_VALUE";

const VERBS: [&str; 22] = [
    "call",
    "start",
    "program",
    "kill",
    "freeze",
    "thaw",
    "terminate",
    "interrupt",
    "finish",
    "output",
    "events",
    "write",
    "file",
    "requests",
    "answer",
    "sql",
    "sql_write",
    "plant",
    "hold",
    "sleep",
    "equal",
    "differ",
];

/// Reads a scenario; the error is the text of all problems.
pub(crate) fn scenario(
    file: &str,
    bytes: &[u8],
    is_statement: impl Fn(&str) -> bool,
) -> Result<Scenario, String> {
    let source = Source::from_bytes(file, bytes).map_err(|problem| {
        let none = Source::unreadable(file);
        problem::render(&none, &[problem], false)
    })?;
    let node =
        tree::parse(&source).map_err(|problems| problem::render(&source, &problems, false))?;
    let mut p = Problems::new();
    let reader = Reader { source: &source };
    let read = reader.scenario(file, &node, &is_statement, &mut p);
    let problems = p.into_vec();
    match read {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ => Err(problem::render(&source, &problems, false)),
    }
}

struct Reader<'s> {
    source: &'s Source,
}

impl Reader<'_> {
    fn scenario(
        &self,
        file: &str,
        node: &Node,
        is_statement: &impl Fn(&str) -> bool,
        p: &mut Problems,
    ) -> Option<Scenario> {
        let mut f = Fields::open(node, "a scenario", p)?;
        let title = f.req("title", p).and_then(|it| it.text(p));
        let mut statements = Vec::new();
        for field in list(f.opt("statements", p), p) {
            let Some(number) = field.string(p) else {
                continue;
            };
            if is_statement(number) {
                statements.push(number.to_owned());
            } else {
                p.error(
                    WRONG_VALUE,
                    field.span(),
                    format!("there is no statement {number}"),
                )
                .help("docs/conformance.md lists the statements: A1 to L21");
            }
        }
        let promise = f.opt("promise", p).and_then(|it| it.text(p));
        if statements.is_empty() && promise.is_none() {
            p.error(
                "FIELD_MISSING",
                f.span(),
                "a scenario shows a statement or a promise",
            )
            .help("add `statements: [A24]`, or `promise: name-of-the-promise`");
        }
        let needs = self.needs(f.opt("needs", p), p);
        let exempt = texts(f.opt("exempt", p), p);
        let known = match f.opt("known", p) {
            Some(field) if field.json().is_object() => texts(Some(field), p),
            Some(field) => {
                let text = field.text(p).unwrap_or_default().to_owned();
                BTreeMap::from([("*".to_owned(), text)])
            }
            None => BTreeMap::new(),
        };
        let mut servers = Vec::new();
        for entry in f
            .opt("servers", p)
            .and_then(|it| it.map(p))
            .unwrap_or_default()
        {
            let answers = self.server(&entry.node, p);
            servers.push((entry.key.clone(), answers));
        }
        let mut files = Vec::new();
        for entry in f
            .opt("files", p)
            .and_then(|it| it.map(p))
            .unwrap_or_default()
        {
            let text = match &entry.node.value {
                Value::Str(text) => text.clone(),
                // JSON is YAML too, so a definition can be written as a mapping.
                _ => format!("{:#}\n", entry.node.to_json()),
            };
            files.push((entry.key.clone(), text));
        }
        let mut steps = Vec::new();
        for field in list(f.req("steps", p), p) {
            steps.extend(self.step(&field, p));
        }
        f.finish(p);
        Some(Scenario {
            file: file.to_owned(),
            statements,
            promise: promise.map(str::to_owned),
            title: title?.to_owned(),
            needs,
            exempt,
            known,
            servers,
            files,
            steps,
        })
    }

    fn needs(&self, field: Option<Field<'_>>, p: &mut Problems) -> Vec<Ability> {
        let mut needs = Vec::new();
        for field in list(field, p) {
            needs.extend(field.one_of(&Ability::NAMES, p).and_then(Ability::of));
        }
        needs
    }

    fn server(&self, node: &Node, p: &mut Problems) -> Vec<ServerAnswer> {
        if node.is_null() {
            return Vec::new();
        }
        let Some(mut f) = Fields::open(node, "a server", p) else {
            return Vec::new();
        };
        let answers = self.answers(f.opt("answers", p), p);
        f.finish(p);
        answers
    }

    fn answers(&self, field: Option<Field<'_>>, p: &mut Problems) -> Vec<ServerAnswer> {
        let mut answers = Vec::new();
        for field in list(field, p) {
            let Some(mut f) = field.fields(p) else {
                continue;
            };
            let status = f.opt("status", p).and_then(|it| it.int(100..=599, p));
            let times = f.opt("times", p).and_then(|it| it.int(1..=1_000_000, p));
            let answer = ServerAnswer {
                method: f
                    .opt("method", p)
                    .and_then(|it| it.string(p))
                    .map(str::to_owned),
                path: f
                    .opt("path", p)
                    .and_then(|it| it.string(p))
                    .map(str::to_owned),
                status: status.and_then(|it| u16::try_from(it).ok()).unwrap_or(200),
                headers: texts(f.opt("headers", p), p).into_iter().collect(),
                body: f.opt("body", p).map_or(Json::Null, |it| it.json()),
                delay: duration(f.opt("delay", p), p).unwrap_or_default(),
                is_dropped: f.opt("drop", p).and_then(|it| it.bool(p)).unwrap_or(false),
                times: times.and_then(|it| u64::try_from(it).ok()),
            };
            f.finish(p);
            answers.push(answer);
        }
        answers
    }

    fn step(&self, field: &Field<'_>, p: &mut Problems) -> Option<ScenarioStep> {
        let mut f = field.fields(p)?;
        let span = f.span();
        let mut given: Vec<&'static str> = VERBS.into_iter().filter(|verb| f.has(verb)).collect();
        if given.contains(&"plant") {
            // There `events` is what is planted.
            given.retain(|verb| *verb != "events");
        }
        let verb = match given[..] {
            [verb] => verb,
            _ => {
                let what = match given.is_empty() {
                    true => "a step says what happens, or what must be seen".to_owned(),
                    false => format!("a step is one thing; this one has {}", given.join(" and ")),
                };
                p.error("FIELD_MISSING", span, what)
                    .help(format!("write one of {}", VERBS.join(", ")));
                return None;
            }
        };
        let verb = self.verb(verb, &mut f, p);
        f.opt("note", p).and_then(|it| it.text(p));
        f.finish(p);
        let (line, _) = self.source.line_col(span.start);
        let text = self.source.slice(self.source.line_span(span.start)).trim();
        Some(ScenarioStep {
            line,
            text: text.trim_start_matches("- ").to_owned(),
            verb: verb?,
        })
    }

    fn verb(&self, verb: &'static str, f: &mut Fields<'_>, p: &mut Problems) -> Option<Verb> {
        let blow = |signal: Blow, f: &mut Fields<'_>, p: &mut Problems| {
            let process = f.req(verb, p).and_then(|it| it.string(p))?.to_owned();
            Some(Verb::Signal { process, signal })
        };
        match verb {
            "call" => Some(Verb::Call {
                command: self.command("call", f, p)?,
                limit: duration(f.opt("limit", p), p).unwrap_or(LIMIT),
                within: duration(f.opt("within", p), p),
                want: self.end(f, p),
            }),
            "start" => Some(Verb::Start {
                command: self.command("start", f, p)?,
                name: f.req("as", p).and_then(|it| it.string(p))?.to_owned(),
            }),
            "program" => {
                let mut command = self.command("program", f, p)?;
                command.is_program = true;
                let name = f.req("as", p).and_then(|it| it.string(p))?.to_owned();
                Some(Verb::Start { name, command })
            }
            "kill" => blow(Blow::Kill, f, p),
            "freeze" => blow(Blow::Freeze, f, p),
            "thaw" => blow(Blow::Thaw, f, p),
            "terminate" => blow(Blow::Terminate, f, p),
            "interrupt" => blow(Blow::Interrupt, f, p),
            "finish" => Some(Verb::Finish {
                process: f.req("finish", p).and_then(|it| it.string(p))?.to_owned(),
                limit: duration(f.opt("limit", p), p).unwrap_or(LIMIT),
                want: self.end(f, p),
            }),
            "output" => Some(Verb::Output {
                process: f.req("output", p).and_then(|it| it.string(p))?.to_owned(),
                within: duration(f.opt("within", p), p).unwrap_or(OUTPUT_LIMIT),
                out: self.wants(f.opt("out", p), p),
                err: self.wants(f.opt("err", p), p),
            }),
            "events" => Some(Verb::Events {
                run: f.req("events", p).and_then(|it| it.string(p))?.to_owned(),
                is_extended: f.opt("ext", p).and_then(|it| it.bool(p)).unwrap_or(false),
                list: self.list_step(f, p),
            }),
            "write" => Some(Verb::Write {
                path: f.req("write", p).and_then(|it| it.string(p))?.to_owned(),
                is_appended: f
                    .opt("append", p)
                    .and_then(|it| it.bool(p))
                    .unwrap_or(false),
                text: f.req("text", p).and_then(|it| it.text(p))?.to_owned(),
            }),
            "file" => Some(Verb::File {
                path: f.req("file", p).and_then(|it| it.string(p))?.to_owned(),
                is_absent: f
                    .opt("absent", p)
                    .and_then(|it| it.bool(p))
                    .unwrap_or(false),
                list: self.list_step(f, p),
            }),
            "requests" => Some(Verb::Requests {
                server: f.req("requests", p).and_then(|it| it.string(p))?.to_owned(),
                list: self.list_step(f, p),
            }),
            "answer" => Some(Verb::Answer {
                server: f.req("answer", p).and_then(|it| it.string(p))?.to_owned(),
                answers: self.answers(f.req("answers", p), p),
            }),
            "sql" => Some(Verb::Sql {
                sql: f.req("sql", p).and_then(|it| it.text(p))?.to_owned(),
                list: self.list_step(f, p),
            }),
            "sql_write" => Some(Verb::ChangeSql {
                sql: f.req("sql_write", p).and_then(|it| it.text(p))?.to_owned(),
                refused: f
                    .opt("refused", p)
                    .and_then(|it| it.string(p))
                    .map(str::to_owned),
            }),
            "plant" => Some(Verb::Plant {
                run: f.req("plant", p).and_then(|it| it.string(p))?.to_owned(),
                events: list(f.req("events", p), p)
                    .iter()
                    .map(|it| it.json())
                    .collect(),
            }),
            "hold" => Some(Verb::Hold {
                time: duration(f.req("hold", p), p)?,
                name: f
                    .opt("as", p)
                    .and_then(|it| it.string(p))
                    .map(str::to_owned),
            }),
            "sleep" => duration(f.req("sleep", p), p).map(Verb::Sleep),
            "equal" => Some(Verb::Equal(pair(f.req("equal", p), p)?)),
            "differ" => Some(Verb::Differ(pair(f.req("differ", p), p)?)),
            other => unreachable!("{other} is in the list of verbs and is read above"),
        }
    }

    fn command(
        &self,
        verb: &'static str,
        f: &mut Fields<'_>,
        p: &mut Problems,
    ) -> Option<CommandLine> {
        let field = f.req(verb, p)?;
        let words = match field.json() {
            Json::Array(_) => field.strings(p)?.into_iter().map(str::to_owned).collect(),
            _ => match words::split(field.text(p)?) {
                Ok(words) => words,
                Err(why) => {
                    p.error(WRONG_VALUE, field.span(), why)
                        .help("close the quote, or write the words as a list");
                    return None;
                }
            },
        };
        for option in ["--store", "--engine"] {
            let with_value = format!("{option}=");
            if words
                .iter()
                .any(|it| it == option || it.starts_with(&with_value))
            {
                p.error(
                    WRONG_VALUE,
                    field.span(),
                    format!("the runner adds {option}, so that a scenario runs everywhere"),
                )
                .help("leave it out; `needs` and `exempt` say where the scenario does not run");
            }
        }
        let env = texts(f.opt("env", p), p).into_iter().collect();
        let stdin = f
            .opt("stdin", p)
            .and_then(|it| it.text(p))
            .unwrap_or_default();
        Some(CommandLine {
            words,
            env,
            stdin: stdin.to_owned(),
            is_program: false,
        })
    }

    fn end(&self, f: &mut Fields<'_>, p: &mut Problems) -> EndWant {
        let exits = f
            .opt("exit", p)
            .map(|it| it.list_or_one())
            .unwrap_or_default();
        let exit = exits.iter().filter_map(|it| it.int(0..=255, p)).collect();
        let mut json = Vec::new();
        for entry in f
            .opt("json", p)
            .and_then(|it| it.map(p))
            .unwrap_or_default()
        {
            if !entry.key.is_empty() && !entry.key.starts_with('/') {
                p.error(
                    WRONG_VALUE,
                    entry.key_span,
                    format!("{} is no JSON pointer", entry.key),
                )
                .help(format!("write `/{}`", entry.key.replace('.', "/")));
            }
            let want = entry.node.to_json();
            check_conditions(&want, entry.node.span, p);
            json.push((entry.key.clone(), want));
        }
        let lines = match f.opt("lines", p).and_then(|it| it.fields(p)) {
            Some(mut f) => {
                let want = self.list_want(&mut f, p);
                f.finish(p);
                want
            }
            None => ListWant::default(),
        };
        EndWant {
            exit,
            refused: f
                .opt("refused", p)
                .and_then(|it| it.string(p))
                .map(str::to_owned),
            out: self.wants(f.opt("out", p), p),
            err: self.wants(f.opt("err", p), p),
            json,
            lines,
            capture: captures(f.opt("capture", p), p),
        }
    }

    fn list_step(&self, f: &mut Fields<'_>, p: &mut Problems) -> ListStep {
        ListStep {
            within: duration(f.opt("within", p), p),
            want: self.list_want(f, p),
            capture: captures(f.opt("capture", p), p),
        }
    }

    fn list_want(&self, f: &mut Fields<'_>, p: &mut Problems) -> ListWant {
        let mut some = |name: &'static str, f: &mut Fields<'_>| {
            let field = f.opt(name, p)?;
            let items = field.list(p)?;
            let wants: Vec<Json> = items.iter().map(|it| it.json()).collect();
            for (item, want) in items.iter().zip(&wants) {
                check_conditions(want, item.span(), p);
            }
            Some(wants)
        };
        let are = some("are", f);
        let set = some("set", f);
        let in_order = some("in_order", f);
        let include = some("include", f);
        let none = some("none", f).unwrap_or_default();
        let mut count = Vec::new();
        if let Some(field) = f.opt("count", p) {
            for field in field.list_or_one() {
                match field.json() {
                    // A condition, or a number of items of any kind.
                    Json::Object(fields) if fields.contains_key("is") => {
                        let Some(mut f) = field.fields(p) else {
                            continue;
                        };
                        let is = f.req("is", p).map_or(Json::Null, |it| it.json());
                        let of = f.opt("of", p);
                        let of =
                            of.map_or_else(|| serde_json::json!({"$any": true}), |it| it.json());
                        f.finish(p);
                        count.push((of, is));
                    }
                    is => count.push((serde_json::json!({"$any": true}), is)),
                }
            }
        }
        ListWant {
            are,
            set,
            in_order,
            include,
            none,
            count,
        }
    }

    fn wants(&self, field: Option<Field<'_>>, p: &mut Problems) -> Vec<Json> {
        let fields = field.map(|it| it.list_or_one()).unwrap_or_default();
        let mut wants = Vec::new();
        for field in fields {
            let want = field.json();
            if !(want.is_string() || want.is_object()) {
                p.error(WRONG_VALUE, field.span(), "a part of a text is text")
                    .help("put it in quotes");
            }
            check_conditions(&want, field.span(), p);
            wants.push(want);
        }
        wants
    }
}

/// Reports conditions that do not exist.
fn check_conditions(want: &Json, span: Span, p: &mut Problems) {
    match want {
        Json::Object(fields) => {
            let conditions: Vec<&String> = fields.keys().filter(|it| it.starts_with('$')).collect();
            for key in &conditions {
                if !CONDITIONS.contains(&key.as_str()) {
                    p.error(WRONG_VALUE, span, format!("{key} is no condition"))
                        .help(format!("write one of {}", CONDITIONS.join(", ")));
                }
            }
            if !conditions.is_empty() && fields.len() > 1 {
                p.error(WRONG_VALUE, span, "a condition stands alone in its mapping")
                    .help("write one condition for one value");
            }
            for value in fields.values() {
                check_conditions(value, span, p);
            }
        }
        Json::Array(items) => {
            for item in items {
                check_conditions(item, span, p);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

fn list<'n>(field: Option<Field<'n>>, p: &mut Problems) -> Vec<Field<'n>> {
    field.and_then(|it| it.list(p)).unwrap_or_default()
}

/// A mapping from names to texts.
fn texts(field: Option<Field<'_>>, p: &mut Problems) -> BTreeMap<String, String> {
    let entries = field.and_then(|it| it.map(p)).unwrap_or_default();
    let mut texts = BTreeMap::new();
    for entry in entries {
        if let Some(text) = Field::of(entry).scalar_text(p) {
            texts.insert(entry.key.clone(), text);
        }
    }
    texts
}

fn duration(field: Option<Field<'_>>, p: &mut Problems) -> Option<Duration> {
    field?
        .duration(DurationRule::TEXT, p)
        .map(Duration::from_millis)
}

fn pair(field: Option<Field<'_>>, p: &mut Problems) -> Option<Vec<String>> {
    let field = field?;
    let texts: Vec<String> = field.strings(p)?.into_iter().map(str::to_owned).collect();
    if texts.len() < 2 {
        p.error(WRONG_VALUE, field.span(), "two values are compared")
            .help("write `[<<one>>, <<two>>]`");
        return None;
    }
    Some(texts)
}

fn captures(field: Option<Field<'_>>, p: &mut Problems) -> Vec<Capture> {
    let mut captures = Vec::new();
    for entry in field.and_then(|it| it.map(p)).unwrap_or_default() {
        let field = Field::of(entry);
        let (of, pointer) = match &entry.node.value {
            Value::Map(_) => {
                let Some(mut f) = field.fields(p) else {
                    continue;
                };
                let of = f.req("of", p).map(|it| it.json());
                let at = f
                    .opt("at", p)
                    .and_then(|it| it.string(p))
                    .unwrap_or_default();
                f.finish(p);
                (of, at.to_owned())
            }
            _ => match field.text(p) {
                Some(pointer) => (None, pointer.to_owned()),
                None => continue,
            },
        };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            p.error(
                WRONG_VALUE,
                field.span(),
                format!("{pointer} is no JSON pointer"),
            )
            .help(format!("write `/{}`", pointer.replace('.', "/")));
        }
        captures.push(Capture {
            name: entry.key.clone(),
            of,
            pointer,
        });
    }
    captures
}
