//! Sources: queues, streams and topics of brokers whose messages start runs or deliver events. A source is a document of the
//! store; every server reads from it, and the broker gives each message to one of them.

mod runner;
mod states;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

pub(crate) use runner::follow;
pub(crate) use states::{MessageEnd, SourceState, SourceStates};

use crate::codes;
use crate::named_documents::{Named, NamedDocuments};
use crate::problem::ApiProblem;
use crate::webhooks::Target;

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
pub(crate) type Sources<'a> = NamedDocuments<'a, SourceDocument>;

impl Named for SourceDocument {
    const KIND: &str = "source";

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
