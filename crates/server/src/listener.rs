//! Connections: accepted up to a limit, with a time limit for the head of a request, and ended with grace when the
//! server stops.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;

use crate::settings::ServerSettings;

/// How long to rest when no connection can be accepted, such as when there are too many open files.
const REST: Duration = Duration::from_millis(100);
/// The most bytes of the head of a request.
const MAX_HEAD: usize = 64 * 1024;

/// Serves connections until the token is cancelled; then those that are there have the grace to end.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    settings: &ServerSettings,
    stopping: CancellationToken,
) {
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
        let service = service(router.clone(), from, &stream);
        let connection = builder
            .serve_connection_with_upgrades(TokioIo::new(stream), service)
            .into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended with an error");
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

type Routed = axum::middleware::AddExtension<Router, ConnectInfo<SocketAddr>>;

/// The routes, which know where the request comes from.
fn service(router: Router, from: SocketAddr, stream: &TcpStream) -> TowerToHyperService<Routed> {
    // Answers are small and someone waits for each of them.
    let _ = stream.set_nodelay(true);
    let routed = axum::Extension(ConnectInfo(from)).layer(router);
    TowerToHyperService::new(routed)
}
