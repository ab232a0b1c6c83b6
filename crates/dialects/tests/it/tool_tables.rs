//! The index of tools, `docs/tools/README.md`, is written from the table of tools.
//!
//! `STEPWELL_WRITE_DOCS=1 cargo test -p stepwell-dialects --test it tool_tables` rewrites it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stepwell_dialects::tools::RunBy;
use stepwell_dialects::tools::kinds::{FieldShape, FieldSpec, ToolKind};
use stepwell_dialects::tools::table::KINDS;

const BEGIN: &str = "<!-- tools: written from the table of tools -->\n";
const END: &str = "<!-- end of tools -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The file with `table` between its marks.
fn with_table(path: &str, table: &str) -> (String, String) {
    let text = std::fs::read_to_string(root().join(path)).expect("the document can be read");
    let (head, rest) = text.split_once(BEGIN).expect("the mark where tools begin");
    let (_, tail) = rest.split_once(END).expect("the mark where tools end");
    let wanted = format!("{head}{BEGIN}{table}{END}{tail}");
    (text, wanted)
}

fn check(path: &str, table: &str) {
    let (text, wanted) = with_table(path, table);
    if text == wanted {
        return;
    }
    if std::env::var_os("STEPWELL_WRITE_DOCS").is_some() {
        std::fs::write(root().join(path), wanted).expect("the document can be written");
        return;
    }
    panic!(
        "{path} does not have the tools of the table; run \
         `STEPWELL_WRITE_DOCS=1 cargo test -p stepwell-dialects --test it tool_tables`"
    );
}

fn names(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join("/")
}

fn field(kind: &ToolKind, field: &FieldSpec) -> String {
    let name = field.names.first().expect("a field has a name");
    let aliases = &field.names[1..];
    let bold = |text: String| match field.required {
        true => format!("**{text}**"),
        false => text,
    };
    let mut text = bold(format!("`{name}`"));
    if !aliases.is_empty() {
        write!(text, "/{}", names(aliases)).expect("a string takes it");
    }
    if kind.script_field() == Some(name) {
        text.push_str(" or `script`");
    }
    text
}

/// The fields of a kind.
fn fields(kind: &ToolKind) -> String {
    let own = kind.keys.iter().filter(|it| it.shape != FieldShape::Script);
    let own: Vec<String> = own.map(|it| field(kind, it)).collect();
    match kind.name {
        "workbook" => "**`name`** of the entry (or `task`, when `name` is the task's own)".into(),
        _ => own.join(", "),
    }
}

/// Each kind with its summary and its fields, and a link to its page if it has one.
fn table() -> String {
    let mut table = String::from("| tool | what it does | fields |\n|---|---|---|\n");
    for kind in KINDS {
        let mut name = match kind.run_by {
            RunBy::Tool => format!("[{0}]({0}.md)", kind.name),
            RunBy::Pipeline(_) | RunBy::Engine => format!("`{}`", kind.name),
        };
        if !kind.aliases.is_empty() {
            write!(name, "/{}", names(kind.aliases)).expect("a string takes it");
        }
        let (summary, fields) = (kind.summary, fields(kind));
        writeln!(table, "| {name} | {summary} | {fields} |").expect("a string takes it");
    }
    table
}

#[test]
fn the_index_of_tools_lists_every_tool() {
    check("docs/tools/README.md", &table());
}

#[test]
fn every_tool_has_a_page_that_names_its_fields() {
    for kind in KINDS.iter().filter(|kind| kind.run_by == RunBy::Tool) {
        let path = format!("docs/tools/{}.md", kind.name);
        let page = std::fs::read_to_string(root().join(&path));
        let page = page.unwrap_or_else(|_| panic!("the tool {} needs the page {path}", kind.name));
        for field in kind.keys {
            let name = field.names.first().expect("a field has a name");
            assert!(
                page.contains(&format!("`{name}`")),
                "{path} says nothing of `{name}`"
            );
        }
        if let Some(family) = &kind.family {
            let section = format!("\n### {}\n", family.page);
            assert!(
                page.contains(&section),
                "{path} does not explain the codes {}…",
                family.prefix
            );
        }
    }
}
