//! The tool `postgres` at a server that wants a password and encryption.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::outcome::ToolError;
use crate::tool::Tool as _;
use crate::tools::postgres::{Postgres, PostgresOptions};
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tempfile::TempDir;

use crate::testing::calls::{call_with, cx_for, failed, ok};
use crate::testing::postgres_server::cluster::Cluster;

/// Who may come in, and how: only `guest` needs a password, and encryption.
const RULES: &str =
    "host all postgres 127.0.0.1/32 trust\nhostssl all guest 127.0.0.1/32 scram-sha-256\n";

/// Made once for these tests, for a hundred years and the name `localhost`.
const AUTHORITY: &str = include_str!("login/authority.pem");
const CERTIFICATE: &str = include_str!("login/certificate.pem");
const KEY: &str = include_str!("login/key.pem");

struct Guarded {
    _cluster: Cluster,
    port: u16,
    root: PathBuf,
    _directory: TempDir,
}

/// A server with a certificate for `localhost`.
async fn guarded() -> Guarded {
    let cluster = Cluster::start(&[]).unwrap();
    let connected = tokio_postgres::connect(&cluster.url(), tokio_postgres::NoTls).await;
    let (client, connection) = connected.unwrap();
    tokio::spawn(connection);
    let data = client.query_one("SHOW data_directory", &[]).await.unwrap();
    let data = PathBuf::from(data.get::<_, String>(0));
    let owner = fs::metadata(&data).unwrap();
    let give = |name: &str, text: &str| {
        let path = data.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    };
    give("server.crt", CERTIFICATE);
    give("server.key", KEY);
    give("pg_hba.conf", RULES);
    for text in [
        "CREATE ROLE guest LOGIN PASSWORD 'right'",
        "ALTER SYSTEM SET ssl = on",
        "SELECT pg_reload_conf()",
    ] {
        client.batch_execute(text).await.unwrap();
    }
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("root.pem");
    fs::write(&root, AUTHORITY).unwrap();
    let port = cluster.url();
    let port = port.rsplit_once(':').unwrap().1;
    let guarded = Guarded {
        port: port.split_once('/').unwrap().0.parse().unwrap(),
        _cluster: cluster,
        root,
        _directory: directory,
    };
    guarded.until_encrypted().await;
    guarded
}

impl Guarded {
    fn auth(&self, host: &str, sslmode: &str, root: Option<&Path>) -> Json {
        json!({"host": host, "port": self.port, "user": "guest", "password": "right",
            "database": "postgres", "sslmode": sslmode, "sslrootcert": root})
    }

    async fn encrypted(&self, auth: Json) -> bool {
        let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let seen = ok(&tool(), &call_with(json!({"commands": query}), auth)).await;
        seen["rows"][0]["ssl"] == true
    }

    async fn refused(&self, auth: Json) -> ToolError {
        let call = call_with(json!({"commands": "SELECT 1"}), auth);
        failed(&tool(), &call).await.error.unwrap()
    }

    /// The server reads its settings again when it gets to it.
    async fn until_encrypted(&self) {
        let auth = self.auth("127.0.0.1", "require", None);
        let call = call_with(json!({"commands": "SELECT 1"}), auth);
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let cx = cx_for(Duration::from_secs(5));
            match tool().run(&call, &cx).await.error {
                None => return,
                Some(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn tool() -> Postgres {
    Postgres::new(PostgresOptions::default())
}

#[tokio::test]
async fn encryption_is_what_sslmode_says() {
    let server = guarded().await;
    let root = Some(server.root.as_path());
    assert!(
        server
            .encrypted(server.auth("127.0.0.1", "prefer", None))
            .await
    );
    assert!(
        server
            .encrypted(server.auth("localhost", "verify-full", root))
            .await
    );
    // The certificate is not for this name, and that matters to one of them only.
    assert!(
        server
            .encrypted(server.auth("127.0.0.1", "verify-ca", root))
            .await
    );
    let other = server
        .refused(server.auth("127.0.0.1", "verify-full", root))
        .await;
    assert_eq!(
        (other.class, &*other.code),
        (ErrorClass::Transport, "PG_UNREACHABLE")
    );
    assert!(other.message.contains("certificate"), "{other}");
    // Nobody vouches for it without its root.
    let unknown = server
        .refused(server.auth("localhost", "verify-full", None))
        .await;
    assert!(
        ["PG_UNREACHABLE", "PG_ADDRESS"].contains(&&*unknown.code),
        "{unknown}"
    );
    let plain = server
        .refused(server.auth("127.0.0.1", "disable", None))
        .await;
    assert_eq!((plain.class, &*plain.code), (ErrorClass::Auth, "PG_28000"));
    // A request to cancel takes the same way.
    let sleep = json!({"commands": "SELECT pg_sleep(60)"});
    let call = call_with(sleep, server.auth("127.0.0.1", "require", None));
    let began = Instant::now();
    let cx = cx_for(Duration::from_millis(300));
    let error = tool().run(&call, &cx).await.error.unwrap();
    assert_eq!(error.code, "TASK_TIMEOUT");
    assert!(
        began.elapsed() < Duration::from_millis(1800),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let server = guarded().await;
    let mut auth = server.auth("127.0.0.1", "require", None);
    auth["password"] = "hunter2".into();
    let wrong = server.refused(auth.clone()).await;
    assert_eq!((wrong.class, &*wrong.code), (ErrorClass::Auth, "PG_28P01"));
    assert!(!wrong.message.contains("hunter2"), "{wrong}");
    auth["password"] = Json::Null;
    let none = server.refused(auth).await;
    assert_eq!(none.class, ErrorClass::Auth, "{none}");
    assert!(!none.is_retryable());
}
