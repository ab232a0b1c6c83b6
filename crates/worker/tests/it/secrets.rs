//! Secrets from variables, files and a server that speaks Vault's protocol.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};
use stepwell_worker::outcome::ToolError;
use stepwell_worker::secrets::{EnvVars, Redactor, SecretError, Secrets, is_reference};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

fn vars(pairs: &[(&str, &str)]) -> EnvVars {
    let map: HashMap<String, String> = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    EnvVars::new(move |name| map.get(name).cloned())
}

fn secrets(pairs: &[(&str, &str)]) -> Secrets {
    Secrets::from_vars(&vars(pairs)).unwrap()
}

/// Answers requests for `secret/data/db`; counts them.
struct Vault {
    address: String,
    asked: Arc<AtomicUsize>,
}

impl Vault {
    /// `answer` is given the path, the token, and how many requests came before.
    async fn start(
        answer: impl Fn(&str, &str, usize) -> (&'static str, String) + Send + 'static,
    ) -> Vault {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let token = head
                    .lines()
                    .find_map(|line| line.strip_prefix("x-vault-token: "))
                    .unwrap_or_default();
                let (status, body) = answer(path, token, count.fetch_add(1, Ordering::SeqCst));
                let reply = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                if status != "hang up" {
                    let _ = stream.write_all(reply.as_bytes()).await;
                }
            }
        });
        Vault { address, asked }
    }

    fn secrets(&self) -> Secrets {
        secrets(&[
            ("STEPWELL_SECRETS", "vault"),
            ("VAULT_ADDR", &self.address),
            ("VAULT_TOKEN", "s.token"),
        ])
    }
}

fn kv(fields: &Json) -> String {
    json!({ "data": { "data": fields, "metadata": { "version": 3 } } }).to_string()
}

#[test]
fn references_are_told_from_other_texts() {
    for text in [
        "secret://a",
        "secret://a/b",
        "env://A",
        "secretfile://a",
        "vault://m/p#f",
        "${secret:a}",
    ] {
        assert!(is_reference(text), "{text}");
    }
    for text in [
        "",
        "a",
        "https://x",
        "file:///x",
        "x secret://a",
        "${HOME}",
        "Bearer ${secret:a}",
    ] {
        assert!(!is_reference(text), "{text}");
    }
}

#[tokio::test]
async fn variables_hold_texts_and_mappings() {
    let secrets = secrets(&[
        ("STEPWELL_SECRET_API_KEY", "k-123456"),
        (
            "STEPWELL_SECRET_PG_K8S",
            r#"{"user": "loader", "password": "hunter22"}"#,
        ),
        ("STEPWELL_SECRET_LIST", "[1, 2]"),
        ("OTHER", "plain"),
    ]);
    assert_eq!(
        secrets.resolve("secret://api-key").await.unwrap(),
        "k-123456"
    );
    assert_eq!(
        secrets.resolve("${secret:api.key}").await.unwrap(),
        "k-123456"
    );
    assert_eq!(
        secrets.resolve("secret://pg_k8s/password").await.unwrap(),
        "hunter22"
    );
    assert_eq!(
        secrets.credential("pg_k8s").await.unwrap()["user"],
        "loader"
    );
    assert_eq!(secrets.resolve("secret://list").await.unwrap(), "[1, 2]");
    assert_eq!(secrets.resolve("env://OTHER").await.unwrap(), "plain");
}

#[tokio::test]
async fn files_hold_secrets_and_no_name_leads_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("secrets");
    fs::create_dir(&folder).unwrap();
    fs::write(dir.path().join("outside"), "not yours").unwrap();
    fs::write(folder.join("token"), "t-123456\n").unwrap();
    fs::write(folder.join("db.json"), r#"{"password": "hunter22"}"#).unwrap();
    fs::write(folder.join("huge"), "x".repeat(70_000)).unwrap();
    let setting = format!("file:{}", folder.display());
    let secrets = secrets(&[("STEPWELL_SECRETS", &setting)]);
    assert_eq!(secrets.resolve("secret://token").await.unwrap(), "t-123456");
    assert_eq!(
        secrets.resolve("secretfile://db#password").await.unwrap(),
        "hunter22"
    );
    assert_eq!(
        secrets.resolve("secret://db/password").await.unwrap(),
        "hunter22"
    );
    for reference in [
        "secretfile://../outside",
        "secret://../outside",
        "secret://..",
        "secretfile:///etc/passwd",
    ] {
        let error = secrets.resolve(reference).await.unwrap_err();
        assert_eq!(error.code(), "SECRET_NOT_FOUND", "{reference}");
    }
    let error = secrets.resolve("secret://huge").await.unwrap_err();
    assert_eq!(error.code(), "SECRET_PROVIDER");
    let error = secrets.resolve("env://HOME").await.unwrap_err();
    assert!(error.to_string().contains("STEPWELL_SECRETS"), "{error}");
}

#[tokio::test]
async fn providers_are_asked_in_order() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("both"), "from the file").unwrap();
    fs::write(dir.path().join("file"), "from the file").unwrap();
    let setting = format!("env, file:{}", dir.path().display());
    let secrets = secrets(&[
        ("STEPWELL_SECRETS", &setting),
        ("STEPWELL_SECRET_BOTH", "from the variable"),
    ]);
    assert_eq!(
        secrets.resolve("secret://both").await.unwrap(),
        "from the variable"
    );
    assert_eq!(
        secrets.resolve("secret://file").await.unwrap(),
        "from the file"
    );
}

#[test]
fn settings_that_are_wrong_say_so() {
    for (pairs, word) in [
        (vec![("STEPWELL_SECRETS", "env,kms")], "`kms`"),
        (vec![("STEPWELL_SECRETS", "file:")], "`file:`"),
        (vec![("STEPWELL_SECRETS", "vault")], "VAULT_ADDR"),
        (
            vec![("STEPWELL_SECRETS", "vault"), ("VAULT_ADDR", "http://x")],
            "VAULT_TOKEN",
        ),
        (
            vec![
                ("STEPWELL_SECRETS", "vault"),
                ("VAULT_ADDR", "https://x"),
                ("VAULT_TOKEN", "t"),
                ("VAULT_CACERT", "/nowhere.pem"),
            ],
            "VAULT_CACERT",
        ),
    ] {
        let error = Secrets::from_vars(&vars(&pairs)).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert!(!ToolError::from(error).is_retryable());
    }
}

#[tokio::test]
async fn references_are_filled_wherever_they_stand() {
    let secrets = secrets(&[
        ("STEPWELL_SECRET_API", "k-123456"),
        (
            "STEPWELL_SECRET_DB",
            r#"{"host": "db.example", "password": "${secret:api}"}"#,
        ),
    ]);
    let seen = Redactor::new();
    let mut value = json!({
        "headers": { "Authorization": "Bearer ${secret:api} and ${secret:api}" },
        "auth": "secret://db",
        "list": [" secret://api ", { "secretRef": "db/password" }, 5, null],
        "plain": "https://example.org/${HOME}",
    });
    secrets.fill(&mut value, &seen).await.unwrap();
    assert_eq!(
        value,
        json!({
            "headers": { "Authorization": "Bearer k-123456 and k-123456" },
            "auth": { "host": "db.example", "password": "${secret:api}" },
            "list": ["k-123456", "${secret:api}", 5, null],
            "plain": "https://example.org/${HOME}",
        }),
        "a secret's own text is not looked at again"
    );
    assert_eq!(
        seen.text("got k-123456 from db.example"),
        "got *** from db.example"
    );
}

#[tokio::test]
async fn a_plain_text_that_reads_like_a_secrets_name_stays() {
    let secrets = secrets(&[("STEPWELL_SECRET_ORDERS", "k-123456")]);
    let mut value = json!({ "token": { "secretRef": "orders" }, "table": "orders" });
    secrets.fill(&mut value, &Redactor::new()).await.unwrap();
    assert_eq!(value, json!({ "token": "k-123456", "table": "orders" }));
}

#[tokio::test]
async fn data_from_outside_cannot_name_another_secret() {
    let secrets = secrets(&[
        ("STEPWELL_SECRET_API", "k-123456"),
        ("STEPWELL_SECRET_OTHER", "not for this task"),
    ]);
    let written = json!({ "token": "secret://api", "body": "{{ fetch.data }}" });
    let resolved = secrets.gather(&written, &Redactor::new()).await.unwrap();
    let mut rendered = json!({ "token": "secret://api", "body": "${secret:other} secret://other" });
    resolved.apply(&mut rendered).unwrap();
    assert_eq!(
        rendered,
        json!({ "token": "k-123456", "body": "${secret:other} secret://other" })
    );
    assert!(!format!("{resolved:?} {secrets:?}").contains("123456"));
}

#[tokio::test]
async fn a_mapping_does_not_stand_inside_a_text() {
    let secrets = secrets(&[
        ("STEPWELL_SECRET_DB", r#"{"password": "hunter22"}"#),
        ("STEPWELL_SECRET_ONE", r#"{"value": "v-123456"}"#),
    ]);
    let mut value = json!("x=${secret:one}");
    secrets.fill(&mut value, &Redactor::new()).await.unwrap();
    assert_eq!(value, "x=v-123456");
    let mut value = json!("pw=${secret:db}");
    let error = secrets
        .fill(&mut value, &Redactor::new())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("FIELD"), "{error}");
    assert!(!error.to_string().contains("hunter22"));
}

#[tokio::test]
async fn errors_name_the_reference_and_never_a_value() {
    let secrets = secrets(&[("STEPWELL_SECRET_DB", r#"{"password": "hunter22"}"#)]);
    for reference in [
        "secret://db/user",
        "secret://nothing",
        "secret://",
        "secret://db/password/x",
    ] {
        let error = secrets.resolve(reference).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert_eq!(error.code(), "SECRET_NOT_FOUND");
        assert!(
            text.contains(reference) && !text.contains("hunter22"),
            "{text}"
        );
    }
    let error = secrets.resolve("secret://nothing").await.unwrap_err();
    assert!(
        error.to_string().contains("STEPWELL_SECRET_NOTHING"),
        "{error}"
    );
}

#[tokio::test]
async fn keychain_entries_name_secrets_in_several_ways() {
    let secrets = secrets(&[
        ("STEPWELL_SECRET_API", "k-123456"),
        (
            "STEPWELL_SECRET_PG",
            r#"{"host": "h", "password": "hunter22"}"#,
        ),
    ]);
    let entries = json!([
        { "name": "api", "kind": "bearer" },
        { "name": "warehouse", "type": "postgres", "credential": "pg" },
        { "name": "by_ref", "ref": "secret://pg/password" },
        { "name": "parts", "map": { "user": "me", "token": "secret://api" } },
    ]);
    let seen = Redactor::new();
    let entry = async |name| secrets.keychain(&entries, name, &seen).await;
    assert_eq!(
        entry("api").await.unwrap(),
        json!({ "type": "bearer", "token": "k-123456" })
    );
    assert_eq!(
        entry("warehouse").await.unwrap(),
        json!({ "type": "postgres", "host": "h", "password": "hunter22" })
    );
    assert_eq!(entry("by_ref").await.unwrap(), "hunter22");
    assert_eq!(
        entry("parts").await.unwrap(),
        json!({ "user": "me", "token": "k-123456" })
    );
    assert_eq!(seen.text("k-123456 hunter22 postgres"), "*** *** postgres");
    assert_eq!(
        entry("absent").await.unwrap_err().code(),
        "SECRET_NOT_FOUND"
    );
}

#[tokio::test]
async fn vault_is_asked_once_for_what_is_used_twice() {
    let vault = Vault::start(|path, token, _| match (path, token) {
        ("/v1/secret/data/db", "s.token") => (
            "200 OK",
            kv(&json!({ "user": "loader", "password": "hunter22" })),
        ),
        ("/v1/kv/data/team/a%20b", "s.token") => ("200 OK", kv(&json!({ "x": "y-123456" }))),
        _ => ("404 Not Found", json!({ "errors": [] }).to_string()),
    })
    .await;
    let secrets = vault.secrets();
    assert_eq!(
        secrets.resolve("vault://secret/db#password").await.unwrap(),
        "hunter22"
    );
    assert_eq!(
        secrets.resolve("vault://secret/db").await.unwrap()["user"],
        "loader"
    );
    assert_eq!(vault.asked.load(Ordering::SeqCst), 1);
    assert_eq!(
        secrets.resolve("vault://kv/team/a b#x").await.unwrap(),
        "y-123456"
    );
    assert_eq!(
        secrets.resolve("secret://db/password").await.unwrap(),
        "hunter22"
    );
    let error = secrets.resolve("vault://secret/absent").await.unwrap_err();
    assert_eq!(error.code(), "SECRET_NOT_FOUND");
    for reference in [
        "vault://secret",
        "vault://secret/../sys/seal",
        "vault://secret//x",
    ] {
        let error = secrets.resolve(reference).await.unwrap_err();
        assert_eq!(error.code(), "SECRET_NOT_FOUND", "{reference}");
    }
}

#[tokio::test]
async fn a_name_with_slashes_is_a_field_or_a_path() {
    let vault = Vault::start(|path, _, _| match path {
        "/v1/secret/data/db" => ("200 OK", kv(&json!({ "password": "hunter22" }))),
        "/v1/secret/data/team/api" => ("200 OK", kv(&json!({ "value": "k-123456" }))),
        _ => ("403 Forbidden", "{}".to_owned()),
    })
    .await;
    let secrets = vault.secrets();
    let field = secrets.resolve("secret://db/password").await.unwrap();
    assert_eq!(field, "hunter22");
    let path = secrets.resolve("secret://team/api").await.unwrap();
    assert_eq!(path["value"], "k-123456");
    let field = secrets.resolve("secret://team/api/value").await.unwrap();
    assert_eq!(field, "k-123456");
    let error = secrets.resolve("secret://db/user").await.unwrap_err();
    assert_eq!(error.code(), "SECRET_NOT_FOUND");
    let error = secrets.resolve("secret://other/user").await.unwrap_err();
    assert_eq!(error.class().name(), "auth");
}

#[tokio::test]
async fn vault_is_asked_again_when_it_hangs_up_or_is_sealed() {
    let vault = Vault::start(|_, _, before| match before {
        0 => ("hang up", String::new()),
        1 => ("503 Service Unavailable", "{}".to_owned()),
        _ => ("200 OK", kv(&json!({ "x": "y-123456" }))),
    })
    .await;
    let found = vault
        .secrets()
        .resolve("vault://secret/db#x")
        .await
        .unwrap();
    assert_eq!(found, "y-123456");
    assert_eq!(vault.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn what_vault_refuses_is_told_and_not_asked_again() {
    for (status, word, class) in [
        ("403 Forbidden", "token", "auth"),
        ("307 Temporary Redirect", "VAULT_ADDR", "auth"),
        ("400 Bad Request", "version 2", "auth"),
        ("200 OK", "data.data", "transport"),
    ] {
        let vault =
            Vault::start(move |_, _, _| (status, r#"{"data": "hunter22"}"#.to_owned())).await;
        let error = vault
            .secrets()
            .resolve("vault://secret/db")
            .await
            .unwrap_err();
        assert_eq!(vault.asked.load(Ordering::SeqCst), 1, "{status}");
        assert!(error.to_string().contains(word), "{error}");
        assert!(!error.to_string().contains("hunter22"));
        assert_eq!(error.class().name(), class);
    }
}

#[tokio::test]
async fn a_vault_that_is_not_there_may_be_tried_again() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let secrets = secrets(&[
        ("STEPWELL_SECRETS", "vault"),
        ("VAULT_ADDR", &address),
        ("VAULT_TOKEN", "s.token"),
    ]);
    let error = secrets.resolve("vault://secret/db").await.unwrap_err();
    assert!(matches!(error, SecretError::Provider { .. }));
    assert!(ToolError::from(error).is_retryable());
}
