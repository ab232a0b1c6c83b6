//! The PostgreSQL store over TLS, with client certificates and behind pgbouncer, as `--store` and the
//! `PG*` variables say it.
//!
//! Needs the program pgbouncer (Debian package pgbouncer).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::test_store::TestStore;
use super::{Call, root};

use super::cluster::Cluster;
use super::pgbouncer::Pgbouncer;

/// `guest` needs a password and TLS, `robot` a certificate.
const RULES: &str = "host all postgres 127.0.0.1/32 trust\n\
                     hostssl all guest 127.0.0.1/32 scram-sha-256\n\
                     hostssl all robot 127.0.0.1/32 cert\n\
                     hostnossl all plain 127.0.0.1/32 trust\n\
                     hostssl all +people 127.0.0.1/32 trust\n";

/// Made once for these tests, for a hundred years: `localhost` and the user `robot`.
const AUTHORITY: &str = include_str!("postgres_access/authority.pem");
const SERVER: [&str; 2] = [
    include_str!("postgres_access/server.pem"),
    include_str!("postgres_access/server.key"),
];
/// Its own authority, also for `localhost`.
const SELF_SIGNED: [&str; 2] = [
    include_str!("postgres_access/self-signed.pem"),
    include_str!("postgres_access/self-signed.key"),
];
const CLIENT: [&str; 2] = [
    include_str!("postgres_access/client.pem"),
    include_str!("postgres_access/client.key"),
];

const ROLES: &str = "CREATE ROLE guest LOGIN PASSWORD 'right'; CREATE ROLE robot LOGIN; \
                     CREATE ROLE plain LOGIN; CREATE ROLE people; GRANT CREATE ON DATABASE postgres TO guest, robot, plain";

const WORKFLOW: [&str; 4] = [
    "run",
    "examples/actions/order-saga.yaml",
    "--engine",
    "mock",
];

struct Guarded {
    cluster: Cluster,
    files: TestStore,
}

/// The number of the user that the server runs as, if it is not our own.
fn server_user() -> Option<u32> {
    let id = |args: &[&str]| -> Option<u32> {
        let said = Command::new("id").args(args).output().ok()?;
        let said = said.status.success().then_some(said.stdout)?;
        String::from_utf8(said).ok()?.trim().parse().ok()
    };
    if id(&["-u"]) != Some(0) {
        return None;
    }
    id(&["-u", "postgres"]).or_else(|| id(&["-u", "nobody"]))
}

impl Guarded {
    fn start(name: &str) -> Guarded {
        Guarded::with_certificate(name, SERVER, AUTHORITY)
    }

    /// A server that shows this certificate, and clients that trust this root.
    fn with_certificate(name: &str, [certificate, key]: [&str; 2], root: &str) -> Guarded {
        let files = TestStore::sqlite(name);
        let give = |name: &str, text: &str| {
            let path = files.file(name, text);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&path, server_user(), None).unwrap();
            path
        };
        let settings = [
            "ssl = on".to_owned(),
            format!("ssl_cert_file = '{}'", give("server.pem", certificate)),
            format!("ssl_key_file = '{}'", give("server.key", key)),
            format!("ssl_ca_file = '{}'", give("ca.pem", AUTHORITY)),
            format!("hba_file = '{}'", give("hba.conf", RULES)),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let cluster = Cluster::start(&settings).unwrap();
        files.file("root.pem", root);
        let server = Guarded { cluster, files };
        server.sql(ROLES);
        server
    }

    fn sql(&self, text: &str) -> String {
        let url = self.cluster.url();
        let asked = Command::new("psql").args([&url, "-Atqc", text]).output();
        let asked = asked.expect("psql is there (Debian: apt-get install postgresql-client)");
        assert!(
            asked.status.success(),
            "{}",
            String::from_utf8_lossy(&asked.stderr)
        );
        String::from_utf8(asked.stdout).unwrap()
    }

    fn port(&self) -> String {
        let url = self.cluster.url();
        let rest = url.rsplit_once(':').unwrap().1;
        rest.split_once('/').unwrap().0.to_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.database().with_file_name(name)
    }

    fn root(&self) -> String {
        format!("sslrootcert={}", self.file("root.pem").display())
    }

    fn url(&self, login: &str, host: &str, query: &str) -> String {
        format!(
            "postgresql://{login}@{host}:{}/postgres?schema=tls&{query}",
            self.port()
        )
    }

    /// Files of a client: its certificate and its key.
    fn client(&self) -> String {
        let [certificate, key] = ["client.pem", "client.key"].map(|it| self.file(it));
        fs::write(&certificate, CLIENT[0]).unwrap();
        fs::write(&key, CLIENT[1]).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        format!("sslcert={}&sslkey={}", certificate.display(), key.display())
    }
}

/// Calls the binary with a store and variables, and nothing else of ours.
fn call(args: &[&str], store: &str, variables: &[(&str, &str)]) -> Call {
    let output = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(args)
        .args(["--store", store])
        .current_dir(root())
        .env("HOME", env!("CARGO_TARGET_TMPDIR"))
        // A busy machine may answer late.
        .env("STEPWELL_STORE_PATIENCE", "1m")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Call {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn runs(store: &str) {
    let call = call(&WORKFLOW, store, &[]);
    assert_eq!(call.code, 0, "{store}: {}{}", call.out, call.err);
}

fn refused(store: &str, code: &str, why: &str) {
    // What does not pass by itself is said at once; the rest would be waited for.
    let patience = if code == "STORE_UNUSABLE" { "1m" } else { "0" };
    let call = call(&WORKFLOW, store, &[("STEPWELL_STORE_PATIENCE", patience)]);
    assert_eq!(call.code, 1, "{store}: {}{}", call.out, call.err);
    assert!(
        call.err.contains(code) && call.err.contains(why),
        "{store}: {}",
        call.err
    );
    assert!(!call.err.contains("hunter2"), "{}", call.err);
}

#[test]
fn tls_is_what_sslmode_says() {
    let server = Guarded::start("tls-modes");
    let root = server.root();
    let guest = |host: &str, query: &str| server.url("guest:right", host, query);
    runs(&guest(
        "localhost",
        &format!("sslmode=verify-full&{root}&channel_binding=require"),
    ));
    // The certificate is not for this name, and that matters to one of them only.
    runs(&guest("127.0.0.1", &format!("sslmode=verify-ca&{root}")));
    refused(
        &guest("127.0.0.1", &format!("sslmode=verify-full&{root}")),
        "STORE_UNUSABLE",
        "certificate",
    );
    runs(&guest("127.0.0.1", "sslmode=require"));
    // `require` with a root checks it: nobody of the system vouches for this server.
    let other = server.files.file(
        "other.pem",
        include_str!("../../../worker/src/tools/postgres/tests/login/authority.pem"),
    );
    refused(
        &guest("localhost", &format!("sslmode=require&sslrootcert={other}")),
        "STORE_UNUSABLE",
        "certificate",
    );
    runs(&guest("127.0.0.1", "application_name=tls"));
    refused(
        &guest("127.0.0.1", "sslmode=disable"),
        "STORE_UNUSABLE",
        "28000",
    );
    // `allow` begins without TLS and goes on with it; `prefer` the other way round.
    runs(&guest("127.0.0.1", "sslmode=allow"));
    runs(&server.url("plain", "127.0.0.1", "sslmode=prefer&schema=plain"));
    refused(
        &server.url("plain", "127.0.0.1", "sslmode=require"),
        "STORE_UNUSABLE",
        "28000",
    );
    refused(
        &server.url("guest:hunter2", "127.0.0.1", "sslmode=require"),
        "STORE_UNUSABLE",
        "28P01",
    );
}

#[test]
fn a_self_signed_certificate_is_trusted_as_its_own_root() {
    let server = Guarded::with_certificate("tls-self-signed", SELF_SIGNED, SELF_SIGNED[0]);
    let root = server.root();
    let guest = |host: &str, query: &str| server.url("guest:right", host, query);
    runs(&guest(
        "localhost",
        &format!("sslmode=verify-full&{root}&channel_binding=require"),
    ));
    runs(&guest("127.0.0.1", &format!("sslmode=verify-ca&{root}")));
    refused(
        &guest("127.0.0.1", &format!("sslmode=verify-full&{root}")),
        "STORE_UNUSABLE",
        "certificate",
    );
    let other = server.files.file("other.pem", AUTHORITY);
    refused(
        &guest(
            "localhost",
            &format!("sslmode=verify-ca&sslrootcert={other}"),
        ),
        "STORE_UNUSABLE",
        "certificate",
    );
}

/// As libpq: the user is the one that the operating system knows, not the one that a variable names.
#[test]
fn without_a_user_it_is_the_one_of_the_operating_system() {
    let server = Guarded::start("os-user");
    let name = Command::new("id").arg("-un").output().unwrap().stdout;
    let name = String::from_utf8(name).unwrap();
    let name = name.trim();
    let store = format!(
        "postgresql://127.0.0.1:{}/postgres?schema=own",
        server.port()
    );
    let variables = [("USER", "nobody-else"), ("LOGNAME", "nobody-else")];
    let unknown = call(&WORKFLOW, &store, &variables);
    assert_eq!(unknown.code, 1, "{}", unknown.out);
    assert!(
        unknown.err.contains(&format!("\"{name}\"")),
        "{}",
        unknown.err
    );
    server.sql(&format!(
        "CREATE ROLE \"{name}\" LOGIN IN ROLE people; GRANT CREATE ON DATABASE postgres TO \"{name}\""
    ));
    let known = call(&WORKFLOW, &store, &variables);
    assert_eq!(known.code, 0, "{}{}", known.out, known.err);
    let owner = "SELECT tableowner FROM pg_tables WHERE schemaname = 'own' LIMIT 1";
    assert_eq!(server.sql(owner).trim(), name);
}

#[test]
fn a_certificate_is_a_login() {
    let server = Guarded::start("tls-client");
    let (root, client) = (server.root(), server.client());
    let robot = |query: &str| server.url("robot", "localhost", query);
    runs(&robot(&format!("sslmode=verify-full&{root}&{client}")));
    refused(
        &robot(&format!("sslmode=verify-full&{root}")),
        "STORE_",
        "certificate",
    );
    fs::set_permissions(server.file("client.key"), fs::Permissions::from_mode(0o644)).unwrap();
    refused(
        &robot(&format!("sslmode=verify-full&{root}&{client}")),
        "STORE_UNUSABLE",
        "chmod 600",
    );
}

#[test]
fn variables_and_files_say_what_the_address_does_not() {
    let server = Guarded::start("tls-variables");
    let (port, file) = (server.port(), server.file("root.pem"));
    let file = file.to_str().unwrap();
    let variables = [
        ("PGHOST", "localhost"),
        ("PGPORT", port.as_str()),
        ("PGUSER", "guest"),
        ("PGDATABASE", "postgres"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", file),
        ("PGCHANNELBINDING", "require"),
        ("PGAPPNAME", "variables"),
    ];
    let with = |more: &[(&str, &str)]| {
        let all = [&variables[..], more].concat();
        call(&WORKFLOW, "postgresql://?schema=tls", &all)
    };
    let good = |call: Call| assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    good(with(&[("PGPASSWORD", "right")]));
    let passfile = server
        .files
        .file("pgpass", "localhost:*:postgres:guest:right\n");
    fs::set_permissions(&passfile, fs::Permissions::from_mode(0o600)).unwrap();
    good(with(&[("PGPASSFILE", &passfile)]));
    let service = server
        .files
        .file("services", "[runs]\npassword=right\nuser=guest\n");
    good(with(&[("PGSERVICEFILE", &service), ("PGSERVICE", "runs")]));
    let none = with(&[]);
    assert_eq!(none.code, 1);
    assert!(none.err.contains("PGPASSWORD or into"), "{}", none.err);
    let refused = with(&[("PGPASSWORD", "right"), ("PGREQUIREAUTH", "scram-sha-256")]);
    assert!(
        refused.err.contains("channel_binding=require"),
        "{}",
        refused.err
    );
}

#[test]
fn the_first_host_that_will_do_is_taken() {
    let server = Guarded::start("tls-hosts");
    let port = server.port();
    let hosts = |attributes: &str| {
        format!(
            "postgresql://guest:right@127.0.0.1:1,127.0.0.1:{port}/postgres?schema=tls&{attributes}"
        )
    };
    runs(&hosts("target_session_attrs=primary"));
    runs(&hosts(
        "target_session_attrs=prefer-standby&load_balance_hosts=random",
    ));
    refused(
        &hosts("target_session_attrs=standby"),
        "STORE_UNAVAILABLE",
        "a standby",
    );
    refused(&hosts("sslmod=require"), "STORE_UNUSABLE", "sslmode");
}

#[test]
fn a_pooler_may_change_the_connection_with_every_transaction() {
    let server = Guarded::start("pgbouncer");
    let folder = server.file("x").with_file_name("");
    let pooler = Pgbouncer::start(&folder, &server.port(), 3);
    let store = format!(
        "postgresql://postgres@127.0.0.1:{}/postgres?schema=pooled&pool_mode=transaction&sslmode=disable",
        pooler.port
    );
    for _ in 0..3 {
        runs(&store);
    }
    let listed = call(&["runs", "list", "-o", "json"], &store, &[]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert_eq!(
        listed.json()["runs"].as_array().map(Vec::len),
        Some(3),
        "{}",
        listed.out
    );
    let health = call(&["db", "check", "-o", "json"], &store, &[]);
    assert_eq!(
        (health.code, &health.json()["ok"]),
        (0, &true.into()),
        "{}",
        health.out
    );
    // Nothing is left in the connections that others use too.
    assert_eq!(server.sql("SELECT count(*) FROM pooled.runs").trim(), "3");
}
