//! One task: `{name, kind, …}`.

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::expr::has_template;

use super::kinds::{FieldShape, FieldSpec, ToolKind};
use super::{TaskDef, kinds, label, rules, script};
use crate::field::Field;
use crate::leftover;
use crate::problem::Problems;
use crate::reader::{Fields, Names};
use crate::source::Span;
use crate::template;
use crate::words::{list, nearest, one_of, quote};

/// Names from the table of kinds.
struct FieldNames(&'static [&'static str]);

impl Names for FieldNames {
    fn names(&self) -> &[&'static str] {
        self.0
    }
}

/// Reads the task at this place of its block. `None` if anything about it was an error.
pub(super) fn read(item: &Field<'_>, at: usize, p: &mut Problems) -> Option<TaskDef> {
    let mut mine = Problems::new();
    let task = read_into(item, at, &mut mine);
    let ok = !mine.has_errors();
    p.extend(mine.into_vec());
    task.filter(|_| ok)
}

fn read_into(item: &Field<'_>, at: usize, p: &mut Problems) -> Option<TaskDef> {
    let (body, labelled) = label::open(item, p);
    let mut f = body.fields(p)?;
    let kind = kind(&mut f, p)?;
    let mut json = Map::new();
    let name = label::name_of(item.node, at);
    json.insert("name".to_owned(), json!(name));
    json.insert("kind".to_owned(), json!(kind.name));
    let workbook = names(&mut f, kind, labelled.is_some(), p);
    if let Some((reference, _)) = &workbook {
        json.insert("task".to_owned(), json!(reference));
    }
    let mut spec = f.opt("spec", p).and_then(|spec| spec.fields(p));
    for key in kind.fields() {
        field(&mut f, spec.as_mut(), key, kind, &mut json, p);
    }
    rules::sets(&mut f, p).write(&mut json);
    if let Some(mut spec) = spec {
        policy(&mut spec, &mut json, p);
        leftover::report(&spec, "the `spec` of a task", &known(kind, &["policy"]), p);
    }
    let what = format!("a {} task", quote(kind.name));
    let own = ["name", "kind", "spec", "set", "set_ctx", "set_iter"];
    leftover::report(&f, &what, &known(kind, &own), p);
    Some(TaskDef {
        span: short(item.node.span, f.span_of("kind")),
        kind: kind.name,
        name,
        workbook,
        json,
    })
}

/// A task's span runs over all its lines; its kind's is what a message should mark.
fn short(whole: Span, kind: Span) -> Span {
    if kind == whole {
        Span::at(whole.start)
    } else {
        kind
    }
}

fn known(kind: &ToolKind, own: &[&'static str]) -> Vec<&'static str> {
    let names = kind.fields().flat_map(|key| key.names.iter().copied());
    names.chain(own.iter().copied()).collect()
}

fn kind(f: &mut Fields<'_>, p: &mut Problems) -> Option<&'static ToolKind> {
    let field = f.req("kind", p)?;
    let name = field.string(p)?;
    let found = kinds::find(name);
    if found.is_none() {
        let known = kinds::names();
        let help = match nearest(name, &known) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!("the kinds are {}", list(&known)),
        };
        let message = format!("there is no tool {}", quote(name));
        p.error("TOOL_UNKNOWN", field.span(), message).help(help);
    }
    found
}

/// Reads `name`, and for a workbook call what it calls: `task`, or else `name` itself.
fn names(
    f: &mut Fields<'_>,
    kind: &ToolKind,
    labelled: bool,
    p: &mut Problems,
) -> Option<(String, Span)> {
    let name = f.opt("name", p);
    if let Some(name) = &name {
        name.name(p);
        if labelled {
            p.warn(
                "FIELD_UNUSED",
                name.span(),
                "this task has a label and a name; the name counts",
            )
            .help("keep one of them");
        }
    }
    if kind.name != "workbook" {
        if kind.name == "playbook"
            && let Some(task) = f.opt("task", p)
        {
            p.warn("FIELD_UNUSED", task.span(), "`task` of a call is not used")
                .help("remove it; `path` says what is called");
        }
        return None;
    }
    match f.opt("task", p).or(name) {
        Some(reference) => {
            let text = reference.string(p)?;
            Some((text.to_owned(), reference.span()))
        }
        None => {
            p.error(
                "FIELD_MISSING",
                f.span(),
                "a `workbook` task needs `name`, the workbook entry that it calls",
            )
            .help("add `name: …`");
            None
        }
    }
}

/// Reads one field of the table, from the task or from its `spec`.
fn field(
    f: &mut Fields<'_>,
    spec: Option<&mut Fields<'_>>,
    key: &FieldSpec,
    kind: &ToolKind,
    json: &mut Map<String, Json>,
    p: &mut Problems,
) {
    let scripted = key.may_be_script()
        && kind.has_script()
        && (f.has("script") || spec.as_ref().is_some_and(|spec| spec.has("script")));
    let mut found = f.opt(FieldNames(key.names), p);
    if let Some(inner) = spec.and_then(|spec| spec.opt(FieldNames(key.names), p)) {
        match &found {
            None => found = Some(inner),
            Some(outer) => {
                let message = format!("{} is given in the task and in its `spec`", outer.label);
                p.error("FIELD_CONFLICT", inner.span(), message)
                    .help("keep one of them");
            }
        }
    }
    let name = key.names.first().copied().unwrap_or_default();
    match found {
        Some(found) if scripted => {
            let message = format!("{} is given beside `script`", found.label);
            p.error("FIELD_CONFLICT", found.span(), message)
                .help("keep one of them");
        }
        Some(found) => value(&found, name, key.shape, json, p),
        None if scripted => {}
        None if key.required => {
            let what = format!("a {} task needs {}", quote(kind.name), one_of(key.names));
            p.missing("FIELD_MISSING", f.span(), key.names, what)
                .help(format!("add `{name}: …`"));
        }
        None => {}
    }
}

fn value(
    field: &Field<'_>,
    name: &str,
    shape: FieldShape,
    json: &mut Map<String, Json>,
    p: &mut Problems,
) {
    let mut put = |value: Json| {
        json.insert(name.to_owned(), value);
    };
    match shape {
        FieldShape::Code => {
            if let Some(code) = field.string(p) {
                unrendered(code, field, p);
                put(json!(code));
            }
        }
        FieldShape::Duration => rules::duration(name, field, json, p),
        FieldShape::Script => script::read(field, json, p),
        _ if !template::check(field.node, p) => {}
        FieldShape::Any => put(field.json()),
        FieldShape::Map => {
            if rules::is_template(field.node) || field.map(p).is_some() {
                put(field.json());
            }
        }
        FieldShape::Text => {
            if let Some(text) = field.string(p) {
                put(json!(text));
            }
        }
        FieldShape::Plain => {
            if let Some(text) = field.string(p).filter(|_| fixed(field, p)) {
                put(json!(text));
            }
        }
        FieldShape::Commands => {
            let items = field.list_or_one();
            if items.is_empty() {
                field.error("FIELD_VALUE", "must not be empty", p);
            }
            put(items.iter().filter_map(|it| it.string(p)).collect());
        }
        FieldShape::Flag => {
            if rules::is_template(field.node) || field.bool(p).is_some() {
                put(field.json());
            }
        }
        FieldShape::Method => method(field, &mut put, p),
    }
}

const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

fn method(field: &Field<'_>, put: &mut dyn FnMut(Json), p: &mut Problems) {
    let Some(text) = field.string(p) else { return };
    let upper = text.to_uppercase();
    if has_template(text) {
        put(json!(text));
    } else if METHODS.contains(&upper.as_str()) {
        put(json!(upper));
    } else {
        field.one_of(METHODS, p);
    }
}

fn fixed(field: &Field<'_>, p: &mut Problems) -> bool {
    let is_template = rules::is_template(field.node);
    if is_template {
        field
            .error("FIELD_VALUE", "cannot be a template", p)
            .help("write it out: it is looked up before anything is evaluated");
    }
    !is_template
}

/// Program text goes to the interpreter as it is: rendering it would break every `{{` of an
/// f-string and let data turn into code.
fn unrendered(code: &str, field: &Field<'_>, p: &mut Problems) {
    let renders = stepwell_kernel::expr::Template::parse(code)
        .is_ok_and(|template| !template.reads().is_empty());
    if has_template(code) && renders {
        p.warn(
            "TEMPLATE_IGNORED",
            field.span(),
            format!("templates in {} are not evaluated", field.label),
        )
        .help("pass the value through `args`: each becomes a variable of the program");
    }
}

/// `spec.policy.rules`.
fn policy(spec: &mut Fields<'_>, json: &mut Map<String, Json>, p: &mut Problems) {
    let Some(mut policy) = spec.opt("policy", p).and_then(|it| it.fields(p)) else {
        return;
    };
    if let Some(field) = policy.opt("rules", p)
        && let Some(rules) = rules::read(&field, p)
        && rules.as_array().is_some_and(|rules| !rules.is_empty())
    {
        json.insert("rules".to_owned(), rules);
    }
    leftover::report(&policy, "the policy of a task", &["rules"], p);
}
