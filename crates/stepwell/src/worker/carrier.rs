//! Artifacts through the server, for workers that cannot reach the store of the artifacts.

use std::sync::Arc;

use stepwell_client::{ClientError, Connection};
use stepwell_worker::artifacts::{ArtifactKey, CarryArtifacts, Carrying, NotCarried};

use super::tools::GivenTasks;

/// Artifacts through the server.
#[derive(Debug)]
pub(super) struct ThroughServer {
    connection: Connection,
    given: Arc<GivenTasks>,
}

impl ThroughServer {
    pub(super) fn new(connection: &Connection, given: &Arc<GivenTasks>) -> ThroughServer {
        ThroughServer {
            connection: connection.clone(),
            given: Arc::clone(given),
        }
    }
}

fn not_carried(error: ClientError) -> NotCarried {
    match error {
        ClientError::Refused { status: 404, .. } => NotCarried::Missing,
        error @ (ClientError::Address(..)
        | ClientError::Certificates(..)
        | ClientError::Name(_)
        | ClientError::PlainToken(_)
        | ClientError::Untrusted(_)
        | ClientError::Unreachable(_)
        | ClientError::Refused { .. }) => NotCarried::Failed(error.to_string()),
    }
}

impl CarryArtifacts for ThroughServer {
    fn put<'a>(
        &'a self,
        key: &'a ArtifactKey,
        kind: &'a str,
        bytes: bytes::Bytes,
    ) -> Carrying<'a, ()> {
        Box::pin(async move {
            let token = self.given.token(&key.run_id, &key.step_id, key.execution);
            let token = token.ok_or_else(|| {
                NotCarried::Failed("the artifact belongs to no task of this worker".to_owned())
            })?;
            let put = self
                .connection
                .put_artifact(&token, &key.name, kind, bytes)
                .await;
            put.map(drop).map_err(not_carried)
        })
    }

    fn get<'a>(&'a self, uri: &'a str) -> Carrying<'a, bytes::Bytes> {
        Box::pin(async move {
            let bytes = self.connection.get_artifact(uri).await;
            bytes.map(Into::into).map_err(not_carried)
        })
    }
}
