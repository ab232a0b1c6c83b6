//! Secrets in a plan must be references: a plan is stored, hashed, logged and shown.

use crate::problem::Problems;
use crate::tree::{Node, Value};
use crate::words::quote;

/// Endings of keys whose value is a secret, without case and separators.
const SECRET_KEYS: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "credentials",
];

/// Warns of every value below `node` that looks like a secret written out.
pub(super) fn check(node: &Node, p: &mut Problems) {
    match &node.value {
        Value::Seq(items) => items.iter().for_each(|item| check(item, p)),
        Value::Map(entries) => {
            for entry in entries {
                match &entry.node.value {
                    Value::Str(text) if is_secret_key(&entry.key) && !is_reference(text) => {
                        let message =
                            format!("{} looks like a secret written out", quote(&entry.key));
                        p.warn("PLAN_SECRET_VALUE", entry.node.span, message)
                            .help(format!(
                                "keep it in a secret store and write `{}: secret://…`",
                                entry.key
                            ));
                    }
                    _ => check(&entry.node, p),
                }
            }
        }
        _ => {}
    }
}

fn is_secret_key(key: &str) -> bool {
    let plain: String = key
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    SECRET_KEYS.iter().any(|ending| plain.ends_with(ending))
}

/// `secret://…` and other addresses, `${secret:…}`, `{{ keychain.… }}`; nothing is no secret.
pub(crate) fn is_reference(text: &str) -> bool {
    let text = text.trim();
    text.is_empty()
        || [
            "secret://",
            "secretfile://",
            "vault://",
            "env://",
            "secretref:",
            "${",
        ]
        .iter()
        .any(|start| text.starts_with(start))
        || stepwell_kernel::expr::has_template(text)
}
