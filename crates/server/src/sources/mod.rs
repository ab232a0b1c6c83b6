//! Sources: queues, streams and topics of brokers whose messages start runs or deliver events. A source is a document of the
//! store; every server reads from it, and the broker gives each message to one of them.

mod runner;
mod states;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stepwell_engine::store::{DocumentFilter, NewDocument, Store, StoredDocument};
use stepwell_kernel::time::Time;

pub(crate) use runner::follow;
pub(crate) use states::{SourceState, SourceStates};

use crate::codes;
use crate::definitions::contended;
use crate::problem::ApiProblem;
use crate::webhooks::Target;

/// The kind of the documents.
const KIND: &str = "source";
/// How often a change is tried that others are faster with.
const TRIES: usize = 50;

/// A source as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceDocument {
    pub(crate) name: String,
    /// Never with a secret: the address names one.
    pub(crate) address: String,
    pub(crate) target: Target,
    /// The largest body of a message, in bytes.
    pub(crate) max_body: usize,
    pub(crate) enabled: bool,
    pub(crate) project: String,
    pub(crate) environment: String,
    pub(crate) by: String,
    pub(crate) changed_at: String,
}

pub(crate) fn invalid(why: impl Into<String>) -> ApiProblem {
    ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, codes::SOURCE_INVALID, why)
}

pub(crate) fn unknown(name: &str) -> ApiProblem {
    ApiProblem::not_found(codes::SOURCE_UNKNOWN, format!("there is no source {name}"))
}

/// The sources in a store.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) store: &'a dyn Store,
}

impl Sources<'_> {
    pub(crate) fn find(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<SourceDocument>, ApiProblem> {
        let found = self.store.document(KIND, tenant, name)?;
        found.map(|it| read(&it)).transpose()
    }

    /// The sources of a tenant, or of all tenants, with their tenants.
    pub(crate) fn list(
        &self,
        tenant: Option<String>,
        after: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<(String, SourceDocument)>, ApiProblem> {
        let filter = DocumentFilter {
            kind: KIND.to_owned(),
            tenant,
            after,
            limit,
            ..DocumentFilter::default()
        };
        let found = self.store.documents(&filter)?;
        found
            .iter()
            .map(|it| Ok((it.tenant.clone(), read(it)?)))
            .collect()
    }

    /// Writes a source. Says whether it is new.
    pub(crate) fn put(
        &self,
        tenant: &str,
        source: &SourceDocument,
        now: Time,
    ) -> Result<bool, ApiProblem> {
        let document = NewDocument {
            kind: KIND.to_owned(),
            tenant: tenant.to_owned(),
            key: source.name.clone(),
            body: serde_json::to_string(source).map_err(|error| ApiProblem::internal(&error))?,
        };
        for _ in 0..TRIES {
            let version = self
                .store
                .document(KIND, tenant, &source.name)?
                .map(|it| it.version);
            if self.store.put_document(&document, version, now)?.is_some() {
                return Ok(version.is_none());
            }
        }
        Err(contended())
    }

    pub(crate) fn delete(&self, tenant: &str, name: &str) -> Result<(), ApiProblem> {
        for _ in 0..TRIES {
            let Some(found) = self.store.document(KIND, tenant, name)? else {
                return Err(unknown(name));
            };
            if self
                .store
                .delete_document(KIND, tenant, name, found.version)?
            {
                return Ok(());
            }
        }
        Err(contended())
    }
}

fn read(document: &StoredDocument) -> Result<SourceDocument, ApiProblem> {
    serde_json::from_str(&document.body).map_err(|error| {
        let why = format!("the source {} cannot be read: {error}", document.key);
        ApiProblem::internal(&why)
    })
}
