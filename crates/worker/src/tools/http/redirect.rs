//! Where a redirect leads, and what goes along.
//!
//! Credentials stay with the host that they are for, and nothing goes from https to http.

use reqwest::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, LOCATION, TRANSFER_ENCODING,
};
use reqwest::{Method, Request, Response, StatusCode, Url};

use super::error;
use crate::fence::FACTS;
use crate::outcome::ToolError;

/// The request that an answer asks for, if it is a redirect; `sent` is what was answered.
pub(super) fn next(mut sent: Request, response: &Response) -> Result<Option<Request>, ToolError> {
    let Some(target) = target(sent.url(), response)? else {
        return Ok(None);
    };
    if becomes_get(response.status(), sent.method()) {
        *sent.method_mut() = Method::GET;
        *sent.body_mut() = None;
        for name in [
            CONTENT_TYPE,
            CONTENT_LENGTH,
            CONTENT_ENCODING,
            TRANSFER_ENCODING,
        ] {
            sent.headers_mut().remove(name);
        }
        // A request that changes nothing needs no fence.
        for fact in &FACTS {
            sent.headers_mut().remove(fact.header);
        }
    }
    if !is_same_place(sent.url(), &target) {
        leave_credentials(&mut sent);
    }
    *sent.url_mut() = target;
    Ok(Some(sent))
}

fn target(from: &Url, response: &Response) -> Result<Option<Url>, ToolError> {
    let redirects = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(location) = response.headers().get(LOCATION).filter(|_| redirects) else {
        return Ok(None);
    };
    let location = String::from_utf8_lossy(location.as_bytes());
    let Ok(mut target) = from.join(&location) else {
        return Err(error::redirects("it was sent on to what is no address"));
    };
    match (from.scheme(), target.scheme()) {
        ("https", "http") => Err(error::redirects(
            "it was sent on from https to http, where everyone could read along; \
             if that is meant, use the http address",
        )),
        (_, "http" | "https") => {
            // A redirect must not choose the credentials that are sent.
            let _ = target.set_username("");
            let _ = target.set_password(None);
            Ok(Some(target))
        }
        (_, scheme) => Err(error::redirects(format!(
            "it was sent on to an address of scheme `{scheme}`; only http and https are followed"
        ))),
    }
}

/// What browsers do, and servers therefore expect.
fn becomes_get(status: StatusCode, method: &Method) -> bool {
    match status {
        StatusCode::SEE_OTHER => !matches!(*method, Method::GET | Method::HEAD),
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        _ => false,
    }
}

/// The same host and port; the step from http to https of one host counts as such too.
fn is_same_place(from: &Url, to: &Url) -> bool {
    let ports = (from.port_or_known_default(), to.port_or_known_default());
    let upgraded = from.scheme() == "http" && ports == (Some(80), Some(443));
    from.host_str() == to.host_str() && (ports.0 == ports.1 || upgraded)
}

fn leave_credentials(request: &mut Request) {
    let headers = request.headers_mut();
    headers.remove(HOST);
    let secret: Vec<HeaderName> = headers
        .iter()
        .filter(|(_, value)| value.is_sensitive())
        .map(|(name, _)| name.clone())
        .collect();
    for name in secret {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_host_and_port_is_the_same_place() {
        let same = |from: &str, to: &str| {
            is_same_place(&Url::parse(from).unwrap(), &Url::parse(to).unwrap())
        };
        assert!(same("http://a.example/x", "http://a.example/y"));
        assert!(same("http://a.example/", "https://a.example/"));
        assert!(same("https://a.example:443/", "https://a.example/"));
        assert!(!same("http://a.example/", "http://b.example/"));
        assert!(!same("http://a.example/", "http://sub.a.example/"));
        assert!(!same("http://a.example/", "http://a.example:8080/"));
        assert!(!same("http://a.example:8080/", "https://a.example/"));
    }
}
