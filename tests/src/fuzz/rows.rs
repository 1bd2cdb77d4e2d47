//! Targets of the row layer: rows, keys, schemas, continuation tokens.
#![expect(clippy::panic, clippy::expect_used, reason = "a target panics if an oracle does not hold")]

use std::sync::Arc;

use alluvium::inspect::read_manifest;
use alluvium::row::{RowDecoder, RowEncoder, TableDefinition};
use alluvium::{Continuation, Environment, Index, Schema, Type, Value, ValueRef};

use super::files::golden;
use crate::golden::DIRECTORY;

/// A type that a key can have, by a number.
fn key_type(number: u8) -> Type {
    const TYPES: [Type; 18] = [
        Type::Bool,
        Type::I8,
        Type::I16,
        Type::I32,
        Type::I64,
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::F32,
        Type::F64,
        Type::Decimal { precision: 12, scale: 2 },
        Type::Decimal { precision: 28, scale: 28 },
        Type::Text,
        Type::Bytes,
        Type::Date,
        Type::Time,
        Type::Timestamp,
    ];
    TYPES.get(usize::from(number)).copied().unwrap_or(Type::Uuid)
}

/// The types that the target `row` has as columns: every key type, then JSON.
fn row_schema() -> Arc<Schema> {
    let mut builder = Schema::table("t").column("id", Type::U64);
    for number in 0..19 {
        builder = builder.nullable(format!("c{number}"), key_type(number));
    }
    let builder = builder
        .nullable("json", Type::Json)
        .column("text", Type::Text)
        .primary_key(["id"])
        .index(Index::on("by_text").asc("text").desc("c4").include(["c13", "json"]))
        .index(Index::on("unique").asc("c13").unique())
        .index(Index::on("prefix").prefix("text", 2).include(["text"]));
    Arc::new(builder.build().expect("a valid schema"))
}

/// A byte for the index, the key with its length, and the value.
pub(super) fn row(bytes: &[u8]) {
    let Some(([index, key_len], rest)) = bytes.split_first_chunk::<2>() else { return };
    let (key, value) = rest.split_at(usize::from(*key_len).min(rest.len()));
    let schema = row_schema();
    let (decoder, encoder) = (RowDecoder::new(Arc::clone(&schema)), RowEncoder::new(Arc::clone(&schema)));
    let _ = decoder.index_entry(usize::from(index % 3), key, Some(value));
    let _ = decoder.index_entry(usize::from(index % 3), key, None);
    let Ok(values) = decoder.row(key, value) else { return };
    let refs: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
    let (mut new_key, mut new_value) = (Vec::new(), Vec::new());
    encoder.encode_row(&refs, &mut new_key, &mut new_value).expect("what was read can be written");
    assert_eq!(new_key, key, "a key has two encodings");
    assert_eq!(decoder.row(&new_key, &new_value).expect("what was written is read"), values);
    for number in 0..schema.indexes().len() {
        let (mut entry_key, mut entry_value) = (Vec::new(), Vec::new());
        if encoder.encode_index_entry(number, &refs, key, &mut entry_key, &mut entry_value).is_ok() {
            let entry =
                decoder.index_entry(number, &entry_key, Some(&entry_value)).expect("an entry is read");
            assert_eq!(entry.primary_key.as_deref(), values.get(..1), "an entry leads to another row");
        }
    }
}

pub(super) fn row_seeds() -> Vec<Vec<u8>> {
    let schema = row_schema();
    let encoder = RowEncoder::new(Arc::clone(&schema));
    let texts =
        ["true", "-3", "-300", "70000", "-1", "7", "300", "70000", "1", "1.5", "-2.25", "12.34", "0.5"];
    let others = ["näme", "00ff", "2013-01-02", "03:04:05.000006", "2026-12-01 00:00:00"];
    let mut seeds = Vec::new();
    for nulls in [0u32, 0x5555, 0xffff_ffff] {
        let mut values = vec![Value::from(7u64)];
        for (number, text) in texts.iter().chain(&others).enumerate() {
            let is_null = nulls >> number & 1 == 1;
            let parsed = key_type(number as u8).parse(text).unwrap_or_default();
            values.push(if is_null { Value::Null } else { parsed });
        }
        values.push(Value::Null);
        values.push(Type::Json.parse("{\"a\":[1,2]}").unwrap_or_default());
        values.push(Value::from("text"));
        let refs: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        encoder.encode_row(&refs, &mut key, &mut value).expect("a row");
        seeds.push([&[0, key.len() as u8][..], &key, &value].concat());
        for index in 0..3 {
            let (mut entry_key, mut entry_value) = (Vec::new(), Vec::new());
            encoder
                .encode_index_entry(index, &refs, &key, &mut entry_key, &mut entry_value)
                .expect("an entry");
            seeds.push([&[index as u8, entry_key.len() as u8][..], &entry_key, &entry_value].concat());
        }
    }
    seeds
}

/// Two keys of one shape: two bytes for the types and directions of two columns, one for the length of the first key.
/// What is decoded encodes to the same bytes, and bytes sort as values do.
pub(super) fn key(bytes: &[u8]) {
    let Some(([first, second, split], rest)) = bytes.split_first_chunk::<3>() else { return };
    let (one, other) = rest.split_at(usize::from(*split).min(rest.len()));
    let builder = Schema::table("t")
        .add_column("a", key_type(first & 31), first & 64 != 0)
        .add_column("b", key_type(second & 31), second & 64 != 0)
        .column("id", Type::U8)
        .primary_key(["id"])
        .index(Index::on("i").part("a", first & 128 != 0, None).part("b", second & 128 != 0, None).unique());
    let schema = Arc::new(builder.build().expect("a valid schema"));
    let (decoder, encoder) = (RowDecoder::new(Arc::clone(&schema)), RowEncoder::new(schema));
    let decode = |key: &[u8]| -> Option<Vec<Value>> {
        let entry = decoder.index_entry(0, key, None).ok()?;
        let id = entry.primary_key.map_or(Value::from(1u8), |key| key[0].clone());
        let [a, b] = <[Value; 2]>::try_from(entry.parts).ok()?;
        let values = [a, b, id];
        let refs = values.each_ref().map(Value::as_ref);
        let (mut row_key, mut row, mut again, mut value) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        encoder.encode_row(&refs, &mut row_key, &mut row).expect("values of their types");
        encoder.encode_index_entry(0, &refs, &row_key, &mut again, &mut value).ok()?;
        let has_null = values[..2].iter().any(Value::is_null);
        // A unique key without NULL ends with its last part; the bytes behind it are somebody else's.
        let matches = if has_null {
            again.starts_with(key) || again == key
        } else {
            again == key || key.starts_with(&again)
        };
        assert!(matches, "a key has two encodings: {key:02x?}, {again:02x?}");
        Some(values[..2].to_vec())
    };
    let (Some(left), Some(right)) = (decode(one), decode(other)) else { return };
    let direction =
        |ordering: std::cmp::Ordering, byte: &u8| if byte & 128 != 0 { ordering.reverse() } else { ordering };
    let by_value = direction(left[0].cmp(&right[0]), first).then(direction(left[1].cmp(&right[1]), second));
    if by_value.is_ne() {
        assert_eq!(one.cmp(other), by_value, "bytes sort unlike values: {left:?}, {right:?}");
    }
}

pub(super) fn key_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let texts = [
        "true", "-3", "-300", "70000", "-1", "7", "300", "70000", "1", "1.5", "-2.25", "12.34", "0.5", "a\0b",
    ];
    for (number, text) in texts.iter().enumerate() {
        for flags in [0u8, 64, 128, 192] {
            let shape = number as u8 | flags;
            let builder = Schema::table("t")
                .add_column("a", key_type(number as u8), flags & 64 != 0)
                .add_column("b", key_type(number as u8), flags & 64 != 0)
                .column("id", Type::U8)
                .primary_key(["id"])
                .index(
                    Index::on("i")
                        .part("a", flags & 128 != 0, None)
                        .part("b", flags & 128 != 0, None)
                        .unique(),
                );
            let encoder = RowEncoder::new(Arc::new(builder.build().expect("a valid schema")));
            let value = key_type(number as u8).parse(text).unwrap_or_default();
            let values = [value.clone(), value, Value::from(1u8)];
            let refs = values.each_ref().map(Value::as_ref);
            let (mut key, mut rest) = (Vec::new(), Vec::new());
            encoder.encode_index_entry(0, &refs, &[1], &mut key, &mut rest).expect("an entry");
            seeds.push([&[shape, shape, key.len() as u8][..], &key, &key].concat());
        }
    }
    seeds
}

/// A schema, and a table's entry in the catalog.
pub(super) fn schema(bytes: &[u8]) {
    if let Ok(schema) = Schema::decode(bytes, "catalog") {
        let mut written = Vec::new();
        schema.encode(&mut written);
        let again = Schema::decode(&written, "catalog");
        let again = again.unwrap_or_else(|error| panic!("what was written is not read: {error}"));
        assert_eq!(again, schema, "a schema does not round trip");
        // It can be used.
        let _ = RowDecoder::new(Arc::new(schema)).row(b"", b"\x01");
    }
    if let Ok(definition) = TableDefinition::decode(bytes, "catalog") {
        let again = TableDefinition::decode(&definition.encode(), "catalog");
        assert_eq!(again.expect("what was written is read"), definition, "a definition does not round trip");
    }
}

pub(super) fn schema_seeds() -> Vec<Vec<u8>> {
    let (environment, _, _) = Environment::simulated(golden().shared(), 1);
    let directory = std::path::Path::new(DIRECTORY);
    let state =
        read_manifest(&environment, directory).expect("a manifest").state(directory).expect("a state");
    let mut seeds: Vec<Vec<u8>> = state.catalog.into_values().collect();
    for schema in [row_schema(), Arc::new(crate::flights::schema().expect("a schema"))] {
        let mut bytes = Vec::new();
        schema.encode(&mut bytes);
        seeds.push(bytes);
    }
    seeds
}

/// A continuation token, as bytes and as text.
pub(super) fn continuation(bytes: &[u8]) {
    if let Ok(token) = Continuation::from_bytes(bytes) {
        let again = Continuation::from_bytes(&token.to_bytes()).expect("what was written is read");
        assert_eq!(again, token, "a token does not round trip");
        assert_eq!(token.to_string().parse::<Continuation>().expect("its text is read"), token);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<Continuation>();
    }
}

pub(super) fn continuation_seeds() -> Vec<Vec<u8>> {
    let token = |key: Option<&[u8]>| {
        let head = [&[1, 7][..], &99u64.to_le_bytes(), &[u8::from(key.is_some())]].concat();
        [&head[..], key.unwrap_or_default()].concat()
    };
    vec![token(None), token(Some(b"")), token(Some(b"key")), b"01076300000000000000016b6579".to_vec()]
}
