//! How a server listens and what it allows at most.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::access::Access;
use crate::retention::RetentionTimes;

/// The port of a server, if nobody says.
pub const PORT: u16 = 7117;

/// How a server listens and what it allows at most.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub listen: SocketAddr,
    /// Who may do what.
    pub access: Access,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// How many connections there may be at a time; more are closed at once.
    pub max_connections: usize,
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long a request may take in all, streams and long polls excepted.
    pub request_timeout: Duration,
    /// How long ended runs are kept.
    pub retention: RetentionTimes,
    /// How long requests and work in flight have when the server stops.
    pub grace: Duration,
}

impl Default for ServerSettings {
    fn default() -> ServerSettings {
        ServerSettings {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
            access: Access::Open,
            max_body: 8 * 1024 * 1024,
            max_connections: 20_000,
            head_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            retention: RetentionTimes::default(),
            grace: Duration::from_secs(10),
        }
    }
}
