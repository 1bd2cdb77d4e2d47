//! Rows and index entries for those who meet them as bytes, such as a tool that looks into files and logs.

use std::sync::Arc;

use alluvium_base::Result;

use super::key_codec::KeyColumn;
use super::key_decoder::DecodedKey;
use super::row_codec::{TableCodec, tuple_value};
use super::schema::Schema;
use super::value::Value;

/// Reads the entries that [`RowEncoder`](super::RowEncoder) writes.
///
/// ```
/// use std::sync::Arc;
/// use alluvium::row::{Index, RowDecoder, RowEncoder, Schema, Type, Value, ValueRef};
/// let schema = Arc::new(
///     Schema::table("t")
///         .column("id", Type::U64)
///         .column("name", Type::Text)
///         .primary_key(["id"])
///         .index(Index::on("by_name").asc("name"))
///         .build()?,
/// );
/// let (encoder, decoder) = (RowEncoder::new(Arc::clone(&schema)), RowDecoder::new(schema));
/// let values = [ValueRef::UInt(7), ValueRef::Text("silt")];
/// let (mut key, mut row) = (Vec::new(), Vec::new());
/// encoder.encode_row(&values, &mut key, &mut row)?;
/// assert_eq!(decoder.primary_key(&key)?, [Value::UInt(7)]);
/// assert_eq!(decoder.row(&key, &row)?, [Value::UInt(7), Value::from("silt")]);
/// let (mut entry_key, mut entry_value) = (Vec::new(), Vec::new());
/// encoder.encode_index_entry(0, &values, &key, &mut entry_key, &mut entry_value)?;
/// let entry = decoder.index_entry(0, &entry_key, Some(&entry_value))?;
/// assert_eq!((entry.parts, entry.primary_key), (vec![Value::from("silt")], Some(vec![Value::UInt(7)])));
/// # Ok::<(), alluvium_base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RowDecoder {
    codec: Arc<TableCodec>,
}

/// An index entry, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The indexed values; of a column of which the index holds a prefix, that prefix.
    pub parts: Vec<Value>,
    /// The primary key of the row; `None` if it stands in the value, and no value was given.
    pub primary_key: Option<Vec<Value>>,
    /// The included columns that are stored in the value, by their positions in the schema.
    pub included: Vec<(usize, Value)>,
}

impl RowDecoder {
    /// A decoder for rows of `schema`.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> RowDecoder {
        RowDecoder { codec: Arc::new(TableCodec::new(schema)) }
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.codec.schema
    }

    /// The values of a primary key, in the order of its columns.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no primary key of this table.
    pub fn primary_key(&self, key: &[u8]) -> Result<Vec<Value>> {
        let mut decoded = DecodedKey::default();
        self.codec.decode_primary_key(key, &mut decoded)?;
        Ok(values(&decoded, &self.codec.primary))
    }

    /// The values of a row, in the order of the schema's columns.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no row of this table; `SchemaMismatch` if a newer schema wrote them.
    pub fn row(&self, key: &[u8], row: &[u8]) -> Result<Vec<Value>> {
        let mut decoded = DecodedKey::default();
        self.codec.decode_primary_key(key, &mut decoded)?;
        self.codec.view(&decoded, row)?.to_values()
    }

    /// An entry of the index with number `index` of [`Schema::indexes`]; without a value (of a tombstone) what its key
    /// tells.
    ///
    /// # Errors
    /// `NotFound` if there is no such index; `Corrupt` if the bytes are no entry of it.
    pub fn index_entry(&self, index: usize, key: &[u8], value: Option<&[u8]>) -> Result<IndexEntry> {
        let codec = &*self.codec;
        let compiled = codec.indexes.get(index).ok_or_else(|| {
            alluvium_base::Error::not_found(format!("index number {index} on {}", codec.schema.name()))
        })?;
        let mut decoded = DecodedKey::default();
        let damaged = || codec.corrupt(0, format!("index {}: a key is damaged", compiled.name));
        let parts_len = decoded.decode(&compiled.parts, key).ok_or_else(damaged)?;
        let parts = values(&decoded, &compiled.parts);
        let Some(value) = value else {
            let behind = key.get(parts_len..).unwrap_or_default();
            let primary_key = if behind.is_empty() { None } else { Some(self.primary_key(behind)?) };
            return Ok(IndexEntry { parts, primary_key, included: Vec::new() });
        };
        let entry = compiled.split(codec, key, value)?;
        codec.decode_primary_key(entry.primary_key, &mut decoded)?;
        let primary_key = Some(values(&decoded, &codec.primary));
        let mut included = Vec::new();
        if let Some(tuple) = &entry.included {
            for (slot, &position) in compiled.include.iter().enumerate() {
                let value = tuple_value(codec, &decoded, &compiled.include_layout, tuple, slot)?;
                included.push((position, value.to_value()));
            }
        }
        Ok(IndexEntry { parts, primary_key, included })
    }
}

fn values(key: &DecodedKey, columns: &[KeyColumn]) -> Vec<Value> {
    (0..columns.len()).map(|part| key.get(part).to_value()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::{Index, RowEncoder, Type, ValueRef};

    fn schema() -> Arc<Schema> {
        let schema = Schema::table("t")
            .column("id", Type::U16)
            .nullable("name", Type::Text)
            .column("size", Type::I32)
            .primary_key(["id"])
            .index(Index::on("covering").prefix("name", 2).desc("id").include(["size", "name"]))
            .index(Index::on("only").asc("name").unique().include(["size"]));
        Arc::new(schema.build().unwrap())
    }

    #[test]
    fn entries_decode_to_what_was_encoded_with_and_without_their_value() {
        let encoder = RowEncoder::new(schema());
        let decoder = RowDecoder::new(schema());
        let row = [ValueRef::UInt(7), ValueRef::Text("silt"), ValueRef::Int(-3)];
        let (mut key, mut value) = (Vec::new(), Vec::new());
        encoder.encode_row(&row, &mut key, &mut value).unwrap();
        assert_eq!(decoder.row(&key, &value).unwrap(), row.map(ValueRef::to_value));

        let entry = |index| {
            let (mut entry_key, mut entry_value) = (Vec::new(), Vec::new());
            encoder.encode_index_entry(index, &row, &key, &mut entry_key, &mut entry_value).unwrap();
            let with = decoder.index_entry(index, &entry_key, Some(&entry_value)).unwrap();
            (with, decoder.index_entry(index, &entry_key, None).unwrap())
        };
        let id = Some(vec![Value::UInt(7)]);
        let (with, without) = entry(0);
        assert_eq!(with.parts, [Value::from("si"), Value::UInt(7)]);
        assert_eq!(with.included, [(2, Value::Int(-3)), (1, Value::from("silt"))]);
        assert_eq!((&with.primary_key, &without.primary_key), (&id, &id));
        let (with, without) = entry(1);
        assert_eq!((with.parts, with.primary_key), (vec![Value::from("silt")], id));
        assert_eq!((without.primary_key, without.included), (None, vec![]), "a unique key holds no row key");
    }

    proptest! {
        #[test]
        fn any_bytes_give_values_or_an_error(key: Vec<u8>, value: Vec<u8>, index in 0usize..3) {
            let decoder = RowDecoder::new(schema());
            let _ = decoder.primary_key(&key);
            let _ = decoder.row(&key, &value);
            let _ = decoder.index_entry(index, &key, Some(&value));
            let _ = decoder.index_entry(index, &key, None);
        }
    }
}
