//! Batches: what they check, what they write, and that nothing is half-done.

use alluvium_base::key::{KeyspaceId, Kind};
use alluvium_base::limits::KEY_BYTES_MAX;
use alluvium_base::{Error, ErrorKind, Result};

use super::spy::SpyStore;
use super::*;

const ROWS: KeyspaceId = KeyspaceId(1);
const BY_EMAIL: KeyspaceId = KeyspaceId(2);
const RECENT: KeyspaceId = KeyspaceId(3);

/// `users` with a unique index over a nullable column and one with an included column.
fn users(store: &SpyStore) -> Table<SpyStore> {
    let schema = Schema::table("users")
        .column("tenant", Type::U32)
        .column("id", Type::U64)
        .nullable("email", Type::Text)
        .column("seen", Type::I64)
        .default(0)
        .column("visits", Type::U32)
        .default(0)
        .nullable("note", Type::Bytes)
        .primary_key(["tenant", "id"])
        .index(Index::on("by_email").asc("tenant").asc("email").unique())
        .index(Index::on("recent").asc("tenant").desc("seen").include(["visits"]))
        .build()
        .unwrap();
    Table::create(store, schema).unwrap()
}

fn user(table: &Table<SpyStore>, id: u64, email: Option<&str>) -> DynamicRow {
    table.new_row().with("tenant", 7).unwrap().with("id", id).unwrap().with("email", email).unwrap()
}

fn emails(table: &Table<SpyStore>) -> Vec<String> {
    let mut scan = table.scan().columns(["id", "email"]).run().unwrap();
    let mut found = Vec::new();
    while let Some(row) = scan.next().unwrap() {
        found.push(format!("{}:{}", row.get("id").unwrap(), row.get("email").unwrap()));
    }
    found
}

/// The contents of the store, to see that a failed commit has left none behind.
fn contents(store: &SpyStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    for keyspace in [ROWS, BY_EMAIL, RECENT] {
        let mut iter = store.scan(&store.snapshot().unwrap(), keyspace, &[], None).unwrap();
        while iter.next().unwrap() {
            found.push((keyspace.full_key(iter.key()), iter.value().to_vec()));
        }
    }
    found
}

#[test]
fn insert_refuses_an_existing_row_and_put_replaces_it() {
    let store = SpyStore::default();
    let table = users(&store);
    write(&store, |b| b.insert(&table, &user(&table, 1, Some("a")))).unwrap();
    let error = write(&store, |b| b.insert(&table, &user(&table, 1, Some("b")))).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::KeyExists { table: "users".into(), key: "(7, 1)".into() });
    write(&store, |b| b.put(&table, &user(&table, 1, Some("b")))).unwrap();
    write(&store, |b| b.put(&table, &user(&table, 2, Some("c")))).unwrap();
    assert_eq!(emails(&table), ["1:b", "2:c"]);
    assert_clean(&table);
}

#[test]
fn a_blind_put_leaves_no_stale_index_entry() {
    let store = SpyStore::default();
    let table = users(&store);
    for email in ["a", "b", "c"] {
        write(&store, |b| b.put(&table, &user(&table, 1, Some(email)))).unwrap();
    }
    let by_email = |email: &str| table.scan().index("by_email").eq((7, email)).count().unwrap();
    assert_eq!([by_email("a"), by_email("b"), by_email("c")], [0, 0, 1]);
    assert_clean(&table);
}

#[test]
fn operations_of_a_batch_see_each_other() {
    let store = SpyStore::default();
    let table = users(&store);
    let mut batch = Batch::new(&store);
    batch.insert(&table, &user(&table, 1, Some("a"))).unwrap();
    batch.update(&table, (7, 1), |row: &mut DynamicRow| row.set("visits", 5)).unwrap();
    batch
        .update(&table, (7, 1), |row: &mut DynamicRow| {
            assert_eq!(row.get("visits").unwrap(), &Value::UInt(5));
            row.set("visits", 6)
        })
        .unwrap();
    batch.delete(&table, (7, 1)).unwrap();
    batch.insert(&table, &user(&table, 1, Some("b"))).unwrap();
    batch.insert(&table, &user(&table, 2, Some("a"))).unwrap();
    batch.delete(&table, (7, 3)).unwrap();
    batch.commit(()).unwrap();
    assert_eq!(emails(&table), ["1:b", "2:a"]);
    assert_clean(&table);

    let mut batch = Batch::new(&store);
    batch.insert(&table, &user(&table, 4, None)).unwrap();
    batch.insert(&table, &user(&table, 4, None)).unwrap();
    assert!(matches!(batch.commit(()).unwrap_err().kind(), ErrorKind::KeyExists { .. }));
    let mut batch = Batch::new(&store);
    batch.delete(&table, (7, 1)).unwrap();
    batch.update(&table, (7, 1), |_: &mut DynamicRow| ()).unwrap();
    let error = batch.commit(()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound { what: "row (7, 1) to update in users".into() });
    assert_eq!(emails(&table), ["1:b", "2:a"]);
}

#[test]
fn a_unique_violation_names_the_row_that_has_the_value() {
    let store = SpyStore::default();
    let table = users(&store);
    write(&store, |b| b.insert(&table, &user(&table, 1, Some("a")))).unwrap();
    let error = write(&store, |b| b.put(&table, &user(&table, 2, Some("a")))).unwrap_err();
    let expected = ErrorKind::UniqueViolation {
        table: "users".into(),
        index: "by_email".into(),
        key: "(7, a)".into(),
        existing: "(7, 1)".into(),
    };
    assert_eq!(*error.kind(), expected);
    let mut batch = Batch::new(&store);
    batch.insert(&table, &user(&table, 3, Some("x"))).unwrap();
    batch.insert(&table, &user(&table, 4, Some("x"))).unwrap();
    let error = batch.commit(()).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::UniqueViolation { existing, .. } if existing == "(7, 3)"),
        "{error}"
    );
    assert_eq!(emails(&table), ["1:a"]);
    assert_clean(&table);
}

#[test]
fn a_unique_value_kept_by_its_row_is_not_free_for_another_row_of_the_batch() {
    let store = MapStore::new();
    let schema = Schema::table("t").column("id", Type::U8).column("u", Type::U8).column("x", Type::U8);
    let schema = schema.primary_key(["id"]).index(Index::on("by_u").asc("u").unique().include(["x"]));
    let table: Table<MapStore> = Table::create(&store, schema.build().unwrap()).unwrap();
    let row = |id: u8, u: u8, x: u8| table.row_of([id.into(), u.into(), x.into()]).unwrap();
    write(&store, |b| b.insert(&table, &row(1, 7, 0))).unwrap();
    // Row 1 keeps its unique value but changes an included column, so its entry goes and comes.
    for kept_first in [true, false] {
        let mut batch = Batch::new(&store);
        if kept_first {
            batch.put(&table, &row(1, 7, 1)).unwrap();
            batch.insert(&table, &row(2, 7, 0)).unwrap();
        } else {
            batch.insert(&table, &row(2, 7, 0)).unwrap();
            batch.put(&table, &row(1, 7, 1)).unwrap();
        }
        let error = batch.commit(()).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::UniqueViolation { existing, .. } if existing == "(1)"),
            "{error}"
        );
    }
    assert_clean(&table);
}

#[test]
fn nulls_do_not_collide_in_a_unique_index() {
    let store = SpyStore::default();
    let table = users(&store);
    for id in 1..4 {
        write(&store, |b| b.insert(&table, &user(&table, id, None))).unwrap();
    }
    assert_eq!(table.scan().index("by_email").eq((7, None::<&str>)).count().unwrap(), 3);
    write(&store, |b| b.delete(&table, (7, 2))).unwrap();
    write(&store, |b| b.put(&table, &user(&table, 3, Some("a")))).unwrap();
    assert_eq!(table.scan().index("by_email").eq((7, None::<&str>)).count().unwrap(), 1);
    assert_clean(&table);
}

#[test]
fn a_unique_value_can_pass_from_row_to_row_within_a_batch() {
    let store = SpyStore::default();
    let table = users(&store);
    let mut batch = Batch::new(&store);
    batch.insert(&table, &user(&table, 1, Some("a"))).unwrap();
    batch.insert(&table, &user(&table, 2, Some("b"))).unwrap();
    batch.commit(()).unwrap();
    let mut swap = Batch::new(&store);
    swap.put(&table, &user(&table, 1, Some("b"))).unwrap();
    swap.put(&table, &user(&table, 2, Some("a"))).unwrap();
    swap.commit(()).unwrap();
    assert_eq!(emails(&table), ["1:b", "2:a"]);
    let mut replace = Batch::new(&store);
    replace.insert(&table, &user(&table, 3, Some("a"))).unwrap();
    replace.delete(&table, (7, 2)).unwrap();
    replace.commit(()).unwrap();
    assert_eq!(emails(&table), ["1:b", "3:a"]);
    write(&store, |b| b.insert(&table, &user(&table, 4, Some("c")))).unwrap();
    write(&store, |b| b.delete(&table, (7, 4))).unwrap();
    write(&store, |b| b.insert(&table, &user(&table, 5, Some("c")))).unwrap();
    assert_clean(&table);
}

#[test]
fn unchanged_entries_are_left_alone_and_changed_ones_alternate() {
    let store = SpyStore::default();
    let table = users(&store);
    write(&store, |b| b.insert(&table, &user(&table, 1, Some("a")))).unwrap();
    let applied = |change: fn(&mut DynamicRow) -> Result<()>| {
        store.forget();
        write(&store, |b| b.update(&table, (7, 1), change)).unwrap();
        store.applied()
    };
    assert_eq!(applied(|row| row.set("note", b"x")), [(Kind::Put, ROWS)], "no index holds it");
    let included = applied(|row| row.set("visits", 1));
    assert_eq!(
        included,
        [(Kind::Put, ROWS), (Kind::DeleteOnce, RECENT), (Kind::Put, RECENT)],
        "same key, other value"
    );
    let moved = applied(|row| row.set("email", "b"));
    assert_eq!(moved, [(Kind::Put, ROWS), (Kind::DeleteOnce, BY_EMAIL), (Kind::Put, BY_EMAIL)]);
    assert_eq!(applied(|_| Ok(())), [], "nothing changed");
    store.forget();
    write(&store, |b| b.delete(&table, (7, 1))).unwrap();
    assert_eq!(
        store.applied(),
        [(Kind::Delete, ROWS), (Kind::DeleteOnce, BY_EMAIL), (Kind::DeleteOnce, RECENT)]
    );
}

#[test]
fn whatever_fails_leaves_nothing_behind() {
    let store = SpyStore::default();
    let table = users(&store);
    write(&store, |b| b.insert(&table, &user(&table, 1, Some("a")))).unwrap();
    let before = contents(&store);
    let fails = |record: &dyn Fn(&mut Batch<SpyStore>)| {
        let mut batch = Batch::new(&store);
        batch.insert(&table, &user(&table, 9, Some("new"))).unwrap();
        batch.update(&table, (7, 1), |row: &mut DynamicRow| row.set("visits", 77)).unwrap();
        record(&mut batch);
        let error = batch.commit(()).unwrap_err();
        assert_eq!(contents(&store), before, "{error}");
        error
    };
    fails(&|b| b.insert(&table, &user(&table, 1, None)).unwrap());
    fails(&|b| b.insert(&table, &user(&table, 2, Some("a"))).unwrap());
    let own = fails(&|b| b.update(&table, (7, 1), |_: &mut DynamicRow| Err(Error::invalid("mine"))).unwrap());
    assert_eq!(own.to_string(), "mine");
    let null =
        fails(&|b| b.update(&table, (7, 1), |row: &mut DynamicRow| row.set("seen", Value::Null)).unwrap());
    assert!(matches!(null.kind(), ErrorKind::TypeMismatch { .. }), "{null}");
    let moved = fails(&|b| b.update(&table, (7, 1), |row: &mut DynamicRow| row.set("id", 2)).unwrap());
    assert!(moved.to_string().contains("changed the primary key from (7, 1) to (7, 2)"), "{moved}");
    let panicked =
        fails(&|b| b.update(&table, (7, 1), |_: &mut DynamicRow| -> () { panic!("oh {}", "no") }).unwrap());
    assert!(
        matches!(panicked.kind(), ErrorKind::Panicked { message, .. } if message == "oh no"),
        "{panicked}"
    );
    store.tell(|seen| seen.fail_apply = true);
    fails(&|_| {});

    write(&store, |b| b.insert(&table, &user(&table, 9, Some("new")))).unwrap();
    write(&store, |b| b.update(&table, (7, 1), |row: &mut DynamicRow| row.set("visits", 1))).unwrap();
    assert_clean(&table);
}

#[test]
fn what_cannot_be_written_is_an_error_when_recorded_and_leaves_the_batch_as_it_was() {
    let store = SpyStore::default();
    let table = users(&store);
    let mut batch = Batch::new(&store);
    batch.insert(&table, &user(&table, 1, Some("a"))).unwrap();
    let long = "x".repeat(KEY_BYTES_MAX);
    let error = batch.insert(&table, &user(&table, 2, Some(&long))).unwrap_err();
    let ErrorKind::KeyTooLong { index, len, max } = error.kind() else { panic!("{error}") };
    // Tenant, marker, text, terminator; nothing else, since a unique entry has the primary key in its value.
    assert_eq!(
        (index.as_str(), *len, *max),
        ("index by_email of users", 4 + 1 + KEY_BYTES_MAX + 2, KEY_BYTES_MAX)
    );
    assert!(
        batch.insert(&table, &table.new_row()).unwrap_err().to_string().contains("column tenant holds u32")
    );
    assert!(matches!(batch.delete(&table, 7).unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
    assert!(matches!(batch.delete(&table, (7, 1, 2)).unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
    assert!(matches!(batch.delete(&table, (7, -1)).unwrap_err().kind(), ErrorKind::TypeMismatch { .. }));
    assert!(matches!(batch.delete(&table, (7, "1")).unwrap_err().kind(), ErrorKind::TypeMismatch { .. }));
    assert_eq!(batch.len(), 1);
    batch.commit(()).unwrap();
    assert_eq!(emails(&table), ["1:a"]);

    let too_long = long.clone();
    let update =
        write(&store, |b| b.update(&table, (7, 1), move |row: &mut DynamicRow| row.set("email", too_long)));
    assert!(matches!(update.unwrap_err().kind(), ErrorKind::KeyTooLong { .. }));
    let fits = "x".repeat(KEY_BYTES_MAX - 7);
    write(&store, |b| b.update(&table, (7, 1), move |row: &mut DynamicRow| row.set("email", fits))).unwrap();
    assert_clean(&table);
}

#[test]
fn one_batch_writes_several_tables() {
    let store = SpyStore::default();
    let first = users(&store);
    let schema = Schema::table("log").column("at", Type::I64).primary_key(["at"]).build().unwrap();
    let second: Table<SpyStore> = Table::create(&store, schema).unwrap();
    let mut batch = Batch::new(&store);
    batch.insert(&first, &user(&first, 1, None)).unwrap();
    batch.insert(&second, &second.row_of([(-5).into()]).unwrap()).unwrap();
    batch.commit(()).unwrap();
    assert!(first.get((7, 1)).unwrap().is_some() && second.get(-5).unwrap().is_some());
    let mut batch = Batch::new(&store);
    batch.delete(&second, -5).unwrap();
    batch.insert(&first, &user(&first, 1, None)).unwrap();
    assert!(batch.commit(()).is_err());
    assert!(second.get(-5).unwrap().is_some(), "a failure in one table leaves the other alone");
}

#[test]
fn an_index_on_a_prefix_is_unique_by_the_prefix() {
    let store = MapStore::new();
    let schema = Schema::table("t").column("id", Type::U8).column("code", Type::Text).primary_key(["id"]);
    let schema = schema.index(Index::on("by_code").prefix("code", 2).unique()).build().unwrap();
    let table: Table<MapStore> = Table::create(&store, schema).unwrap();
    let row = |id: u8, code: &str| table.row_of([id.into(), code.into()]).unwrap();
    write(&store, |b| b.insert(&table, &row(1, "éab"))).unwrap();
    let error = write(&store, |b| b.insert(&table, &row(2, "éax"))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UniqueViolation { key, .. } if key == "(éa)"), "{error}");
    write(&store, |b| b.insert(&table, &row(2, "é"))).unwrap();
    assert_clean(&table);
}

#[test]
fn a_handle_that_knows_an_older_schema_says_so() {
    let store = MapStore::new();
    let schema = Schema::table("t").column("id", Type::U8).primary_key(["id"]).build().unwrap();
    let old: Table<MapStore> = Table::create(&store, schema).unwrap();
    write(&store, |b| b.insert(&old, &old.row_of([1.into()]).unwrap())).unwrap();
    alter_table(&store, "t", |schema| schema.with_column("x", Type::U8, false, Some(9.into()))).unwrap();
    let new: Table<MapStore> = Table::open(&store, "t").unwrap();
    assert_eq!(new.get(1).unwrap().unwrap().values(), [1.into(), Value::UInt(9)]);
    write(&store, |b| b.insert(&old, &old.row_of([2.into()]).unwrap())).unwrap();
    assert_eq!(new.get(2).unwrap().unwrap().values(), [2.into(), Value::UInt(9)]);
    write(&store, |b| b.put(&new, &new.row_of([1.into(), 5.into()]).unwrap())).unwrap();
    let error = old.get(1).unwrap_err();
    assert!(error.to_string().contains("written under version 2, this handle knows version 1"), "{error}");
    let mut batch = Batch::new(&store);
    let error = batch.insert(&new, &old.row_of([3.into()]).unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SchemaMismatch { .. }), "{error}");
}
