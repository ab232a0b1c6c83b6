//! One task: `{name, kind, …}`.

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::expr::has_template;

use super::kinds::{FieldShape, FieldSpec, ToolKind};
use super::{TaskDef, kinds, label, rules, script};
use crate::codes;
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
    also_needed(kind, &f, &json, p);
    one_body(kind, &f, &json, p);
    whole_address(kind, &f, &json, p);
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

/// Fields that a task needs only beside, or instead of, certain others.
fn also_needed(kind: &ToolKind, f: &Fields<'_>, json: &Map<String, Json>, p: &mut Problems) {
    let action = json.get("action").and_then(Json::as_str);
    let lacks = |name: &str| !json.contains_key(name);
    let (names, why, help): (&[&'static str], _, _) = match (kind.name, action) {
        ("redis", _) if lacks("url") && lacks("auth") => (
            &["url", "auth", "credential"],
            "a `redis` task must say where the server is, with `url` or `auth`",
            "add `url: redis://host:6379`, or `auth` with the name of a credential",
        ),
        ("file", Some("read" | "write" | "delete")) if lacks("path") => (
            &["path"],
            "a `file` task needs `path`, but for `list`",
            "add `path: …`",
        ),
        ("file", Some("write")) if lacks("content") => (
            &["content"],
            "a `file` task that writes needs `content`",
            "add `content: …`",
        ),
        _ => return,
    };
    // A field with another problem is there.
    if !names.iter().any(|name| f.has(name)) {
        p.missing(codes::FIELD_MISSING, f.span(), names, why)
            .help(help);
    }
}

/// A request has one body. A template may leave one of several out, so that only bodies that are written out count.
fn one_body(kind: &ToolKind, f: &Fields<'_>, json: &Map<String, Json>, p: &mut Problems) {
    let is_sure = |name: &&&str| match json.get(**name) {
        None | Some(Json::Null) => false,
        Some(Json::String(text)) => !has_template(text),
        Some(_) => true,
    };
    let bodies = ["json", "body", "form"];
    let sure: Vec<&str> = bodies.iter().filter(is_sure).copied().collect();
    if let ("http", [first, second, ..]) = (kind.name, &sure[..]) {
        let spans = [f.span_of(first), f.span_of(second)];
        let later = spans.into_iter().max_by_key(|span| span.start);
        let message = format!("a request has one body, and this has {}", list(&sure));
        p.error(codes::FIELD_CONFLICT, later.unwrap_or(f.span()), message)
            .help("keep one of them");
    }
}

/// The address of a request begins with its scheme; what a template gives is known only when the task runs.
fn whole_address(kind: &ToolKind, f: &Fields<'_>, json: &Map<String, Json>, p: &mut Problems) {
    let url = json.get("url").and_then(Json::as_str).unwrap_or_default();
    let begins = |scheme: &str| {
        let start = url.trim_start().get(..scheme.len());
        start.is_some_and(|it| it.eq_ignore_ascii_case(scheme))
    };
    // A reference to a secret begins with `$`.
    let is_open = url.is_empty() || has_template(url) || url.contains("${");
    if kind.name != "http" || is_open || begins("http://") || begins("https://") {
        return;
    }
    let name = if f.has("url") { "url" } else { "endpoint" };
    let message = format!("{} must begin with `https://` or `http://`", quote(name));
    p.error(codes::FIELD_VALUE, f.span_of(name), message)
        .help("write the whole address, such as https://example.com/orders");
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
        p.error(codes::TOOL_UNKNOWN, field.span(), message)
            .help(help);
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
                codes::FIELD_UNUSED,
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
            p.warn(
                codes::FIELD_UNUSED,
                task.span(),
                "`task` of a call is not used",
            )
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
                codes::FIELD_MISSING,
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
                p.error(codes::FIELD_CONFLICT, inner.span(), message)
                    .help("keep one of them");
            }
        }
    }
    let name = key.names.first().copied().unwrap_or_default();
    match found {
        Some(found) if scripted => {
            let message = format!("{} is given beside `script`", found.label);
            p.error(codes::FIELD_CONFLICT, found.span(), message)
                .help("keep one of them");
        }
        Some(found) => value(&found, name, key.shape, json, p),
        None if scripted => {}
        None if key.required => {
            let what = format!("a {} task needs {}", quote(kind.name), one_of(key.names));
            p.missing(codes::FIELD_MISSING, f.span(), key.names, what)
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
                field.error(codes::FIELD_VALUE, "must not be empty", p);
            }
            put(items.iter().filter_map(|it| it.string(p)).collect());
        }
        FieldShape::Flag => {
            if rules::is_template(field.node) || field.bool(p).is_some() {
                put(field.json());
            }
        }
        FieldShape::OneOf(words) => one_of_words(field, words, &mut put, p),
    }
}

fn one_of_words(
    field: &Field<'_>,
    words: &[&'static str],
    put: &mut dyn FnMut(Json),
    p: &mut Problems,
) {
    let Some(text) = field.string(p) else { return };
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(text));
    if let Some(word) = found {
        put(json!(word));
    } else if has_template(text) {
        put(json!(text));
    } else {
        field.one_of(words, p);
    }
}

fn fixed(field: &Field<'_>, p: &mut Problems) -> bool {
    let is_template = rules::is_template(field.node);
    if is_template {
        field
            .error(codes::FIELD_VALUE, "cannot be a template", p)
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
            codes::TEMPLATE_IGNORED,
            field.span(),
            format!("templates in {} are not evaluated", field.label),
        )
        .help("pass the value through `args`: each becomes a variable of the program");
    }
}

/// Reads `spec.policy.rules` of a task into the field `rules`; without rules the field is absent.
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
