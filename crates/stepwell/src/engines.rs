//! `stepwell engines`: what each engine can do, natively, by other means, or not at all.

use anyhow::Result;
use clap::Args;
use stepwell_engines::capabilities::{EngineRow, engines};

use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::usage;

/// List the engines and what each can do
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell engines                 what every engine can do
  stepwell engines temporal        one engine
  stepwell engines -o json         for programs

`native`: the engine has a means of its own. `emulated`: the kernel, the store or another means does it; the
table has the cost. `no`: not possible; a plan that requires it (`requiresCapabilities`) is refused before
it starts, unless it has a `fallbackBehavior`.

Exit codes: 0, or 2 wrong usage.")]
pub(crate) struct EnginesArgs {
    /// Name of an engine
    #[arg(value_name = "ENGINE")]
    engine: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
}

pub(crate) fn run(args: &EnginesArgs) -> Result<Exit> {
    let all = engines();
    let chosen: Vec<EngineRow> = match &args.engine {
        None => all,
        Some(name) => {
            let names: Vec<&str> = all.iter().map(|it| it.name).collect();
            let known = names.join(", ");
            let found: Vec<EngineRow> = all.into_iter().filter(|it| it.name == name).collect();
            if found.is_empty() {
                return usage(format!("unknown engine {name:?}; the engines are {known}"));
            }
            found
        }
    };
    match args.output {
        OutputFormat::Json => println!("{}", serde_json::to_string_pretty(&chosen)?),
        OutputFormat::Human => {
            for (index, engine) in chosen.iter().enumerate() {
                if index > 0 {
                    println!();
                }
                print(engine);
            }
        }
    }
    Ok(Exit::Ok)
}

fn print(engine: &EngineRow) {
    let built = match engine.built {
        true => "",
        false => " (not in this build)",
    };
    println!("{}{built}: --engine {}", engine.name, engine.address);
    let width = engine.capabilities.iter().map(|it| it.name.len()).max();
    for row in &engine.capabilities {
        let (name, word, note) = (row.name, row.support.word(), row.support.note());
        let line = format!(
            "  {name:<width$}  {word:<8}  {note}",
            width = width.unwrap_or(0)
        );
        println!("{}", line.trim_end());
    }
}
