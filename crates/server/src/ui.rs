//! The web UI: files that are built from `ui/` and compiled into the server. `cargo xtask ui` builds them and writes the
//! list of them; nothing of the UI is loaded from elsewhere.

mod bundle;

use std::collections::HashMap;
use std::sync::OnceLock;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use bundle::FILES;

/// A file of the UI.
struct UiFile {
    /// The path below the root of the server.
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

/// The page that loads all other files.
const PAGE: &str = "index.html";

/// What a browser may do with the page: run its scripts, use its styles, ask this server. Nothing inline, nothing from
/// elsewhere, and no other site may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
    connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The answer to a request for a file of the UI; none if the request is for something else.
pub(crate) fn answer(request: &Request) -> Option<Response> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let path = request.uri().path().strip_prefix('/')?;
    let path = if path.is_empty() { PAGE } else { path };
    let file = FILES.iter().find(|file| file.path == path)?;
    let tag = tags().get(file.path)?;
    let known = request.headers().get(header::IF_NONE_MATCH);
    let is_known = known.is_some_and(|it| it == tag);
    let mut headers = HeaderMap::new();
    let text = HeaderValue::from_static;
    headers.insert(header::ETAG, tag.clone());
    // The names of the files stay the same: each is asked for again, and answered in a few bytes if it has not changed.
    headers.insert(header::CACHE_CONTROL, text("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, text(POLICY));
    headers.insert(header::REFERRER_POLICY, text("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, text("DENY"));
    if is_known {
        return Some((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    headers.insert(header::CONTENT_TYPE, text(file.kind));
    Some((headers, file.bytes).into_response())
}

/// The tags of all files, from their content.
fn tags() -> &'static HashMap<&'static str, HeaderValue> {
    static TAGS: OnceLock<HashMap<&'static str, HeaderValue>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let tag = |file: &UiFile| {
            let hash = Sha256::digest(file.bytes);
            let hex: String = hash[..16].iter().map(|it| format!("{it:02x}")).collect();
            let value = HeaderValue::try_from(format!("W/\"{hex}\""));
            Some((file.path, value.ok()?))
        };
        FILES.iter().filter_map(tag).collect()
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn asked(method: Method, path: &str) -> Option<Response> {
        let request = Request::builder().method(method).uri(path);
        answer(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn the_page_is_served_with_a_strict_policy_and_nothing_else_is() {
        let page = asked(Method::GET, "/").unwrap();
        assert_eq!(page.status(), StatusCode::OK);
        let policy = page.headers()[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(policy.contains("default-src 'none'"));
        assert!(!policy.contains("unsafe"));
        assert!(asked(Method::POST, "/").is_none());
        assert!(asked(Method::GET, "/api/v1/nothing").is_none());
        assert!(asked(Method::GET, "/../Cargo.toml").is_none());
    }

    #[test]
    fn a_browser_that_has_the_file_is_not_sent_it_again() {
        let tag = asked(Method::GET, "/").unwrap().headers()[header::ETAG].clone();
        let request = Request::builder()
            .uri("/")
            .header(header::IF_NONE_MATCH, tag);
        let again = answer(&request.body(Body::empty()).unwrap()).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn the_page_loads_only_files_of_the_bundle_and_names_them_relative_to_itself() {
        let page = FILES.iter().find(|it| it.path == PAGE).unwrap();
        let page = std::str::from_utf8(page.bytes).unwrap();
        let mut found = 0;
        for attribute in ["src=\"", "href=\""] {
            for rest in page.split(attribute).skip(1) {
                let path = rest.split('"').next().unwrap();
                let path = path.strip_prefix("./").expect("a relative address");
                assert!(FILES.iter().any(|it| it.path == path), "{path}");
                found += 1;
            }
        }
        assert!(found >= 2, "a script and a style");
    }
}
