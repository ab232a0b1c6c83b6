//! Where values from outside (the input of a run, events, results of steps) reach a place in which they mean
//! something: a command line, SQL, a path, a host. Read from the templates alone; nothing is evaluated.
//!
//! A value is guarded by a filter that all of it goes through (`quote`, `filename`, `one_of`, a number), by
//! `safe`, with which the author vouches for it, or by a way of the tool that keeps data apart (`env`,
//! `params`, `args`, `root`). Secrets on command lines are found in the same places.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde_json::{Map, Value as Json};
use stepwell_kernel::expr::{OutputTag, has_template, output_tags};
use stepwell_kernel::plan::{Plan, Work};

use super::execution_fields::{fixed_in_library, fixed_names};
use super::kinds::{self, FieldReach, ToolKind};
use super::server_reach;

/// Filters whose result is a number.
const NUMBERS: [&str; 5] = ["int", "float", "length", "count", "round"];

/// Environment variables that name files which programs load or execute.
const PROGRAM_VARIABLES: [&str; 16] = [
    "BASH_ENV",
    "EDITOR",
    "ENV",
    "GIT_SSH_COMMAND",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PAGER",
    "PATH",
    "PERL5LIB",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
];

/// Names that no input, event or result can change.
const OWN_NAMES: [&str; 12] = [
    "_attempt",
    "_index",
    "_task",
    "execution_id",
    "iter.index",
    "job.execution_id",
    "job.uuid",
    "keychain",
    "loop.index",
    "loop.index0",
    "loop_index",
    "run_id",
];

/// What a value can change where it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// A command line: the value may be another command.
    Command,
    /// SQL text: the value may be another statement.
    Sql,
    /// A path: the value may name any file.
    Path,
    /// A host: the value may name any server.
    Host,
}

impl Reach {
    /// The place in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Reach::Command => "a command line",
            Reach::Sql => "SQL",
            Reach::Path => "a path",
            Reach::Host => "the host of an address",
        }
    }

    /// What the author writes so that the value stays data.
    #[must_use]
    pub fn safe_form(self) -> &'static str {
        match self {
            Reach::Command => {
                "in commands pass it in `env` and write \"$NAME\", or write {{ … | quote }} outside of quotes"
            }
            Reach::Sql => "in SQL write a placeholder and pass it in `params`",
            Reach::Path => "in paths write {{ … | filename }} or {{ … | one_of(['a', 'b']) }}",
            Reach::Host => {
                "in addresses write the host out, or {{ … | one_of(['https://a.example']) }}, or {{ … | safe }} if \
                 you trust where it comes from"
            }
        }
    }

    fn is_guard(self, filter: &str) -> bool {
        // With `safe` the author vouches for the value.
        if ["one_of", "safe"].contains(&filter) || NUMBERS.contains(&filter) {
            return true;
        }
        match self {
            Reach::Command => filter == "quote",
            Reach::Path => filter == "filename",
            Reach::Sql | Reach::Host => false,
        }
    }
}

/// One place that a value reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The step or the workbook entry; empty if only a task was looked at.
    pub step: String,
    pub task: String,
    /// The field of the task, such as `cmds` or `url`.
    pub field: String,
    /// The template as it is written, with its braces; or the reference to a secret.
    pub written: String,
    /// The line of the field that has it, without the blanks around it.
    pub line: String,
    pub kind: FindingKind,
}

/// What is wrong in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// A value from outside has no guard.
    Unguarded(Reach),
    /// A secret would be on a command line.
    SecretOnCommandLine,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of task `{}`", self.field, self.task)?;
        match self.step.is_empty() {
            true => Ok(()),
            false => write!(f, " in step `{}`", self.step),
        }
    }
}

/// Every place in a plan, in the order of the file.
#[must_use]
pub fn of_plan(plan: &Plan) -> Vec<Finding> {
    let mut found = Vec::new();
    let net = plan.net();
    for no in plan.numbers() {
        let step = plan.step(no);
        let fixed = fixed_names(plan, no);
        let undo = step.undo.as_ref().map(|undo| &undo.tasks);
        let work = match &step.work {
            Work::Pipeline { tasks } => Some(tasks),
            Work::Task { .. } | Work::Wait(_) | Work::Child(_) => None,
        };
        for tasks in work.into_iter().chain(undo) {
            let tasks = tasks.as_array().into_iter().flatten();
            for task in tasks.filter_map(Json::as_object) {
                let found_here = of_task(task, &fixed).into_iter();
                found.extend(found_here.map(|it| Finding {
                    step: step.name.clone(),
                    ..it
                }));
            }
        }
    }
    let fixed = fixed_in_library(plan);
    for (name, tasks) in &net.library {
        let tasks = tasks.get("tasks").and_then(Json::as_array);
        for task in tasks.into_iter().flatten().filter_map(Json::as_object) {
            let found_here = of_task(task, &fixed).into_iter();
            found.extend(found_here.map(|it| Finding {
                step: name.clone(),
                ..it
            }));
        }
    }
    found
}

/// Every place in one task in its normalised form. `fixed` are names that have a value of the definition.
#[must_use]
pub fn of_task(task: &Map<String, Json>, fixed: &BTreeSet<String>) -> Vec<Finding> {
    let text = |key: &str| task.get(key).and_then(Json::as_str).unwrap_or_default();
    let mut look = Look {
        task,
        name: text("name"),
        fixed,
        found: Vec::new(),
    };
    let kind = kinds::find(text("kind"));
    for spec in kind.into_iter().flat_map(ToolKind::fields) {
        let Some(field) = spec.names.first() else {
            continue;
        };
        match spec.reach {
            FieldReach::Data => {}
            FieldReach::Commands => {
                look.all(field, Reach::Command);
                look.secrets(field);
            }
            FieldReach::Words => look.commands_as_text(field),
            FieldReach::Sql => look.all(field, Reach::Sql),
            FieldReach::Path => look.all(field, Reach::Path),
            FieldReach::PathUnless(root) => {
                if !task.contains_key(root) {
                    look.all(field, Reach::Path);
                }
            }
            FieldReach::PathArgument => {
                look.all(field, Reach::Path);
                look.secrets(field);
            }
            FieldReach::ProgramScript => look.script(field, None),
            FieldReach::SqlScript => look.script(field, Some(Reach::Sql)),
            FieldReach::Address => look.host(field),
            FieldReach::Environment => look.environment(field),
            FieldReach::Server => look.server(field),
        }
    }
    look.found
}

struct Look<'a> {
    task: &'a Map<String, Json>,
    name: &'a str,
    fixed: &'a BTreeSet<String>,
    found: Vec<Finding>,
}

impl Look<'_> {
    /// `range` is where the template or the reference stands in `text`.
    fn report(&mut self, field: &str, text: &str, range: Range<usize>, kind: FindingKind) {
        let start = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[range.end..]
            .find('\n')
            .map_or(text.len(), |at| at + range.end);
        self.found.push(Finding {
            step: String::new(),
            task: self.name.to_owned(),
            field: field.to_owned(),
            line: text[start..end].trim().to_owned(),
            written: text[range].to_owned(),
            kind,
        });
    }

    /// Each text of a field.
    fn all(&mut self, field: &str, reach: Reach) {
        let value = self.task.get(field).cloned().unwrap_or_default();
        self.texts(field, &value, reach);
    }

    fn texts(&mut self, field: &str, value: &Json, reach: Reach) {
        match value {
            Json::String(text) => self.text(field, text, reach),
            Json::Array(items) => items.iter().for_each(|it| self.texts(field, it, reach)),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_) => {}
        }
    }

    fn text(&mut self, field: &str, text: &str, reach: Reach) {
        for tag in output_tags(text) {
            let guard = tag.last_filter.as_deref().filter(|it| reach.is_guard(it));
            let breaks_out = guard == Some("quote") && defeats_quotes(text, tag.range.start);
            if self.is_outside(&tag) && (guard.is_none() || breaks_out) {
                self.report(field, text, tag.range, FindingKind::Unguarded(reach));
            }
        }
    }

    /// A value that comes after the host of an address cannot change the host.
    fn host(&mut self, field: &str) {
        let Some(text) = self
            .task
            .get(field)
            .and_then(Json::as_str)
            .map(str::to_owned)
        else {
            return;
        };
        for tag in output_tags(&text) {
            let before = text[..tag.range.start].split_once("://");
            let is_after = before.is_some_and(|(_, place)| place.contains(['/', '?', '#']));
            let guard = tag.last_filter.as_deref();
            let is_guarded = guard.is_some_and(|it| Reach::Host.is_guard(it));
            if !is_after && !is_guarded && self.is_outside(&tag) {
                self.report(field, &text, tag.range, FindingKind::Unguarded(Reach::Host));
            }
        }
    }

    /// The parts of `auth` that say where the server is.
    fn server(&mut self, field: &str) {
        let auth = self.task.get(field).cloned().unwrap_or_default();
        for place in server_reach::texts(&auth) {
            for tag in output_tags(place.text) {
                let guard = tag.last_filter.as_deref();
                let is_guarded = guard.is_some_and(|it| Reach::Host.is_guard(it));
                if place.reaches_host(&tag.range) && !is_guarded && self.is_outside(&tag) {
                    let kind = FindingKind::Unguarded(Reach::Host);
                    self.report(field, place.text, tag.range, kind);
                }
            }
        }
    }

    /// A script is a path, or the text itself. The text of a program is never rendered, and so has no reach.
    fn script(&mut self, field: &str, text_reach: Option<Reach>) {
        let script = self.task.get(field).cloned().unwrap_or_default();
        for (key, reach) in [("uri", Some(Reach::Path)), ("code", text_reach)] {
            let text = script.get(key).and_then(Json::as_str);
            if let (Some(text), Some(reach)) = (text, reach) {
                self.text(field, text, reach);
            }
        }
    }

    /// Variables are data, but for those that say what programs load.
    fn environment(&mut self, field: &str) {
        let value = self.task.get(field).cloned().unwrap_or_default();
        for (name, value) in value.as_object().into_iter().flatten() {
            if PROGRAM_VARIABLES.contains(&name.as_str()) {
                self.texts(field, value, Reach::Path);
            }
        }
    }

    /// A command as one text is split at spaces; as a list, each value is one argument.
    fn commands_as_text(&mut self, field: &str) {
        let value = self.task.get(field).cloned().unwrap_or_default();
        let texts = match &value {
            Json::Array(items) => items.iter().filter_map(Json::as_str).collect(),
            Json::String(text) => vec![text.as_str()],
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_) => Vec::new(),
        };
        for text in texts {
            // One that is nothing but a value may be a list.
            let is_whole = output_tags(text)
                .first()
                .is_some_and(|tag| tag.range == (0..text.len()));
            if !is_whole {
                self.text(field, text, Reach::Command);
            }
        }
    }

    fn is_outside(&self, tag: &OutputTag) -> bool {
        tag.reads.iter().any(|path| !self.is_own(path))
    }

    /// Whether a path reads what only the definition and the engine set.
    fn is_own(&self, path: &str) -> bool {
        let is_below = |name: &str| {
            let rest = path.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        // An argument of the task that is written out. Its bare name may be a parameter of the run.
        let args = self.task.get("args");
        let is_written = |name: &str| {
            let value = args.and_then(|args| args.get(name.split('.').next().unwrap_or(name)));
            value.is_some_and(is_written_out)
        };
        let argument = path.strip_prefix("args.").or(path.strip_prefix("input."));
        OWN_NAMES.iter().any(|name| is_below(name))
            || self.fixed.iter().any(|name| is_below(name))
            || argument.is_some_and(is_written)
    }

    /// Secrets in texts that become part of a command line.
    fn secrets(&mut self, field: &str) {
        let value = self.task.get(field).cloned().unwrap_or_default();
        let texts = value
            .as_array()
            .map_or(std::slice::from_ref(&value), Vec::as_slice);
        for text in texts.iter().filter_map(Json::as_str) {
            let written = text.find("${secret:").map(|start| {
                let end = text[start..]
                    .find('}')
                    .map_or(text.len(), |end| start + end + 1);
                start..end
            });
            let is_reference = [
                "secret://",
                "env://",
                "secretfile://",
                "vault://",
                "secretref:",
            ]
            .iter()
            .any(|scheme| text.trim().starts_with(scheme));
            let tags = output_tags(text);
            let keychain = tags
                .iter()
                .find(|tag| tag.reads.iter().any(|path| path.starts_with("keychain.")))
                .map(|tag| tag.range.clone());
            let whole = is_reference.then_some(0..text.len());
            if let Some(range) = written.or(keychain).or(whole) {
                self.report(field, text, range, FindingKind::SecretOnCommandLine);
            }
        }
    }
}

fn is_written_out(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => true,
        Json::String(text) => !has_template(text),
        Json::Array(items) => items.iter().all(is_written_out),
        Json::Object(fields) => fields.values().all(is_written_out),
    }
}

/// Whether the quotes that the filter `quote` adds do not protect a value at this place of a command: inside of quotes and
/// behind a backslash they mean something else, in a here-document they are text, and an argument that is itself a
/// command is read a second time.
fn defeats_quotes(command: &str, at: usize) -> bool {
    let mut open = None;
    let (mut here, mut escaped) = (false, false);
    let mut before = '\n';
    let mut chars = command[..at].chars();
    while let Some(c) = chars.next() {
        match (open, c) {
            (None | Some('"'), '\\') => escaped = chars.next().is_none(),
            (None, '\'' | '"') => open = Some(c),
            (Some(quote), c) if quote == c => open = None,
            (None, '<') => here |= before == '<',
            _ => {}
        }
        before = c;
    }
    let is_below = here && command[..at].contains('\n');
    open.is_some() || escaped || is_below || is_read_again(&command[..at])
}

/// Whether the next word is a command for another shell: `bash -c`, `eval`.
fn is_read_again(before: &str) -> bool {
    const SHELLS: [&str; 8] = [
        "sh", "bash", "dash", "zsh", "ksh", "su", "python", "python3",
    ];
    let line = before.rsplit(['\n', ';', '|', '&']).next();
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let Some((last, rest)) = words.split_last() else {
        return false;
    };
    let is_shell = |word: &&str| SHELLS.contains(&word.rsplit('/').next().unwrap_or_default());
    let is_flag = last.starts_with('-') && !last.starts_with("--") && last.ends_with('c');
    words.contains(&"eval") || (is_flag && rest.iter().any(is_shell))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(task: Json) -> Vec<(String, FindingKind)> {
        let fixed = BTreeSet::from(["iter.n".to_owned()]);
        let found = of_task(task.as_object().unwrap(), &fixed).into_iter();
        found.map(|it| (it.written, it.kind)).collect()
    }

    fn unguarded(task: Json) -> Vec<String> {
        found(task)
            .into_iter()
            .map(|(written, _)| written)
            .collect()
    }

    #[test]
    fn commands_need_quoting_outside_of_quotes() {
        let of =
            |command: &str| unguarded(json!({"name": "t", "kind": "shell", "cmds": [command]}));
        for bad in [
            "echo {{ ctx.x }}",
            "echo '{{ ctx.x | quote }}'",
            "echo \"a {{ ctx.x | quote }}\"",
            "echo {{ 'a' ~ ctx.x | quote }}",
            "{% for x in ctx.list %}echo {{ x }};{% endfor %}",
            "echo {{ name }}",
            r"echo \{{ ctx.x | quote }}",
            "cat <<X\n{{ ctx.x | quote }}\nX",
            "bash -c {{ ctx.x | quote }}",
            "sudo /bin/sh -ec {{ ctx.x | quote }}",
            "cd /srv && eval echo {{ ctx.x | quote }}",
        ] {
            assert_eq!(of(bad).len(), 1, "{bad}");
        }
        for good in [
            "echo {{ ctx.x | quote }}",
            "echo 'a' {{ ctx.x | quote }}",
            "echo it\\'s {{ ctx.x | quote }}",
            r"echo \\{{ ctx.x | quote }}",
            "grep -c {{ ctx.x | quote }} file < other",
            "bash -c 'echo 1'; echo {{ ctx.x | quote }}",
            "echo {{ ctx.x | int }} {{ run_id }} {{ iter.n }} {{ iter.index }} {{ 1 + 1 }}",
            "echo {{ ctx.x | one_of(['a']) }} {{ ctx.x | safe }}",
        ] {
            assert_eq!(of(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn variables_that_name_programs_need_a_guard() {
        let of = |kind: &str, name: &str, value: &str| {
            unguarded(json!({"name": "t", "kind": kind, "cmds": ["x"], "env": {name: value}}))
        };
        for kind in ["shell", "python"] {
            assert_eq!(of(kind, "BASH_ENV", "{{ ctx.x }}").len(), 1);
            assert_eq!(of(kind, "PATH", "/bin:{{ ctx.x }}").len(), 1);
            assert_eq!(
                of(kind, "PATH", "/bin:{{ ctx.x | one_of(['/a']) }}"),
                [""; 0]
            );
            assert_eq!(of(kind, "NAME", "{{ ctx.x }}"), [""; 0]);
        }
    }

    #[test]
    fn sql_paths_and_hosts_need_their_own_guards() {
        let sqlite = |database: &str, sql: &str| {
            unguarded(
                json!({"name": "t", "kind": "sqlite", "database": database, "commands": [sql]}),
            )
        };
        assert_eq!(sqlite("x.db", "SELECT '{{ ctx.x | quote }}'").len(), 1);
        assert_eq!(sqlite("{{ ctx.x }}.db", "SELECT 1").len(), 1);
        assert_eq!(
            sqlite("{{ ctx.x | filename }}.db", "SELECT {{ ctx.n | int }}"),
            [""; 0]
        );
        let http = |url: &str| unguarded(json!({"name": "t", "kind": "http", "url": url}));
        for bad in [
            "{{ ctx.u }}",
            "http://{{ ctx.h }}/x",
            "http://a.example:{{ ctx.p }}/",
            "{{ ctx.u }}/x",
        ] {
            assert_eq!(http(bad).len(), 1, "{bad}");
        }
        for good in [
            "http://a.example/{{ ctx.x }}",
            "http://a.example?q={{ ctx.x }}",
            "http://a:{{ ctx.p | int }}/",
        ] {
            assert_eq!(http(good), [""; 0], "{good}");
        }
        let postgres = |auth: Json| {
            unguarded(
                json!({"name": "t", "kind": "postgres", "auth": auth, "commands": ["SELECT 1"]}),
            )
        };
        for bad in [
            json!({"dsn": "{{ ctx.dsn }}"}),
            json!({"dsn": "postgres://u@{{ ctx.h }}/db"}),
            json!({"dsn": "user=u host={{ ctx.h }} dbname=d"}),
            json!({"host": "{{ ctx.h }}", "user": "u"}),
            json!("postgres://u@{{ ctx.h }}/db"),
        ] {
            assert_eq!(postgres(bad.clone()).len(), 1, "{bad}");
        }
        for good in [
            json!("{{ ctx.credential }}"),
            json!({"dsn": "postgres://u:{{ keychain.p }}@h.example/{{ ctx.db }}"}),
            json!({"dsn": "host=h.example dbname={{ ctx.db }}"}),
            json!({"host": "h.example", "user": "{{ ctx.u }}"}),
            json!({"dsn": "{{ ctx.dsn | safe }}"}),
        ] {
            assert_eq!(postgres(good.clone()), [""; 0], "{good}");
        }
        let file = json!({"name": "t", "kind": "file", "path": "{{ ctx.x }}"});
        assert_eq!(unguarded(file).len(), 1);
        let below = json!({"name": "t", "kind": "file", "root": "data", "path": "{{ ctx.x }}"});
        assert_eq!(unguarded(below), [""; 0]);
        let script = json!({"name": "t", "kind": "python", "script": {"type": "file", "uri": "{{ ctx.x }}"}});
        assert_eq!(unguarded(script).len(), 1);
        let call = json!({"name": "t", "kind": "playbook", "path": "{{ args.p }}", "args": {"p": "a.yaml"}});
        assert_eq!(unguarded(call), [""; 0], "the argument is written out");
        let redis =
            |command: Json| unguarded(json!({"name": "t", "kind": "redis", "commands": command}));
        assert_eq!(redis(json!(["SET a {{ ctx.x }}"])).len(), 1);
        assert_eq!(redis(json!([["SET", "a", "{{ ctx.x }}"]])), [""; 0]);
    }

    #[test]
    fn secrets_on_command_lines_are_found() {
        for command in [
            "echo ${secret:a/b}",
            "echo {{ keychain.api.token }}",
            "secret://a",
        ] {
            let task = json!({"name": "t", "kind": "shell", "cmds": [command]});
            let kinds: Vec<FindingKind> = found(task).into_iter().map(|(_, kind)| kind).collect();
            assert_eq!(kinds, [FindingKind::SecretOnCommandLine], "{command}");
        }
        let env =
            json!({"name": "t", "kind": "shell", "cmds": ["echo $A"], "env": {"A": "${secret:a}"}});
        assert_eq!(found(env), []);
    }
}
