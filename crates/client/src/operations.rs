//! The installation over HTTP: alerts, dead letters, sinks, tokens.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::connection::{Connection, answer, escaped, good};
use crate::error::ClientError;
use crate::runs::query;

/// What waits for a sink.
#[derive(Clone, Debug, Deserialize)]
pub struct PendingDeliveries {
    pub sink: String,
    pub waiting: u64,
    #[serde(default)]
    pub since: Option<String>,
}

impl Connection {
    /// What people must be told, newest first, at most so many.
    pub async fn alerts(&self, limit: usize) -> Result<Json, ClientError> {
        self.get(&format!("/api/v1/alerts?limit={limit}")).await
    }

    /// Dead letters, oldest first.
    pub async fn dead_letters(&self, limit: usize) -> Result<Json, ClientError> {
        self.get(&format!("/api/v1/dead-letters?limit={limit}"))
            .await
    }

    /// Puts a dead letter back into the outbox.
    pub async fn redrive(&self, no: i64) -> Result<(), ClientError> {
        let path = format!("/api/v1/dead-letters/{no}/redrive");
        good(self.request(Method::POST, &path).send().await?).await?;
        Ok(())
    }

    /// The engines outside that the server serves.
    pub async fn engines(&self) -> Result<Json, ClientError> {
        self.get("/api/v1/engines").await
    }

    /// The sinks, and what waits for them.
    pub async fn sinks(&self) -> Result<Json, ClientError> {
        self.get("/api/v1/sinks").await
    }

    /// What waits for which sink.
    pub async fn outbox(&self) -> Result<Vec<PendingDeliveries>, ClientError> {
        self.get("/api/v1/outbox").await
    }

    /// Registers a sink, or changes its address.
    pub async fn add_sink(
        &self,
        name: &str,
        address: &str,
        from_beginning: bool,
    ) -> Result<Json, ClientError> {
        let body = json!({ "address": address, "fromBeginning": from_beginning });
        let path = format!("/api/v1/sinks/{}", escaped(name));
        answer(self.request(Method::PUT, &path).json(&body)).await
    }

    /// Removes a sink; says how many pending deliveries are forgotten.
    pub async fn remove_sink(&self, name: &str) -> Result<Json, ClientError> {
        let path = format!("/api/v1/sinks/{}", escaped(name));
        answer(self.request(Method::DELETE, &path)).await
    }

    /// Creates a token. The answer has its secret, this once.
    pub async fn create_token(&self, body: &Json) -> Result<Json, ClientError> {
        self.post("/api/v1/tokens", body).await
    }

    /// The tokens that the caller may know.
    pub async fn tokens(&self) -> Result<Json, ClientError> {
        self.get("/api/v1/tokens").await
    }

    /// Ends a token and its sessions for good.
    pub async fn revoke_token(&self, id: &str, reason: Option<&str>) -> Result<Json, ClientError> {
        let query = query(&[("reason", reason.map(str::to_owned))]);
        let path = format!("/api/v1/tokens/{}{query}", escaped(id));
        answer(self.request(Method::DELETE, &path)).await
    }

    /// Gives a token a new secret.
    pub async fn rotate_token(&self, id: &str, overlap_seconds: u64) -> Result<Json, ClientError> {
        let path = format!("/api/v1/tokens/{}/rotate", escaped(id));
        self.post(&path, &json!({ "overlapSeconds": overlap_seconds }))
            .await
    }
}
