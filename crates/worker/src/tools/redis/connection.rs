//! A connection to a Redis server: its address and credentials, TLS, the greeting, and replies whose size is
//! bounded while they are read. Not here: what commands mean.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::{IntoConnectionInfo as _, Value, ValueCodec};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Map, Value as Json};
use stepwell_kernel::codes;
use stepwell_kernel::plan::ErrorClass;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::codec::FramedRead;

use super::{Command, REDIS_UNREACHABLE, of_server, too_large, unreadable};
use crate::file_rules::FileRules;
use crate::hosts::{DeniedHost, HostRules};
use crate::outcome::{ToolError, denied_host};
use crate::tool::{ToolCall, kind_of};

/// How long a server may take to accept a connection and to answer the greeting.
const OPEN_WITHIN: Duration = Duration::from_secs(15);

/// Where a server is, and who asks.
pub(super) struct Address {
    host: String,
    port: u16,
    database: i64,
    username: Option<String>,
    password: Option<String>,
    tls: bool,
    /// A file of certificates to check the server by; the system's if none.
    roots: Option<PathBuf>,
}

fn wrong(message: impl Into<String>) -> ToolError {
    ToolError::invalid(codes::TOOL_FIELD, message)
}

impl Address {
    /// From the field `url` or from `auth`: an address, its parts, or both; a part wins over the address.
    pub(super) fn read(call: &ToolCall, files: &FileRules) -> Result<Address, ToolError> {
        let empty = Map::new();
        let auth = call.auth.as_ref().unwrap_or(&empty);
        let url = match call.text("url")? {
            Some(url) => Some(url.to_owned()),
            None => part(auth, &["url", "dsn", "connection_string"])?,
        };
        let host = part(auth, &["host"])?;
        if url.is_none() && host.is_none() {
            return Err(wrong(
                "the task does not say where the server is; give `url: redis://host:6379`, \
                 or `auth` with `url` or `host`",
            ));
        }
        let url = url.unwrap_or_else(|| "redis://localhost".to_owned());
        let (url, mut tls) = match url.trim().split_once("://") {
            Some(("redis" | "valkey", rest)) => (format!("redis://{rest}"), false),
            Some(("rediss" | "valkeys", rest)) => (format!("redis://{rest}"), true),
            _ => {
                return Err(wrong(
                    "the address of the server must begin with redis:// or rediss://",
                ));
            }
        };
        // The parser's message repeats nothing of the address, which may hold a password.
        let read = url.as_str().into_connection_info();
        let read = read.map_err(|error| {
            let why = error.detail().unwrap_or(error.category()).to_owned();
            wrong(format!("the address of the server is invalid: {why}"))
        })?;
        let redis::ConnectionAddr::Tcp(url_host, url_port) = read.addr().clone() else {
            return Err(wrong(
                "the address of the server must name a host and a port",
            ));
        };
        if let Some(flag) = part(auth, &["tls", "ssl"])? {
            tls = flag == "true";
        }
        let number = |names: &[&str]| -> Result<Option<i64>, ToolError> {
            let text = part(auth, names)?;
            let parsed = text.map(|it| it.trim().parse());
            parsed
                .transpose()
                .map_err(|_| wrong(format!("`{}` of the server must be a number", names[0])))
        };
        let port = number(&["port"])?.map(u16::try_from).transpose();
        let port = port.map_err(|_| wrong("`port` of the server must be from 0 to 65535"))?;
        let settings = read.redis_settings();
        let own = |text: Option<&str>| text.map(str::to_owned);
        Ok(Address {
            host: host.unwrap_or(url_host),
            port: port.unwrap_or(url_port),
            database: number(&["database", "db"])?.unwrap_or(settings.db()),
            username: part(auth, &["username", "user"])?.or(own(settings.username())),
            password: part(auth, &["password"])?.or(own(settings.password())),
            tls,
            roots: match part(auth, &["sslrootcert", "ca"])? {
                Some(path) => Some(files.check(Path::new(&path))?),
                None => None,
            },
        })
    }

    /// The command that greets the server: the newer protocol, and who asks.
    fn hello(&self) -> Command {
        let mut words = vec!["HELLO".to_owned(), "3".to_owned()];
        if let Some(password) = &self.password {
            let user = self.username.as_deref().unwrap_or("default");
            words.extend(["AUTH", user, password].map(str::to_owned));
        }
        Command::of(words)
    }
}

/// A part of `auth` under one of its names.
fn part(auth: &Map<String, Json>, names: &[&str]) -> Result<Option<String>, ToolError> {
    let found = names.iter().find_map(|name| Some((name, auth.get(*name)?)));
    match found {
        None | Some((_, Json::Null)) => Ok(None),
        Some((_, Json::String(text))) => Ok(Some(text.clone())),
        Some((_, Json::Number(number))) => Ok(Some(number.to_string())),
        Some((_, Json::Bool(flag))) => Ok(Some(flag.to_string())),
        Some((name, other)) => Err(wrong(format!(
            "`{name}` of `auth` must be text, it is {}",
            kind_of(other)
        ))),
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A stream that gives no more than so many bytes.
struct Bounded {
    inner: ReadHalf<Box<dyn Stream>>,
    left: usize,
    exceeded: bool,
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let read = buf.filled().len().saturating_sub(before);
        match self.left.checked_sub(read) {
            Some(left) => {
                self.left = left;
                polled
            }
            None => {
                self.exceeded = true;
                Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()))
            }
        }
    }
}

/// A connection that is ready for commands.
pub(super) struct Connection {
    replies: FramedRead<Bounded, ValueCodec>,
    requests: WriteHalf<Box<dyn Stream>>,
    limit: usize,
}

impl Connection {
    /// Connects and greets the server. All replies together may have `limit` bytes.
    pub(super) async fn open(
        address: &Address,
        hosts: &HostRules,
        limit: usize,
    ) -> Result<Connection, ToolError> {
        let opened = tokio::time::timeout(OPEN_WITHIN, Connection::greeted(address, hosts, limit));
        opened.await.unwrap_or_else(|_| {
            let message = format!(
                "the Redis server {}:{} does not answer within {} s; check the port, and that `redis://` or \
                 `rediss://` (TLS) is what the server speaks",
                address.host,
                address.port,
                OPEN_WITHIN.as_secs()
            );
            Err(ToolError::new(ErrorClass::Transport, REDIS_UNREACHABLE, message))
        })
    }

    async fn greeted(
        address: &Address,
        hosts: &HostRules,
        limit: usize,
    ) -> Result<Connection, ToolError> {
        let at = format!("{}:{}", address.host, address.port);
        let unreachable = |error: io::Error| {
            let message = format!("the Redis server {at} cannot be reached: {error}");
            ToolError::new(ErrorClass::Transport, REDIS_UNREACHABLE, message)
        };
        let found = hosts.lookup(&address.host, address.port).await;
        let found = found.map_err(|error| match DeniedHost::behind(&*error) {
            Some(denied) => denied_host(denied),
            None => unreachable(io::Error::other(error)),
        })?;
        let stream = TcpStream::connect(&*found).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let stream: Box<dyn Stream> = match address.tls {
            false => Box::new(stream),
            true => {
                let connector = TlsConnector::from(Arc::new(tls(address.roots.as_deref())?));
                let name = ServerName::try_from(address.host.clone());
                let name = name.map_err(|_| wrong("the host of the server is not a valid name"))?;
                let encrypted = connector.connect(name, stream).await;
                Box::new(encrypted.map_err(unreachable)?)
            }
        };
        let (inner, requests) = tokio::io::split(stream);
        let bounded = Bounded {
            inner,
            left: limit,
            exceeded: false,
        };
        let mut connection = Connection {
            replies: FramedRead::new(bounded, ValueCodec::default()),
            requests,
            limit,
        };
        connection.greet(address).await?;
        Ok(connection)
    }

    async fn greet(&mut self, address: &Address) -> Result<(), ToolError> {
        let refused = |reply: &[Value]| match reply.first() {
            Some(Value::ServerError(error)) => Some(error.clone()),
            _ => None,
        };
        if let Some(error) = refused(&self.send(&[&address.hello()]).await?) {
            // Servers before version 6 know only the older protocol.
            let is_old = error.code() == "ERR"
                && error
                    .details()
                    .is_some_and(|it| it.contains("unknown command"));
            if !is_old {
                return Err(of_server(
                    &error,
                    describe("the server refused the login", &error),
                ));
            }
            if let Some(password) = &address.password {
                let mut words = vec!["AUTH".to_owned()];
                words.extend(address.username.clone());
                words.push(password.clone());
                if let Some(error) = refused(&self.send(&[&Command::of(words)]).await?) {
                    return Err(of_server(
                        &error,
                        describe("the server refused the login", &error),
                    ));
                }
            }
        }
        if address.database != 0 {
            let words = vec!["SELECT".to_owned(), address.database.to_string()];
            if let Some(error) = refused(&self.send(&[&Command::of(words)]).await?) {
                return Err(of_server(
                    &error,
                    describe("the database cannot be selected", &error),
                ));
            }
        }
        Ok(())
    }

    /// Sends commands and reads as many replies. Errors of the server are among the replies.
    pub(super) async fn send(&mut self, commands: &[&Command]) -> Result<Vec<Value>, ToolError> {
        let mut packed = Vec::new();
        for command in commands {
            packed.extend(command.packed());
        }
        let (requests, replies) = (&mut self.requests, &mut self.replies);
        let lost = |error: &dyn std::fmt::Display| {
            let message = format!("the connection to the Redis server was lost: {error}");
            ToolError::new(ErrorClass::Transport, REDIS_UNREACHABLE, message)
        };
        let limit = self.limit;
        let write = async {
            requests
                .write_all(&packed)
                .await
                .map_err(|error| lost(&error))?;
            requests.flush().await.map_err(|error| lost(&error))
        };
        let read = async {
            let mut all = Vec::with_capacity(commands.len());
            while all.len() < commands.len() {
                match replies.next().await {
                    // Not the reply to a command.
                    Some(Ok(Value::Push { .. })) => {}
                    Some(Ok(reply)) => all.push(reply),
                    Some(Err(_)) if replies.get_ref().exceeded => return Err(too_large(limit)),
                    Some(Err(error)) if !error.is_io_error() => return Err(unreadable(&error)),
                    Some(Err(error)) => return Err(lost(&error)),
                    None => return Err(lost(&"the server closed it")),
                }
            }
            Ok(all)
        };
        // A server that does not read on before its replies are read would block both sides.
        let ((), all) = tokio::try_join!(write, read)?;
        Ok(all)
    }
}

fn describe(what: &str, error: &redis::ServerError) -> String {
    let detail = error.details().unwrap_or("no reason given");
    format!("{what}: {} {detail}", error.code())
}

/// What a server's certificate is checked by.
fn tls(roots: Option<&Path>) -> Result<ClientConfig, ToolError> {
    let mut store = RootCertStore::empty();
    match roots {
        Some(path) => {
            let unreadable = |error| wrong(format!("`sslrootcert` cannot be read: {error}"));
            for root in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                let added = store.add(root.map_err(unreadable)?);
                added
                    .map_err(|error| wrong(format!("`sslrootcert` has no usable root: {error}")))?;
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs().certs;
            store.add_parsable_certificates(system);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS cannot be used: {error}")))?;
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}
