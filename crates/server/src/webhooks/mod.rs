//! Webhooks: requests of other systems that start runs or deliver events. Their signatures are their access. A webhook is a
//! document of the store; it has references to its secrets, never the secrets.

mod signature;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use stepwell_engine::store::{DocumentFilter, NewDocument, Store, StoredDocument};
use stepwell_kernel::time::Time;
use utoipa::ToSchema;

pub(crate) use signature::{Refusal, Signature, Verified, verify};

use crate::codes;
use crate::definitions::{contended, documents_that, name_taken};
use crate::problem::ApiProblem;

/// The kind of the documents.
const KIND: &str = "webhook";
/// How often a change is tried that others are faster with.
const TRIES: usize = 50;

/// What a webhook does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Target {
    /// Start a run of a definition.
    Start(StartTarget),
    /// Deliver an event to a run that waits, or to everyone.
    Event(EventTarget),
}

/// The definition that a webhook starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StartTarget {
    /// The name of a definition that was registered.
    pub(crate) definition: String,
    /// The revision; the current one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<u32>,
    /// Parameters of each run. `payload`, `headers` and `trigger` are added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) params: Option<Json>,
}

/// The event that a webhook delivers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EventTarget {
    /// The type of the event.
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    /// Where the body has the key of the run that waits, as a JSON pointer such as `/order/id`. Absent: the event is for
    /// everyone, and starts runs of the definitions that it triggers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_from: Option<String>,
}

/// A webhook as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookDocument {
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) signature: Signature,
    /// References to the secrets that signatures are made with: the newest first.
    pub(crate) secrets: Vec<String>,
    /// The header with the id of a delivery.
    pub(crate) delivery_header: Option<String>,
    /// Headers that runs and events get, in small letters.
    pub(crate) headers: Vec<String>,
    pub(crate) max_body: usize,
    pub(crate) enabled: bool,
    pub(crate) project: String,
    pub(crate) environment: String,
    pub(crate) by: String,
    pub(crate) changed_at: String,
}

pub(crate) fn invalid(why: impl Into<String>) -> ApiProblem {
    ApiProblem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        codes::WEBHOOK_INVALID,
        why,
    )
}

pub(crate) fn unknown(name: &str) -> ApiProblem {
    ApiProblem::not_found(
        codes::WEBHOOK_UNKNOWN,
        format!("there is no webhook {name}"),
    )
}

/// The webhooks in a store.
#[derive(Clone, Copy)]
pub(crate) struct Webhooks<'a> {
    pub(crate) store: &'a dyn Store,
}

impl Webhooks<'_> {
    pub(crate) fn find(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<WebhookDocument>, ApiProblem> {
        let found = self.store.document(KIND, tenant, name)?;
        found.map(|it| read(&it)).transpose()
    }

    /// The webhooks of a tenant, or of all tenants, of one project or of all, with their tenants.
    pub(crate) fn list(
        &self,
        (tenant, project): (Option<String>, Option<&str>),
        after: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<(String, WebhookDocument)>, ApiProblem> {
        let mut filter = DocumentFilter {
            kind: KIND.to_owned(),
            tenant,
            after,
            limit,
            ..DocumentFilter::default()
        };
        documents_that(self.store, &mut filter, |it| {
            let webhook = read(it)?;
            let is_of = project.is_none_or(|project| project == webhook.project);
            Ok(is_of.then(|| (it.tenant.clone(), webhook)))
        })
    }

    /// Writes a webhook, of one project or of any. Says whether it is new.
    pub(crate) fn put(
        &self,
        (tenant, project): (&str, Option<&str>),
        webhook: &WebhookDocument,
        now: Time,
    ) -> Result<bool, ApiProblem> {
        let document = NewDocument {
            kind: KIND.to_owned(),
            tenant: tenant.to_owned(),
            key: webhook.name.clone(),
            body: serde_json::to_string(webhook).map_err(|error| ApiProblem::internal(&error))?,
        };
        for _ in 0..TRIES {
            let known = self.store.document(KIND, tenant, &webhook.name)?;
            let of = known.as_ref().map(read).transpose()?;
            if let (Some(of), Some(project)) = (of, project)
                && of.project != project
            {
                return Err(name_taken("webhook", &webhook.name));
            }
            let version = known.map(|it| it.version);
            if self.store.put_document(&document, version, now)?.is_some() {
                return Ok(version.is_none());
            }
        }
        Err(contended())
    }

    /// Deletes a webhook, of one project or of any.
    pub(crate) fn delete(
        &self,
        tenant: &str,
        project: Option<&str>,
        name: &str,
    ) -> Result<(), ApiProblem> {
        for _ in 0..TRIES {
            let Some(found) = self.store.document(KIND, tenant, name)? else {
                return Err(unknown(name));
            };
            let of = read(&found)?.project;
            if project.is_some_and(|project| project != of) {
                return Err(unknown(name));
            }
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

fn read(document: &StoredDocument) -> Result<WebhookDocument, ApiProblem> {
    serde_json::from_str(&document.body).map_err(|error| {
        let why = format!("the webhook {} cannot be read: {error}", document.key);
        ApiProblem::internal(&why)
    })
}
