//! Webhooks: requests of other systems that start runs or deliver events. Their signatures are their access. A webhook is a
//! document of the store; it has references to its secrets, never the secrets.

mod signature;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

pub(crate) use signature::{Refusal, Signature, Verified, verify};

use crate::codes;
use crate::named_documents::{Named, NamedDocuments};
use crate::problem::ApiProblem;

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
pub(crate) type Webhooks<'a> = NamedDocuments<'a, WebhookDocument>;

impl Named for WebhookDocument {
    const KIND: &str = "webhook";

    fn name(&self) -> &str {
        &self.name
    }

    fn project(&self) -> &str {
        &self.project
    }

    fn unknown(name: &str) -> ApiProblem {
        unknown(name)
    }
}
