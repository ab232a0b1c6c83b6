//! How long a request may take. A request whose body did not arrive in time is the fault of who sends it (408); a request
//! that arrived and was not done in time is the fault of the server (503).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};

use crate::codes;
use crate::problem::ApiProblem;

/// How long the parts of a request may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    /// Until the body is there.
    pub(super) body: Duration,
    /// Until the request is answered.
    pub(super) all: Duration,
}

/// Ends requests that take too long. Streams and long polls answer in time, and go on in their bodies.
pub(super) async fn limited(request: Request, next: Next, limits: TimeLimits) -> Response {
    let arrival = Arc::<Arrival>::default();
    let request = request.map(|body| {
        Body::new(Arriving {
            body,
            arrival: Arc::clone(&arrival),
        })
    });
    let answered = next.run(request);
    tokio::pin!(answered);
    tokio::select! {
        response = &mut answered => return response,
        () = tokio::time::sleep(limits.body.min(limits.all)) => {}
    }
    if arrival.is_late() {
        return late(limits.body);
    }
    let left = limits.all.saturating_sub(limits.body);
    match tokio::time::timeout(left, answered).await {
        Ok(response) => response,
        Err(_) if arrival.is_late() => late(limits.all),
        Err(_) => ApiProblem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            codes::REQUEST_TIMEOUT,
            "the request took too long and was given up; what it asked for may still happen",
        )
        .retry_after(1)
        .into_response(),
    }
}

fn late(after: Duration) -> Response {
    let problem = ApiProblem::new(
        StatusCode::REQUEST_TIMEOUT,
        codes::BODY_TIMEOUT,
        format!(
            "the body of the request did not arrive within {} seconds; nothing was done",
            after.as_secs()
        ),
    );
    let mut response = problem.into_response();
    // What is left of the body would be taken for the next request.
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// How far the body of a request has come.
#[derive(Debug, Default)]
struct Arrival {
    /// Somebody reads the body.
    is_read: AtomicBool,
    /// All of it is there.
    is_there: AtomicBool,
}

impl Arrival {
    /// Whether the body is waited for.
    fn is_late(&self) -> bool {
        self.is_read.load(Ordering::Relaxed) && !self.is_there.load(Ordering::Relaxed)
    }
}

/// A body that notes how far it has come.
struct Arriving {
    body: Body,
    arrival: Arc<Arrival>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.arrival.is_read.store(true, Ordering::Relaxed);
        // A body that cannot be read will not come any more.
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) || self.body.is_end_stream() {
            self.arrival.is_there.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
