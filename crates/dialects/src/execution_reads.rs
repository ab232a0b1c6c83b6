//! The errors about templates that read `execution` wrongly, with their places in the source.

use std::collections::HashMap;

use stepwell_kernel::plan::{Plan, StepNo};

use crate::codes;
use crate::document::Document;
use crate::names::Places;
use crate::problem::Problems;
use crate::source::Span;
use crate::tools::execution_fields::{self, Misread, MisreadCause};
use crate::words::{list, nearest};

/// Reports every read below `execution` that has no value. True if there is none.
pub(crate) fn check(document: &Document<'_>, plan: &Plan, p: &mut Problems) -> bool {
    let found = execution_fields::misread(plan);
    if found.is_empty() {
        return true;
    }
    let places = Places::of(document);
    let mut taken: HashMap<(Option<StepNo>, &str, usize), usize> = HashMap::new();
    for read in &found {
        let Misread {
            step,
            text,
            site,
            why,
        } = read;
        let nth = taken.entry((*step, text, site.range.start)).or_default();
        let name = step.map(|no| plan.step(no).name.as_str());
        let whole = places.of_text(name, text, *nth);
        *nth += 1;
        let span = whole.map_or(Span::at(document.root.span.start), |whole| {
            document.source.part(whole, text, site.range.clone())
        });
        report(&site.path, *why, span, p);
    }
    false
}

fn report(path: &str, why: MisreadCause, span: Span, p: &mut Problems) {
    let parameter = format!("a parameter of the run is `workload.{path}`");
    match why {
        MisreadCause::UnknownField => {
            let field = path.split('.').nth(1).unwrap_or_default();
            let meant = nearest(field, &execution_fields::NAMES);
            let meant = meant.map(|it| format!("did you mean `execution.{it}`? "));
            p.error(
                codes::TEMPLATE_EXECUTION,
                span,
                format!("`execution` has no field `{field}`"),
            )
            .help(format!(
                "{}the fields are {}; {parameter}",
                meant.unwrap_or_default(),
                list(&execution_fields::NAMES)
            ));
        }
        MisreadCause::NoExecution => {
            p.error(
                codes::TEMPLATE_EXECUTION,
                span,
                format!(
                    "`{path}` has no value here: no execution of a step evaluates this template"
                ),
            )
            .help(format!(
                "read it in a task of a step, which can keep it with `set_ctx`; {parameter}"
            ));
        }
    }
}
