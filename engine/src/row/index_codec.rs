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

use alluvium_base::Result;
use alluvium_base::coding::{Reader, put_bytes};

use super::key_codec::{DecodedKey, KeyColumn, parts_len, show_key};
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
        self.try_split(key, value).ok_or_else(|| {
            codec.corrupt(0, format!("index {}: entry {} is damaged", self.name, show_key(&self.parts, key)))
        })
    }

    fn try_split<'e>(&self, key: &'e [u8], value: &'e [u8]) -> Option<Entry<'e>> {
        let (parts, behind) = key.split_at_checked(parts_len(&self.parts, key)?)?;
        let mut reader = Reader::new(value);
        let primary_key = if self.unique { reader.bytes()? } else { behind };
        if self.unique && !behind.is_empty() && behind != primary_key {
            return None;
        }
        let rest = reader.rest();
        let included = if self.include_layout.len() > 0 {
            Some(self.include_layout.parse(rest)?)
        } else {
            rest.is_empty().then_some(None)?
        };
        Some(Entry { parts, primary_key, included })
    }

    /// Decodes the indexed columns of an entry.
    ///
    /// # Errors
    /// `Corrupt` if a value is damaged.
    pub(super) fn decode_parts(
        &self,
        codec: &TableCodec,
        parts: &[u8],
        decoded: &mut DecodedKey,
    ) -> Result<()> {
        let len = decoded.decode(&self.parts, parts);
        len.map(|_| ())
            .ok_or_else(|| codec.corrupt(0, format!("index {}: an indexed value is damaged", self.name)))
    }
}

/// The pieces of an index entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'e> {
    /// The encoded indexed columns.
    pub(super) parts: &'e [u8],
    pub(super) primary_key: &'e [u8],
    /// The stored included columns, if the index has any.
    pub(super) included: Option<Tuple<'e>>,
}
