//! The flights out of New York in 2013 as a table with four secondary indexes: the sample in the repository, or the whole
//! file that the environment variable `ALLUVIUM_FLIGHTS` names.
#![expect(clippy::expect_used, reason = "helpers of tests: unreadable test data fails the test")]

use std::io::Read;
use std::path::PathBuf;

use alluvium::{Db, DynamicRow, Index, Result, Schema, Table, Type, Value};

/// Columns of the table and their types; the order is that of the file.
const COLUMNS: [(&str, Type); 19] = [
    ("year", Type::I64),
    ("month", Type::I64),
    ("day", Type::I64),
    ("dep_time", Type::I64),
    ("sched_dep_time", Type::I64),
    ("dep_delay", Type::I64),
    ("arr_time", Type::I64),
    ("sched_arr_time", Type::I64),
    ("arr_delay", Type::I64),
    ("carrier", Type::Text),
    ("flight", Type::I64),
    ("tailnum", Type::Text),
    ("origin", Type::Text),
    ("dest", Type::Text),
    ("air_time", Type::I64),
    ("distance", Type::I64),
    ("hour", Type::I64),
    ("minute", Type::I64),
    ("time_hour", Type::Timestamp),
];

/// The primary key: unique in the file.
pub const PRIMARY_KEY: [&str; 4] = ["time_hour", "carrier", "flight", "origin"];

/// Indexes of the table, apart from its primary one.
pub const INDEXES: [&str; 4] = ["by_tail", "by_route", "by_dest", "by_key"];

/// The schema, with an index of each sort: descending, covering, prefix, unique.
///
/// # Errors
/// Never, unless the schema builder has become stricter.
pub fn schema() -> Result<Schema> {
    let mut builder = Schema::table("flights");
    for (name, ty) in COLUMNS {
        builder =
            if PRIMARY_KEY.contains(&name) { builder.column(name, ty) } else { builder.nullable(name, ty) };
    }
    builder
        .primary_key(PRIMARY_KEY)
        .index(Index::on("by_tail").asc("tailnum").desc("time_hour"))
        .index(Index::on("by_route").asc("origin").asc("dest").include(["carrier", "arr_delay"]))
        .index(Index::on("by_dest").prefix("dest", 2))
        .index(
            Index::on("by_key")
                .asc("time_hour")
                .asc("carrier")
                .asc("flight")
                .asc("origin")
                .asc("tailnum")
                .unique(),
        )
        .build()
}

/// The file: the whole one if `ALLUVIUM_FLIGHTS` names it, else the sample.
#[must_use]
pub fn path() -> PathBuf {
    let sample = || crate::sources::root().join("tools/testdata/flights-sample.csv.gz");
    std::env::var_os("ALLUVIUM_FLIGHTS").map_or_else(sample, PathBuf::from)
}

/// Every row of the file, parsed.
///
/// # Panics
/// If the file can't be read or is not what it should be.
#[must_use]
pub fn rows() -> Vec<Vec<Value>> {
    let file = std::fs::File::open(path()).expect("the flights are there");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip file of text");
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    assert!(header.iter().eq(COLUMNS.iter().map(|(name, _)| name)), "the columns have changed: {header:?}");
    let parse = |(text, (_, ty)): (&str, (&str, Type))| match text {
        "NA" => Value::Null,
        _ => ty.parse(text).expect("a value of the column's type"),
    };
    lines.map(|line| line.split(',').zip(COLUMNS).map(parse).collect()).collect()
}

/// Opens the table, creating it if it is not there.
///
/// # Errors
/// Those of the database.
pub fn open_table(db: &Db) -> Result<Table> {
    match db.table("flights") {
        Ok(table) => Ok(table),
        Err(error) if matches!(error.kind(), alluvium::ErrorKind::NotFound { .. }) => {
            db.create_table(schema()?)
        }
        Err(error) => Err(error),
    }
}

/// What the rows say, computed without a database: rows to Seattle, rows of aircraft N725MQ, rows without an aircraft,
/// all rows.
#[must_use]
pub fn expected_counts(rows: &[Vec<Value>]) -> [u64; 4] {
    let position = |name: &str| COLUMNS.iter().position(|(column, _)| *column == name).unwrap_or_default();
    let (dest, tail) = (position("dest"), position("tailnum"));
    let count = |matches: &dyn Fn(&Vec<Value>) -> bool| rows.iter().filter(|row| matches(row)).count() as u64;
    [
        count(&|row| row[dest] == Value::from("SEA")),
        count(&|row| row[tail] == Value::from("N725MQ")),
        count(&|row| row[tail].is_null()),
        rows.len() as u64,
    ]
}

/// The same four counts through a full read of one index (or of the primary one, for `None`), forward or backward.
///
/// # Errors
/// Those of the scan.
pub fn counts_through(table: &Table, index: Option<&str>, reverse: bool) -> Result<[u64; 4]> {
    let mut scan = table.scan().columns(["dest", "tailnum"]);
    if let Some(index) = index {
        scan = scan.index(index);
    }
    if reverse {
        scan = scan.reverse();
    }
    let mut scan = scan.run()?;
    let mut counts = [0; 4];
    while let Some(row) = scan.next()? {
        let (dest, tail) = (row.get("dest")?.to_value(), row.get("tailnum")?.to_value());
        counts[0] += u64::from(dest == Value::from("SEA"));
        counts[1] += u64::from(tail == Value::from("N725MQ"));
        counts[2] += u64::from(tail.is_null());
        counts[3] += 1;
    }
    Ok(counts)
}

/// The counts that an index can answer by a lookup: rows to Seattle by prefix, rows of N725MQ, rows without an aircraft.
///
/// # Errors
/// Those of the scans.
pub fn counts_by_lookup(table: &Table) -> Result<[u64; 3]> {
    Ok([
        table.scan().index("by_dest").eq("SEA").count()?,
        table.scan().index("by_tail").eq("N725MQ").count()?,
        table.scan().index("by_tail").eq(Value::Null).count()?,
    ])
}

/// Checks everything about a table that should hold exactly `rows`.
///
/// # Errors
/// Those of the database.
///
/// # Panics
/// At a wrong answer.
pub fn check(table: &Table, rows: &[Vec<Value>]) -> Result<()> {
    let expected = expected_counts(rows);
    for index in std::iter::once(None).chain(INDEXES.map(Some)) {
        for reverse in [false, true] {
            let found = counts_through(table, index, reverse)?;
            assert_eq!(found, expected, "index {index:?}, reverse: {reverse}");
        }
    }
    assert_eq!(counts_by_lookup(table)?, [expected[0], expected[1], expected[2]]);
    let check = table.check_indexes()?;
    assert!(check.is_clean(), "{check:?}");
    assert_eq!(check.rows, rows.len() as u64);
    Ok(())
}

/// A row of the table.
///
/// # Errors
/// If the values do not fit it.
pub fn row(table: &Table, values: &[Value]) -> Result<DynamicRow> {
    table.row_of(values.iter().cloned())
}
