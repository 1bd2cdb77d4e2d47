//! Rows as bytes: a table's schema, compiled for encoding and decoding.
//!
//! A row is one entry of the table's primary keyspace:
//!
//! ```text
//! key   = the primary key's columns (see super::key_codec)
//! value = schema version, varint ‖ all other columns of that version, by column number (see super::tuple)
//! ```
//!
//! The columns of the primary key are not repeated in the value. A row is read by the layout of the version that it
//! names: a column that was added later has its default, one that was dropped is stepped over. So a schema changes
//! without a row being rewritten, and every row is written under the newest version that its writer knows.

use std::sync::{Arc, OnceLock};

use alluvium_base::coding::{Reader, put_varint};
use alluvium_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use alluvium_base::{Error, ErrorKind, Result};

use super::convert::type_mismatch;
use super::index_codec::IndexCodec;
use super::key_codec::KeyColumn;
use super::key_decoder::{DecodedKey, show_key};
use super::schema::{ColumnId, KeyPart, Schema};
use super::tuple::{Tuple, TupleLayout};
use super::value::{Value, ValueRef};
use super::view::{Body, RowView};

/// Something that has a value for each column of a schema.
pub(super) trait ColumnSource {
    /// The value of the column at `position`, in canonical form.
    fn column(&self, position: usize) -> Result<ValueRef<'_>>;
}

/// Values of the caller, in the order of the schema's columns; converted when asked for.
pub(super) struct GivenValues<'a> {
    pub(super) schema: &'a Schema,
    pub(super) values: &'a [ValueRef<'a>],
}

impl ColumnSource for GivenValues<'_> {
    fn column(&self, position: usize) -> Result<ValueRef<'_>> {
        let (Some(column), Some(value)) = (self.schema.columns.get(position), self.values.get(position))
        else {
            let (found, expected) = (self.values.len(), self.schema.columns.len());
            return Err(self.schema.mismatch(format!("{found} values given for {expected} columns")));
        };
        if value.is_null() && !column.nullable {
            return Err(type_mismatch(&column.name, column.ty, *value));
        }
        value.coerce_for(&column.name, column.ty)
    }
}

/// How rows of one range of schema versions are laid out.
#[derive(Debug)]
pub(super) struct RowLayout {
    pub(super) tuple: TupleLayout,
    /// By position of the column in the current schema: its number in the tuple, if rows of this version have it.
    pub(super) slots: Vec<Option<usize>>,
}

/// A schema, compiled.
#[derive(Debug)]
pub(super) struct TableCodec {
    pub(super) schema: Arc<Schema>,
    /// The primary key.
    pub(super) primary: Vec<KeyColumn>,
    /// By position of a column: its number in the primary key.
    pub(super) primary_parts: Vec<Option<usize>>,
    /// By position of a column: what rows have that are older than the column.
    pub(super) defaults: Vec<Value>,
    /// By index of the schema.
    pub(super) indexes: Vec<IndexCodec>,
    /// The versions at which the set of columns changed, ascending, with the layout from there on. Built on first use:
    /// a table may have a long history of which no row is left.
    layouts: Vec<(u32, OnceLock<RowLayout>)>,
    /// The columns that new rows store, as positions, in tuple order.
    stored: Vec<usize>,
    /// The layout of new rows.
    tuple: TupleLayout,
}

impl TableCodec {
    pub(super) fn new(schema: Arc<Schema>) -> TableCodec {
        let primary = key_columns(&schema, &schema.primary_key);
        let primary_part = |id: ColumnId| schema.primary_key.iter().position(|part| part.column == id);
        let primary_parts = schema.columns.iter().map(|column| primary_part(column.id)).collect();
        let defaults =
            schema.columns.iter().map(|column| column.default_value().unwrap_or_default()).collect();
        let indexes = schema.indexes.iter().map(|index| IndexCodec::new(&schema, index, &primary)).collect();
        let mut versions: Vec<u32> = [1].into();
        versions.extend(schema.columns.iter().map(|column| column.added_in));
        versions.extend(schema.dropped.iter().flat_map(|column| [column.added_in, column.dropped_in]));
        versions.sort_unstable();
        versions.dedup();
        let layouts = versions.into_iter().map(|version| (version, OnceLock::new())).collect();
        let current = schema.columns_at(schema.version);
        let stored = current.iter().filter_map(|column| schema.position_of(column.id)).collect();
        let tuple = TupleLayout::new(current.iter().map(|column| (column.ty, column.nullable)));
        TableCodec { primary, primary_parts, defaults, indexes, layouts, stored, tuple, schema }
    }

    /// Appends the primary key of a row.
    ///
    /// # Errors
    /// `KeyTooLong`, or those of `source`.
    pub(super) fn encode_primary_key(&self, source: &impl ColumnSource, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        for column in &self.primary {
            self.encode_part(column, source.column(column.position)?, out)?;
        }
        check_key_len(out.len() - start, || format!("the primary key of {}", self.schema.table))
    }

    /// Appends one part of a key.
    pub(super) fn encode_part(
        &self,
        column: &KeyColumn,
        value: ValueRef<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        column.encode(value, out).ok_or_else(|| self.refuse(column.position, value))
    }

    /// Appends a row without its primary key.
    ///
    /// # Errors
    /// `ValueTooLong`, or those of `source`.
    pub(super) fn encode_row(&self, source: &impl ColumnSource, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        put_varint(out, u64::from(self.schema.version));
        encode_tuple(self, &self.tuple, &self.stored, source, out)?;
        let len = out.len() - start;
        if len > VALUE_BYTES_MAX {
            return Err(ErrorKind::ValueTooLong { len, max: VALUE_BYTES_MAX }.into());
        }
        Ok(())
    }

    /// The row of which `key` is the decoded primary key and `bytes` the rest.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no row; `SchemaMismatch` if a newer schema wrote them.
    pub(super) fn view<'a>(&'a self, key: &'a DecodedKey, bytes: &'a [u8]) -> Result<RowView<'a>> {
        let mut reader = Reader::new(bytes);
        let version =
            reader.varint().and_then(|version| u32::try_from(version).ok()).filter(|&version| version > 0);
        let version = version.ok_or_else(|| self.corrupt_row(key, 0, "no schema version"))?;
        if version > self.schema.version {
            return Err(self.schema.mismatch(format!(
                "a row was written under version {version}, this handle knows version {}; open the table again",
                self.schema.version
            )));
        }
        let tuple_at = reader.position();
        let layout = self.layout(version);
        let tuple = layout.and_then(|layout| Some((layout, layout.tuple.parse(reader.rest())?)));
        let (layout, tuple) =
            tuple.ok_or_else(|| self.corrupt_row(key, tuple_at, "not a row of its schema version"))?;
        Ok(RowView { codec: self, key, body: Body::Row { layout, tuple }, visible: None })
    }

    fn layout(&self, version: u32) -> Option<&RowLayout> {
        let after = self.layouts.partition_point(|(first, _)| *first <= version);
        let (first, layout) = self.layouts.get(after.checked_sub(1)?)?;
        Some(layout.get_or_init(|| {
            let stored = self.schema.columns_at(*first);
            let slot = |id: ColumnId| stored.iter().position(|column| column.id == id);
            RowLayout {
                tuple: TupleLayout::new(stored.iter().map(|column| (column.ty, column.nullable))),
                slots: self.schema.columns.iter().map(|column| slot(column.id)).collect(),
            }
        }))
    }

    /// Decodes a primary key.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not exactly a key.
    pub(super) fn decode_primary_key(&self, key: &[u8], decoded: &mut DecodedKey) -> Result<()> {
        match decoded.decode(&self.primary, key) {
            Some(len) if len == key.len() => Ok(()),
            _ => Err(self.corrupt(0, format!("{} is not a primary key", ValueRef::Bytes(key)))),
        }
    }

    /// A primary key for people.
    pub(super) fn show_primary_key(&self, key: &[u8]) -> String {
        show_key(&self.primary, key)
    }

    /// The error for damaged bytes of this table. The place within a file is not known here: below is a store.
    pub(super) fn corrupt(&self, offset: usize, detail: impl Into<String>) -> Error {
        Error::corrupt(format!("table {}", self.schema.table), offset as u64, detail)
    }

    fn corrupt_row(&self, key: &DecodedKey, offset: usize, detail: &str) -> Error {
        self.corrupt(offset, format!("row {}: {detail}", key.show()))
    }

    /// The error for a value that the column at `position` cannot hold.
    pub(super) fn refuse(&self, position: usize, value: ValueRef<'_>) -> Error {
        match self.schema.columns.get(position) {
            Some(column) => type_mismatch(&column.name, column.ty, value),
            None => self.schema.mismatch(format!("there is no column {position}")),
        }
    }
}

/// Appends the values of `source` at `positions` in the layout `tuple`.
pub(super) fn encode_tuple(
    codec: &TableCodec,
    tuple: &TupleLayout,
    positions: &[usize],
    source: &impl ColumnSource,
    out: &mut Vec<u8>,
) -> Result<()> {
    let position = |slot: usize| positions.get(slot).copied().unwrap_or(usize::MAX);
    let refuse = |slot| match source.column(position(slot)) {
        Ok(value) => codec.refuse(position(slot), value),
        Err(error) => error,
    };
    tuple.encode(|slot| source.column(position(slot)), refuse, out)
}

/// The key columns of `parts`.
pub(super) fn key_columns(schema: &Schema, parts: &[KeyPart]) -> Vec<KeyColumn> {
    let compile = |part: &KeyPart| {
        let position = schema.position_of(part.column)?;
        let column = schema.columns.get(position)?;
        Some(KeyColumn {
            position,
            ty: column.ty,
            nullable: column.nullable,
            descending: part.descending,
            prefix: part.prefix,
        })
    };
    parts.iter().filter_map(compile).collect()
}

/// Refuses a key that is too long.
pub(super) fn check_key_len(len: usize, index: impl FnOnce() -> String) -> Result<()> {
    if len > KEY_BYTES_MAX {
        return Err(ErrorKind::KeyTooLong { index: index(), len, max: KEY_BYTES_MAX }.into());
    }
    Ok(())
}

/// The value of a tuple's column, or the error that says that it is damaged.
pub(super) fn tuple_value<'a>(
    codec: &TableCodec,
    key: &DecodedKey,
    layout: &TupleLayout,
    tuple: &Tuple<'a>,
    slot: usize,
) -> Result<ValueRef<'a>> {
    tuple
        .get(layout, slot)
        .ok_or_else(|| codec.corrupt_row(key, 0, &format!("value {slot} is not of its type")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::testing::{any_type, any_value};
    use crate::row::{Index, Type};

    fn encode(codec: &TableCodec, values: &[Value]) -> Result<(Vec<u8>, Vec<u8>)> {
        let refs: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        let source = GivenValues { schema: &codec.schema, values: &refs };
        let (mut key, mut row) = (Vec::new(), Vec::new());
        codec.encode_primary_key(&source, &mut key)?;
        codec.encode_row(&source, &mut row)?;
        Ok((key, row))
    }

    fn decode(codec: &TableCodec, key: &[u8], row: &[u8]) -> Result<Vec<Value>> {
        let mut decoded = DecodedKey::default();
        codec.decode_primary_key(key, &mut decoded)?;
        codec.view(&decoded, row)?.to_values()
    }

    fn base() -> Schema {
        let schema =
            Schema::table("t").column("a", Type::Text).column("id", Type::I32).nullable("b", Type::Bytes);
        schema.column("c", Type::U8).primary_key(["id"]).build().unwrap()
    }

    fn codec(schema: Schema) -> TableCodec {
        TableCodec::new(Arc::new(schema))
    }

    #[test]
    fn columns_come_and_go_without_rewriting_rows() {
        let old = codec(base());
        let values = ["x".into(), Value::Int(-7), Value::Bytes(b"\0".to_vec()), Value::UInt(9)];
        let (key, row) = encode(&old, &values).unwrap();
        assert_eq!(decode(&old, &key, &row).unwrap(), values);

        let schema = base().with_column("d", Type::F32, false, Some(1.5.into())).unwrap();
        let schema = schema.without_column("a").unwrap().with_renamed_column("c", "a").unwrap();
        let schema = schema.with_column("c", Type::Text, true, None).unwrap();
        let new = codec(schema);
        let expected =
            [Value::Int(-7), Value::Bytes(b"\0".to_vec()), Value::UInt(9), Value::F32(1.5), Value::Null];
        assert_eq!(decode(&new, &key, &row).unwrap(), expected);

        let (key, newer_row) = encode(&new, &expected).unwrap();
        assert_eq!(decode(&new, &key, &newer_row).unwrap(), expected);
        let error = decode(&old, &key, &newer_row).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::SchemaMismatch { .. }), "{error}");
    }

    #[test]
    fn what_cannot_be_stored_is_refused_with_its_column() {
        let codec = codec(base());
        let good = ["x".into(), Value::Int(1), Value::Null, Value::UInt(9)];
        let refused = |position: usize, value: Value| {
            let mut values = good.to_vec();
            values[position] = value;
            encode(&codec, &values).unwrap_err().to_string()
        };
        assert_eq!(
            refused(0, Value::Null),
            "column a holds text, but the value is null, which the column does not allow"
        );
        assert_eq!(
            refused(1, Value::Null),
            "column id holds i32, but the value is null, which the column does not allow"
        );
        assert_eq!(
            refused(1, Value::Int(1 << 40)),
            "column id holds i32, but the value is integer 1099511627776"
        );
        assert_eq!(refused(3, "9".into()), "column c holds u8, but the value is text 9");
        assert!(encode(&codec, &good[..3]).unwrap_err().to_string().contains("3 values given for 4 columns"));
    }

    #[test]
    fn an_oversized_key_is_refused_and_the_longest_is_not() {
        let schema = Schema::table("t").column("k", Type::Bytes).primary_key(["k"]).build().unwrap();
        let codec = codec(schema);
        assert!(encode(&codec, &[Value::Bytes(vec![1; KEY_BYTES_MAX - 2])]).is_ok());
        let error = encode(&codec, &[Value::Bytes(vec![1; KEY_BYTES_MAX - 1])]).unwrap_err();
        let ErrorKind::KeyTooLong { index, len, max } = error.kind() else { panic!("{error}") };
        assert_eq!((index.as_str(), *len, *max), ("the primary key of t", KEY_BYTES_MAX + 1, KEY_BYTES_MAX));
    }

    fn tables() -> impl Strategy<Value = (Schema, Vec<Value>)> {
        let column = (any_type(), any::<bool>()).prop_flat_map(|(ty, nullable)| {
            let value = any_value(ty);
            let value = if nullable { prop_oneof![Just(Value::Null), value].boxed() } else { value };
            (Just(ty), Just(nullable), value)
        });
        prop::collection::vec(column, 1..8).prop_map(|columns| {
            let mut builder = Schema::table("t").column("id", Type::U64);
            let mut keys = vec!["id".to_owned()];
            let mut values = vec![Value::UInt(5)];
            for (number, (ty, nullable, value)) in columns.into_iter().enumerate() {
                let name = format!("c{number}");
                builder = if nullable { builder.nullable(&name, ty) } else { builder.column(&name, ty) };
                if ty.can_be_key() && !nullable && number % 2 == 0 {
                    keys.push(name);
                }
                values.push(value);
            }
            let builder = builder.primary_key(keys).index(Index::on("i").asc("id"));
            (builder.build().unwrap(), values)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn rows_round_trip_and_damage_is_an_error_or_a_row((schema, values) in tables(), noise: Vec<u8>, bit: prop::sample::Index) {
            let codec = codec(schema);
            let (key, row) = encode(&codec, &values).unwrap();
            prop_assert_eq!(&decode(&codec, &key, &row).unwrap(), &values);
            let _ = decode(&codec, &noise, &row);
            let _ = decode(&codec, &key, &noise);
            let mut flipped = row.clone();
            let bit = bit.index(row.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&codec, &key, &flipped);
        }
    }
}
