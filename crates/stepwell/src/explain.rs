//! `stepwell explain`: prints the page of an error code. The pages of `docs/errors` and the sections of
//! `docs/tools` about codes are built into the binary.

use anyhow::Result;
use clap::Args;
use stepwell_dialects::tools::table::KINDS;
use stepwell_dialects::words::{nearest, quote};

use crate::exit::Exit;
use crate::{term, usage};

/// Code and page, sorted by code; `build.rs` lists them.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

/// Explain an error code: cause and what to do
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell explain FIELD_MISSING
  stepwell explain            list all codes

Exit codes: 0 printed, 2 unknown code.")]
pub(crate) struct ExplainArgs {
    /// Error code, for example FIELD_MISSING
    code: Option<String>,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<Exit> {
    let Some(code) = &args.code else {
        let list: String = PAGES.iter().map(|(code, _)| format!("{code}\n")).collect();
        term::print(&list)?;
        return Ok(Exit::Ok);
    };
    let wanted = code.trim().to_uppercase().replace('-', "_");
    match page(&wanted) {
        Some(page) => {
            term::print(page)?;
            Ok(Exit::Ok)
        }
        None => usage(unknown(code, &wanted)),
    }
}

/// Whether there is a page about a code.
pub(crate) fn has_page(code: &str) -> bool {
    page(&code.to_uppercase()).is_some()
}

/// The page of a code, or of its family.
pub(crate) fn page(code: &str) -> Option<&'static str> {
    let find = |wanted: &str| PAGES.iter().find(|(known, _)| *known == wanted);
    let found = find(code).or_else(|| find(family(code)?));
    found.map(|(_, page)| *page)
}

/// Codes that contain an HTTP status, a Python exception or an SQLSTATE share one page per family. The table of
/// tools has the families.
fn family(code: &str) -> Option<&'static str> {
    let mut families = KINDS.iter().filter_map(|kind| kind.family.as_ref());
    let family = families.find(|it| code.strip_prefix(it.prefix).is_some_and(it.has))?;
    Some(family.page)
}

fn unknown(code: &str, wanted: &str) -> String {
    let known: Vec<&str> = PAGES.iter().map(|(code, _)| *code).collect();
    let mut near: Vec<&str> = nearest(wanted, &known).into_iter().collect();
    // Codes with the same first word are also suggested.
    let family = wanted.split('_').next().unwrap_or(wanted);
    let relatives = known.iter().copied().filter(|it| {
        let head = it.split('_').next();
        head == Some(family) && !near.contains(it)
    });
    let relatives: Vec<&str> = relatives.take(5).collect();
    near.extend(relatives);
    let code = quote(code);
    match near[..] {
        [] => format!("unknown code {code}; `stepwell explain` lists all codes"),
        _ => format!("unknown code {code}; did you mean {}?", near.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_family_has_the_familys_page() {
        for code in [
            "HTTP_404",
            "PY_ValueError",
            "PG_23505",
            "HTTP_STATUS",
            "TASK_TIMEOUT",
        ] {
            assert!(has_page(code), "{code}");
        }
        for code in ["HTTP_", "HTTP_abc", "PY_", "PG_2350", "NOBODY_KNOWS", ""] {
            assert!(!has_page(code), "{code}");
        }
    }
}
