//! Texts of definitions: compiled, checked, and everything that is wrong with them said with its place.

use std::sync::LazyLock;

use axum::http::StatusCode;
use serde::Serialize;
use stepwell_dialects::children;
use stepwell_dialects::plan::check_engine;
use stepwell_dialects::tools::used;
use stepwell_dialects::{Loaded, Problem as Finding, Severity, Source, advice, load};
use stepwell_engine::EngineRoutes;
use stepwell_kernel::plan::Plan;
use stepwell_worker::ToolRules;
use utoipa::ToSchema;

use crate::codes;
use crate::problem::ApiProblem;
use crate::settings::ServerSettings;

/// What a text without a file is called in messages.
const UNNAMED: &str = "definition";
/// The longest path of a file.
const MAX_FILE: usize = 500;

/// The file of a definition is a path below the folder of its sender.
pub(crate) fn check_file(file: Option<&str>) -> Result<(), ApiProblem> {
    let Some(file) = file else { return Ok(()) };
    let is_below = file.split('/').all(|it| !["", ".", ".."].contains(&it));
    let is_plain = !file
        .chars()
        .any(|it| it.is_control() || it == ':' || it == '\\');
    match is_below && is_plain && file.len() <= MAX_FILE {
        true => Ok(()),
        false => Err(ApiProblem::bad_request(
            "file: a relative path such as flows/order.yaml is needed, without .. and :",
        )),
    }
}

/// A text and what was found in it.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) loaded: Loaded,
    pub(crate) sha256: Option<String>,
    /// Everything that is wrong, and advice, with places.
    pub(crate) problems: Vec<FoundProblem>,
    pub(crate) errors: usize,
}

impl Checked {
    /// Looks at a text as `stepwell check` does, for whoever is to run it.
    pub(crate) fn of(permits: Permits<'_>, file: Option<&str>, text: &str) -> Checked {
        Checked::with_children(permits, file, text, &|_, _| true)
    }

    /// The same, and warns of calls of definitions that are not known: they can be registered before a run needs them.
    pub(crate) fn with_children(
        permits: Permits<'_>,
        file: Option<&str>,
        text: &str,
        is_known: &dyn Fn(&Plan, &str) -> bool,
    ) -> Checked {
        let source = match Source::from_bytes(file.unwrap_or(UNNAMED), text.as_bytes()) {
            Ok(source) => source,
            Err(problem) => {
                return Checked {
                    problems: vec![finding(&problem, None)],
                    sha256: None,
                    errors: 1,
                    loaded: Loaded {
                        plan: None,
                        unusable: None,
                        dialect: None,
                        problems: vec![problem],
                    },
                };
            }
        };
        let mut loaded = load(&source);
        let has_errors = errors(&loaded.problems) > 0;
        let right = loaded.plan.as_ref().filter(|_| !has_errors);
        if let Some(plan) = right.or(loaded.unusable.as_ref()) {
            let mut found = advice::advice(&source, plan);
            found.extend(permits.findings(Some(&source), plan));
            if right.is_some() {
                found.extend(check_engine(plan, permits.engine(plan)));
            }
            let unknown = children::unknown(&source, plan, &|path| is_known(plan, path));
            found.extend(unknown.into_iter().map(|mut it| {
                it.severity = Severity::Warning;
                it.help("register the definition, or write the name or the path of one that is registered");
                it
            }));
            loaded.problems.extend(found);
        }
        let errors = errors(&loaded.problems);
        if errors > 0 {
            loaded.plan = None;
        }
        Checked {
            problems: loaded
                .problems
                .iter()
                .map(|it| finding(it, Some(&source)))
                .collect(),
            sha256: Some(source.sha256()),
            errors,
            loaded,
        }
    }
}

fn errors(findings: &[Finding]) -> usize {
    findings
        .iter()
        .filter(|it| it.severity == Severity::Error)
        .count()
}

/// The plan of a text, or everything that is wrong with the text.
pub(crate) fn compile(file: Option<&str>, text: &str) -> Result<Plan, ApiProblem> {
    sourced(file, text).map(|it| it.1)
}

/// The plan of a text that a tenant may run.
pub(crate) fn compile_for(
    permits: Permits<'_>,
    file: Option<&str>,
    text: &str,
) -> Result<Plan, ApiProblem> {
    let (source, plan) = sourced(file, text)?;
    permits.check(Some(&source), &plan)?;
    Ok(plan)
}

fn sourced(file: Option<&str>, text: &str) -> Result<(Source, Plan), ApiProblem> {
    let source = Source::from_bytes(file.unwrap_or(UNNAMED), text.as_bytes())
        .map_err(|finding| with_findings(&[finding], None))?;
    let loaded = load(&source);
    let is_wrong = errors(&loaded.problems) > 0;
    match loaded.plan.filter(|_| !is_wrong) {
        Some(plan) => Ok((source, plan)),
        None => Err(with_findings(&loaded.problems, Some(&source))),
    }
}

/// Who is to run a definition: only some tools may be theirs, and some definitions run on engines outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permits<'a> {
    pub(crate) tools: &'a ToolRules,
    pub(crate) engines: &'a EngineRoutes,
    pub(crate) tenant: &'a str,
    /// Absent: not known yet; then a tool must be allowed in some project of the tenant.
    pub(crate) project: Option<&'a str>,
}

impl Default for Permits<'_> {
    /// Every tool: a definition that was registered is shown, whatever the lists say now.
    fn default() -> Self {
        static ALL: LazyLock<(ToolRules, EngineRoutes)> = LazyLock::new(Default::default);
        Permits {
            tools: &ALL.0,
            engines: &ALL.1,
            tenant: "",
            project: None,
        }
    }
}

impl<'a> Permits<'a> {
    /// What the settings of a server allow.
    pub(crate) fn new(
        settings: &'a ServerSettings,
        tenant: &'a str,
        project: Option<&'a str>,
    ) -> Permits<'a> {
        Permits {
            tools: &settings.tools,
            engines: &settings.engines,
            tenant,
            project,
        }
    }

    /// The engine that runs a plan, as the log names it.
    fn engine(self, plan: &Plan) -> &'static str {
        let outside = self
            .engines
            .engine_of(&plan.net().plan_id, self.tenant, self.project);
        outside.unwrap_or("native")
    }

    /// Refuses a plan that asks for what its engine does not have.
    pub(crate) fn must_suit(self, plan: &Plan) -> Result<(), ApiProblem> {
        let findings = check_engine(plan, self.engine(plan));
        match errors(&findings) > 0 {
            true => Err(with_findings(&findings, None)),
            false => Ok(()),
        }
    }

    /// What a plan does that it may not, with the places if the source is known.
    fn findings(self, source: Option<&Source>, plan: &Plan) -> Vec<Finding> {
        if self.tools.is_empty() {
            return Vec::new();
        }
        used::forbidden(source, plan, |tool| match self.project {
            Some(project) => self.tools.forbids(self.tenant, project, tool),
            None => self.tools.forbids_tenant(self.tenant, tool),
        })
    }

    /// Refuses a plan that uses tools which it may not use.
    pub(crate) fn check(self, source: Option<&Source>, plan: &Plan) -> Result<(), ApiProblem> {
        let findings = self.findings(source, plan);
        match findings.is_empty() {
            true => Ok(()),
            false => Err(with_findings(&findings, source)),
        }
    }
}

pub(crate) fn with_findings(findings: &[Finding], source: Option<&Source>) -> ApiProblem {
    let first = findings.iter().find(|it| it.severity == Severity::Error);
    let code = first.map_or(codes::DEFINITION_INVALID, |it| it.code);
    let detail = first.map_or_else(String::new, |it| it.message.clone());
    let findings = findings.iter().map(|it| finding(it, source)).collect();
    ApiProblem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        code,
        format!("the definition cannot be used: {detail}"),
    )
    .with_problems(findings)
}

/// What is wrong at a place of a definition, or advice about it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct FoundProblem {
    pub(crate) code: String,
    /// `error` or `warning`.
    pub(crate) severity: String,
    pub(crate) message: String,
    /// The line, from 1; null if the problem has no place.
    #[schema(required)]
    pub(crate) line: Option<usize>,
    /// The column, from 1; null if the problem has no place.
    #[schema(required)]
    pub(crate) column: Option<usize>,
    /// What to do about it.
    #[schema(required)]
    pub(crate) help: Option<String>,
}

impl FoundProblem {
    /// What is wrong with a file and has no place in it.
    pub(crate) fn of_file(code: &str, message: &str) -> FoundProblem {
        FoundProblem {
            code: code.to_owned(),
            severity: "error".to_owned(),
            message: message.to_owned(),
            line: None,
            column: None,
            help: None,
        }
    }
}

pub(crate) fn finding(finding: &Finding, source: Option<&Source>) -> FoundProblem {
    let at = source.map(|source| source.line_col(finding.span.start));
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    FoundProblem {
        code: finding.code.to_owned(),
        severity: severity.to_owned(),
        message: finding.message.clone(),
        line: at.map(|it| it.0),
        column: at.map(|it| it.1),
        help: finding.help.clone(),
    }
}
