//! Random operations against a plain list of rows, and every kind of scan against filtering and sorting that list.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use alluvium_base::ErrorKind;
use alluvium_base::random::Random;

use super::*;
use crate::row::key_codec::KeyColumn;

/// Every kind of index part: ascending, descending, nullable, prefix of either direction, unique, covering.
fn schema() -> Schema {
    Schema::table("m")
        .column("a", Type::U8)
        .column("b", Type::Text)
        .nullable("n", Type::I16)
        .nullable("t", Type::Text)
        .column("f", Type::F64)
        .nullable("d", Type::Decimal { precision: 4, scale: 1 })
        .primary_key(["a", "b"])
        .index(Index::on("n_up").asc("n"))
        .index(Index::on("n_down").desc("n").asc("t"))
        .index(Index::on("mixed").asc("f").desc("t").asc("n").include(["d"]))
        .index(Index::on("cut").prefix("t", 1).desc("f"))
        .index(Index::on("cut_down").part("t", true, Some(2)).include(["t", "d"]))
        .index(Index::on("only").asc("f").asc("n").unique().include(["t"]))
        .build()
        .unwrap()
}

const TEXTS: [&str; 8] = ["", "\0", "a", "a\0", "aa", "ab", "é", "éa"];
const FLOATS: [f64; 5] = [f64::NEG_INFINITY, -0.0, 0.0, 1.5, f64::NAN];

/// A value for a column from a domain so small that everything collides.
fn domain(position: usize) -> Vec<Value> {
    match position {
        0 => [0u8, 1, 255].map(Value::from).to_vec(),
        1 => ["", "b\0", "b"].map(Value::from).to_vec(),
        2 => [Value::Null, (-3).into(), 0.into(), 7.into()].to_vec(),
        3 => std::iter::once(Value::Null).chain(TEXTS.map(Value::from)).collect(),
        4 => FLOATS.map(Value::from).to_vec(),
        _ => [Value::Null, Value::Decimal(Decimal::new(-5, 1)), Value::Decimal(Decimal::new(50, 0))].to_vec(),
    }
}

fn pick(random: &mut Random, position: usize) -> Value {
    let domain = domain(position);
    domain[random.index(domain.len())].clone()
}

type Rows = BTreeMap<(Value, Value), Vec<Value>>;

fn key_of(row: &[Value]) -> (Value, Value) {
    (row[0].clone(), row[1].clone())
}

/// True if another row has the same, NULL-free values in the unique index.
fn violates(rows: &Rows) -> bool {
    let mut seen: Vec<(Value, Value)> = Vec::new();
    rows.values().any(|row| {
        let pair = (row[4].clone(), row[2].clone());
        let repeated = !pair.1.is_null() && seen.contains(&pair);
        seen.push(pair);
        repeated
    })
}

/// One random batch on both; the outcomes must agree.
fn step<S: Store>(
    durability: S::Durability,
    store: &S,
    table: &Table<S>,
    rows: &mut Rows,
    random: &mut Random,
) {
    let mut batch = Batch::new(store);
    let mut expected = rows.clone();
    let mut error = None;
    for _ in 0..=random.below(3) {
        let row: Vec<Value> = (0..6).map(|position| pick(random, position)).collect();
        let canonical: Vec<Value> =
            row.iter().zip(schema().columns()).map(|(v, c)| v.coerce(c.ty()).unwrap()).collect();
        let key = key_of(&canonical);
        let dynamic = table.row_of(row).unwrap();
        let exists = expected.contains_key(&key);
        match random.below(4) {
            0 => {
                batch.insert(table, &dynamic).unwrap();
                if exists {
                    error.get_or_insert("exists");
                }
                expected.insert(key, canonical);
            }
            1 => {
                batch.put(table, &dynamic).unwrap();
                expected.insert(key, canonical);
            }
            2 => {
                let (n, t) = (canonical[2].clone(), canonical[3].clone());
                let change = move |row: &mut DynamicRow| row.set("n", n).and_then(|()| row.set("t", t));
                batch.update(table, (&key.0, &key.1), change).unwrap();
                match expected.get_mut(&key) {
                    Some(row) => row[2..4].clone_from_slice(&canonical[2..4]),
                    None => {
                        error.get_or_insert("missing");
                    }
                }
            }
            _ => {
                batch.delete(table, (&key.0, &key.1)).unwrap();
                expected.remove(&key);
            }
        }
    }
    let outcome = batch.commit(durability);
    match (outcome.map_err(|error| error.kind().clone()), error) {
        (Err(ErrorKind::KeyExists { .. }), Some("exists"))
        | (Err(ErrorKind::NotFound { .. }), Some("missing")) => {}
        (Err(ErrorKind::UniqueViolation { .. }), None) => assert!(violates(&expected)),
        (Ok(()), None) => {
            assert!(!violates(&expected));
            *rows = expected;
        }
        other => panic!("{other:?}"),
    }
}

/// The key columns of a scan: those of the index, or of the primary key.
fn parts<S: Store>(table: &Table<S>, index: Option<usize>) -> Vec<KeyColumn> {
    index.map_or(table.core.codec.primary.clone(), |index| table.core.codec.indexes[index].parts.clone())
}

/// The order in which an index shows rows: by its (cut) columns and their directions, then by primary key.
fn compare(parts: &[KeyColumn], a: &[Value], b: &[Value]) -> Ordering {
    let by_part = |part: &KeyColumn| {
        let (a, b) = (part.cut(a[part.position].as_ref()), part.cut(b[part.position].as_ref()));
        if part.descending { b.cmp(&a) } else { a.cmp(&b) }
    };
    parts.iter().map(by_part).find(|order| order.is_ne()).unwrap_or_else(|| key_of(a).cmp(&key_of(b)))
}

/// What it means that a value lies in a range, said as plainly as possible.
fn in_range(value: &Value, range: &(Bound<Value>, Bound<Value>)) -> bool {
    let is_null =
        |bound: &Bound<Value>| matches!(bound, Bound::Included(v) | Bound::Excluded(v) if v.is_null());
    let bounded = !matches!(range, (Bound::Unbounded, Bound::Unbounded));
    if value.is_null() && bounded && !is_null(&range.0) && !is_null(&range.1) {
        return false;
    }
    (match &range.0 {
        Bound::Unbounded => true,
        Bound::Included(low) => value >= low,
        Bound::Excluded(low) => value > low,
    }) && (match &range.1 {
        Bound::Unbounded => true,
        Bound::Included(high) => value <= high,
        Bound::Excluded(high) => value < high,
    })
}

fn bounds(values: &[Value]) -> Vec<Bound<Value>> {
    let some =
        values.iter().flat_map(|value| [Bound::Included(value.clone()), Bound::Excluded(value.clone())]);
    some.chain([Bound::Unbounded]).collect()
}

/// Compares one scan, in both directions, with the list; also counted, and in pages.
fn check_scan<S: Store>(
    table: &Table<S>,
    rows: &Rows,
    index: Option<usize>,
    eq: &[Value],
    range: Option<&(Bound<Value>, Bound<Value>)>,
    random: &mut Random,
) {
    let parts = parts(table, index);
    let mut expected: Vec<&Vec<Value>> = rows
        .values()
        .filter(|row| parts.iter().zip(eq).all(|(part, value)| row[part.position] == *value))
        .filter(|row| range.is_none_or(|range| in_range(&row[parts[eq.len()].position], range)))
        .collect();
    expected.sort_by(|a, b| compare(&parts, a, b));
    for reverse in [false, true] {
        let builder = || {
            let mut builder = table.scan().eq(eq);
            if let Some(index) = index {
                builder = builder.index(table.schema().indexes()[index].name());
            }
            if let Some(range) = range {
                builder = builder.range(range.clone());
            }
            if reverse { builder.reverse() } else { builder }
        };
        let mut found = Vec::new();
        let mut scan = builder().run().unwrap();
        while let Some(row) = scan.next_values().unwrap() {
            found.push(row);
        }
        assert!(found.iter().eq(expected.iter().copied()), "{index:?} {eq:?} {range:?} {reverse}: {found:?}");
        assert_eq!(builder().count().unwrap(), expected.len() as u64);
        if random.one_in(8) {
            let mut paged = Vec::new();
            let mut token = builder().run().unwrap().continuation();
            loop {
                let mut page =
                    builder().after(&token).limit(1 + random.below(3)).columns(["b", "a"]).run().unwrap();
                let before = paged.len();
                while let Some(values) = page.next_values().unwrap() {
                    paged.push((values[1].clone(), values[0].clone()));
                }
                if paged.len() == before {
                    break;
                }
                token = page.continuation();
            }
            assert!(paged.iter().eq(expected.iter().map(|row| key_of(row)).collect::<Vec<_>>().iter()));
        }
        expected.reverse();
    }
}

fn check_all_scans<S: Store>(table: &Table<S>, rows: &Rows, random: &mut Random) {
    let indexes = table.schema().indexes().len();
    for index in std::iter::once(None).chain((0..indexes).map(Some)) {
        let parts = parts(table, index);
        for bound in 0..=parts.len() {
            let eq: Vec<Value> = parts[..bound]
                .iter()
                .map(|part| pick(random, part.position).coerce(part.ty).unwrap())
                .collect();
            check_scan(table, rows, index, &eq, None, random);
            if let Some(part) = parts.get(bound) {
                let values = domain(part.position);
                for lower in bounds(&values) {
                    for upper in bounds(&values) {
                        if random.one_in(3) {
                            check_scan(table, rows, index, &eq, Some(&(lower.clone(), upper)), random);
                        }
                    }
                }
            }
        }
    }
}

fn run<S: Store>(store: &S, durability: S::Durability, seed: u64, mut pause: impl FnMut(&S)) {
    let mut random = Random::new(seed);
    let table: Table<S> = Table::create(store, schema()).unwrap();
    let mut rows = Rows::new();
    for _ in 0..6 {
        for _ in 0..40 {
            step(durability, store, &table, &mut rows, &mut random);
        }
        for (key, row) in &rows {
            assert_eq!(table.get((&key.0, &key.1)).unwrap().unwrap().values(), row.as_slice());
        }
        assert_eq!(table.scan().count().unwrap(), rows.len() as u64);
        assert_clean(&table);
        check_all_scans(&table, &rows, &mut random);
        pause(store);
    }
}

fn run_in_memory(seed: u64) {
    run(&MapStore::new(), (), seed, |_| ());
}

#[test]
fn tables_behave_like_a_sorted_list_of_rows() {
    (0..12).for_each(run_in_memory);
}

#[test]
fn tables_behave_like_a_sorted_list_of_rows_in_a_database_that_flushes_and_compacts() {
    for seed in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let db = crate::Db::open(directory.path(), crate::Options::default()).unwrap();
        let mut flushes = 0;
        run(&db, crate::Durability::Buffered, seed, |db| {
            db.flush().unwrap();
            flushes += 1;
            if flushes % 2 == 0 {
                db.compact(None).unwrap();
            }
        });
    }
}

/// The long form: `cargo test -p alluvium --lib -- --ignored many_seeds`.
#[test]
#[ignore = "takes a minute or two"]
fn tables_behave_like_a_sorted_list_of_rows_for_many_seeds() {
    (1000..2000).for_each(run_in_memory);
}
