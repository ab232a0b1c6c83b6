//! Which parts of `auth` say where a server is.

use std::ops::Range;

use serde_json::Value as Json;

/// Fields of `auth` with an address.
const ADDRESSES: [&str; 3] = ["connection_string", "dsn", "url"];
/// Fields of `auth` with nothing but a host.
const HOSTS: [&str; 3] = ["host", "hostaddr", "hostname"];

/// A text of `auth` that says where the server is.
pub(super) struct ServerText<'a> {
    pub(super) text: &'a str,
    is_host: bool,
}

/// The texts of `auth` that say where the server is. A text that is nothing but a template names a credential.
pub(super) fn texts(auth: &Json) -> Vec<ServerText<'_>> {
    if let Some(text) = auth.as_str() {
        let is_address = text.contains("://");
        let text = is_address.then_some(ServerText {
            text,
            is_host: false,
        });
        return text.into_iter().collect();
    }
    let fields = auth.as_object().into_iter().flatten();
    fields
        .filter_map(|(key, value)| {
            let is_host = HOSTS.contains(&key.as_str());
            let text = value.as_str()?;
            (is_host || ADDRESSES.contains(&key.as_str())).then_some(ServerText { text, is_host })
        })
        .collect()
}

impl ServerText<'_> {
    /// Whether a value at these bytes can change the host.
    pub(super) fn reaches_host(&self, range: &Range<usize>) -> bool {
        let before = &self.text[..range.start];
        if self.is_host {
            return true;
        }
        match before.split_once("://") {
            Some((_, place)) => !place.contains(['/', '?', '#']),
            // The address itself, or `host=…` of a list of settings.
            None => {
                let word = before
                    .rsplit(char::is_whitespace)
                    .next()
                    .unwrap_or_default();
                before.trim().is_empty() && range.len() == self.text.trim().len()
                    || self.text.contains("://")
                    || word.starts_with("host")
            }
        }
    }
}
