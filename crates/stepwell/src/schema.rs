//! `stepwell schema`: the published JSON Schemas, for editors and other programs; `cargo xtask schemas` writes
//! `schemas/` with this command. A printed schema is complete in itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value as Json;
use stepwell_dialects::document;
use stepwell_dialects::schema::{TOOL_FILE, linked, tool_file};
use stepwell_dialects::states::StateWord;
use stepwell_dialects::words::{nearest, quote};
use stepwell_kernel::contract;
use stepwell_kernel::plan::Dialect;

use crate::exit::Exit;
use crate::{term, usage};

/// What the names of the schemas of the languages begin with.
const DEFINITIONS: &str = "definitions/";
const ENDING: &str = ".schema.json";
/// The description of the HTTP API, which is an OpenAPI document.
const OPENAPI: &str = "openapi";
/// The words of the languages for states, which is a table.
const LANGUAGES: &str = "languages";

/// Print or write the published JSON Schemas
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell schema                          list all schemas
  stepwell schema definitions/playbook     print one schema
  stepwell schema openapi                  print the OpenAPI document of the server
  stepwell schema languages                print the words of all languages for states
  stepwell schema --all schemas            write all schemas

Exit codes: 0 printed or written, 1 the directory cannot be written, 2 wrong usage or unknown schema.")]
pub(crate) struct SchemaArgs {
    /// Name of the schema, for example `definitions/playbook`
    #[arg(conflicts_with = "all")]
    name: Option<String>,
    /// Write all schemas to this directory
    #[arg(long, value_name = "DIR")]
    all: Option<PathBuf>,
}

pub(crate) fn run(args: &SchemaArgs) -> Result<Exit> {
    let schemas = schemas();
    match (&args.all, &args.name) {
        (Some(folder), _) => write_all(schemas, folder)?,
        (None, None) => {
            let list: String = schemas.keys().map(|name| format!("{name}\n")).collect();
            term::print(&list)?;
        }
        (None, Some(name)) => {
            let short = name.trim_end_matches(ENDING);
            let Some(schema) = schemas.get(short) else {
                let known: Vec<&str> = schemas.keys().map(String::as_str).collect();
                let hint = nearest(short, &known).map_or_else(String::new, |near| {
                    format!("; did you mean {}?", quote(near))
                });
                return usage(format!("unknown schema {}{hint}", quote(name)));
            };
            term::print(&pretty(schema)?)?;
        }
    }
    Ok(Exit::Ok)
}

/// Every schema by its name: its path below `schemas/` without the ending.
fn schemas() -> BTreeMap<String, Json> {
    let mut all: BTreeMap<String, Json> = contract::schemas()
        .into_iter()
        .map(|(path, schema)| (path.trim_end_matches(ENDING).to_owned(), schema))
        .collect();
    for dialect in Dialect::ALL {
        let name = format!("{DEFINITIONS}{}", dialect.name());
        all.insert(name, document::schema(dialect));
    }
    // Every type of the API has a form in JSON.
    all.insert(
        OPENAPI.to_owned(),
        serde_json::json!(stepwell_server::openapi()),
    );
    all.insert(LANGUAGES.to_owned(), languages());
    all
}

/// The words of all languages for the states of runs and steps: who draws states has a look for each of them.
fn languages() -> Json {
    let words = |words: &[StateWord]| -> Json {
        let word = |it: &StateWord| serde_json::json!({ "word": it.word, "when": it.when });
        words.iter().map(word).collect()
    };
    let language = |dialect: Dialect| {
        let of = document::words(dialect);
        serde_json::json!({
            "name": dialect.name(),
            "run": words(of.run),
            "runSubstatus": words(of.run_substatus),
            "step": words(of.step),
        })
    };
    Dialect::ALL.into_iter().map(language).collect()
}

/// Writes one file for each schema. The files of the languages share the schema of tool blocks, which is a file of
/// its own, so that a new tool changes one file.
fn write_all(mut schemas: BTreeMap<String, Json>, folder: &Path) -> Result<()> {
    for (name, schema) in &mut schemas {
        if name.starts_with(DEFINITIONS) {
            *schema = linked(schema.take());
        }
    }
    let tool = TOOL_FILE.trim_end_matches(ENDING);
    schemas.insert(format!("{DEFINITIONS}{tool}"), tool_file());
    for (name, schema) in &schemas {
        let ending = match name.as_str() {
            OPENAPI | LANGUAGES => ".json",
            _ => ENDING,
        };
        let path = folder.join(format!("{name}{ending}"));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot create the directory {}", parent.display()))?;
        }
        fs::write(&path, pretty(schema)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn pretty(schema: &Json) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(schema)?))
}
