//! The row half: a table with a unique, a covering descending, a prefix and a composite index, and its model.

use std::collections::BTreeMap;

use alluvium::base::random::Random;
use alluvium::{Db, DynamicRow, Error, ErrorKind, Index, Schema, Snapshot, Table, Type, Value};

use super::state::{Change, RowData, Rows, State};

const NAME: &str = "hot";
/// Ids are below this, so that operations meet.
const IDS: u64 = 40;

fn schema() -> Schema {
    Schema::table(NAME)
        .column("id", Type::U64)
        .column("owner", Type::Text)
        .column("counter", Type::I64)
        .nullable("note", Type::Bytes)
        .primary_key(["id"])
        .index(Index::on("by_owner").asc("owner").unique())
        .index(Index::on("by_counter").desc("counter").include(["note"]))
        .index(Index::on("by_note").prefix("note", 3))
        .index(Index::on("by_both").asc("counter").asc("owner"))
        .build()
        .expect("a valid schema")
}

/// The table, created if it does not exist.
pub(super) fn open_table(db: &Db) -> Result<Table, Error> {
    match db.table(NAME) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => db.create_table(schema()),
        other => other,
    }
}

fn note_value(note: Option<&[u8]>) -> Value {
    note.map_or(Value::Null, |note| Value::from(note.to_vec()))
}

fn to_row(table: &Table, id: u64, row: &RowData) -> Result<DynamicRow, Error> {
    table.row_of([
        Value::from(id),
        Value::from(row.owner.clone()),
        Value::from(row.counter),
        note_value(row.note.as_deref()),
    ])
}

fn of_row(row: &DynamicRow) -> Result<(u64, RowData), Error> {
    let (Value::UInt(id), Value::Text(owner), Value::Int(counter)) =
        (row.get("id")?, row.get("owner")?, row.get("counter")?)
    else {
        panic!("a row of other types: {row:?}")
    };
    let note = match row.get("note")? {
        Value::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    };
    Ok((*id, RowData { owner: owner.clone(), counter: *counter, note }))
}

fn random_row(random: &mut Random) -> RowData {
    let note = random.one_in(2).then(|| vec![b'n' + random.below(2) as u8; random.index(6)]);
    RowData { owner: format!("owner {}", random.below(2 * IDS)), counter: random.below(20) as i64 - 10, note }
}

/// What a commit must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Success,
    KeyExists,
    NotFound,
    UniqueViolation,
}

impl Expected {
    /// The outcome that an error stands for, if it is one that the rows themselves cause.
    pub(super) fn of(error: &Error) -> Option<Expected> {
        match error.kind() {
            ErrorKind::KeyExists { .. } => Some(Expected::KeyExists),
            ErrorKind::NotFound { .. } => Some(Expected::NotFound),
            ErrorKind::UniqueViolation { .. } => Some(Expected::UniqueViolation),
            _ => None,
        }
    }
}

/// Fills a batch with random operations; returns what they change and what must come of it.
pub(super) fn fill(
    batch: &mut alluvium::Batch,
    table: &Table,
    now: &State,
    random: &mut Random,
) -> Result<(Vec<Change>, Expected), Error> {
    let mut rows = now.clone();
    rows.maps = Default::default();
    let mut touched = BTreeMap::new();
    let mut expected = Expected::Success;
    for _ in 0..=random.index(4) {
        let id = random.below(IDS);
        let row = random_row(random);
        let exists = rows.rows.contains_key(&id);
        let mut fail = |with| {
            if expected == Expected::Success {
                expected = with;
            }
        };
        match random.below(8) {
            0..2 => {
                batch.insert(table, &to_row(table, id, &row)?)?;
                if exists {
                    fail(Expected::KeyExists);
                }
                rows.rows.insert(id, row);
            }
            2..4 => {
                batch.put(table, &to_row(table, id, &row)?)?;
                rows.rows.insert(id, row);
            }
            4..6 => {
                let note = row.note.clone();
                batch.update(table, id, move |row: &mut DynamicRow| {
                    let Value::Int(counter) = *row.get("counter")? else { panic!("a counter") };
                    row.set("counter", counter + 1)?;
                    row.set("note", note_value(note.as_deref()))
                })?;
                match rows.rows.get_mut(&id) {
                    Some(old) => {
                        old.counter += 1;
                        old.note = row.note;
                    }
                    None => fail(Expected::NotFound),
                }
            }
            _ => {
                batch.delete(table, id)?;
                rows.rows.remove(&id);
            }
        }
        touched.insert(id, ());
    }
    if expected == Expected::Success && rows.owner_twice() {
        expected = Expected::UniqueViolation;
    }
    let changes = touched.into_keys().map(|id| Change::Row(id, rows.rows.get(&id).cloned())).collect();
    Ok((changes, expected))
}

/// All rows, through the primary index.
pub(super) fn read_all(table: &Table) -> Result<Rows, Error> {
    let mut scan = table.scan().run()?;
    let mut rows = Rows::new();
    while let Some(row) = scan.next_row()? {
        let (id, row) = of_row(&row)?;
        assert!(rows.insert(id, row).is_none(), "row {id} comes twice");
    }
    Ok(rows)
}

/// Reads rows in a random way, now or at a snapshot, and compares them with what must be there.
pub(super) fn check(
    table: &Table,
    rows: &Rows,
    at: Option<&Snapshot>,
    random: &mut Random,
) -> Result<(), Error> {
    let id = random.below(IDS);
    if random.one_in(2) {
        let got = match at {
            Some(snapshot) => table.get_at(snapshot, id)?,
            None => table.get(id)?,
        };
        let got = got.map(|row| of_row(&row)).transpose()?.map(|(_, row)| row);
        assert_eq!(got.as_ref(), rows.get(&id), "row {id}");
        return Ok(());
    }
    let wanted = rows.get(&id).cloned().unwrap_or_else(|| random_row(random));
    let reverse = random.one_in(2);
    let mut scan = table.scan();
    let mut expected: Vec<(u64, &RowData)> = rows.iter().map(|(id, row)| (*id, row)).collect();
    match random.below(5) {
        0 => {
            scan = scan.index("by_owner").eq(wanted.owner.as_str());
            expected.retain(|(_, row)| row.owner == wanted.owner);
        }
        1 => {
            scan = scan.index("by_counter").range(wanted.counter - 3..wanted.counter + 1);
            expected.retain(|(_, row)| (wanted.counter - 3..=wanted.counter).contains(&row.counter));
            expected.sort_by_key(|(id, row)| (-row.counter, *id));
        }
        2 => {
            scan = scan.index("by_note").eq(note_value(wanted.note.as_deref()));
            expected.retain(|(_, row)| row.note == wanted.note);
        }
        3 => {
            scan = scan.index("by_both").eq(wanted.counter);
            expected.retain(|(_, row)| row.counter == wanted.counter);
            expected.sort_by_key(|(_, row)| &row.owner);
        }
        _ => {
            scan = scan.range(id..id + 10);
            expected.retain(|(other, _)| (id..id + 10).contains(other));
        }
    }
    if reverse {
        scan = scan.reverse();
        expected.reverse();
    }
    if let Some(snapshot) = at {
        scan = scan.at(snapshot);
    }
    let mut scan = scan.run()?;
    let mut found = Vec::new();
    while let Some(row) = scan.next_row()? {
        found.push(of_row(&row)?);
    }
    let found: Vec<(u64, &RowData)> = found.iter().map(|(id, row)| (*id, row)).collect();
    assert_eq!(found, expected, "a scan of rows");
    Ok(())
}
