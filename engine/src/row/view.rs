//! A row as it is read: columns are decoded when asked for, straight from the stored bytes.

use alluvium_base::{Error, Result};

use super::index_codec::{EntryPlace, IndexCodec};
use super::key_decoder::DecodedKey;
use super::row_codec::{ColumnSource, RowLayout, TableCodec, tuple_value};
use super::schema::Schema;
use super::tuple::Tuple;
use super::value::{Value, ValueRef};

/// Where the columns come from that are not part of the primary key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    /// The row itself.
    Row { layout: &'a RowLayout, tuple: Tuple<'a> },
    /// An index entry that holds what is asked for.
    Entry { index: &'a IndexCodec, parts: &'a DecodedKey, included: Option<Tuple<'a>> },
}

/// A row, or those of its columns that a scan was asked for. Copies nothing and decodes only what is asked.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    pub(super) codec: &'a TableCodec,
    /// The primary key.
    pub(super) key: &'a DecodedKey,
    pub(super) body: Body<'a>,
    /// The positions that may be asked for; `None` for all.
    pub(super) visible: Option<&'a [usize]>,
}

impl<'a> RowView<'a> {
    /// The schema that the row is read by.
    #[must_use]
    pub fn schema(&self) -> &'a Schema {
        &self.codec.schema
    }

    /// The value of the column called `name`.
    ///
    /// # Errors
    /// `NotFound` if there is no such column, `InvalidArgument` if the scan was not asked for it, `Corrupt` if its
    /// bytes are damaged.
    pub fn get(&self, name: &str) -> Result<ValueRef<'a>> {
        self.at(self.codec.schema.require_position(name)?)
    }

    /// The value of the column at `position` of the schema.
    ///
    /// # Errors
    /// As [`get`](RowView::get).
    pub fn at(&self, position: usize) -> Result<ValueRef<'a>> {
        if self.visible.is_some_and(|visible| !visible.contains(&position)) {
            let column = self.codec.schema.columns().get(position).map_or("?", |column| column.name());
            return Err(Error::invalid(format!(
                "column {column} is not among the columns that the scan was asked for"
            )));
        }
        self.read(position)
    }

    /// The values: of the columns that the scan was asked for, in that order, or of all.
    ///
    /// # Errors
    /// `Corrupt` if one is damaged.
    pub fn to_values(&self) -> Result<Vec<Value>> {
        let read = |position| self.read(position).map(ValueRef::to_value);
        match self.visible {
            Some(visible) => visible.iter().map(|&position| read(position)).collect(),
            None => (0..self.codec.schema.columns.len()).map(read).collect(),
        }
    }

    fn read(&self, position: usize) -> Result<ValueRef<'a>> {
        let codec = self.codec;
        if let Some(part) = codec.primary_parts.get(position).copied().flatten() {
            return Ok(self.key.get(part));
        }
        match &self.body {
            Body::Row { layout, tuple } => match layout.slots.get(position) {
                Some(Some(slot)) => tuple_value(codec, self.key, &layout.tuple, tuple, *slot),
                Some(None) => Ok(codec.defaults.get(position).map_or(ValueRef::Null, Value::as_ref)),
                None => {
                    Err(Error::not_found(format!("column at position {position} in {}", codec.schema.table)))
                }
            },
            Body::Entry { index, parts, included } => match (index.place(position), included) {
                (EntryPlace::Part(part), _) => Ok(parts.get(part)),
                (EntryPlace::Included(slot), Some(tuple)) => {
                    tuple_value(codec, self.key, &index.include_layout, tuple, slot)
                }
                _ => Err(Error::not_found(format!("column at position {position} in index {}", index.name))),
            },
        }
    }
}

impl ColumnSource for RowView<'_> {
    fn column(&self, position: usize) -> Result<ValueRef<'_>> {
        self.read(position)
    }
}
