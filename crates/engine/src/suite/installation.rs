//! Documents of the installation with compare-and-set, and the audit log.

use super::fixture::{Fixture, at};
use crate::store::{
    AuditFilter, AuditRow, DocumentFilter, NewDocument, StoredAuditRow, StoredDocument,
};

super::table![
    a_document_is_read_back_with_its_version_and_time,
    a_document_changes_only_from_the_version_that_is_expected,
    a_document_is_made_once,
    a_document_is_deleted_only_at_the_version_that_is_expected,
    a_document_that_is_made_anew_begins_again,
    documents_are_listed_by_the_bytes_of_tenant_and_key,
    documents_are_listed_by_kind_tenant_and_prefix,
    documents_are_read_in_pages,
    of_two_that_change_a_document_one_succeeds,
    what_was_done_is_read_back_newest_first,
    the_audit_log_is_filtered,
    the_audit_log_is_read_in_pages,
    the_audit_log_is_pruned_by_age_oldest_first,
    a_store_with_documents_and_an_audit_log_has_no_problems,
];

fn new(kind: &str, tenant: &str, key: &str, body: &str) -> NewDocument {
    NewDocument {
        kind: kind.into(),
        tenant: tenant.into(),
        key: key.into(),
        body: body.into(),
    }
}

fn made(w: &Fixture, kind: &str, tenant: &str, key: &str) {
    let document = new(kind, tenant, key, "{}");
    assert_eq!(
        w.store.put_document(&document, None, at(0)).unwrap(),
        Some(1)
    );
}

fn read(w: &Fixture, key: &str) -> Option<StoredDocument> {
    w.store.document("schedule", "t", key).unwrap()
}

fn body(w: &Fixture, key: &str) -> Option<String> {
    read(w, key).map(|it| it.body)
}

fn a_document_is_read_back_with_its_version_and_time(w: &Fixture) {
    assert_eq!(read(w, "a"), None);
    let text = "{\"name\": \"Grüße\", \"nothing\": \"\\u0000\"}";
    let put = |text: &str, expected, now| {
        let document = new("schedule", "t", "a", text);
        w.store.put_document(&document, expected, now).unwrap()
    };
    assert_eq!(put("{}", None, at(1)), Some(1));
    assert_eq!(put(text, Some(1), at(2)), Some(2));
    let expected = StoredDocument {
        kind: "schedule".into(),
        tenant: "t".into(),
        key: "a".into(),
        version: 2,
        body: text.into(),
        changed_at: at(2),
    };
    assert_eq!(read(w, "a"), Some(expected));
    for (kind, tenant, key) in [
        ("token", "t", "a"),
        ("schedule", "", "a"),
        ("schedule", "t", "A"),
    ] {
        assert_eq!(w.store.document(kind, tenant, key).unwrap(), None);
    }
}

fn a_document_changes_only_from_the_version_that_is_expected(w: &Fixture) {
    let put = |text: &str, expected| {
        let document = new("schedule", "t", "a", text);
        w.store.put_document(&document, expected, at(1)).unwrap()
    };
    assert_eq!(put("0", Some(1)), None, "there is none");
    assert_eq!(read(w, "a"), None);
    assert_eq!(put("1", None), Some(1));
    assert_eq!(put("2", Some(1)), Some(2));
    for wrong in [0, 1, 3, u64::MAX] {
        assert_eq!(put("3", Some(wrong)), None);
    }
    assert_eq!(body(w, "a").as_deref(), Some("2"));
    assert_eq!(put("3", Some(2)), Some(3));
    assert_eq!(body(w, "a").as_deref(), Some("3"));
}

fn a_document_is_made_once(w: &Fixture) {
    made(w, "schedule", "t", "a");
    let again = new("schedule", "t", "a", "other");
    assert_eq!(w.store.put_document(&again, None, at(2)).unwrap(), None);
    assert_eq!(body(w, "a").as_deref(), Some("{}"));
    made(w, "schedule", "u", "a");
    made(w, "token", "t", "a");
}

fn a_document_is_deleted_only_at_the_version_that_is_expected(w: &Fixture) {
    made(w, "schedule", "t", "a");
    made(w, "schedule", "t", "b");
    let gone = |version| {
        let deleted = w.store.delete_document("schedule", "t", "a", version);
        deleted.unwrap()
    };
    assert!(!gone(2) && !gone(0), "another version");
    assert!(gone(1));
    assert!(!gone(1), "it is gone");
    assert_eq!(read(w, "a"), None);
    assert!(read(w, "b").is_some());
}

fn a_document_that_is_made_anew_begins_again(w: &Fixture) {
    made(w, "schedule", "t", "a");
    let change = new("schedule", "t", "a", "1");
    assert_eq!(
        w.store.put_document(&change, Some(1), at(1)).unwrap(),
        Some(2)
    );
    assert!(w.store.delete_document("schedule", "t", "a", 2).unwrap());
    made(w, "schedule", "t", "a");
    assert_eq!(read(w, "a").unwrap().version, 1);
}

fn listed(w: &Fixture, change: impl FnOnce(&mut DocumentFilter)) -> Vec<(String, String)> {
    let mut filter = DocumentFilter {
        kind: "schedule".into(),
        limit: 99,
        ..DocumentFilter::default()
    };
    change(&mut filter);
    let found = w.store.documents(&filter).unwrap();
    found.into_iter().map(|it| (it.tenant, it.key)).collect()
}

fn names(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let name = |(tenant, key): &(&str, &str)| ((*tenant).to_owned(), (*key).to_owned());
    pairs.iter().map(name).collect()
}

fn documents_are_listed_by_the_bytes_of_tenant_and_key(w: &Fixture) {
    let ordered = [
        ("", "z"),
        ("A", "a-1"),
        ("A", "a.1"),
        ("A", "a/1"),
        ("a", ""),
        ("a", "B"),
        ("a", "a"),
        ("a", "a b"),
        ("a", "ab"),
        ("a", "b"),
        ("a", "ä"),
        ("a", "\u{10348}"),
    ];
    for (tenant, key) in ordered.iter().rev() {
        made(w, "schedule", tenant, key);
    }
    assert_eq!(listed(w, |_| {}), names(&ordered));
}

fn documents_are_listed_by_kind_tenant_and_prefix(w: &Fixture) {
    for key in ["ab", "abc", "aB", "b", "a%", "äb"] {
        made(w, "schedule", "t", key);
    }
    made(w, "schedule", "u", "ab");
    made(w, "token", "t", "ab");
    let of = |tenant: Option<&str>, prefix: &str| {
        listed(w, |it| {
            it.tenant = tenant.map(ToOwned::to_owned);
            it.prefix = prefix.into();
        })
    };
    assert_eq!(of(Some("t"), "ab"), names(&[("t", "ab"), ("t", "abc")]));
    assert_eq!(
        of(None, "ab"),
        names(&[("t", "ab"), ("t", "abc"), ("u", "ab")])
    );
    assert_eq!(of(Some("t"), "ä"), names(&[("t", "äb")]));
    assert_eq!(of(Some("t"), "a%"), names(&[("t", "a%")]));
    assert_eq!(of(Some("u"), ""), names(&[("u", "ab")]));
    assert_eq!(of(Some("nobody"), ""), []);
    assert_eq!(
        listed(w, |it| it.kind = "token".into()),
        names(&[("t", "ab")])
    );
}

fn documents_are_read_in_pages(w: &Fixture) {
    let all = [("a", "1"), ("a", "2"), ("b", "0"), ("b", "1"), ("c", "")];
    for (tenant, key) in all {
        made(w, "schedule", tenant, key);
    }
    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let page = listed(w, |it| {
            it.after = after.clone();
            it.limit = 2;
        });
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.clone());
        seen.extend(page);
    }
    assert_eq!(seen, names(&all));
    let of_b = listed(w, |it| {
        it.tenant = Some("b".into());
        it.after = Some(("b".into(), "0".into()));
    });
    assert_eq!(of_b, names(&[("b", "1")]));
    assert_eq!(listed(w, |it| it.limit = 0), []);
}

fn of_two_that_change_a_document_one_succeeds(w: &Fixture) {
    made(w, "schedule", "t", "a");
    let second = w.second.as_ref().unwrap_or(&w.store);
    let barrier = std::sync::Barrier::new(2);
    let change = |store: &dyn crate::store::Store, text: &str| {
        let document = new("schedule", "t", "a", text);
        barrier.wait();
        store.put_document(&document, Some(1), at(1)).unwrap()
    };
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(|| change(&*w.store, "one"));
        let other = change(&**second, "other");
        (one.join().unwrap(), other)
    });
    let winner = match (one, other) {
        (Some(2), None) => "one",
        (None, Some(2)) => "other",
        both => panic!("{both:?}"),
    };
    assert_eq!(body(w, "a").as_deref(), Some(winner));
}

/// Something that was done at a time.
fn done(millis: i64, action: &str) -> AuditRow {
    AuditRow {
        at: at(millis),
        tenant: Some("t".into()),
        actor: "ada".into(),
        token: Some("token-1".into()),
        source: "192.0.2.1".into(),
        action: action.into(),
        target: "run_1".into(),
        accepted: true,
        code: None,
        reason: Some("it was asked for".into()),
    }
}

fn everything() -> AuditFilter {
    AuditFilter {
        limit: 99,
        ..AuditFilter::default()
    }
}

fn rows(w: &Fixture, filter: &AuditFilter) -> Vec<AuditRow> {
    let found = w.store.audit_rows(filter).unwrap();
    found.into_iter().map(|it| it.row).collect()
}

fn actions(w: &Fixture, change: impl FnOnce(&mut AuditFilter)) -> Vec<String> {
    let mut filter = everything();
    change(&mut filter);
    rows(w, &filter).into_iter().map(|it| it.action).collect()
}

fn what_was_done_is_read_back_newest_first(w: &Fixture) {
    let first = done(5, "run.cancel");
    let second = AuditRow {
        at: at(1),
        actor: "program".into(),
        source: "stepwell".into(),
        action: "token.create".into(),
        target: "ci".into(),
        code: Some("AUTHZ_FORBIDDEN".into()),
        ..AuditRow::default()
    };
    let third = done(3, "run.pause");
    w.store.record(&[first.clone(), second.clone()]).unwrap();
    w.store.record(&[]).unwrap();
    w.store.record(std::slice::from_ref(&third)).unwrap();
    // The order is that of recording: times are those of the callers.
    assert_eq!(rows(w, &everything()), [third, second, first]);
    let numbers = w.store.audit_rows(&everything()).unwrap();
    assert!(numbers.is_sorted_by(|a, b| a.no > b.no));
}

fn the_audit_log_is_filtered(w: &Fixture) {
    let change = |action: &str, change: fn(&mut AuditRow)| {
        let mut row = done(1, action);
        change(&mut row);
        row
    };
    let recorded = [
        change("plain", |_| {}),
        change("installation", |it| it.tenant = None),
        change("tenant", |it| it.tenant = Some("u".into())),
        change("actor", |it| it.actor = "bob".into()),
        change("target", |it| it.target = "run_2".into()),
        change("refused", |it| it.accepted = false),
    ];
    w.store.record(&recorded).unwrap();
    assert_eq!(actions(w, |it| it.tenant = Some("u".into())), ["tenant"]);
    assert_eq!(actions(w, |it| it.actor = Some("bob".into())), ["actor"]);
    assert_eq!(actions(w, |it| it.action = Some("plain".into())), ["plain"]);
    assert_eq!(
        actions(w, |it| it.target = Some("run_2".into())),
        ["target"]
    );
    assert_eq!(actions(w, |it| it.accepted = Some(false)), ["refused"]);
    let both = actions(w, |it| {
        it.tenant = Some("t".into());
        it.actor = Some("ada".into());
        it.target = Some("run_1".into());
        it.accepted = Some(true);
    });
    assert_eq!(both, ["plain"]);
    assert_eq!(actions(w, |_| {}).len(), 6);
}

fn the_audit_log_is_read_in_pages(w: &Fixture) {
    let all: Vec<AuditRow> = (0..5).map(|it| done(it, &format!("action-{it}"))).collect();
    w.store.record(&all).unwrap();
    let mut filter = AuditFilter {
        limit: 2,
        ..everything()
    };
    let mut seen = Vec::new();
    loop {
        let page: Vec<StoredAuditRow> = w.store.audit_rows(&filter).unwrap();
        let Some(last) = page.last() else { break };
        filter.before = Some(last.no);
        seen.extend(page.into_iter().map(|it| it.row));
    }
    seen.reverse();
    assert_eq!(seen, all);
}

fn the_audit_log_is_pruned_by_age_oldest_first(w: &Fixture) {
    for (millis, action) in [(3, "c"), (1, "a"), (2, "b"), (4, "d"), (5, "e")] {
        w.store.record(&[done(millis, action)]).unwrap();
    }
    assert_eq!(w.store.prune_audit(at(4), 2).unwrap(), 2);
    assert_eq!(actions(w, |_| {}), ["e", "d", "c"]);
    assert_eq!(w.store.prune_audit(at(4), 2).unwrap(), 1);
    assert_eq!(
        w.store.prune_audit(at(4), 2).unwrap(),
        0,
        "that time is not older"
    );
    assert_eq!(actions(w, |_| {}), ["e", "d"]);
    let last = w.store.audit_rows(&everything()).unwrap()[0].no;
    assert_eq!(w.store.prune_audit(at(9), 9).unwrap(), 2);
    w.store.record(&[done(6, "f")]).unwrap();
    let next = w.store.audit_rows(&everything()).unwrap()[0].no;
    assert!(next > last, "numbers are never used again");
}

fn a_store_with_documents_and_an_audit_log_has_no_problems(w: &Fixture) {
    made(w, "schedule", "t", "a");
    made(w, "schedule", "t", "b");
    let change = new("schedule", "t", "a", "1");
    assert_eq!(
        w.store.put_document(&change, Some(1), at(1)).unwrap(),
        Some(2)
    );
    assert!(w.store.delete_document("schedule", "t", "b", 1).unwrap());
    w.store.record(&[done(1, "a"), done(2, "b")]).unwrap();
    assert_eq!(w.store.prune_audit(at(2), 9).unwrap(), 1);
    assert_eq!(w.store.check().unwrap().problems, Vec::<String>::new());
}
