//! Rows and index entries for those who write tables directly, such as a bulk load.

use std::sync::Arc;

use alluvium_base::Result;

use super::row_codec::{GivenValues, TableCodec};
use super::schema::Schema;
use super::value::ValueRef;

/// Encodes rows of a schema, and their index entries, into buffers of the caller.
///
/// ```
/// use std::sync::Arc;
/// use alluvium::row::{Index, RowEncoder, Schema, Type, ValueRef};
/// let schema = Schema::table("t")
///     .column("id", Type::U64)
///     .column("name", Type::Text)
///     .primary_key(["id"])
///     .index(Index::on("by_name").asc("name"))
///     .build()?;
/// let encoder = RowEncoder::new(Arc::new(schema));
/// let values = [ValueRef::UInt(7), ValueRef::Text("silt")];
/// let (mut key, mut row) = (Vec::new(), Vec::new());
/// encoder.encode_row(&values, &mut key, &mut row)?;
/// let (mut entry_key, mut entry_value) = (Vec::new(), Vec::new());
/// encoder.encode_index_entry(0, &values, &key, &mut entry_key, &mut entry_value)?;
/// assert!(entry_key.starts_with(b"silt\0\0") && entry_key.ends_with(&key));
/// # Ok::<(), alluvium_base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RowEncoder {
    codec: Arc<TableCodec>,
}

impl RowEncoder {
    /// An encoder for rows of `schema`.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> RowEncoder {
        RowEncoder { codec: Arc::new(TableCodec::new(schema)) }
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.codec.schema
    }

    /// Appends the primary key and the row of `values`, which stand in the order of the schema's columns and are
    /// converted where that is exact.
    ///
    /// # Errors
    /// `TypeMismatch`, `KeyTooLong`, `ValueTooLong`; the buffers may then hold part of the row.
    pub fn encode_row(&self, values: &[ValueRef<'_>], key: &mut Vec<u8>, row: &mut Vec<u8>) -> Result<()> {
        let source = GivenValues { schema: &self.codec.schema, values };
        self.codec.encode_primary_key(&source, key)?;
        self.codec.encode_row(&source, row)
    }

    /// Appends the entry of a row in the index with number `index` of [`Schema::indexes`]. Two rows that violate a
    /// unique index have the same entry key; otherwise no two entries of an index have.
    ///
    /// # Errors
    /// `NotFound` if there is no such index; `TypeMismatch`, `KeyTooLong`. The buffers may then hold part of the entry.
    pub fn encode_index_entry(
        &self,
        index: usize,
        values: &[ValueRef<'_>],
        primary_key: &[u8],
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let source = GivenValues { schema: &self.codec.schema, values };
        let index = self.codec.indexes.get(index).ok_or_else(|| {
            alluvium_base::Error::not_found(format!("index number {index} on {}", self.codec.schema.name()))
        })?;
        index.encode(&self.codec, &source, primary_key, key, value).map(|_| ())
    }
}
