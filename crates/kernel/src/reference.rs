//! References: what stands in the log for a value that is too large for it.
//!
//! `{"_ref": {uri, sha256, …}, "_at": "/rows", "_count": 2000, "_keys": […], …kept}`. `_ref` says where the
//! whole value is, `_at` which part of it is meant (a JSON pointer; all of it if absent), `_count` how many
//! items it has if it is a list, `_keys` which of its fields are not here if it is a mapping. The kernel
//! hands references on and counts by them; it never follows one.

use serde_json::{Map, Value as Json, json};

/// The address, the hash and the size of the stored value.
pub const REF: &str = "_ref";
/// The path of the part that is meant; absent: the whole value.
pub const AT: &str = "_at";
/// The number of items, if the value is a list.
pub const COUNT: &str = "_count";
/// The names of the fields that only the stored value has, if the value is a mapping.
pub const KEYS: &str = "_keys";

/// How an address of the artifact store begins.
pub const SCHEME: &str = "artifact:";

/// Whether a value is a reference to another value. A reference must have the size and the hash of that value, so
/// nobody can make up a reference without knowing the value.
#[must_use]
pub fn is_reference(value: &Json) -> bool {
    let Some(Json::Object(fields)) = value.get(REF) else {
        return false;
    };
    let text = |key: &str| fields.get(key).and_then(Json::as_str);
    text("uri").is_some_and(|uri| uri.starts_with(SCHEME))
        && text("sha256").is_some()
        && fields.get("sizeBytes").is_some_and(Json::is_u64)
}

/// The number of items of the list that `value` refers to; `None` if it does not refer to a list.
#[must_use]
pub fn count(value: &Json) -> Option<usize> {
    let count = value.get(COUNT).filter(|_| is_reference(value))?.as_u64()?;
    usize::try_from(count).ok()
}

/// A reference to one item of the list that `value` refers to.
#[must_use]
pub fn item(value: &Json, index: usize) -> Json {
    part(value, &index.to_string())
}

/// A reference to a part of what `value` refers to.
#[must_use]
pub fn part(value: &Json, name: &str) -> Json {
    let at = value.get(AT).and_then(Json::as_str).unwrap_or_default();
    let name = name.replace('~', "~0").replace('/', "~1");
    let mut part = Map::new();
    part.insert(REF.to_owned(), value.get(REF).cloned().unwrap_or_default());
    part.insert(AT.to_owned(), json!(format!("{at}/{name}")));
    Json::Object(part)
}

/// Whether a field or an item is not here but where the value is kept: it is not absent, it cannot be
/// read.
#[must_use]
pub fn hides(value: &Json, field: &str) -> bool {
    if !is_reference(value) || value.get(field).is_some() {
        return false;
    }
    match (value.get(KEYS), count(value)) {
        (Some(Json::Array(keys)), _) => keys.iter().any(|key| key.as_str() == Some(field)),
        (_, Some(count)) => field.parse::<usize>().is_ok_and(|at| at < count),
        // Of a mapping whose fields are not listed any may be there.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact() -> Json {
        json!({ "uri": "artifact:x", "sha256": "00", "sizeBytes": 1 })
    }

    #[test]
    fn a_part_of_a_part_is_a_part_of_the_whole() {
        let whole = json!({ "_ref": artifact(), "_count": 2 });
        let inner = part(&item(&whole, 1), "a/b");
        assert_eq!(inner["_at"], "/1/a~1b");
        assert!(is_reference(&inner));
        assert_eq!((count(&whole), count(&inner)), (Some(2), None));
    }

    #[test]
    fn only_a_field_that_is_kept_elsewhere_is_hidden() {
        let stub = json!({ "_ref": artifact(), "_keys": ["rows"], "n": 1 });
        assert!(hides(&stub, "rows"));
        let list = json!({ "_ref": artifact(), "_count": 2, "1": "here" });
        assert!(hides(&list, "0") && !hides(&list, "1") && !hides(&list, "2"));
        assert!(!is_reference(&json!({ "_ref": { "uri": "artifact:x" } })));
        assert!(!hides(&stub, "n") && !hides(&stub, "nothing"));
        assert!(!hides(&json!({ "_keys": ["rows"] }), "rows"));
    }
}
