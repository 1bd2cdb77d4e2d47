//! The index check finds every way in which an index and the rows can differ.

use super::*;

fn table(store: &MapStore) -> Table<MapStore> {
    let schema = Schema::table("t")
        .column("id", Type::U8)
        .column("a", Type::U8)
        .column("b", Type::U8)
        .primary_key(["id"])
        .index(Index::on("plain").asc("a").include(["b"]))
        .index(Index::on("single").asc("a").unique())
        .build()
        .unwrap();
    let table: Table<MapStore> = Table::create(store, schema).unwrap();
    let mut batch = Batch::new(store);
    for id in 0..200u8 {
        batch.insert(&table, &table.row_of([id.into(), id.into(), id.into()]).unwrap()).unwrap();
    }
    batch.commit(()).unwrap();
    table
}

/// Damages the store behind the table's back and checks.
fn check_after(damage: impl FnOnce(&Table<MapStore>, &mut MapBatch)) -> IndexCheck {
    let store = MapStore::new();
    let table = table(&store);
    assert_clean(&table);
    let mut batch = MapBatch::default();
    damage(&table, &mut batch);
    store.apply(&batch, ()).unwrap();
    let check = table.check_indexes().unwrap();
    assert!(!check.is_clean());
    check
}

fn keyspaces(table: &Table<MapStore>) -> Vec<alluvium_base::key::KeyspaceId> {
    table.definition().keyspaces().collect()
}

#[test]
fn a_missing_entry_is_found() {
    let check = check_after(|table, batch| batch.delete(keyspaces(table)[1], &[5, 5]).unwrap());
    assert_eq!(check.indexes[0].problems, [IndexProblem::MissingEntry { primary_key: "(5)".into() }]);
    assert_eq!((check.indexes[0].entries, check.rows), (199, 200));
    assert!(check.indexes[1].agrees && check.indexes[1].problems.is_empty());
}

#[test]
fn a_missing_row_is_found_in_every_index() {
    let check = check_after(|table, batch| batch.delete(keyspaces(table)[0], &[5]).unwrap());
    for index in &check.indexes {
        assert_eq!(
            index.problems,
            [IndexProblem::MissingRow { entry: "(5)".into(), primary_key: "(5)".into() }]
        );
    }
}

#[test]
fn an_entry_with_other_included_columns_is_found_once() {
    let check = check_after(|table, batch| batch.put(keyspaces(table)[1], &[5, 5], &[0x10, 77]).unwrap());
    let expected = IndexProblem::WrongEntry { entry: "(5)".into(), primary_key: "(5)".into() };
    assert_eq!(check.indexes[0].problems, [expected]);
}

#[test]
fn a_unique_entry_of_another_row_is_found_from_both_sides() {
    let check = check_after(|table, batch| batch.put(keyspaces(table)[2], &[5], &[1, 6]).unwrap());
    assert_eq!(
        check.indexes[1].problems,
        [
            IndexProblem::WrongEntry { entry: "(5)".into(), primary_key: "(6)".into() },
            IndexProblem::MissingEntry { primary_key: "(5)".into() },
        ]
    );
}

#[test]
fn damaged_entries_and_rows_are_found() {
    let check = check_after(|table, batch| batch.put(keyspaces(table)[1], &[], b"").unwrap());
    assert_eq!(check.indexes[0].problems, [IndexProblem::DamagedEntry { entry: "0x".into() }]);
    let check = check_after(|table, batch| batch.put(keyspaces(table)[0], &[5], b"\x01\x99").unwrap());
    assert_eq!((check.rows, check.damaged_rows), (199, 1));
    assert!(check.first_damage.unwrap().contains("row (5): not a row of its schema version"));
}

#[test]
fn many_problems_are_counted_and_some_are_named() {
    let check = check_after(|table, batch| {
        (0..200u8).for_each(|id| batch.delete(keyspaces(table)[1], &[id, id]).unwrap());
    });
    assert_eq!((check.indexes[0].problem_count, check.indexes[0].problems.len()), (200, 100));
}

/// Damages the store behind the table's back and rebuilds its indexes.
fn rebuild_after(damage: impl FnOnce(&Table<MapStore>, &mut MapBatch)) -> (IndexRebuild, IndexCheck) {
    let store = MapStore::new();
    let table = table(&store);
    assert_eq!(table.rebuild_indexes(()).unwrap(), IndexRebuild::default(), "there is nothing to put right");
    let mut batch = MapBatch::default();
    damage(&table, &mut batch);
    store.apply(&batch, ()).unwrap();
    let rebuilt = table.rebuild_indexes(()).unwrap();
    (rebuilt, table.check_indexes().unwrap())
}

#[test]
fn rebuilding_puts_every_kind_of_difference_right_and_changes_nothing_else() {
    type Damage = fn(&Table<MapStore>, &mut MapBatch);
    let cases: [(u64, u64, Damage); 5] = [
        (0, 1, |table, batch| batch.delete(keyspaces(table)[1], &[5, 5]).unwrap()),
        (2, 0, |table, batch| batch.delete(keyspaces(table)[0], &[5]).unwrap()),
        (1, 1, |table, batch| batch.put(keyspaces(table)[1], &[5, 5], &[0x10, 77]).unwrap()),
        (1, 1, |table, batch| batch.put(keyspaces(table)[2], &[5], &[1, 6]).unwrap()),
        (1, 0, |table, batch| batch.put(keyspaces(table)[1], &[], b"").unwrap()),
    ];
    for (number, (removed, written, damage)) in cases.into_iter().enumerate() {
        let (rebuilt, check) = rebuild_after(damage);
        let expected = IndexRebuild { removed, written, ..IndexRebuild::default() };
        assert_eq!(rebuilt, expected, "case {number}");
        assert!(check.is_clean(), "case {number}: {check:?}");
    }
}

#[test]
fn rebuilding_leaves_entries_of_damaged_rows_alone_and_counts_rows_that_share_a_unique_key() {
    let (rebuilt, check) =
        rebuild_after(|table, batch| batch.put(keyspaces(table)[0], &[5], b"\x01\x99").unwrap());
    assert_eq!(rebuilt, IndexRebuild { damaged_rows: 1, ..IndexRebuild::default() });
    assert_eq!((check.damaged_rows, check.indexes[0].entries), (1, 200));
    // A row that has come back from the dead with a value that another row has by now.
    let store = MapStore::new();
    let table = table(&store);
    let row = store.get(None, keyspaces(&table)[0], &[7]).unwrap().unwrap().to_vec();
    let mut batch = MapBatch::default();
    batch.put(keyspaces(&table)[0], &[207], &row).unwrap();
    store.apply(&batch, ()).unwrap();
    let rebuilt = table.rebuild_indexes(()).unwrap();
    assert_eq!(rebuilt, IndexRebuild { written: 1, conflicts: 1, ..IndexRebuild::default() });
}
