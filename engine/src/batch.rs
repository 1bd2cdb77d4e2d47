//! A batch of key-value operations: the unit of atomicity, and the payload of a log record.
//!
//! ```text
//! operation*: kind u8 | key length varint | full key | (put: value length varint | value)
//!                                                      (range delete: end length varint | end full key)
//! ```
//!
//! The operations of a batch take consecutive sequence numbers in the order in which they were added, so a later one
//! wins over an earlier one on the same key. The bytes are written once, into the batch, and go from there to the log
//! and into the memtable.

use alluvium_base::coding::{Reader, put_bytes};
use alluvium_base::key::{KeyspaceId, Kind};
use alluvium_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use alluvium_base::{ErrorKind, Result};

/// Operations on full keys that are applied together or not at all.
#[derive(Clone, Debug, Default)]
pub struct RawBatch {
    bytes: Vec<u8>,
    operations: u64,
}

/// One operation, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    /// The value of a put, the end of a range delete, else empty.
    pub(crate) value: &'a [u8],
}

impl RawBatch {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of operations, which is the number of sequence numbers that the batch takes.
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.operations == 0
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.operations = 0;
    }

    /// Adds a put, delete or delete-once.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`; the batch is then as it was.
    pub(crate) fn add(&mut self, kind: Kind, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Result<()> {
        check_entry(keyspace, key, value)?;
        self.push_key(kind, keyspace, key);
        if kind == Kind::Put {
            put_bytes(&mut self.bytes, value);
        }
        Ok(())
    }

    /// Adds a range delete of the full keys in `[start, end)`; does nothing if the range is empty.
    ///
    /// # Errors
    /// `KeyTooLong`.
    pub(crate) fn delete_range(
        &mut self,
        keyspace: KeyspaceId,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<()> {
        check_key(keyspace, start, KEY_BYTES_MAX + 1)?;
        let end = match end {
            Some(end) => {
                check_key(keyspace, end, KEY_BYTES_MAX + 1)?;
                keyspace.full_key(end)
            }
            None => match keyspace.end() {
                Some(end) => end.to_vec(),
                None => return Err(alluvium_base::Error::invalid("the last keyspace id has no end")),
            },
        };
        if keyspace.full_key(start) >= end {
            return Ok(());
        }
        self.push_key(Kind::RangeDelete, keyspace, start);
        put_bytes(&mut self.bytes, &end);
        Ok(())
    }

    fn push_key(&mut self, kind: Kind, keyspace: KeyspaceId, key: &[u8]) {
        self.bytes.push(kind as u8);
        alluvium_base::coding::put_varint(&mut self.bytes, (key.len() + 4) as u64);
        keyspace.write_full_key(key, &mut self.bytes);
        self.operations += 1;
    }

    /// The operations, in order.
    pub(crate) fn iter(&self) -> Operations<'_> {
        Operations { reader: Reader::new(&self.bytes) }
    }
}

/// Refuses a key or a value beyond its limit.
pub(crate) fn check_entry(keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Result<()> {
    check_key(keyspace, key, KEY_BYTES_MAX)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(ErrorKind::ValueTooLong { len: value.len(), max: VALUE_BYTES_MAX }.into());
    }
    Ok(())
}

/// The bound of a range may be one byte longer than a key: the successor of the longest key.
fn check_key(keyspace: KeyspaceId, key: &[u8], max: usize) -> Result<()> {
    if key.len() > max {
        let index = format!("keyspace {}", keyspace.0);
        return Err(ErrorKind::KeyTooLong { index, len: key.len(), max }.into());
    }
    Ok(())
}

/// Iterates over the operations in a log record. `None` ends it; check [`Operations::is_complete`] then.
pub(crate) struct Operations<'a> {
    reader: Reader<'a>,
}

impl<'a> Operations<'a> {
    /// The operations in the payload of a log record.
    pub(crate) fn of_record(payload: &'a [u8]) -> Operations<'a> {
        Operations { reader: Reader::new(payload) }
    }

    /// True when every byte has been understood; false after `None` means damage.
    pub(crate) fn is_complete(&self) -> bool {
        self.reader.is_empty()
    }

    /// After `None`: the kind of the next operation, if no build so far has written such a kind.
    pub(crate) fn unknown_kind(&self) -> Option<u8> {
        let mut reader = self.reader;
        let kind = reader.u8()?;
        Kind::from_u8(kind).is_none().then_some(kind)
    }

    fn read(&mut self) -> Option<Operation<'a>> {
        let mut reader = self.reader;
        let kind = Kind::from_u8(reader.u8()?)?;
        let key = reader.bytes()?;
        let value = match kind {
            Kind::Put | Kind::RangeDelete => reader.bytes()?,
            Kind::Delete | Kind::DeleteOnce => &[],
            Kind::Merge => return None,
        };
        KeyspaceId::of(key)?;
        self.reader = reader;
        Some(Operation { kind, key, value })
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Operation<'a>;

    fn next(&mut self) -> Option<Operation<'a>> {
        self.read()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn operations_come_back_in_order() {
        let mut batch = RawBatch::default();
        let keyspace = KeyspaceId(9);
        batch.add(Kind::Put, keyspace, b"a", b"1").unwrap();
        batch.add(Kind::Delete, keyspace, b"", b"").unwrap();
        batch.delete_range(keyspace, b"b", None).unwrap();
        batch.delete_range(keyspace, b"c", Some(b"c")).unwrap();
        let mut operations = batch.iter();
        let kinds: Vec<Kind> = operations.by_ref().map(|operation| operation.kind).collect();
        assert_eq!(kinds, [Kind::Put, Kind::Delete, Kind::RangeDelete], "an empty range is no operation");
        assert!(operations.is_complete());
        assert_eq!(batch.iter().next().unwrap().value, b"1");
        assert_eq!(batch.operations(), 3);
    }

    #[test]
    fn a_refused_operation_leaves_the_batch_as_it_was() {
        let mut batch = RawBatch::default();
        let error = batch.add(Kind::Put, KeyspaceId(1), &vec![0; KEY_BYTES_MAX + 1], b"").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::KeyTooLong { len: 65_536, max: 65_535, .. }));
        assert!(batch.is_empty() && batch.bytes().is_empty());
    }

    proptest! {
        #[test]
        fn any_record_is_read_or_refused(payload: Vec<u8>) {
            let mut operations = Operations::of_record(&payload);
            let count = operations.by_ref().count();
            prop_assert!(count <= payload.len());
        }
    }
}
