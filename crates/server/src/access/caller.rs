//! Who makes a request.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use stepwell_engine::Error;
use stepwell_engine::store::{RunNo, RunSummary, Store};
use stepwell_kernel::command::{Actor, Role};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::rejection::Code;
use stepwell_views::RunView;

use super::Right;
use super::right::ServerRole;
use crate::problem::ApiProblem;

/// The tenant, project and environment of runs that nobody gave one.
pub(crate) const LOCAL: &str = "local";

/// Who makes a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name that events and the audit log record.
    pub(crate) name: String,
    pub(crate) roles: Vec<ServerRole>,
    /// The only tenant that this caller knows; absent: all tenants.
    pub(crate) tenant: Option<String>,
    /// The only project of the tenant that this caller knows; absent: all projects.
    pub(crate) project: Option<String>,
    /// The token that the caller came with; absent on an open server.
    pub(crate) token: Option<String>,
    /// The address that the request came from.
    pub(crate) source: String,
}

impl Caller {
    pub(crate) fn has(&self, right: Right) -> bool {
        self.roles.iter().any(|role| role.has(right))
    }

    /// Who acts, for the rules of the kernel.
    pub(crate) fn actor(&self) -> Actor {
        let roles = self.roles.iter().map(|role| role.kernel());
        Actor {
            id: self.name.clone(),
            role: roles.max().unwrap_or(Role::Viewer),
            tenant: self.tenant.clone(),
            may_answer: self.has(Right::Approve),
        }
    }

    /// The tenant that a request of this caller is about; none: all tenants. A caller of one tenant who names another one is
    /// told so, in the same words whether there is such a tenant or not.
    pub(crate) fn tenant_of(&self, named: Option<String>) -> Result<Option<String>, ApiProblem> {
        only_own("tenant", &self.tenant, named)
    }

    /// The same for the project.
    pub(crate) fn project_of(&self, named: Option<String>) -> Result<Option<String>, ApiProblem> {
        only_own("project", &self.project, named)
    }

    /// The one tenant that a request of this caller is about.
    pub(crate) fn one_tenant(&self, named: Option<String>) -> Result<String, ApiProblem> {
        let tenant = self.tenant_of(named)?;
        Ok(tenant.unwrap_or_else(|| LOCAL.to_owned()))
    }

    /// Whether a run is there for this caller.
    pub(crate) fn may_see(&self, context: &RunContext) -> bool {
        self.is_of(&context.tenant_id, &context.project_id)
    }

    /// Refuses a caller with a project: what is asked for belongs to the whole tenant.
    pub(crate) fn whole_tenant(&self, what: &str) -> Result<(), ApiProblem> {
        match &self.project {
            None => Ok(()),
            Some(project) => Err(ApiProblem::new(
                StatusCode::FORBIDDEN,
                Code::AuthzTenantForbidden.name(),
                format!("you act for the project {project:?} only, and {what}"),
            )),
        }
    }

    /// Whether something of this tenant and project is there for this caller.
    pub(crate) fn is_of(&self, tenant: &str, project: &str) -> bool {
        let of = |own: &Option<String>, theirs: &str| own.as_ref().is_none_or(|it| it == theirs);
        of(&self.tenant, tenant) && of(&self.project, project)
    }

    /// Whether a run of a list is there for this caller.
    pub(crate) fn may_see_row(&self, row: &RunSummary) -> bool {
        self.is_of(&row.tenant, &row.project)
    }

    /// A run as a list shows it, if it is there for this caller. Its log is not read.
    pub(crate) fn row(&self, store: &dyn Store, run: &str) -> Result<RunSummary, Error> {
        // A run that is not there is looked for in the same way as one of another tenant: the time tells nothing.
        let no = store.find(run)?.unwrap_or(RunNo(0));
        let row = store.summary(no)?.filter(|row| self.may_see_row(row));
        row.ok_or_else(|| Error::UnknownRun(run.to_owned()))
    }

    /// A run with its log, if it is there for this caller.
    pub(crate) fn view(&self, store: &dyn Store, run: &str) -> Result<RunView, Error> {
        if self.tenant.is_some() || self.project.is_some() {
            // Before anything of it is read: how long that takes would tell how large a run of others is.
            self.find(store, run)?;
        }
        let view = RunView::read(store, run)?;
        match self.may_see(view.state.context()) {
            true => Ok(view),
            false => Err(Error::UnknownRun(run.to_owned())),
        }
    }

    /// The number of a run, if it is there for this caller. Its log is not read.
    pub(crate) fn find(&self, store: &dyn Store, run: &str) -> Result<RunNo, Error> {
        Ok(self.row(store, run)?.run)
    }

    /// The context of runs that the caller starts.
    pub(crate) fn context(&self) -> RunContext {
        let or_local = |text: &Option<String>| text.clone().unwrap_or_else(|| LOCAL.to_owned());
        RunContext {
            tenant_id: or_local(&self.tenant),
            project_id: or_local(&self.project),
            environment_id: LOCAL.to_owned(),
            triggered_by: Some(self.name.clone()),
            trigger_source: Some("api".to_owned()),
            ..RunContext::default()
        }
    }
}

/// What a caller is bound to, else what a request names.
fn only_own(
    what: &str,
    own: &Option<String>,
    named: Option<String>,
) -> Result<Option<String>, ApiProblem> {
    match (own, named) {
        (Some(own), Some(named)) if *own != named => Err(ApiProblem::new(
            StatusCode::FORBIDDEN,
            Code::AuthzTenantForbidden.name(),
            format!(
                "you act for the {what} {own:?} only, and the request names another one: leave the {what} out, or use a \
                 token of that {what}"
            ),
        )),
        (Some(own), _) => Ok(Some(own.clone())),
        (None, named) => Ok(named),
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, ApiProblem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        // The guard stands before every endpoint.
        caller.ok_or_else(|| ApiProblem::internal(&"an endpoint without a guard"))
    }
}
