//! Opens connections: tries the hosts in order, encrypts as `sslmode` says, and takes the first server
//! of the kind that `target_session_attrs` asks for.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::{ChannelBinding, SslMode as DriverSslMode, SslNegotiation};
use tokio_postgres::{
    AsyncMessage, CancelToken, Client, Config, Connection, Error, NoTls, SimpleQueryMessage,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::tls::{self, SslMode};
use crate::{ParameterError, Parameters, files};

/// Messages of the server besides the answers. The connection works only while this stream is polled.
pub type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, Error>> + Send>>;

/// An open connection and what belongs to it.
pub struct Connected {
    pub client: Client,
    /// A separate task must poll this stream.
    pub messages: Messages,
    pub cancel: CancelHandle,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected").finish_non_exhaustive()
    }
}

/// Cancels the statement of a connection, over a second connection with the same encryption.
#[derive(Clone)]
pub struct CancelHandle {
    token: CancelToken,
    tls: Option<MakeRustlsConnect>,
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelHandle").finish_non_exhaustive()
    }
}

impl CancelHandle {
    /// Asks the server to stop the statement that runs.
    pub async fn cancel(&self) -> Result<(), Error> {
        match &self.tls {
            None => self.token.cancel_query(NoTls).await,
            Some(tls) => self.token.cancel_query(tls.clone()).await,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The driver or the server says why.
    #[error("{0}")]
    Driver(#[from] Error),
    /// No server is of the kind that was asked for.
    #[error("no server is {0}, as target_session_attrs asks for")]
    WrongKind(&'static str),
    /// No server answered in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// What kind of server is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attributes {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// One server that may be asked.
#[derive(Clone)]
struct Server {
    config: Config,
    name: String,
    local: bool,
}

/// Makes connections to one of the servers of an address.
#[derive(Clone)]
pub struct Connector {
    parameters: Parameters,
    servers: Arc<[Server]>,
    mode: SslMode,
    tls: Option<MakeRustlsConnect>,
    attributes: Attributes,
    shuffled: bool,
    timeout: Option<Duration>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("parameters", &self.parameters)
            .finish()
    }
}

/// Connectors of the same parameters make the same connections.
impl PartialEq for Connector {
    fn eq(&self, other: &Connector) -> bool {
        self.parameters == other.parameters
    }
}

impl Connector {
    /// Checks the values of the parameters and reads the files that they name.
    pub fn new(parameters: &Parameters) -> Result<Connector, ParameterError> {
        let mode = SslMode::read(parameters)?;
        let tls = match mode {
            SslMode::Disable => None,
            mode @ (SslMode::Allow
            | SslMode::Prefer
            | SslMode::Require
            | SslMode::VerifyCa
            | SslMode::VerifyFull) => Some(tls::connect(parameters, mode)?),
        };
        match parameters.get("gssencmode") {
            None | Some("disable" | "prefer") => {}
            Some(_) => {
                return Err(ParameterError::new(
                    "gssencmode=require is not supported; use TLS with sslmode=verify-full",
                ));
            }
        }
        let encoding = parameters.get("client_encoding").unwrap_or("UTF8");
        if !["utf8", "utf-8", "unicode", "auto"].contains(&encoding.to_lowercase().as_str()) {
            return Err(ParameterError::new("client_encoding must be UTF8"));
        }
        Ok(Connector {
            parameters: parameters.clone(),
            servers: servers(parameters)?.into(),
            mode,
            tls,
            attributes: attributes(parameters)?,
            shuffled: one_of(parameters, "load_balance_hosts", &["disable", "random"])? == Some(1),
            timeout: seconds(parameters, "connect_timeout")?.filter(|it| !it.is_zero()),
        })
    }

    /// With another bound on how long one server may take to answer.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Connector {
        self.timeout = Some(timeout.max(Duration::from_millis(1)));
        self
    }

    /// The servers that may be asked, as `host:port`.
    #[must_use]
    pub fn hosts(&self) -> Vec<&str> {
        self.servers.iter().map(|it| it.name.as_str()).collect()
    }

    /// Connects to the first server that will do.
    pub async fn connect(&self) -> Result<Connected, ConnectError> {
        if self.attributes == Attributes::PreferStandby {
            let standby = self.connect_to(Attributes::Standby).await;
            return match standby {
                Err(_) => self.connect_to(Attributes::Any).await,
                found => found,
            };
        }
        self.connect_to(self.attributes).await
    }

    async fn connect_to(&self, wanted: Attributes) -> Result<Connected, ConnectError> {
        let mut failed = None;
        for server in self.in_order() {
            let asked = self.ask(server, wanted);
            let answer = match self.timeout {
                None => asked.await,
                Some(limit) => match tokio::time::timeout(limit, asked).await {
                    Ok(answer) => answer,
                    Err(_) => Err(ConnectError::Timeout(limit)),
                },
            };
            match answer {
                Ok(connected) => return Ok(connected),
                Err(error) => failed = Some(error),
            }
        }
        // There is at least one server.
        Err(failed.unwrap_or(ConnectError::WrongKind("named")))
    }

    /// The servers in the order of the address, or beginning at any of them.
    fn in_order(&self) -> impl Iterator<Item = &Server> {
        let count = self.servers.len().max(1);
        let first = match self.shuffled {
            false => 0,
            true => {
                use std::hash::BuildHasher as _;
                // A hash of nothing with random keys is a random number.
                let random = std::collections::hash_map::RandomState::new().hash_one(());
                usize::try_from(random % count as u64).unwrap_or(0)
            }
        };
        self.servers
            .iter()
            .cycle()
            .skip(first)
            .take(self.servers.len())
    }

    async fn ask(&self, server: &Server, wanted: Attributes) -> Result<Connected, ConnectError> {
        let mut connected = self.open(server).await?;
        if wanted != Attributes::Any && !connected.is(wanted).await? {
            return Err(ConnectError::WrongKind(wanted.name()));
        }
        Ok(connected)
    }

    /// Encrypts as `sslmode` says, with the second try that it allows.
    async fn open(&self, server: &Server) -> Result<Connected, Error> {
        let (Some(tls), false) = (&self.tls, server.local) else {
            return plain(server).await;
        };
        match self.mode {
            SslMode::Disable => plain(server).await,
            SslMode::Allow => match plain(server).await {
                Err(error) if is_refused(&error) => {
                    encrypted(server, tls, DriverSslMode::Require).await
                }
                answer => answer,
            },
            SslMode::Prefer => match encrypted(server, tls, DriverSslMode::Prefer).await {
                Err(error) if is_refused(&error) || is_handshake(&error) => plain(server).await,
                answer => answer,
            },
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
                encrypted(server, tls, DriverSslMode::Require).await
            }
        }
    }
}

/// The server's rules do not let this user in by this kind of connection.
fn is_refused(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code() == "28000")
}

fn is_handshake(error: &Error) -> bool {
    error
        .to_string()
        .starts_with("error performing TLS handshake")
}

async fn plain(server: &Server) -> Result<Connected, Error> {
    let mut config = server.config.clone();
    config.ssl_mode(DriverSslMode::Disable);
    let (client, connection) = config.connect(NoTls).await?;
    Ok(connected(client, connection, None))
}

async fn encrypted(
    server: &Server,
    tls: &MakeRustlsConnect,
    mode: DriverSslMode,
) -> Result<Connected, Error> {
    let mut config = server.config.clone();
    config.ssl_mode(mode);
    let (client, connection) = config.connect(tls.clone()).await?;
    Ok(connected(client, connection, Some(tls.clone())))
}

fn connected<S, T>(
    client: Client,
    mut connection: Connection<S, T>,
    tls: Option<MakeRustlsConnect>,
) -> Connected
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let cancel = CancelHandle {
        token: client.cancel_token(),
        tls,
    };
    let messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
    Connected {
        client,
        messages: Box::pin(messages),
        cancel,
    }
}

impl Connected {
    async fn is(&mut self, wanted: Attributes) -> Result<bool, Error> {
        let (question, answer) = match wanted {
            Attributes::Any | Attributes::PreferStandby => return Ok(true),
            Attributes::ReadWrite => ("SHOW transaction_read_only", "off"),
            Attributes::ReadOnly => ("SHOW transaction_read_only", "on"),
            Attributes::Primary => ("SELECT pg_catalog.pg_is_in_recovery()", "f"),
            Attributes::Standby => ("SELECT pg_catalog.pg_is_in_recovery()", "t"),
        };
        let mut asked = pin!(self.client.simple_query(question));
        let messages = &mut self.messages;
        let rows = poll_fn(|cx| {
            loop {
                match messages.as_mut().poll_next(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) | Poll::Pending => break,
                }
            }
            asked.as_mut().poll(cx)
        });
        let rows = rows.await?;
        let said = rows.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else {
                return None;
            };
            row.get(0)
        });
        Ok(said == Some(answer))
    }
}

impl Attributes {
    fn name(self) -> &'static str {
        match self {
            Attributes::Any => "there",
            Attributes::ReadWrite => "read-write",
            Attributes::ReadOnly => "read-only",
            Attributes::Primary => "a primary",
            Attributes::Standby | Attributes::PreferStandby => "a standby",
        }
    }
}

fn attributes(parameters: &Parameters) -> Result<Attributes, ParameterError> {
    let names = [
        "any",
        "read-write",
        "read-only",
        "primary",
        "standby",
        "prefer-standby",
    ];
    let all = [
        Attributes::Any,
        Attributes::ReadWrite,
        Attributes::ReadOnly,
        Attributes::Primary,
        Attributes::Standby,
        Attributes::PreferStandby,
    ];
    let index = one_of(parameters, "target_session_attrs", &names)?.unwrap_or(0);
    Ok(all[index])
}

fn one_of(
    parameters: &Parameters,
    name: &str,
    values: &[&str],
) -> Result<Option<usize>, ParameterError> {
    let Some(value) = parameters.get(name) else {
        return Ok(None);
    };
    let index = values.iter().position(|it| *it == value);
    let unknown = || {
        ParameterError(format!(
            "{name} `{value}` is unknown; it is {}",
            values.join(", ")
        ))
    };
    index.map(Some).ok_or_else(unknown)
}

fn number(parameters: &Parameters, name: &str) -> Result<Option<u64>, ParameterError> {
    let Some(value) = parameters.get(name) else {
        return Ok(None);
    };
    let wrong = |_| ParameterError(format!("{name} must be a number from 0 up, not `{value}`"));
    value.trim().parse().map(Some).map_err(wrong)
}

fn seconds(parameters: &Parameters, name: &str) -> Result<Option<Duration>, ParameterError> {
    Ok(number(parameters, name)?.map(Duration::from_secs))
}

/// The directory of the server's socket where no host is named, as distributions have it.
fn default_host() -> &'static str {
    let folders = ["/var/run/postgresql", "/tmp"];
    let found = folders
        .into_iter()
        .find(|it| cfg!(unix) && Path::new(it).is_dir());
    found.unwrap_or("localhost")
}

fn servers(parameters: &Parameters) -> Result<Vec<Server>, ParameterError> {
    let list = |name: &str| -> Vec<String> {
        let text = parameters.get(name).unwrap_or_default();
        text.split(',').map(|it| it.trim().to_owned()).collect()
    };
    let (hosts, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
    let count = hosts.len().max(addresses.len());
    if addresses != [""] && hosts != [""] && hosts.len() != addresses.len() {
        let (hosts, addresses) = (hosts.len(), addresses.len());
        return Err(ParameterError(format!(
            "there are {hosts} hosts and {addresses} values of hostaddr; give one for each host"
        )));
    }
    if ports.len() > 1 && ports.len() != count {
        let ports = ports.len();
        return Err(ParameterError(format!(
            "there are {count} hosts and {ports} ports; give one port, or one for each host"
        )));
    }
    let all = common(parameters)?;
    let text = |list: &[String], at: usize| list.get(at).filter(|it| !it.is_empty()).cloned();
    let server = |at: usize| {
        let host = text(&hosts, at);
        let address = text(&addresses, at);
        let port = if ports.len() > 1 {
            text(&ports, at)
        } else {
            text(&ports, 0)
        };
        let port = match port {
            None => 5432,
            Some(port) => port
                .parse()
                .map_err(|_| ParameterError::new("the port must be a number from 1 to 65535"))?,
        };
        one_server(&all, parameters, host, address, port)
    };
    (0..count).map(server).collect()
}

fn one_server(
    all: &Config,
    parameters: &Parameters,
    host: Option<String>,
    address: Option<String>,
    port: u16,
) -> Result<Server, ParameterError> {
    let mut config = all.clone();
    config.port(port);
    let host = match (host, &address) {
        (None, Some(_)) => None,
        (host, _) => Some(host.unwrap_or_else(|| default_host().to_owned())),
    };
    if let Some(address) = &address {
        let wrong = |_| ParameterError(format!("hostaddr must be an IP address, not `{address}`"));
        config.hostaddr(address.parse().map_err(wrong)?);
    }
    if let Some(host) = &host {
        config.host(host);
    }
    let name = host.or(address).unwrap_or_default();
    let local = name.starts_with(['/', '@']);
    if parameters.get("password").is_none()
        && let (Some(file), Some(user)) = (parameters.get("passfile"), parameters.get("user"))
    {
        let dbname = parameters.get("dbname").unwrap_or(user);
        let host = if local { "localhost" } else { &name };
        if let Some(password) = files::password(Path::new(file), host, port, dbname, user) {
            config.password(password);
        }
    }
    let name = match local {
        true => format!("{name} (port {port})"),
        false => format!("{name}:{port}"),
    };
    Ok(Server {
        config,
        name,
        local,
    })
}

/// What is the same for all servers.
fn common(parameters: &Parameters) -> Result<Config, ParameterError> {
    let mut config = Config::new();
    let user = parameters.get("user").ok_or_else(|| {
        ParameterError::new(
            "the address names no user; write postgresql://USER@host/database or set PGUSER",
        )
    })?;
    config.user(user);
    if let Some(password) = parameters.get("password") {
        config.password(password);
    }
    if let Some(dbname) = parameters.get("dbname") {
        config.dbname(dbname);
    }
    if let Some(options) = parameters.get("options") {
        config.options(options);
    }
    config.application_name(parameters.get("application_name").unwrap_or("stepwell"));
    let binding = ["prefer", "disable", "require"];
    config.channel_binding(match one_of(parameters, "channel_binding", &binding)? {
        Some(1) => ChannelBinding::Disable,
        Some(2) => ChannelBinding::Require,
        _ => ChannelBinding::Prefer,
    });
    if one_of(parameters, "sslnegotiation", &["postgres", "direct"])? == Some(1) {
        config.ssl_negotiation(SslNegotiation::Direct);
    }
    if let Some(on) = one_of(parameters, "keepalives", &["0", "1"])? {
        config.keepalives(on == 1);
    }
    if let Some(idle) = seconds(parameters, "keepalives_idle")? {
        config.keepalives_idle(idle);
    }
    if let Some(interval) = seconds(parameters, "keepalives_interval")? {
        config.keepalives_interval(interval);
    }
    if let Some(count) = number(parameters, "keepalives_count")? {
        config.keepalives_retries(u32::try_from(count).unwrap_or(u32::MAX));
    }
    if let Some(timeout) = number(parameters, "tcp_user_timeout")? {
        config.tcp_user_timeout(Duration::from_millis(timeout));
    }
    Ok(config)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Environment;

    fn connector(text: &str) -> Result<Connector, ParameterError> {
        let parameters = Parameters::parse(text)?.with_defaults(&Environment::none())?;
        Connector::new(&parameters)
    }

    #[test]
    fn wrong_values_are_told_with_what_to_write() {
        let table = [
            ("postgresql://u@h/d?sslmode=maybe", "verify-full"),
            (
                "postgresql://u@h/d?sslmode=require&sslrootcert=system",
                "sslmode=verify-full",
            ),
            (
                "postgresql://u@h/d?sslmode=verify-full&sslrootcert=/nowhere",
                "sslrootcert",
            ),
            ("postgresql://u@h/d?sslcert=/nowhere", "sslkey"),
            ("postgresql://u@h/d?channel_binding=yes", "require"),
            ("postgresql://u@h/d?target_session_attrs=master", "primary"),
            ("postgresql://u@h/d?connect_timeout=soon", "number"),
            ("postgresql://u@h:0x1/d", "65535"),
            ("postgresql://u@a:1,b:2,c/d?port=1,2", "3 hosts and 2 ports"),
            ("postgresql://u@h/d?client_encoding=LATIN1", "UTF8"),
            ("postgresql://u@h/d?gssencmode=require", "TLS"),
            (
                "postgresql://u@h/d?ssl_min_protocol_version=TLSv1.3&ssl_max_protocol_version=TLSv1.2",
                "above",
            ),
            ("postgresql://h/d", "PGUSER"),
        ];
        for (text, help) in table {
            let error = connector(text).unwrap_err();
            assert!(error.0.contains(help), "{text}: {error}");
        }
    }

    #[test]
    fn each_host_has_its_port() {
        let hosts = |text: &str| connector(text).unwrap().hosts().join(" ");
        assert_eq!(hosts("postgresql://u@a:1,b:2/d"), "a:1 b:2");
        assert_eq!(hosts("postgresql://u@a:1,b/d"), "a:1 b:5432");
        assert_eq!(hosts("postgresql://u@a,b/d?port=7"), "a:7 b:7");
        assert_eq!(hosts("postgresql://u@%2Frun/d"), "/run (port 5432)");
    }
}
