//! Where a load goes: the one interface between the loader and the engine.
//!
//! The loader knows rows, texts, sorting and duplicates; it does not know table files, manifests or keyspaces. What it
//! needs from the other side stands here, so that everything else is tested against entries kept in memory.
//!
//! *Contract.* Nothing is visible before [`finish`](LoadTarget::finish), which makes everything visible at once.
//! Dropping a target, a writer or what a writer has written leaves the database as it was.

use alluvium::row::{RowEncoder, ValueRef};
use alluvium_base::{Result, checksum};

/// Takes the rows of one new table and its indexes. Target 0 is the primary index, 1.. are the secondary indexes in
/// the order of the schema.
pub trait LoadTarget: Sync {
    /// Writes the entries of one target.
    type Writer<'a>: EntryWriter<Written = Self::Written>
    where
        Self: 'a;
    /// What a finished writer leaves: files, not yet part of the database.
    type Written: Send + Sync;

    /// Encodes the rows of the table.
    fn encoder(&self) -> &RowEncoder;

    /// Starts writing a target. Different targets may be written by different threads.
    ///
    /// # Errors
    /// Those of the file system.
    fn writer(&self, target: usize) -> Result<Self::Writer<'_>>;

    /// Reads back what was written, in order, from the files.
    ///
    /// # Errors
    /// Those of reading, and damage that is found; whatever `each` returns.
    fn read_back(&self, written: &Self::Written, each: &mut EachEntry<'_>) -> Result<()>;

    /// Bytes of the files.
    fn file_bytes(&self, written: &Self::Written) -> u64;

    /// Makes the table and all of its indexes part of the database, at once and durably. There is one `written` per
    /// target, in their order.
    ///
    /// # Errors
    /// Those of the engine; the database is then as it was.
    fn finish(self, written: Vec<Self::Written>) -> Result<()>;
}

/// What is called with the key and value of each entry.
pub type EachEntry<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Writes entries in strictly ascending order of their keys.
pub trait EntryWriter: Send {
    /// What it leaves.
    type Written;

    /// Appends an entry.
    ///
    /// # Errors
    /// Those of writing; `InvalidArgument` if the key is not greater than the one before.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Completes the files.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(self) -> Result<Self::Written>;
}

/// The entries of one row. Reused from row to row, and filled completely before anything is kept: a row that turns
/// out not to fit one index leaves nothing in the others.
#[derive(Debug, Default)]
pub struct Entries {
    primary_key: Vec<u8>,
    row: Vec<u8>,
    /// Entries of the indexes, one behind the other, and where each ends.
    keys: Vec<u8>,
    values: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Entries {
    /// Encodes a row, given in the order of the schema's columns.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong` or `TypeMismatch` if the row cannot be stored.
    pub fn encode(&mut self, encoder: &RowEncoder, row: &[ValueRef<'_>]) -> Result<()> {
        for buffer in [&mut self.primary_key, &mut self.row, &mut self.keys, &mut self.values] {
            buffer.clear();
        }
        self.ends.clear();
        encoder.encode_row(row, &mut self.primary_key, &mut self.row)?;
        for index in 0..encoder.schema().indexes().len() {
            encoder.encode_index_entry(index, row, &self.primary_key, &mut self.keys, &mut self.values)?;
            self.ends.push((self.keys.len(), self.values.len()));
        }
        Ok(())
    }

    /// Key and value for each target, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = (0, 0);
        let indexes = self.ends.iter().map(move |&end| {
            let (key, value) = std::mem::replace(&mut start, end);
            (&self.keys[key..end.0], &self.values[value..end.1])
        });
        std::iter::once((self.primary_key.as_slice(), self.row.as_slice())).chain(indexes)
    }
}

/// Number of entries and a checksum that does not depend on their order, so that the same entries can be recognised
/// before sorting, after merging and in the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntrySum {
    /// Number of entries.
    pub entries: u64,
    sum: u64,
}

impl EntrySum {
    /// Counts an entry.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        // The value is hashed under the key's hash: exchanging two values is noticed. A sum (unlike an exclusive or)
        // also notices an entry that is there twice.
        self.sum = self.sum.wrapping_add(checksum::checksum(checksum::checksum(0, key), value));
    }

    /// The sum over both sets of entries.
    #[must_use]
    pub fn plus(self, other: EntrySum) -> EntrySum {
        EntrySum { entries: self.entries + other.entries, sum: self.sum.wrapping_add(other.sum) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alluvium::row::{Index, Schema, Type};

    use super::*;

    fn sum(entries: &[(&str, &str)]) -> EntrySum {
        let mut sum = EntrySum::default();
        entries.iter().for_each(|(key, value)| sum.add(key.as_bytes(), value.as_bytes()));
        sum
    }

    #[test]
    fn a_sum_knows_entries_but_not_their_order() {
        let all = sum(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(all, sum(&[("c", "3"), ("a", "1"), ("b", "2")]));
        assert_eq!(all, sum(&[("c", "3")]).plus(sum(&[("b", "2"), ("a", "1")])));
        for other in [
            [("a", "2"), ("b", "1"), ("c", "3")],
            [("a", "1"), ("a", "1"), ("c", "3")],
            [("a1", ""), ("b", "2"), ("c", "3")],
        ] {
            assert_ne!(all, sum(&other), "{other:?}");
        }
    }

    #[test]
    fn a_row_has_one_entry_per_target() {
        let schema = Schema::table("t").column("id", Type::U8).column("name", Type::Text).primary_key(["id"]);
        let schema = schema.index(Index::on("a").asc("name")).index(Index::on("b").asc("name").unique());
        let encoder = RowEncoder::new(Arc::new(schema.build().unwrap()));
        let mut entries = Entries::default();
        for (id, name) in [(1, "mud"), (2, "a much longer name"), (3, "")] {
            entries.encode(&encoder, &[ValueRef::UInt(id), ValueRef::Text(name)]).unwrap();
            let got: Vec<_> = entries.iter().collect();
            let [(key, _), (plain, _), (unique, value)] = got.as_slice() else { panic!("{got:?}") };
            assert_eq!(*plain, [unique, *key].concat());
            assert!(value.ends_with(key));
        }
        assert!(entries.encode(&encoder, &[ValueRef::Text("no number"), ValueRef::Text("x")]).is_err());
    }
}
