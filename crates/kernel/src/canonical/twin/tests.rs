//! Both forms are those that others give: serde_json the plain one, serde_json_canonicalizer the canonical
//! one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::Value as Json;

use super::super::tests::json;
use super::{MemberStack, TwinSerializer};

/// Everything that serde can ask for.
#[derive(Clone, Debug, Serialize)]
struct All {
    z: Option<u8>,
    unit: (),
    tuple: (i8, char, f32),
    new: New,
    #[serde(rename = "Ünit")]
    kind: Vec<Kind>,
    map: BTreeMap<String, Json>,
    a: Json,
}

#[derive(Clone, Debug, Serialize)]
struct New(i64);

#[derive(Clone, Debug, Serialize)]
enum Kind {
    Unit,
    New(Json),
    Tuple(u64, bool),
    Struct { b: String, a: f64 },
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Unit),
        json().prop_map(Kind::New),
        any::<(u64, bool)>().prop_map(|(number, flag)| Kind::Tuple(number, flag)),
        any::<(String, f64)>().prop_map(|(b, a)| Kind::Struct { b, a }),
    ]
}

fn all() -> impl Strategy<Value = All> {
    let map = prop::collection::btree_map(any::<String>(), json(), 0..5);
    let kinds = prop::collection::vec(kind(), 0..4);
    let rest = any::<(Option<u8>, i8, char, f32, i64)>();
    (rest, kinds, map, json()).prop_map(|((z, small, letter, ratio, new), kind, map, a)| All {
        z,
        unit: (),
        tuple: (small, letter, ratio),
        new: New(new),
        kind,
        map,
        a,
    })
}

fn both<T: Serialize>(value: &T) -> (String, String, bool) {
    let (mut plain, mut canonical) = (Vec::new(), Vec::new());
    let mut members = MemberStack::default();
    let mut twin = TwinSerializer::new(&mut plain, &mut canonical, &mut members);
    value.serialize(&mut twin).unwrap();
    let exact = twin.is_exact();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(plain), text(canonical), exact)
}

fn check<T: Serialize>(value: &T) {
    let (plain, canonical, exact) = both(value);
    assert_eq!(plain, serde_json::to_string(value).unwrap());
    if exact {
        assert_eq!(
            canonical,
            serde_json_canonicalizer::to_string(value).unwrap()
        );
    }
}

proptest! {
    #[test]
    fn any_value_has_both_its_forms(value in json()) {
        check(&value);
    }

    #[test]
    fn any_type_has_both_its_forms(value in all()) {
        check(&value);
    }
}

#[test]
fn an_integer_that_no_double_holds_is_told() {
    assert!(both(&(1_u64 << 53)).2);
    assert!(!both(&((1_u64 << 53) + 1)).2);
    assert!(!both(&serde_json::json!({ "a": [i64::MIN] })).2);
    assert_eq!(both(&u64::MAX).0, u64::MAX.to_string());
}

#[test]
fn names_that_are_no_text_are_refused() {
    let mut members = MemberStack::default();
    let (mut plain, mut canonical) = (Vec::new(), Vec::new());
    let mut twin = TwinSerializer::new(&mut plain, &mut canonical, &mut members);
    let map = BTreeMap::from([(vec![1], 2)]);
    assert!(map.serialize(&mut twin).is_err());
}
