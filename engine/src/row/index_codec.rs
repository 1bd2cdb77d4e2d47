//! Index entries as bytes.
//!
//! An entry is one key-value pair in the index's keyspace:
//!
//! ```text
//! plain index:                key = indexed columns ‖ primary key    value = included columns
//! unique index, no NULL:      key = indexed columns                  value = length ‖ primary key ‖ included columns
//! unique index, with a NULL:  key = indexed columns ‖ primary key    value = length ‖ primary key ‖ included columns
//! ```
//!
//! So two rows with the same values in a unique index have the same entry key, and that is how they are found out;
//! with a NULL among the values they have not, since NULL equals nothing. Included columns that the entry holds
//! already (in the primary key, or as an indexed column of full length) are not stored again; if none is left, nothing
//! is stored for them.
//!
//! The whole primary key is appended even where an indexed column repeats one of its columns: it is then one slice of
//! the entry, and reading a row through an index needs no re-encoding. Block prefix compression and lz4 take most of
//! the repetition back.

use alluvium_base::coding::{Reader, put_bytes};
use alluvium_base::{Error, Result};

use super::key_codec::{KeyColumn, parts_len};
use super::key_decoder::{DecodedKey, show_key};
use super::row_codec::{ColumnSource, TableCodec, check_key_len, encode_tuple, key_columns};
use super::schema::{IndexSchema, Schema};
use super::tuple::{Tuple, TupleLayout};

/// Where an index entry holds a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryPlace {
    /// Nowhere.
    Absent,
    /// In the primary key.
    Primary,
    /// As the indexed column with this number, in full.
    Part(usize),
    /// As the included column with this number.
    Included(usize),
}

/// An index, compiled.
#[derive(Debug)]
pub(super) struct IndexCodec {
    pub(super) name: String,
    pub(super) unique: bool,
    /// The indexed columns.
    pub(super) parts: Vec<KeyColumn>,
    /// Positions of the stored included columns.
    pub(super) include: Vec<usize>,
    pub(super) include_layout: TupleLayout,
    /// By position of a column.
    places: Vec<EntryPlace>,
}

impl IndexCodec {
    pub(super) fn new(schema: &Schema, index: &IndexSchema, primary: &[KeyColumn]) -> IndexCodec {
        let parts = key_columns(schema, &index.parts);
        let mut places = vec![EntryPlace::Absent; schema.columns.len()];
        let mut place = |position: usize, found: EntryPlace| {
            if let Some(place) = places.get_mut(position)
                && *place == EntryPlace::Absent
            {
                *place = found;
                return true;
            }
            false
        };
        primary.iter().for_each(|column| {
            place(column.position, EntryPlace::Primary);
        });
        for (number, part) in parts.iter().enumerate().filter(|(_, part)| part.prefix.is_none()) {
            place(part.position, EntryPlace::Part(number));
        }
        let mut include = Vec::new();
        for position in index.include.iter().filter_map(|&id| schema.position_of(id)) {
            if place(position, EntryPlace::Included(include.len())) {
                include.push(position);
            }
        }
        let included = include.iter().filter_map(|&position| schema.columns.get(position));
        let include_layout = TupleLayout::new(included.map(|column| (column.ty, column.nullable)));
        IndexCodec { name: index.name.clone(), unique: index.unique, parts, include, include_layout, places }
    }

    /// Where an entry holds the column at `position`.
    pub(super) fn place(&self, position: usize) -> EntryPlace {
        self.places.get(position).copied().unwrap_or(EntryPlace::Absent)
    }

    /// Appends the entry of a row. Returns true if the entry's key must be the only one of its kind.
    ///
    /// # Errors
    /// `KeyTooLong`, or those of `source`.
    pub(super) fn encode(
        &self,
        codec: &TableCodec,
        source: &impl ColumnSource,
        primary_key: &[u8],
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = key.len();
        let mut any_null = false;
        for part in &self.parts {
            let column = source.column(part.position)?;
            any_null |= column.is_null();
            codec.encode_part(part, column, key)?;
        }
        let guarded = self.unique && !any_null;
        if !guarded {
            key.extend_from_slice(primary_key);
        }
        check_key_len(key.len() - start, || format!("index {} of {}", self.name, codec.schema.name()))?;
        if self.unique {
            put_bytes(value, primary_key);
        }
        if self.include_layout.len() > 0 {
            encode_tuple(codec, &self.include_layout, &self.include, source, value)?;
        }
        Ok(guarded)
    }

    /// Takes an entry apart.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no entry of this index.
    pub(super) fn split<'e>(&self, codec: &TableCodec, key: &'e [u8], value: &'e [u8]) -> Result<Entry<'e>> {
        let parts_len = parts_len(&self.parts, key).ok_or_else(|| self.damaged(codec, key))?;
        let primary_key = self.primary_key(codec, key, value, parts_len)?;
        Ok(Entry { primary_key, included: self.included(codec, value)? })
    }

    /// Decodes the indexed columns of an entry and returns their length.
    ///
    /// # Errors
    /// `Corrupt` if the key does not begin with them.
    pub(super) fn decode_parts(
        &self,
        codec: &TableCodec,
        key: &[u8],
        decoded: &mut DecodedKey,
    ) -> Result<usize> {
        decoded.decode(&self.parts, key).ok_or_else(|| self.damaged(codec, key))
    }

    /// The primary key in an entry whose indexed columns take `parts_len` bytes.
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    pub(super) fn primary_key<'e>(
        &self,
        codec: &TableCodec,
        key: &'e [u8],
        value: &'e [u8],
        parts_len: usize,
    ) -> Result<&'e [u8]> {
        let behind = key.get(parts_len..).unwrap_or_default();
        if !self.unique {
            return Ok(behind);
        }
        let stored = Reader::new(value).bytes().filter(|stored| behind.is_empty() || behind == *stored);
        stored.ok_or_else(|| self.damaged(codec, key))
    }

    /// The included columns in the value of an entry, if the index stores any.
    ///
    /// # Errors
    /// `Corrupt` if they are not there, or something else is.
    pub(super) fn included<'e>(&self, codec: &TableCodec, value: &'e [u8]) -> Result<Option<Tuple<'e>>> {
        let mut reader = Reader::new(value);
        if self.unique {
            // The primary key.
            reader.bytes();
        }
        let rest = reader.rest();
        let found = match self.include_layout.len() {
            0 => rest.is_empty().then_some(None),
            _ => self.include_layout.parse(rest).map(Some),
        };
        found.ok_or_else(|| {
            codec.corrupt(0, format!("index {}: the included columns of an entry are damaged", self.name))
        })
    }

    fn damaged(&self, codec: &TableCodec, key: &[u8]) -> Error {
        codec.corrupt(0, format!("index {}: entry {} is damaged", self.name, show_key(&self.parts, key)))
    }
}

/// The pieces of an index entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'e> {
    pub(super) primary_key: &'e [u8],
    /// The stored included columns, if the index has any.
    pub(super) included: Option<Tuple<'e>>,
}
