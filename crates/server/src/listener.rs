//! Connections: accepted up to a limit, with TLS if it is configured, a time limit for the head of a request, and ended with grace when the
//! server stops.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::codes;
use crate::problem::ApiProblem;
use crate::settings::ServerSettings;
use crate::tls::Tls;

/// How long to rest when no connection can be accepted, such as when there are too many open files.
const REST: Duration = Duration::from_millis(100);
/// The most bytes of the head of a request.
const MAX_HEAD: usize = 64 * 1024;

/// Serves connections until the token is cancelled; then those that are there have the grace to end.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    settings: &ServerSettings,
    tls: Option<Tls>,
    stopping: CancellationToken,
) {
    let patience = settings.head_timeout;
    let acceptor = tls.as_ref().map(|it| it.acceptor.clone());
    if let Some(tls) = tls {
        tokio::spawn(tls.watch(stopping.clone()));
    }
    let room = Arc::new(Semaphore::new(settings.max_connections));
    let graceful = GracefulShutdown::new();
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_timeout)
        .max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD as u32)
        .keep_alive_interval(Duration::from_secs(30));
    let builder = Arc::new(builder);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopping.cancelled() => break,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                refused(&error).await;
                continue;
            }
        };
        // One connection too many is closed: whoever waits in line would only wait longer.
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            tracing::warn!("a connection was closed: there are too many");
            continue;
        };
        // Answers are small and someone waits for each of them.
        let _ = stream.set_nodelay(true);
        let line = Line {
            builder: Arc::clone(&builder),
            watcher: graceful.watcher(),
            router: router.clone(),
            from,
            patience,
        };
        let (acceptor, stopping) = (acceptor.clone(), stopping.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let Some(acceptor) = acceptor else {
                return line.serve(stream).await;
            };
            // Not in the loop: one who is slow must not keep others waiting.
            let secured = secured(&acceptor, stream);
            let secured = tokio::select! {
                secured = tokio::time::timeout(patience, secured) => secured,
                () = stopping.cancelled() => return,
            };
            match secured {
                Ok(Ok(Secured::Tls(stream))) => line.serve(stream).await,
                Ok(Ok(Secured::Plain(stream))) => line.refuse(stream).await,
                Ok(Err(_)) | Err(_) => {
                    tracing::debug!(%from, "a TLS handshake failed or took too long");
                }
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(settings.grace, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("connections that did not end in time were closed");
    }
}

/// A connection to a server with TLS.
enum Secured {
    Tls(Box<TlsStream<TcpStream>>),
    /// The other side began with a request of HTTP.
    Plain(TcpStream),
}

async fn secured(acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<Secured> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    // Requests begin with the name of a method; a handshake never begins with a letter.
    match first[0].is_ascii_uppercase() {
        true => Ok(Secured::Plain(stream)),
        false => Ok(Secured::Tls(Box::new(acceptor.accept(stream).await?))),
    }
}

/// What serves one connection.
struct Line {
    builder: Arc<Builder<TokioExecutor>>,
    watcher: Watcher,
    router: Router,
    from: SocketAddr,
    patience: Duration,
}

impl Line {
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let asked = Arc::new(AtomicBool::new(false));
        let service = service(self.router, self.from, Arc::clone(&asked));
        let io = TokioIo::new(stream);
        let connection = self.builder.serve_connection_with_upgrades(io, service);
        let connection = self.watcher.watch(connection.into_owned());
        let ended = while_asked(Box::pin(connection), asked, self.patience).await;
        if let Some(Err(error)) = ended {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }

    /// Answers all requests of who speaks HTTP where TLS is spoken: a connection that is only closed looks like a server that
    /// is away, and is tried again and again.
    async fn refuse(mut self, stream: TcpStream) {
        self.router = Router::new().fallback(async || {
            let why = "this server speaks TLS: use its address with https://";
            ApiProblem::new(StatusCode::BAD_REQUEST, codes::TLS_REQUIRED, why)
        });
        self.serve(stream).await;
    }
}

async fn refused(error: &io::Error) {
    let by_caller = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
    ];
    if !by_caller.contains(&error.kind()) {
        tracing::error!(%error, "no connection can be accepted");
        tokio::time::sleep(REST).await;
    }
}

/// Serves a connection, unless its first request does not come in time: before it is known which version of HTTP is
/// spoken, no other limit counts. The connection is boxed by the caller: it has kilobytes, and the state of this function and
/// of the task around it would have room for it several times.
async fn while_asked<T>(
    mut connection: Pin<Box<impl Future<Output = T>>>,
    asked: Arc<AtomicBool>,
    patience: Duration,
) -> Option<T> {
    tokio::select! {
        ended = &mut connection => return Some(ended),
        () = tokio::time::sleep(patience) => {}
    }
    match asked.load(Ordering::Relaxed) {
        true => Some(connection.await),
        false => None,
    }
}

/// The routes, which know where the request comes from, and note that there was one.
fn service(
    router: Router,
    from: SocketAddr,
    asked: Arc<AtomicBool>,
) -> TowerToHyperService<
    impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send + 'static>
    + Clone,
> {
    let routed = axum::Extension(ConnectInfo(from)).layer(router);
    let noted = routed.map_request(move |mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        // HTTP/2 names the host in the address. Whoever looks at it later need not know the version.
        let host = request.uri().authority().map(|it| it.as_str().to_owned());
        if let Some(Ok(host)) = host.map(HeaderValue::try_from)
            && !request.headers().contains_key(header::HOST)
        {
            request.headers_mut().insert(header::HOST, host);
        }
        request.map(Body::new)
    });
    TowerToHyperService::new(noted)
}
