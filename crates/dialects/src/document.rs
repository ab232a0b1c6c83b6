//! From the text of a definition to a plan: parse, tell the language, compile, check.
//!
//! The languages stand in one table, [`language`]; everything that depends on the language goes
//! through it. A sixth language is one more row there.

use serde_json::Value as Json;
use stepwell_kernel::plan::{Dialect, Net, Plan, SourceRef, StepRef};
use stepwell_kernel::state::State;

use crate::codes;
use crate::dag::telemetry::TelemetryState;
use crate::execution_reads;
use crate::names;
use crate::problem::{Problem, Problems, Severity};
use crate::secret_literals;
use crate::source::{Source, Span};
use crate::states::LanguageWords;
use crate::tree::Node;
use crate::trigger::Trigger;
use crate::view_rows::{self, RunChange, ViewRow};
use crate::words::{list, nearest};

/// A parsed definition: the text and its tree.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// The text, for messages and for the hash of its bytes.
    pub source: &'a Source,
    pub root: &'a Node,
}

impl Document<'_> {
    /// Where the definition came from and the hash of its bytes.
    #[must_use]
    pub fn source_ref(&self) -> SourceRef {
        let name = self.source.name();
        SourceRef {
            uri: if has_scheme(name) {
                name.to_owned()
            } else {
                format!("file:{name}")
            },
            sha256: self.source.sha256(),
        }
    }
}

/// `https:…`, but not `C:\…`: a scheme has at least two letters.
fn has_scheme(name: &str) -> bool {
    name.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

/// What a language brings.
struct Language {
    /// How a file of the language is recognised, for messages.
    mark: &'static str,
    /// Keys at the root that only this language has, or that it needs.
    keys: &'static [&'static str],
    detect: fn(&Node) -> bool,
    compile: fn(&Document<'_>, &mut Problems) -> Option<Net>,
    run_word: fn(&State) -> &'static str,
    run_substatus: fn(&State) -> Option<&'static str>,
    listed_word: fn(&str, Option<&str>) -> &'static str,
    step_word: fn(&Plan, &State, StepRef) -> &'static str,
    words: LanguageWords,
    schema: fn() -> Json,
    view_rows: fn(RunChange<'_>) -> Vec<ViewRow>,
    telemetry: fn(&Plan) -> Option<TelemetryState>,
    trigger: fn(&Plan) -> Option<Trigger>,
}

macro_rules! language {
    ($module:ident, $mark:literal, $keys:expr) => {
        language!($module, $mark, $keys, view_rows::none, |_| None, |_| None)
    };
    ($module:ident, $mark:literal, $keys:expr, $view_rows:path, $telemetry:expr, $trigger:expr) => {
        &Language {
            mark: $mark,
            keys: $keys,
            detect: crate::$module::detect,
            compile: crate::$module::compile,
            run_word: crate::$module::words::run_word,
            run_substatus: crate::$module::words::run_substatus,
            listed_word: crate::$module::words::listed_word,
            step_word: crate::$module::words::step_word,
            words: crate::$module::words::WORDS,
            schema: crate::$module::schema,
            view_rows: $view_rows,
            telemetry: $telemetry,
            trigger: $trigger,
        }
    };
}

/// The table of languages. Its names are the kernel's ([`Dialect::name`]).
fn language(dialect: Dialect) -> &'static Language {
    match dialect {
        Dialect::Actions => language!(
            actions,
            "`workflowId` and `actions`",
            &["workflowId", "workspaceId", "actions", "executionTier"]
        ),
        Dialect::Dag => language!(
            dag,
            "`kind: Workflow` (apiVersion ioa.dev/v0.2)",
            &["apiVersion", "kind", "metadata", "spec"],
            view_rows::none,
            crate::dag::telemetry::begin,
            Trigger::of_plan
        ),
        Dialect::Plan => language!(
            plan,
            "`metadata.planId` and `steps`",
            &["planId", "metadata", "steps"]
        ),
        Dialect::Playbook => language!(
            playbook,
            "`kind: Playbook` (apiVersion noetl.io/v2)",
            &[
                "apiVersion",
                "kind",
                "metadata",
                "workflow",
                "workload",
                "executor",
                "keychain",
                "workbook",
            ]
        ),
        Dialect::Linear => language!(
            linear,
            "`workflowType` and `steps`",
            &["workflowType", "steps"],
            crate::linear::rows::view_rows,
            |_| None,
            |_| None
        ),
    }
}

/// The result of reading a definition.
#[derive(Debug)]
pub struct Loaded {
    /// The plan; absent if there was an error.
    pub plan: Option<Plan>,
    /// The plan of a definition whose only errors are names that do not exist: for more checks, never to be run.
    pub unusable: Option<Plan>,
    /// The language, as far as it could be told.
    pub dialect: Option<Dialect>,
    /// Everything that is wrong, in source order; warnings alone leave a plan.
    pub problems: Vec<Problem>,
}

/// Reads a definition in whichever language it is written.
#[must_use]
pub fn load(source: &Source) -> Loaded {
    let mut p = Problems::new();
    let mut loaded = Loaded {
        plan: None,
        unusable: None,
        dialect: None,
        problems: Vec::new(),
    };
    let (root, problems) = crate::parse::parse_on(source);
    let refused = !problems.is_empty();
    p.extend(problems);
    match root.as_ref().map(|root| (root, detect(root))) {
        None => {}
        Some((_, Err(problem))) => {
            p.push(problem);
        }
        Some((root, Ok(dialect))) => {
            loaded.dialect = Some(dialect);
            let document = Document { source, root };
            let plan = compile(dialect, &document, &mut p).filter(|_| !refused);
            (loaded.plan, loaded.unusable) = match plan {
                Some((plan, true)) => (Some(plan), None),
                Some((plan, false)) => (None, Some(plan)),
                None => (None, None),
            };
        }
    }
    loaded.problems = p.into_located(source);
    loaded
}

/// The plan, and whether all that its templates read exists.
fn compile(dialect: Dialect, document: &Document<'_>, p: &mut Problems) -> Option<(Plan, bool)> {
    // A plan must hold references only, which its own check says.
    if dialect != Dialect::Plan {
        secret_literals::check(document, Severity::Warning, p);
    }
    let mut net = (language(dialect).compile)(document, p)?;
    if p.has(codes::SECRET_VALUE) {
        net.policy.hidden = secret_literals::hidden_in(&net);
    }
    match Plan::new(net) {
        Ok(plan) => {
            let is_right = execution_reads::check(document, &plan, p);
            let names_exist = names::check(document, &plan, p);
            Some((plan, is_right && names_exist))
        }
        Err(fault) => {
            p.error(
                fault.code,
                Span::at(document.root.span.start),
                fault.message,
            );
            None
        }
    }
}

/// Tells the language from the definition's own content.
///
/// # Errors
/// `LANGUAGE_UNKNOWN` if it is none of them, `LANGUAGE_AMBIGUOUS` if it could be several.
pub fn detect(root: &Node) -> Result<Dialect, Problem> {
    let found: Vec<Dialect> = Dialect::ALL
        .into_iter()
        .filter(|dialect| (language(*dialect).detect)(root))
        .collect();
    let mut p = Problems::new();
    let at = Span::new(root.span.start, root.span.start + 1);
    match found[..] {
        [dialect] => Ok(dialect),
        [] => Err(p
            .error(codes::LANGUAGE_UNKNOWN, at, unknown_message(root))
            .help(unknown_help(root))
            .clone()),
        _ => {
            let names: Vec<&str> = found.iter().map(|dialect| dialect.name()).collect();
            let message = format!("this could be any of {}", list(&names));
            Err(p
                .error(codes::LANGUAGE_AMBIGUOUS, at, message)
                .help(format!("keep the marks of one language only: {}", marks()))
                .clone())
        }
    }
}

fn unknown_message(root: &Node) -> String {
    if root.as_map().is_some() {
        "this is in none of the workflow languages".to_owned()
    } else {
        format!("a definition is a mapping, but this is {}", root.describe())
    }
}

fn marks() -> String {
    let marks: Vec<String> = Dialect::ALL
        .into_iter()
        .map(|dialect| format!("{} by {}", dialect.name(), language(dialect).mark))
        .collect();
    marks.join("; ")
}

fn unknown_help(root: &Node) -> String {
    let known = format!("languages are recognised by their content: {}", marks());
    match most_like(root) {
        Some((dialect, seen)) => format!(
            "it looks most like {}, since it has {}, but {} is missing; {known}",
            dialect.name(),
            list(&seen),
            language(dialect).mark
        ),
        None => known,
    }
}

/// The language most of whose keys, or near misses of them, are there.
fn most_like(root: &Node) -> Option<(Dialect, Vec<&str>)> {
    let entries = root.as_map()?;
    let mut best: Option<(Dialect, Vec<&str>)> = None;
    for dialect in Dialect::ALL {
        let seen: Vec<&str> = entries
            .iter()
            .take(64)
            .filter(|entry| nearest(&entry.key, language(dialect).keys).is_some())
            .map(|entry| entry.key.as_str())
            .collect();
        if !seen.is_empty()
            && best
                .as_ref()
                .is_none_or(|(_, most)| seen.len() > most.len())
        {
            best = Some((dialect, seen));
        }
    }
    best
}

/// The JSON Schema of a language's files.
#[must_use]
pub fn schema(dialect: Dialect) -> Json {
    (language(dialect).schema)()
}

/// The language with this name.
#[must_use]
pub fn dialect_named(name: &str) -> Option<Dialect> {
    Dialect::ALL.into_iter().find(|it| it.name() == name)
}

/// The words of a language for the states of runs and steps.
#[must_use]
pub fn words(dialect: Dialect) -> LanguageWords {
    language(dialect).words
}

/// The run's state in the words of its language.
#[must_use]
pub fn run_word(plan: &Plan, state: &State) -> &'static str {
    (language(plan.net().dialect).run_word)(state)
}

/// What the language says beside the run's state: `paused`, `rollback` and the like.
#[must_use]
pub fn run_substatus(plan: &Plan, state: &State) -> Option<&'static str> {
    (language(plan.net().dialect).run_substatus)(state)
}

/// The state of a run in the words of its language, from the two words of the contract that a list of runs keeps.
#[must_use]
pub fn listed_word(dialect: Dialect, status: &str, substatus: Option<&str>) -> &'static str {
    (language(dialect).listed_word)(status, substatus)
}

/// The statuses of the contract that a listed run with this word of its language may have; none if the language does not
/// have the word.
#[must_use]
pub fn statuses_of(dialect: Dialect, word: &str) -> Vec<&'static str> {
    use crate::plan::words::{RunSubstatus, RunWord};
    let mut found = Vec::new();
    for status in RunWord::WORDS {
        let with = RunSubstatus::WORDS.iter().map(|it| Some(it.word));
        let mut words = with
            .chain([None])
            .map(|sub| listed_word(dialect, status.word, sub));
        if words.any(|it| it == word) {
            found.push(status.word);
        }
    }
    found
}

/// A step-run's state in the words of its language.
#[must_use]
pub fn step_word(plan: &Plan, state: &State, at: StepRef) -> &'static str {
    (language(plan.net().dialect).step_word)(plan, state, at)
}

/// The run's state in the words of the execution contract, whatever its language: the two words that a
/// list of runs shows.
#[must_use]
pub fn contract_words(state: &State) -> (&'static str, Option<&'static str>) {
    use crate::plan::words;
    (words::run_word(state), words::run_substatus(state))
}

/// Whether the second of the contract's words says that the run is undoing its steps.
#[must_use]
pub fn is_undoing(substatus: Option<&str>) -> bool {
    substatus == Some(crate::plan::words::RunSubstatus::Compensating.word())
}

/// The rows of the run's language that these events have changed; none for languages without views.
#[must_use]
pub fn view_rows(change: RunChange<'_>) -> Vec<ViewRow> {
    (language(change.plan.net().dialect).view_rows)(change)
}

/// What starts runs of this plan by itself; none where only a request does.
#[must_use]
pub fn trigger(plan: &Plan) -> Option<Trigger> {
    (language(plan.net().dialect).trigger)(plan)
}

/// The telemetry of a run of this plan, from its first event on; none for languages without telemetry.
#[must_use]
pub fn telemetry(plan: &Plan) -> Option<TelemetryState> {
    (language(plan.net().dialect).telemetry)(plan)
}

/// The text of a `kind` or `apiVersion` at the root, for `detect` of the languages.
pub(crate) fn root_text<'n>(root: &'n Node, key: &str) -> Option<&'n str> {
    root.get(key).and_then(Node::as_str)
}
