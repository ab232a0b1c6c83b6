//! `stepwell explain`: the page about a code. The pages are `docs/errors`, built into the binary.

use anyhow::Result;
use clap::Args;
use stepwell_dialects::words::{nearest, quote};

use crate::exit::Exit;
use crate::{term, usage};

/// Code and page, sorted by code; `build.rs` lists them.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

/// Say what a problem or rejection code means and how to mend it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell explain FIELD_MISSING
  stepwell explain            lists every code

Exit codes: 0 printed, 2 there is no such code.")]
pub(crate) struct ExplainArgs {
    /// The code, as FIELD_MISSING
    code: Option<String>,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<Exit> {
    let Some(code) = &args.code else {
        let list: String = PAGES.iter().map(|(code, _)| format!("{code}\n")).collect();
        term::print(&list)?;
        return Ok(Exit::Ok);
    };
    let wanted = code.trim().to_uppercase().replace('-', "_");
    match PAGES.iter().find(|(known, _)| *known == wanted) {
        Some((_, page)) => {
            term::print(page)?;
            Ok(Exit::Ok)
        }
        None => usage(unknown(code, &wanted)),
    }
}

/// Whether there is a page about a code.
pub(crate) fn has_page(code: &str) -> bool {
    PAGES.iter().any(|(known, _)| *known == code)
}

fn unknown(code: &str, wanted: &str) -> String {
    let known: Vec<&str> = PAGES.iter().map(|(code, _)| *code).collect();
    let mut near: Vec<&str> = nearest(wanted, &known).into_iter().collect();
    // Codes of the same family are the next best guess.
    let family = wanted.split('_').next().unwrap_or(wanted);
    let relatives = known.iter().copied().filter(|it| {
        let head = it.split('_').next();
        head == Some(family) && !near.contains(it)
    });
    let relatives: Vec<&str> = relatives.take(5).collect();
    near.extend(relatives);
    let code = quote(code);
    match near[..] {
        [] => format!("there is no code {code}; `stepwell explain` lists all of them"),
        _ => format!("there is no code {code}; did you mean {}?", near.join(", ")),
    }
}
