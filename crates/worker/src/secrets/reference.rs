//! How definitions name a secret.

/// What a text that names a secret means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    /// By a name that any provider may know: `secret://NAME[/FIELD]`, `${secret:NAME}`.
    Named(&'a str),
    /// By an address of one provider: `env://VAR`, `secretfile://NAME`, `vault://MOUNT/PATH`.
    Direct {
        scheme: &'a str,
        address: &'a str,
        field: Option<&'a str>,
    },
}

/// Schemes of one provider each.
const DIRECT: [&str; 3] = ["env", "secretfile", "vault"];

const OPEN: &str = "${secret:";

impl Reference<'_> {
    /// Reads a text that is a reference as a whole.
    pub(super) fn parse(text: &str) -> Option<Reference<'_>> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix(OPEN) {
            let name = rest.strip_suffix('}').filter(|it| !it.contains('}'))?;
            return Some(Reference::Named(name.trim()));
        }
        if let Some(name) = text.strip_prefix("secretref:") {
            return Some(Reference::Named(name.trim()));
        }
        let (scheme, rest) = text.split_once("://")?;
        if scheme == "secret" {
            return Some(Reference::Named(rest));
        }
        let scheme = DIRECT.into_iter().find(|it| *it == scheme)?;
        let (address, field) = match rest.split_once('#') {
            Some((address, field)) => (address, Some(field)),
            None => (rest, None),
        };
        Some(Reference::Direct {
            scheme,
            address,
            field,
        })
    }
}

/// The `${secret:NAME}` inside a longer text, as they stand there.
pub(super) fn embedded(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let Some(length) = rest[start..].find('}') else {
            break;
        };
        found.push(&rest[start..=start + length]);
        rest = &rest[start + length + 1..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_a_reference_are_told_apart() {
        assert_eq!(
            Reference::parse("secret://db/pw"),
            Some(Reference::Named("db/pw"))
        );
        assert_eq!(
            Reference::parse("${secret:db}"),
            Some(Reference::Named("db"))
        );
        assert_eq!(
            Reference::parse("vault://kv/team/db#password"),
            Some(Reference::Direct {
                scheme: "vault",
                address: "kv/team/db",
                field: Some("password"),
            })
        );
        for text in [
            "https://example.org",
            "secret",
            "x ${secret:a}",
            "${secret:a} ${secret:b}",
        ] {
            assert_eq!(Reference::parse(text), None, "{text}");
        }
    }

    #[test]
    fn references_inside_a_text_are_found() {
        assert_eq!(
            embedded("a ${secret:x} b ${secret:y/z} ${secret:open"),
            ["${secret:x}", "${secret:y/z}"]
        );
    }
}
