//! Gets and scans: pinned rows, covering scans, continuation, errors that stay, plans that explain themselves.

use alluvium_base::ErrorKind;
use alluvium_base::key::KeyspaceId;

use super::spy::SpyStore;
use super::*;

fn schema() -> Schema {
    Schema::table("orders")
        .column("tenant", Type::U32)
        .column("id", Type::U64)
        .column("email", Type::Text)
        .column("placed", Type::Timestamp)
        .column("total", Type::Decimal { precision: 12, scale: 2 })
        .nullable("note", Type::Bytes)
        .primary_key(["tenant", "id"])
        .index(Index::on("by_email").asc("tenant").asc("email").unique())
        .index(Index::on("recent").asc("tenant").desc("placed").include(["total"]))
        .index(Index::on("by_note").prefix("note", 4))
        .build()
        .unwrap()
}

fn at(day: i64) -> Timestamp {
    Timestamp::from_micros(day * 86_400_000_000).unwrap()
}

/// Orders 0 to 9 of tenant 7, one per day, and one of tenant 8.
fn orders(store: &SpyStore) -> Table<SpyStore> {
    let table = Table::create(store, schema()).unwrap();
    let mut batch = Batch::new(store);
    for (tenant, id) in (0..10).map(|id| (7, id)).chain([(8, 100)]) {
        let note = if id % 2 == 0 { Value::Bytes(format!("note{id}").into_bytes()) } else { Value::Null };
        let values =
            [tenant.into(), id.into(), format!("u{id}").into(), at(id).into(), (id * 100).into(), note];
        batch.insert(&table, &table.row_of(values).unwrap()).unwrap();
    }
    batch.commit(()).unwrap();
    store.forget();
    table
}

fn ids(builder: ScanBuilder<SpyStore>) -> Vec<u64> {
    let mut scan = builder.run().unwrap();
    let mut found = Vec::new();
    while let Some(row) = scan.next().unwrap() {
        let ValueRef::UInt(id) = row.get("id").unwrap() else { panic!() };
        found.push(id);
    }
    found
}

#[test]
fn a_row_is_read_whole_pinned_or_not_at_all() {
    let store = SpyStore::default();
    let table = orders(&store);
    let row = table.get((7u32, 4u64)).unwrap().unwrap();
    assert_eq!(row.get("total").unwrap().to_string(), "400.00");
    assert_eq!(table.get((7, 99)).unwrap(), None);
    let pinned = table.get_ref((7, 4)).unwrap().unwrap();
    let before = store.snapshot().unwrap();
    write(&store, |b| b.delete(&table, (7, 4))).unwrap();
    assert_eq!(pinned.get("email").unwrap(), ValueRef::Text("u4"));
    assert_eq!(pinned.get("tenant").unwrap(), ValueRef::UInt(7));
    assert_eq!(pinned.decode().unwrap(), row);
    assert!(matches!(pinned.get("nope").unwrap_err().kind(), ErrorKind::NotFound { .. }));
    assert_eq!(table.get((7, 4)).unwrap(), None);
    assert_eq!(table.get_at(&before, (7, 4)).unwrap(), Some(row));
    assert!(table.get_ref_at(&before, (7, 4)).unwrap().is_some());
}

#[test]
fn scans_go_by_primary_key_or_index_in_both_directions() {
    let store = SpyStore::default();
    let table = orders(&store);
    assert_eq!(ids(table.scan().eq(7).range(3..6)), [3, 4, 5]);
    assert_eq!(ids(table.scan().eq(7).range(3..=6).reverse()), [6, 5, 4, 3]);
    assert_eq!(ids(table.scan().index("recent").eq(7).range(at(2)..at(5))), [4, 3, 2]);
    assert_eq!(ids(table.scan().index("recent").eq(7).range(at(2)..at(5)).reverse()), [2, 3, 4]);
    assert_eq!(ids(table.scan().index("recent").eq(7).limit(2)), [9, 8]);
    assert_eq!(ids(table.scan().index("by_email").eq((7, "u3"))), [3]);
    assert_eq!(ids(table.scan()).len(), 11);
    assert_eq!(table.scan().index("recent").count().unwrap(), 11);
    assert_eq!(table.scan().index("recent").eq(7).limit(4).count().unwrap(), 4);
}

#[test]
fn a_prefix_index_checks_the_row_again() {
    let store = SpyStore::default();
    let table = orders(&store);
    assert_eq!(ids(table.scan().index("by_note").eq(b"note4")), [4]);
    assert_eq!(ids(table.scan().index("by_note").eq(b"note")), [0u64; 0]);
    let range = b"note2".as_slice()..b"note6".as_slice();
    assert_eq!(ids(table.scan().index("by_note").range(range)), [2, 4]);
    assert_eq!(table.scan().index("by_note").eq(b"note4").count().unwrap(), 1);
    assert_eq!(table.scan().index("by_note").eq(None::<&[u8]>).count().unwrap(), 5);
}

#[test]
fn a_covering_scan_never_touches_the_rows() {
    let store = SpyStore::default();
    let table = orders(&store);
    let mut scan = table.scan().index("recent").eq(7).columns(["placed", "total", "id"]).run().unwrap();
    let first = scan.next_values().unwrap().unwrap();
    assert_eq!(first, [at(9).into(), Value::Decimal(Decimal::new(900, 0)), 9.into()]);
    while scan.next().unwrap().is_some() {}
    assert_eq!(table.scan().index("by_email").count().unwrap(), 11);
    assert_eq!(store.gets(), [], "no row was read");
    let mut scan = table.scan().index("recent").eq(7).columns(["note"]).limit(3).run().unwrap();
    while scan.next().unwrap().is_some() {}
    assert_eq!(store.gets(), [KeyspaceId(1); 3], "one row per entry");
}

#[test]
fn only_the_columns_asked_for_can_be_read() {
    let store = SpyStore::default();
    let table = orders(&store);
    for builder in [table.scan(), table.scan().index("recent"), table.scan().index("by_note")] {
        let mut scan = builder.columns(["total"]).run().unwrap();
        let row = scan.next().unwrap().unwrap();
        assert!(row.get("total").is_ok());
        assert!(row.get("email").unwrap_err().to_string().contains("column email is not among the columns"));
        assert!(scan.next_row().is_err());
    }
}

#[test]
fn lookup_values_are_converted_exactly_or_refused() {
    let store = SpyStore::default();
    let table = orders(&store);
    let refused = |builder: ScanBuilder<SpyStore>| {
        let error = builder.run().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TypeMismatch { .. }), "{error}");
        error.to_string()
    };
    assert_eq!(ids(table.scan().eq((7.0, Decimal::new(40, 1)))), [4]);
    let day = Date::from_days(3).unwrap();
    assert_eq!(ids(table.scan().index("recent").eq((7u8, day))), [3]);
    assert_eq!(refused(table.scan().eq(-1)), "column tenant holds u32, but the value is integer -1");
    assert_eq!(refused(table.scan().eq("7")), "column tenant holds u32, but the value is text 7");
    assert_eq!(refused(table.scan().eq(7).range(0.5..)), "column id holds u64, but the value is float 0.5");
    assert_eq!(ids(table.scan().eq(Value::Null)), [0u64; 0], "no key is NULL");
    assert_eq!(ids(table.scan().eq(7).range(Value::Null..Value::from(2))), [0, 1]);
    assert_eq!(ids(table.scan().eq(7).range(..Value::Null)), [0u64; 0]);
}

#[test]
fn requests_that_make_no_sense_say_why() {
    let store = SpyStore::default();
    let table = orders(&store);
    let error = |builder: ScanBuilder<SpyStore>| builder.explain().unwrap_err().to_string();
    assert_eq!(
        error(table.scan().index("nope")),
        "there is no index nope on orders; it has by_email, recent, by_note"
    );
    assert!(error(table.scan().columns(["nope"])).starts_with("there is no column nope in orders"));
    assert_eq!(
        error(table.scan().eq((1, 2, 3))),
        "3 values given to eq, but the primary key has only (tenant, id)"
    );
    assert_eq!(
        error(table.scan().eq((1, 2)).range(1..)),
        "eq binds all 2 columns of the primary key (tenant, id); none is left for a range"
    );
}

#[test]
fn a_scan_goes_on_where_another_stopped_even_if_that_row_is_gone() {
    let store = SpyStore::default();
    let table = orders(&store);
    for reverse in [false, true] {
        let builder = |table: &Table<SpyStore>| {
            let builder = table.scan().index("recent").eq(7).range(at(1)..);
            if reverse { builder.reverse() } else { builder }
        };
        let whole = ids(builder(&table));
        for pause in 0..=whole.len() {
            let mut first = builder(&table).limit(pause as u64).run().unwrap();
            while first.next().unwrap().is_some() {}
            let token: Continuation = first.continuation().to_string().parse().unwrap();
            let reopened: Table<SpyStore> = Table::open(&store, "orders").unwrap();
            assert_eq!(ids(builder(&reopened).after(&token)), whole[pause..], "{reverse} {pause}");
            let second = builder(&reopened).after(&token).limit(0).run().unwrap();
            assert_eq!(second.continuation(), token, "nothing returned, nothing moved");
        }
    }
    let mut scan = table.scan().eq(7).limit(4).run().unwrap();
    while scan.next().unwrap().is_some() {}
    write(&store, |b| b.delete(&table, (7, 3))).unwrap();
    write(&store, |b| b.delete(&table, (7, 4))).unwrap();
    assert_eq!(ids(table.scan().eq(7).after(&scan.continuation())), [5, 6, 7, 8, 9]);
}

#[test]
fn a_continuation_of_another_scan_is_refused() {
    let store = SpyStore::default();
    let table = orders(&store);
    let mut scan = table.scan().index("recent").eq(7).limit(2).run().unwrap();
    while scan.next().unwrap().is_some() {}
    let token = scan.continuation();
    for other in [
        table.scan(),
        table.scan().index("by_email").eq(7),
        table.scan().index("recent").eq(8),
        table.scan().index("recent").eq(7).reverse(),
        table.scan().index("recent").eq(7).range(at(1)..),
    ] {
        let error = other.after(&token).run().unwrap_err();
        assert!(error.to_string().contains("belongs to another scan"), "{error}");
    }
    assert!(table.scan().index("recent").eq(7).columns(["total"]).after(&token).run().is_ok());
    let forged = Continuation { last_key: Some(vec![0xff]), ..token };
    assert!(table.scan().index("recent").eq(7).after(&forged).run().is_err());
}

#[test]
fn a_scan_keeps_its_snapshot_and_stays_failed_after_an_error() {
    let store = SpyStore::default();
    let table = orders(&store);
    let mut scan = table.scan().eq(7).run().unwrap();
    write(&store, |b| b.delete(&table, (7, 0))).unwrap();
    write(&store, |b| {
        b.put(
            &table,
            &table.get((7, 1)).unwrap().unwrap().with("id", 50).unwrap().with("email", "x").unwrap(),
        )
    })
    .unwrap();
    drop(table);
    assert_eq!(scan.next().unwrap().unwrap().get("id").unwrap(), ValueRef::UInt(0));
    store.tell(|seen| seen.fail_after_steps = Some(2));
    assert!(scan.next().unwrap().is_some() && scan.next().unwrap().is_some());
    let error = scan.next().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt { offset: 4096, .. }), "{error}");
    store.forget();
    assert_eq!(scan.next().unwrap_err().kind(), error.kind(), "a failed scan stays failed");
    assert_eq!(scan.next_row().unwrap_err().kind(), error.kind());
}

#[test]
fn a_finished_scan_stays_finished() {
    let store = SpyStore::default();
    let table = orders(&store);
    for builder in [table.scan(), table.scan().limit(1), table.scan().reverse(), table.scan().eq(999)] {
        let mut scan = builder.run().unwrap();
        while scan.next().unwrap().is_some() {}
        assert!(scan.next().unwrap().is_none() && scan.next_row().unwrap().is_none());
    }
}

#[test]
fn an_entry_without_a_row_is_corruption_not_a_missing_result() {
    let store = SpyStore::default();
    let table = orders(&store);
    let row_keyspace = table.definition().primary_keyspace();
    let mut key = Vec::new();
    table.core.encode_key(&(7, 5), &mut key).unwrap();
    let mut batch = <SpyStore as Store>::Batch::default();
    batch.delete(row_keyspace, &key).unwrap();
    store.apply(&batch, ()).unwrap();
    let mut scan = table.scan().index("recent").eq(7).run().unwrap();
    let error = loop {
        match scan.next() {
            Ok(row) => assert!(row.is_some(), "the lost row must not be skipped"),
            Err(error) => break error,
        }
    };
    assert!(
        error.to_string().contains("index recent has an entry for row (7, 5), which does not exist"),
        "{error}"
    );
}

#[test]
fn plans_explain_themselves_and_never_change() {
    let store = SpyStore::default();
    let table = orders(&store);
    let explain = |builder: ScanBuilder<SpyStore>| builder.explain().unwrap().to_string();
    assert_eq!(
        explain(table.scan().index("recent").eq(7u32).columns(["note"])),
        "scan orders by index recent (tenant, placed desc)\n\
         \x20 keys: tenant = 7\n\
         \x20 keyspace 3: from 0x00000007 to 0x00000008\n\
         \x20 columns: note\n\
         \x20 rows: one read by primary key per entry\n"
    );
    assert_eq!(
        explain(
            table
                .scan()
                .index("recent")
                .eq(7)
                .range(at(0)..at(1))
                .reverse()
                .limit(50)
                .columns(["placed", "total"])
        ),
        "scan orders by index recent (tenant, placed desc), reverse\n\
         \x20 keys: tenant = 7 and placed >= 1970-01-01T00:00:00Z and placed < 1970-01-02T00:00:00Z\n\
         \x20 keyspace 3: from 0x000000077fffffebe228a0 to 0x0000000780\n\
         \x20 columns: placed, total\n\
         \x20 rows: not read, the index covers the columns\n\
         \x20 limit: 50\n"
    );
    assert_eq!(
        explain(table.scan().index("by_note").eq(b"note4")),
        "scan orders by index by_note (note:4)\n\
         \x20 keys: note = 0x6e6f746534\n\
         \x20 keyspace 4: from 0x016e6f74650000 to 0x016e6f74650001\n\
         \x20 columns: tenant, id, email, placed, total, note\n\
         \x20 rows: one read by primary key per entry\n\
         \x20 checked again: note = 0x6e6f746534 (the index holds a prefix)\n"
    );
    assert_eq!(
        explain(table.scan()),
        "scan orders by primary key (tenant, id)\n\
         \x20 keys: all (full scan)\n\
         \x20 keyspace 1: from 0x to the end\n\
         \x20 columns: tenant, id, email, placed, total, note\n\
         \x20 rows: read in order\n"
    );
    assert!(
        explain(table.scan().eq(7).range(5..5))
            .contains("keys: none can match tenant = 7 and id >= 5 and id < 5")
    );
    let structured = table.scan().index("recent").eq(7).explain().unwrap();
    assert_eq!(structured, table.scan().index("recent").eq(7).explain().unwrap());
    assert!(structured.reads_rows && structured.index.as_deref() == Some("recent"));
}
