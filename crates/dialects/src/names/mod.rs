//! Names in templates that have no value: steps, parameters and variables that do not exist. A typo would otherwise be
//! rendered as nothing, and `rm -r /srv/{{ workload.pth }}/` is then another command.
//!
//! Errors where the templates of the plan are strict, else warnings, one for each name. A template that says what holds
//! without the value (a default, a test) is right.

mod places;
mod visible;

use std::collections::{BTreeMap, HashMap};

use stepwell_kernel::expr::ReadSite;
use stepwell_kernel::plan::{Plan, StepNo};

use crate::codes;
use crate::document::Document;
use crate::problem::Problems;
use crate::source::Span;
use crate::tools::templates;
use crate::words::{nearest, quote};
pub(crate) use places::Places;
use visible::{Known, Visible};

/// How many further lines a warning names.
const NAMED_LINES: usize = 5;

/// A path that has no value, and one place where it is read.
struct UnknownRead {
    step: Option<StepNo>,
    text: String,
    site: ReadSite,
    why: Known,
}

/// Reports every name that has no value. True if none of them is an error.
pub(crate) fn check(document: &Document<'_>, plan: &Plan, p: &mut Problems) -> bool {
    let visible = Visible::of(plan);
    let mut found: Vec<UnknownRead> = Vec::new();
    templates::each(plan, &mut |step, by, template| {
        // Most templates read only what is known, and need not be looked at closely.
        let mut reads = template.reads().iter();
        if reads.all(|path| visible.knows(step, by, path) == Known::Yes) {
            return;
        }
        let sites = template.sites();
        for site in &sites {
            let why = visible.knows(step, by, &site.path);
            if why != Known::Yes && !is_tested(&site.path, &sites) {
                found.push(UnknownRead {
                    step,
                    text: template.source().to_owned(),
                    site: site.clone(),
                    why,
                });
            }
        }
    });
    if found.is_empty() {
        return true;
    }
    let strict = plan.policy().strict_templates;
    let places = Places::of(document);
    let spans = places_of(document, plan, &places, &found);
    match strict {
        true => errors(plan, &visible, &found, &spans, p),
        false => warnings(document, plan, &visible, &found, &spans, p),
    }
    !strict
}

/// Whether the template asks anywhere whether the path, or a value above it, is there.
fn is_tested(path: &str, sites: &[ReadSite]) -> bool {
    sites.iter().any(|site| {
        let rest = path.strip_prefix(site.path.as_str());
        site.tested && rest.is_some_and(|it| it.is_empty() || it.starts_with('.'))
    })
}

/// Where each read stands. A text that occurs several times in a step is found as often.
fn places_of(
    document: &Document<'_>,
    plan: &Plan,
    places: &Places<'_>,
    found: &[UnknownRead],
) -> Vec<Span> {
    let mut taken: HashMap<(Option<StepNo>, &str, usize), usize> = HashMap::new();
    let place = |read: &UnknownRead, nth: usize| {
        let step = read.step.map(|no| plan.step(no).name.as_str());
        let whole = places.of_text(step, &read.text, nth)?;
        let range = read.site.range.clone();
        Some(document.source.part(whole, &read.text, range))
    };
    found
        .iter()
        .map(|read| {
            let key = (read.step, read.text.as_str(), read.site.range.start);
            let nth = taken.entry(key).or_default();
            *nth += 1;
            place(read, *nth - 1).unwrap_or(Span::at(document.root.span.start))
        })
        .collect()
}

fn errors(
    plan: &Plan,
    visible: &Visible<'_>,
    found: &[UnknownRead],
    spans: &[Span],
    p: &mut Problems,
) {
    for (read, span) in found.iter().zip(spans) {
        if p.is_full() {
            return;
        }
        p.error(codes::NAME_UNKNOWN, *span, message(read))
            .help(help(plan, visible, read));
    }
}

fn warnings(
    document: &Document<'_>,
    plan: &Plan,
    visible: &Visible<'_>,
    found: &[UnknownRead],
    spans: &[Span],
    p: &mut Problems,
) {
    let mut by_name: BTreeMap<String, Vec<(Span, &UnknownRead)>> = BTreeMap::new();
    for (read, span) in found.iter().zip(spans) {
        let reads = by_name.entry(message(read)).or_default();
        reads.push((*span, read));
    }
    for (message, mut reads) in by_name {
        reads.sort_by_key(|(span, _)| *span);
        let Some(((span, read), others)) = reads.split_first() else {
            continue;
        };
        let line = |span: &Span| document.source.line_col(span.start).0;
        let mut lines: Vec<usize> = others.iter().map(|(span, _)| line(span)).collect();
        lines.dedup();
        lines.retain(|it| *it != line(span));
        let more = match lines.len() {
            0 => String::new(),
            count => {
                let named: Vec<String> = lines.iter().map(usize::to_string).collect();
                let named = &named[..count.min(NAMED_LINES)];
                let rest = if count > NAMED_LINES { ", …" } else { "" };
                let word = if count == 1 { "line" } else { "lines" };
                format!(" (also in {word} {}{rest})", named.join(", "))
            }
        };
        p.warn(codes::NAME_UNKNOWN, *span, format!("{message}{more}"))
            .help(help(plan, visible, read));
    }
}

fn message(read: &UnknownRead) -> String {
    let path = &read.site.path;
    let part = |at: usize| path.split('.').nth(at).unwrap_or_default();
    match read.why {
        Known::Yes | Known::NoName => {
            format!(
                "nothing is called {} here: no step, parameter or variable",
                quote(part(0))
            )
        }
        Known::NoParameter => format!("`workload` has no parameter {}", quote(path)),
        Known::NoVariable => format!("nothing sets {}", quote(&format!("ctx.{}", part(1)))),
        Known::NoArgument => {
            let argument = format!("{}.{}", part(0), part(1));
            format!("nobody gives the argument {}", quote(&argument))
        }
        Known::NoSecret => format!("the keychain has no entry {}", quote(part(1))),
    }
}

fn help(plan: &Plan, visible: &Visible<'_>, read: &UnknownRead) -> String {
    let path = &read.site.path;
    let name = path.split('.').next().unwrap_or_default();
    let default = format!("write `{path} | default(…)` if it may be absent");
    let near = |given: &str, known: &[&str], above: &str| {
        let near = nearest(given, known)?;
        Some(format!(
            "did you mean {}?",
            quote(&format!("{above}{near}"))
        ))
    };
    let declares = plan.net().workload.is_object();
    let (meant, otherwise) = match read.why {
        Known::Yes | Known::NoName => {
            let names = visible.names(read.step);
            let own = match declares {
                true => format!("a parameter of the run is declared in `workload`; {default}"),
                false => format!("a parameter of the run is `workload.{name}`; {default}"),
            };
            (near(name, &names, ""), own)
        }
        Known::NoParameter => {
            let keys = visible.parameters_beside(path);
            let last = path.rsplit('.').next().unwrap_or(path);
            let above = path.strip_suffix(last).unwrap_or_default();
            let own =
                format!("declare it in `workload`, with null if it has no default; {default}");
            (near(last, &keys, above), own)
        }
        Known::NoVariable => {
            let key = path.split('.').nth(1).unwrap_or_default();
            let own = format!("set it with `set_ctx` in a step before; {default}");
            (near(key, &visible.variables(), "ctx."), own)
        }
        Known::NoArgument => {
            let key = path.split('.').nth(1).unwrap_or_default();
            let keys = visible.arguments(read.step);
            let own = format!("add it to the input of the step, or to the arcs to it; {default}");
            (near(key, &keys, &format!("{name}.")), own)
        }
        Known::NoSecret => {
            let key = path.split('.').nth(1).unwrap_or_default();
            let own = "add `- name: …` to `keychain`".to_owned();
            (near(key, &visible.secrets(), "keychain."), own)
        }
    };
    meant.unwrap_or(otherwise)
}
