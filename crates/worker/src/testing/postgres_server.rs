//! A PostgreSQL for tests: the one that `cargo xtask test` starts, with a schema for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::tool::ToolCall;
use serde_json::{Value as Json, json};

use crate::testing::calls::call_with;

/// Only the standard library is in it, so it can be included here as it is.
#[path = "../../../../xtask/src/cluster.rs"]
#[allow(dead_code, reason = "xtask uses the rest")]
pub(crate) mod cluster;

/// The server's address. Tests never skip: without one they fail and say what to do.
pub(crate) fn url() -> String {
    std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, or `cargo xtask postgres -- \
             cargo test -p stepwell-worker`, which start a PostgreSQL; or set it to the address of \
             one, like postgresql://user@host:5432/database"
        )
    })
}

/// A schema that only one test uses.
pub(crate) struct Place {
    schema: String,
}

impl Place {
    /// Creates the schema, with a name that no other test has.
    pub(crate) async fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap().as_millis() % 1_000_000_000;
        let schema = format!("worker_{now}_{}_{count}", std::process::id());
        let client = client().await;
        let text = format!("CREATE SCHEMA {schema}");
        client.batch_execute(&text).await.unwrap();
        Place { schema }
    }

    /// A task on it.
    pub(crate) fn call(&self, commands: impl Into<Json>) -> ToolCall {
        self.call_with(commands, Json::Null)
    }

    /// A task with parameters.
    pub(crate) fn call_with(&self, commands: impl Into<Json>, params: Json) -> ToolCall {
        let commands: Json = commands.into();
        let fields = json!({"commands": commands, "params": params});
        call_with(fields, json!({"dsn": url(), "schema": self.schema}))
    }

    /// How many rows a table has, asked past the tool.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let query = format!("SELECT count(*) FROM {}.{table}", self.schema);
        client().await.query_one(&query, &[]).await.unwrap().get(0)
    }
}

/// A connection past the tool.
pub(crate) async fn client() -> tokio_postgres::Client {
    let connected = tokio_postgres::connect(&url(), tokio_postgres::NoTls).await;
    let (client, connection) = connected.unwrap();
    tokio::spawn(connection);
    client
}
