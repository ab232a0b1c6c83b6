//! Certificates and keys of engines, tried for real: a proxy with TLS before the server asks for a client certificate, and another one
//! looks at the header with the key. What does not fit is told at once, with a stable code.

use super::server::{OutsideServer, Started, free_port};
use super::text;
use super::trial::Trial;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take that is refused: nobody waits for a certificate to get better.
const AT_ONCE: Duration = Duration::from_secs(15);
/// How long a proxy may take to start.
const START: Duration = Duration::from_secs(20);
/// The key that the proxy wants.
const KEY: &str = "a-key-of-the-test";

/// A proxy that ends TLS as the servers themselves do: a certificate that does not fit is refused in the handshake.
const PROXY: &str = r#"
import socket, ssl, sys, threading
listen, target, folder, protocol, client = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + '/server.pem', folder + '/server.key')
context.set_alpn_protocols([protocol])
if client == 'client':
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(folder + '/ca.pem')
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for it in (a, b):
        try: it.shutdown(socket.SHUT_RDWR)
        except OSError: pass
def serve(raw):
    try:
        plain = context.wrap_socket(raw, server_side=True)
        other = socket.create_connection(('127.0.0.1', target))
    except OSError:
        raw.close()
        return
    threading.Thread(target=pump, args=(plain, other), daemon=True).start()
    pump(other, plain)
server = socket.create_server(('127.0.0.1', listen))
while True:
    connection, _ = server.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"#;

impl Trial {
    /// The server behind TLS, with client certificates and keys.
    pub(super) fn tls(&self) -> Result<String> {
        let folder = self.folder.join("tls");
        fs::create_dir_all(&folder)?;
        certificates(&folder)?;
        let target = self.server.port();
        let mut said = match &self.server {
            OutsideServer::Temporal(_) => self.temporal_tls(&folder, target)?,
            OutsideServer::Conductor(_) => self.conductor_tls(&folder, target)?,
        };
        match nginx() {
            Some(nginx) => said.push_str(&self.keys(&nginx, &folder, target)?),
            None => said.push_str("; SKIPPED: keys: there is no nginx on this machine"),
        }
        Ok(said)
    }

    fn temporal_tls(&self, folder: &Path, target: u16) -> Result<String> {
        let proxy = Proxy::tls(folder, target, ("h2", true))?;
        let at = |options: &str| {
            let options = options.replace("DIR", &text(folder));
            format!("temporal://localhost:{}/default?{options}", proxy.port)
        };
        let client = "cert=DIR/client.pem&key=DIR/client.key";
        self.runs("tls-client", &at(&format!("ca=DIR/ca.pem&{client}")), &[])?;
        let mut refused = 0;
        for (name, options, part) in [
            ("no-client", "ca=DIR/ca.pem", "asks for a certificate"),
            (
                "other-client",
                "ca=DIR/ca.pem&cert=DIR/stranger.pem&key=DIR/stranger.key",
                "does not accept the certificate",
            ),
            (
                "other-authority",
                &*format!("ca=DIR/other-ca.pem&{client}"),
                "nobody vouches",
            ),
            (
                "other-name",
                &*format!("ca=DIR/ca.pem&server_name=elsewhere.example.com&{client}"),
                "another name",
            ),
        ] {
            self.is_refused(name, &at(options), &[], ("ENGINE_TLS", part))?;
            refused += 1;
        }
        let plain = format!("temporal://127.0.0.1:{target}/default?tls=true");
        self.is_refused("no-tls", &plain, &[], ("ENGINE_TLS", "does not speak TLS"))?;
        let missing = at("ca=DIR/nowhere.pem");
        self.is_refused("no-file", &missing, &[], ("ENGINE_ADDRESS", "nowhere.pem"))?;
        Ok(format!(
            "a run through TLS with a client certificate; {} wrong ones are refused at once",
            refused + 2
        ))
    }

    fn conductor_tls(&self, folder: &Path, target: u16) -> Result<String> {
        let proxy = Proxy::tls(folder, target, ("http/1.1", false))?;
        let at = |options: &str| {
            let options = options.replace("DIR", &text(folder));
            format!("conductor+https://localhost:{}/api?{options}", proxy.port)
        };
        self.runs("tls", &at("ca=DIR/ca.pem"), &[])?;
        let other = at("ca=DIR/other-ca.pem");
        self.is_refused(
            "other-authority",
            &other,
            &[],
            ("ENGINE_TLS", "nobody vouches"),
        )?;
        let plain = format!("conductor+https://127.0.0.1:{target}/api");
        self.is_refused("no-tls", &plain, &[], ("ENGINE_TLS", "does not speak TLS"))?;
        let missing = at("ca=DIR/nowhere.pem");
        self.is_refused("no-file", &missing, &[], ("ENGINE_ADDRESS", "nowhere.pem"))?;
        Ok("a run through https; 3 wrong addresses are refused at once".to_owned())
    }

    /// A proxy that looks at the key.
    fn keys(&self, nginx: &Path, folder: &Path, target: u16) -> Result<String> {
        let proxy = Proxy::nginx(nginx, folder, target, self.server.temporal().is_some())?;
        let ca = format!("ca={}/ca.pem", text(folder));
        let right = [("THE_KEY", KEY), ("THE_ID", "id")];
        let wrong = [("THE_KEY", "wrong"), ("THE_ID", "id")];
        let mut addresses = Vec::new();
        let place = format!("localhost:{}", proxy.port);
        if self.server.temporal().is_some() {
            addresses.push(format!(
                "temporal://{place}/default?{ca}&api_key_env=THE_KEY"
            ));
        } else {
            let base = format!("conductor+https://{place}/api?{ca}");
            addresses.push(format!("{base}&header=Authorization&header_env=THE_KEY"));
            addresses.push(format!("{base}&key_env=THE_ID&secret_env=THE_KEY"));
        }
        for (number, address) in addresses.iter().enumerate() {
            // What the address says beside the key is the same.
            let value = format!("Bearer {KEY}");
            let env = match address.contains("header_env") {
                true => vec![("THE_KEY", value.as_str())],
                false => right.to_vec(),
            };
            self.runs(&format!("key-{number}"), address, &env)?;
            let name = format!("wrong-key-{number}");
            // The emulated token endpoint gives everyone a token, and the proxy looks at the secret there.
            self.is_refused(&name, address, &wrong, ("ENGINE_DENIED", "refuses"))?;
            let name = format!("no-key-{number}");
            self.is_refused(&name, address, &[], ("ENGINE_ADDRESS", "THE_"))?;
        }
        Ok(format!(
            "; {} kinds of keys: right, wrong and missing",
            addresses.len()
        ))
    }

    fn with_engine(&self, name: &str, address: &str, env: &[(&str, &str)]) -> Result<Command> {
        let file = self.folder.join("tls-run.yaml");
        let definition = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: tls}\nworkflow:\n  - step: one\n    tool: {kind: noop}\n";
        fs::write(&file, definition)?;
        let store = text(&self.folder.join(format!("tls-{name}.db")));
        let mut command = Command::new(&self.program);
        command
            .args([
                "run",
                &text(&file),
                "--store",
                &store,
                "--run-id",
                "run_tls",
            ])
            .args(["--engine", address])
            .current_dir(&self.folder)
            .env_remove("STEPWELL_STORE")
            .env_remove("STEPWELL_CONFIG")
            .envs(env.iter().copied())
            .stdin(Stdio::null());
        Ok(command)
    }

    /// A run through this address completes.
    fn runs(&self, name: &str, address: &str, env: &[(&str, &str)]) -> Result<()> {
        let output = self.with_engine(name, address, env)?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name}: {}: {said}", output.status);
        Ok(())
    }

    /// A run through this address is refused at once, with this code and words.
    fn is_refused(
        &self,
        name: &str,
        address: &str,
        env: &[(&str, &str)],
        (code, part): (&str, &str),
    ) -> Result<()> {
        let begun = Instant::now();
        let output = self.with_engine(name, address, env)?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains(code) && said.contains(part),
            "{name}: {}: {code} and {part:?} were expected: {said}",
            output.status
        );
        ensure!(
            begun.elapsed() < AT_ONCE,
            "{name} took {:?}",
            begun.elapsed()
        );
        Ok(())
    }
}

/// A proxy that ends with its value.
struct Proxy {
    port: u16,
    _started: Started,
}

impl Proxy {
    /// A proxy that speaks a protocol in TLS and asks for a client certificate, or not.
    fn tls(folder: &Path, target: u16, (protocol, client): (&str, bool)) -> Result<Proxy> {
        let port = free_port()?;
        let mut command = Command::new("python3");
        command
            .args(["-c", PROXY, &port.to_string(), &target.to_string()])
            .args([
                &*text(folder),
                protocol,
                if client { "client" } else { "server" },
            ]);
        Proxy::start(command, folder, port)
    }

    /// A proxy that looks at the header with the key.
    fn nginx(program: &Path, folder: &Path, target: u16, grpc: bool) -> Result<Proxy> {
        let port = free_port()?;
        let (dir, pass) = match grpc {
            true => (
                text(folder),
                format!("grpc_pass grpc://127.0.0.1:{target};"),
            ),
            false => (
                text(folder),
                format!("proxy_pass http://127.0.0.1:{target};"),
            ),
        };
        let protocol = if grpc { " http2" } else { "" };
        // The token endpoint of a server with keys, which the open source server does not have.
        let config = format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{ access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
             fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;\n\
             map $http_x_authorization$http_authorization $known {{ default 0; 'Bearer {KEY}' 1; 'token-{KEY}' 1; }}\n\
             map $request_body $secret {{ default wrong; '~{KEY}' {KEY}; }}\n\
             server {{ listen 127.0.0.1:{port} ssl{protocol}; ssl_certificate {dir}/server.pem; ssl_certificate_key {dir}/server.key;\n\
             client_max_body_size 0; grpc_read_timeout 300s; grpc_send_timeout 300s; keepalive_requests 1000000;\n\
             location = /api/token {{ default_type application/json; proxy_pass http://127.0.0.1:{port2}; }}\n\
             location / {{ if ($known = 0) {{ return 401; }} {pass} }} }}\n\
             server {{ listen 127.0.0.1:{port2}; client_body_in_single_buffer on;\n\
             location = /api/token {{ default_type application/json; client_body_buffer_size 64k; proxy_pass http://127.0.0.1:{port3}/; proxy_set_header X-Secret $secret; }} }}\n\
             server {{ listen 127.0.0.1:{port3}; default_type application/json;\n\
             location / {{ return 200 '{{\"token\":\"token-$http_x_secret\"}}'; }} }} }}\n",
            port2 = free_port()?,
            port3 = free_port()?,
        );
        let file = folder.join("nginx.conf");
        fs::write(&file, config)?;
        let mut command = Command::new(program);
        command.args(["-c", &text(&file), "-p", &text(folder)]);
        Proxy::start(command, folder, port)
    }

    fn start(mut command: Command, folder: &Path, port: u16) -> Result<Proxy> {
        command.stdin(Stdio::null());
        let started = Started::default();
        let log = folder.join("proxy.log");
        started.spawn(command, &log)?;
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        started.wait("proxy", &log, START, answers)?;
        Ok(Proxy {
            port,
            _started: started,
        })
    }
}

fn nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push(PathBuf::from("/usr/sbin"));
    places
        .into_iter()
        .map(|it| it.join("nginx"))
        .find(|it| it.is_file())
}

/// Two authorities; a certificate of the server and one of the client by the first, one of a stranger by the second.
fn certificates(folder: &Path) -> Result<()> {
    for (authority, name) in [("ca", "an authority"), ("other-ca", "another authority")] {
        openssl(
            folder,
            &format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout {authority}.key -out {authority}.pem"
            ),
            &[
                "-subj",
                &format!("/CN={name}"),
                "-addext",
                "basicConstraints=critical,CA:TRUE",
            ],
        )?;
    }
    fs::write(
        folder.join("names"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n",
    )?;
    for (name, authority) in [("server", "ca"), ("client", "ca"), ("stranger", "other-ca")] {
        openssl(
            folder,
            &format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr"
            ),
            &["-subj", &format!("/CN={name}")],
        )?;
        openssl(
            folder,
            &format!(
                "x509 -req -days 2 -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -extfile names -out {name}.pem"
            ),
            &[],
        )?;
    }
    Ok(())
}

fn openssl(folder: &Path, words: &str, more: &[&str]) -> Result<()> {
    let output = Command::new("openssl")
        .args(words.split_whitespace())
        .args(more)
        .current_dir(folder)
        .output()
        .context("cannot start openssl")?;
    if !output.status.success() {
        bail!(
            "openssl {words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
