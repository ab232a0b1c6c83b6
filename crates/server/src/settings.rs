//! How a server listens and what it allows at most.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stepwell_engine::EngineRoutes;
use stepwell_worker::ToolRules;
use stepwell_worker::hosts::HostRules;

use crate::access::{Access, RateSettings};
use crate::metrics::PLANS;
use crate::retention::RetentionTimes;
use crate::telemetry::TelemetrySettings;
use crate::tls::TlsFiles;

/// The port of a server, if nobody says.
pub const PORT: u16 = 7117;

/// How a server listens and what it allows at most.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub listen: SocketAddr,
    /// Who may do what.
    pub access: Access,
    /// How many requests a caller may make.
    pub rate: RateSettings,
    /// The certificate and its key; absent: no TLS.
    pub tls: Option<TlsFiles>,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// How many connections there may be at a time; more are closed at once.
    pub max_connections: usize,
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// How long a request may take in all, streams and long polls excepted.
    pub request_timeout: Duration,
    /// Which tools tenants may use.
    pub tools: ToolRules,
    /// Which definitions run on engines outside; none if there are no such engines.
    pub engines: Arc<EngineRoutes>,
    /// Which hosts webhooks may be at.
    pub webhook_hosts: Arc<HostRules>,
    /// Webhooks may name only variables that are meant for secrets.
    pub confined: bool,
    /// How long ended runs are kept.
    pub retention: RetentionTimes,
    /// How long requests and work in flight have when the server stops.
    pub grace: Duration,
    /// Where traces go; absent: nowhere.
    pub telemetry: Option<TelemetrySettings>,
    /// How many plans have labels of their own in the metrics.
    pub metric_plans: usize,
}

impl ServerSettings {
    /// Whether others could use the server without being asked who they are.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        matches!(self.access, Access::Open) && !self.listen.ip().is_loopback()
    }
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
            access: Access::Open,
            rate: RateSettings::default(),
            tls: None,
            max_body: 8 * 1024 * 1024,
            max_connections: 20_000,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(60),
            tools: ToolRules::default(),
            engines: Arc::default(),
            webhook_hosts: Arc::default(),
            confined: false,
            retention: RetentionTimes::default(),
            grace: Duration::from_secs(10),
            telemetry: None,
            metric_plans: PLANS,
        }
    }
}
