//! Whether a caller may still do what it asked for, while the answer goes on: a stream ends, and a request that waits is
//! answered, soon after its token was revoked, has expired, or has lost the right.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use stepwell_kernel::rejection::Code;
use tokio_util::sync::CancellationToken;

use super::gate::{Known, Shown};
use super::token_book::PREFIX;
use super::{Caller, Right, invalid};
use crate::app::App;
use crate::problem::ApiProblem;

/// How often API tokens and sessions are looked at again; many streams of one token share a look.
const LOOK: Duration = Duration::from_secs(3);
/// How often the signature of an issuer's token is checked again. Its end is known and needs no look.
const LOOK_AT_ISSUER: Duration = Duration::from_secs(60);

/// A caller, and what it was let in with.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) app: Arc<App>,
    /// Only what shows who calls.
    shown: HeaderMap,
    right: Right,
    known: Known,
}

impl Standing {
    pub(super) fn new(app: Arc<App>, headers: &HeaderMap, right: Right, known: Known) -> Standing {
        let mut shown = HeaderMap::new();
        for name in [header::AUTHORIZATION, header::COOKIE] {
            for value in headers.get_all(&name) {
                shown.append(name.clone(), value.clone());
            }
        }
        Standing {
            app,
            shown,
            right,
            known,
        }
    }

    /// Comes to an end when the caller may no longer do what it asked for, and says why.
    pub(super) async fn lost(&self) -> ApiProblem {
        let is_issued = match self.app.gate.shown(&self.shown) {
            Shown::Bearer(token) => !token.starts_with(PREFIX),
            Shown::Nothing | Shown::Cookie(_) | Shown::Odd => false,
        };
        let pause = if is_issued { LOOK_AT_ISSUER } else { LOOK };
        loop {
            let left = self.known.expires.map_or(pause, |end| {
                Duration::from_millis(u64::try_from(end.0 - self.app.now().0).unwrap_or(0))
            });
            // A little later than the end, so that the look then sees it.
            tokio::time::sleep(pause.min(left + Duration::from_millis(10))).await;
            if let Some(problem) = self.look().await {
                return problem;
            }
        }
    }

    async fn look(&self) -> Option<ApiProblem> {
        let source = &self.known.caller.source;
        let shown = self.app.gate.shown(&self.shown);
        match self.app.gate.identify(&self.app, shown, source).await {
            Ok(known) => {
                let is_same =
                    |a: &Caller, b: &Caller| a.tenant == b.tenant && a.project == b.project;
                let holds =
                    known.caller.has(self.right) && is_same(&known.caller, &self.known.caller);
                (!holds).then(|| {
                    let why = format!("the token no longer has the right `{}`", self.right.name());
                    ApiProblem::new(StatusCode::FORBIDDEN, Code::AuthzDenied.name(), why)
                })
            }
            Err(problem) if problem.status == StatusCode::UNAUTHORIZED.as_u16() => Some(problem),
            // Nobody can be asked at the moment: the caller was right a moment ago.
            Err(_) => None,
        }
    }
}

/// The answer to a request: those that wait hear when the caller loses its standing, and streams end then.
pub(super) async fn answered(
    standing: Option<Standing>,
    lost: &Lost,
    answer: impl Future<Output = Response>,
) -> Response {
    let Some(standing) = standing else {
        return answer.await;
    };
    let mut answer = std::pin::pin!(answer);
    let response = tokio::select! {
        biased;
        response = &mut answer => response,
        _ = standing.lost() => {
            lost.0.cancel();
            answer.await
        }
    };
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|it| it.as_bytes().starts_with(b"text/event-stream"));
    match is_stream {
        true => response.map(|body| while_standing(body, standing)),
        false => response,
    }
}

/// A stream that ends with the standing of its reader, with a last event that says why.
fn while_standing(body: Body, standing: Standing) -> Body {
    let lost = Box::pin(async move { standing.lost().await });
    let events = stream::unfold(Some((body.into_data_stream(), lost)), |state| async move {
        let (mut events, mut lost) = state?;
        tokio::select! {
            biased;
            problem = &mut lost => {
                let last = format!("event: problem\ndata: {}\n\n", json!(problem));
                Some((Ok(last.into()), None))
            }
            event = events.next() => event.map(|event| (event, Some((events, lost)))),
        }
    });
    Body::from_stream(events)
}

/// Tells a request that waits that its caller has lost its standing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lost(CancellationToken);

impl Lost {
    /// Comes to an end when the standing is lost.
    pub(crate) async fn cancelled(&self) {
        self.0.cancelled().await;
    }

    /// Refuses to go on if the standing is lost.
    pub(crate) fn check(&self) -> Result<(), ApiProblem> {
        match self.0.is_cancelled() {
            true => Err(invalid()),
            false => Ok(()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Lost {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Lost, ApiProblem> {
        // Without access control there is nothing to lose.
        Ok(parts.extensions.get::<Lost>().cloned().unwrap_or_default())
    }
}
