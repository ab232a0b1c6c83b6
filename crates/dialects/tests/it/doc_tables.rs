//! The tables of events, signals, statuses and words in the documents are written from the tables in the code.
//!
//! `STEPWELL_WRITE_DOCS=1 cargo test -p stepwell-dialects --test it doc_tables` rewrites them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stepwell_dialects::document;
use stepwell_dialects::states::{LanguageWords, StateWord};
use stepwell_kernel::event::{EventOrigin, EventType};
use stepwell_kernel::plan::Dialect;
use stepwell_kernel::signal::{Presence, SignalKind};
use stepwell_kernel::snapshot::{RunStatus, StepStatus};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares what stands between the marks of a document with the table, or rewrites it.
pub(crate) fn check(path: &str, mark: &str, table: &str) {
    let text = std::fs::read_to_string(root().join(path)).expect("the document can be read");
    let (begin, end) = (format!("<!-- {mark}: "), format!("<!-- end of {mark} -->"));
    let (head, rest) = text.split_once(&begin).expect("the mark where it begins");
    let (how, rest) = rest.split_once("-->\n").expect("the end of the mark");
    let (_, tail) = rest.split_once(&end).expect("the mark where it ends");
    let wanted = format!("{head}{begin}{how}-->\n{table}{end}{tail}");
    if text == wanted {
        return;
    }
    if std::env::var_os("STEPWELL_WRITE_DOCS").is_some() {
        std::fs::write(root().join(path), wanted).expect("the document can be written");
        return;
    }
    panic!(
        "{path} does not have the {mark} of the table; run \
         `STEPWELL_WRITE_DOCS=1 cargo test -p stepwell-dialects --test it doc_tables`"
    );
}

fn events() -> String {
    let mut table = String::from(
        "| event | what happened | listed by | key: subject, attempt, ordinal |\n|---|---|---|---|\n",
    );
    for event in EventType::ALL {
        let origin = match event.origin() {
            EventOrigin::Contract => "contract",
            EventOrigin::Additive => "additive",
        };
        let (name, about) = (event.name(), event.about());
        let key = event.key_rule().join(", ");
        writeln!(table, "| `{name}` | {about} | {origin} | {key} |").expect("a string takes it");
    }
    table
}

fn signals() -> String {
    let mut table = String::from(
        "| signal | what it does | role | allowed if the run | payload |\n|---|---|---|---|---|\n",
    );
    for signal in SignalKind::ALL {
        let field = |name: &str, presence: Presence| match presence {
            Presence::Optional => format!("`{name}`"),
            Presence::Required | Presence::RequiredOrBeside => format!("**`{name}`**"),
        };
        let fields = signal.fields().iter().map(|it| field(it.name, it.presence));
        let fields: Vec<String> = fields.collect();
        writeln!(
            table,
            "| `{}` | {} | {} | {} | {} |",
            signal.name(),
            signal.about(),
            format!("{:?}", signal.role()).to_lowercase(),
            signal.needs().about(),
            fields.join(", ")
        )
        .expect("a string takes it");
    }
    table
}

fn statuses() -> String {
    let list = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        words.join(", ")
    };
    format!(
        "| of | words |\n|---|---|\n| a run | {} |\n| an attempt of a step | {} |\n",
        list(RunStatus::WORDS),
        list(StepStatus::WORDS)
    )
}

/// The words of a language: states of a run, what is said beside them, states of a step.
fn words(words: LanguageWords) -> String {
    let mut text = String::new();
    for (of, words) in [
        ("run", words.run),
        ("substatus of a run", words.run_substatus),
        ("step", words.step),
    ] {
        let gap = if text.is_empty() { "" } else { "\n" };
        writeln!(text, "{gap}| {of} | when |\n|---|---|").expect("a string takes it");
        for StateWord { word, when } in words {
            writeln!(text, "| `{word}` | {} |", when.trim()).expect("a string takes it");
        }
    }
    text
}

#[test]
fn the_page_of_a_language_lists_its_words() {
    for dialect in Dialect::ALL {
        let page = format!("docs/languages/{}.md", dialect.name());
        check(&page, "words", &words(document::words(dialect)));
    }
}

/// The plans are the contract's, so they have its statuses.
#[test]
fn the_words_of_plans_are_those_of_the_contract() {
    let words = document::words(Dialect::Plan);
    let list = |words: &[StateWord]| words.iter().map(|it| it.word).collect::<Vec<_>>();
    assert_eq!(list(words.run), RunStatus::WORDS);
    assert_eq!(list(words.step), StepStatus::WORDS);
}

#[test]
fn the_documents_list_every_event_signal_and_status() {
    check("docs/events.md", "events", &events());
    check("docs/events.md", "signals", &signals());
    check("docs/events.md", "statuses", &statuses());
}
