//! Pages of what people have named: definitions, schedules, webhooks, sources. All are listed by tenant and name.

use serde::Deserialize;
use utoipa::IntoParams;

use crate::problem::ApiProblem;

/// How many a page has if nobody says, and at most.
pub(super) const PAGE: usize = 50;
pub(super) const MAX_PAGE: usize = 500;

/// Which of them to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NamedQuery {
    /// Only those of this tenant.
    pub(super) tenant: Option<String>,
    /// At most this many; 50 if absent, 500 at most.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// The tenant of the one that the path names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TenantQuery {
    /// The tenant that it belongs to, for callers that may act for all tenants.
    pub(super) tenant: Option<String>,
}

/// A page that is asked for.
#[derive(Debug)]
pub(super) struct AskedPage {
    /// The tenant and the name before its first row.
    pub(super) after: Option<(String, String)>,
    limit: usize,
}

impl NamedQuery {
    pub(super) fn page(&self) -> Result<AskedPage, ApiProblem> {
        Ok(AskedPage {
            after: self.after.as_deref().map(read_cursor).transpose()?,
            limit: page_of(self.limit)?,
        })
    }
}

impl AskedPage {
    /// How many rows to read: one more than the page has, to know whether there are more.
    pub(super) fn rows(&self) -> usize {
        self.limit + 1
    }

    /// The rows of the page, and its `next` if there are more. `key` is the tenant and the name of a row.
    pub(super) fn cut<T>(
        &self,
        mut found: Vec<T>,
        key: impl Fn(&T) -> (&str, &str),
    ) -> (Vec<T>, Option<String>) {
        let more = found.len() > self.limit;
        found.truncate(self.limit);
        let next = found.last().filter(|_| more).map(|last| {
            let (tenant, name) = key(last);
            format!("{}:{tenant}{name}", tenant.len())
        });
        (found, next)
    }
}

fn read_cursor(text: &str) -> Result<(String, String), ApiProblem> {
    let read = || {
        let (len, rest) = text.split_once(':')?;
        let (tenant, key) = rest.split_at_checked(len.parse().ok()?)?;
        Some((tenant.to_owned(), key.to_owned()))
    };
    read().ok_or_else(|| ApiProblem::bad_request("after: use the `next` of the page before"))
}

pub(super) fn page_of(limit: Option<usize>) -> Result<usize, ApiProblem> {
    let limit = limit.unwrap_or(PAGE);
    match (1..=MAX_PAGE).contains(&limit) {
        true => Ok(limit),
        false => Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_PAGE} is needed"
        ))),
    }
}
