//! Unique keys belong to tenants: what an earlier version has written is kept, and on PostgreSQL its servers go on beside new
//! ones.

use rusqlite::Connection;
use stepwell_engine::store::{
    Append, AppendResult, KeyChange, Maintenance as _, PlanNo, RunNo, Store, UniqueKey,
};
use stepwell_stores::postgres::PostgresStore;
use stepwell_stores::sqlite::SqliteStore;

use crate::place::Place;
use crate::server::{options, schema, sql, url};
use crate::sqlite::quick;
use crate::sqlite_faults::{batch, chunk, create};

fn key(tenant: &str) -> UniqueKey {
    UniqueKey {
        tenant: tenant.into(),
        key: "o-1".into(),
    }
}

/// A run of the tenant, with the key `o-1`.
fn keyed(plan: PlanNo, no: i64, tenant: &str) -> Append {
    let mut append = create(plan, no, "[]");
    append.create.as_mut().unwrap().tenant = tenant.into();
    append.unique_key = Some(Box::new(KeyChange::Take(key(tenant))));
    append
}

fn ended(no: i64, tenant: &str) -> Append {
    let mut append = Append::new(RunNo(no), 1);
    append.chunk = Some(chunk(2, "[]"));
    append.unique_key = Some(Box::new(KeyChange::Free(key(tenant))));
    append
}

fn plan_of(store: &dyn Store) -> PlanNo {
    let net = include_str!("../../../../fixtures/histories/linear-payment/net.json");
    let plan = serde_json::from_str(net).unwrap();
    let plan = stepwell_kernel::plan::Plan::new(plan).unwrap();
    store.put_plan(&plan).unwrap()
}

fn send(store: &dyn Store, number: i64, append: Append) -> AppendResult {
    let mut outcomes = store.commit(&batch(number, vec![append])).unwrap();
    outcomes.remove(0)
}

/// The run of acme has its key in a store that was migrated; the same key is free for another tenant.
fn holds_the_key(store: &dyn Store, number: i64) {
    let plan = plan_of(store);
    let taken = AppendResult::UniqueKeyTaken("run_1".into());
    assert_eq!(send(store, number, keyed(plan, 2, "acme")), taken);
    let other = send(store, number + 1, keyed(plan, 3, "globex"));
    assert_eq!(other, AppendResult::Committed);
    assert_eq!(
        send(store, number + 2, ended(1, "acme")),
        AppendResult::Committed
    );
    let again = send(store, number + 3, keyed(plan, 4, "acme"));
    assert_eq!(again, AppendResult::Committed);
    let taken = AppendResult::UniqueKeyTaken("run_3".into());
    assert_eq!(send(store, number + 4, keyed(plan, 5, "globex")), taken);
}

#[test]
fn sqlite_gives_the_keys_of_an_earlier_version_to_their_tenants() {
    let place = Place::new();
    let path = place.at("s.db");
    let store = SqliteStore::open(&path, quick()).unwrap();
    let plan = plan_of(&store);
    assert_eq!(
        send(&store, 1, keyed(plan, 1, "acme")),
        AppendResult::Committed
    );
    drop(store);
    let earlier = Connection::open(&path).unwrap();
    earlier
        .execute_batch(
            "DROP TABLE unique_keys;
             CREATE TABLE unique_keys (
               plan_id TEXT NOT NULL,
               key     TEXT NOT NULL,
               run_no  INTEGER NOT NULL,
               PRIMARY KEY (plan_id, key)
             ) STRICT, WITHOUT ROWID;
             INSERT INTO unique_keys VALUES ('', 'o-1', 1);
             PRAGMA user_version = 12;",
        )
        .unwrap();
    drop(earlier);
    holds_the_key(&SqliteStore::open(&path, quick()).unwrap(), 2);
}

#[test]
fn postgres_gives_the_keys_of_an_earlier_version_to_their_tenants_beside_its_servers() {
    let schema = schema();
    let open = || PostgresStore::connect(&url(), options(&schema)).unwrap();
    let ask = |query: &str| sql(&url(), &format!("SET search_path = {schema}; {query}"));
    let store = open();
    let plan = plan_of(&store);
    assert_eq!(
        send(&store, 1, keyed(plan, 1, "acme")),
        AppendResult::Committed
    );
    drop(store);
    ask("DROP TRIGGER unique_key_tenant ON unique_keys;
         DROP FUNCTION unique_key_tenant();
         ALTER TABLE unique_keys DROP CONSTRAINT unique_keys_pkey, DROP COLUMN tenant,
             ALTER COLUMN plan_id DROP DEFAULT, ADD PRIMARY KEY (plan_id, key);
         DELETE FROM migrations WHERE version >= 14");
    let store = open();
    holds_the_key(&store, 2);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());

    // A server of the earlier version, which knows no tenant, takes and frees keys with its own statements.
    let mut run = create(plan, 6, "[]");
    run.create.as_mut().unwrap().tenant = "initech".into();
    assert_eq!(send(&store, 8, run), AppendResult::Committed);
    ask("INSERT INTO unique_keys (run_no, plan_id, key)
         SELECT u.run_no, u.plan_id, u.key FROM (VALUES (6, '', 'o-1')) AS u (run_no, plan_id, key)
         WHERE NOT EXISTS (SELECT FROM unique_keys k
                           WHERE k.plan_id = u.plan_id AND k.key = u.key AND k.run_no = u.run_no)");
    let taken = AppendResult::UniqueKeyTaken("run_6".into());
    assert_eq!(send(&store, 9, keyed(plan, 7, "initech")), taken);
    let seen = ask(
        "SELECT r.run_id FROM unique_keys k JOIN runs r ON r.run_no = k.run_no
         WHERE k.plan_id = '' AND k.key = 'o-1' ORDER BY 1",
    );
    let seen: Vec<_> = seen
        .into_iter()
        .map(|mut row| row.remove(0).unwrap())
        .collect();
    assert_eq!(
        seen,
        ["run_3", "run_4", "run_6"],
        "it sees the keys of new servers"
    );
    ask("DELETE FROM unique_keys k USING (VALUES (6, '', 'o-1'), (4, '', 'o-1')) AS u (run_no, plan_id, key)
         WHERE k.plan_id = u.plan_id AND k.key = u.key AND k.run_no = u.run_no");
    for (number, no, tenant) in [(10, 7, "initech"), (11, 8, "acme")] {
        let free = send(&store, number, keyed(plan, no, tenant));
        assert_eq!(free, AppendResult::Committed, "{tenant}");
    }
}
