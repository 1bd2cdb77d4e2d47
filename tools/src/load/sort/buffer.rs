//! A buffer of entries, and the sorted run in memory that it becomes.
//!
//! Keys and values stand one behind the other in one block of bytes; entries are 32-byte records that point there.
//! Sorting moves only the records; the sorted run then gets the bytes in its own order. Each record has a *head*, the
//! eight key bytes behind the prefix that all keys of the buffer share, so that most comparisons are one comparison of
//! integers. The heads are computed when the buffer is sealed, since only then the shared prefix is known: without
//! taking it off, the heads of the keys of one year of timestamps would nearly all be equal.

use alluvium_base::key;

use crate::load::place::Place;

/// Bytes that an entry costs besides its key and value.
pub const ENTRY_BYTES: usize = size_of::<Entry>();

/// Most key and value bytes in one buffer: entries hold 32-bit offsets.
pub const BUFFER_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug)]
struct Entry {
    head: u64,
    place: Place,
    offset: u32,
    value_len: u32,
    /// 65,535 is the engine's own limit of a key.
    key_len: u16,
}

/// Unsorted entries of one target, filled by one worker.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    capacity: usize,
}

impl Buffer {
    /// An empty buffer that takes about `capacity` bytes, the records of the entries included.
    ///
    /// The full size is reserved at once; the system hands out the pages as they are filled, so a buffer never moves
    /// and costs what it holds.
    #[must_use]
    pub fn new(capacity: usize) -> Buffer {
        let capacity = capacity.min(BUFFER_BYTES_MAX);
        Buffer {
            bytes: Vec::with_capacity(capacity),
            entries: Vec::with_capacity(capacity / ENTRY_BYTES),
            capacity,
        }
    }

    /// True if an entry of this size fits. An empty buffer takes any entry, however large: it then holds only that.
    #[must_use]
    pub fn has_room(&self, key_len: usize, value_len: usize) -> bool {
        self.entries.is_empty() || self.used_bytes() + key_len + value_len + ENTRY_BYTES <= self.capacity
    }

    /// Appends an entry. The caller asks [`has_room`](Buffer::has_room) first.
    ///
    /// # Panics
    /// If the key is longer than 65,535 bytes or the value than 4 GiB; the row encoder refuses both.
    pub fn push(&mut self, key: &[u8], value: &[u8], place: Place) {
        assert!(
            key.len() <= usize::from(u16::MAX) && value.len() <= u32::MAX as usize,
            "entry exceeds engine limits"
        );
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(Entry {
            head: 0,
            place,
            offset,
            value_len: value.len() as u32,
            key_len: key.len() as u16,
        });
    }

    /// Bytes in use, the records of the entries included.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * ENTRY_BYTES
    }

    /// True if nothing has been pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sorts the entries by key, equal keys by place, and takes them out. The buffer can be filled again.
    #[must_use]
    pub fn seal(&mut self) -> MemoryRun {
        let Buffer { bytes, entries, capacity } = self;
        let prefix = shared_prefix_len(bytes, entries);
        for entry in entries.iter_mut() {
            entry.head = key::head(&key_of(bytes, entry)[prefix..]);
        }
        entries.sort_unstable_by(|a, b| {
            a.head
                .cmp(&b.head)
                .then_with(|| key_of(bytes, a).cmp(key_of(bytes, b)))
                .then_with(|| a.place.cmp(&b.place))
        });
        let run = in_order(bytes, entries);
        bytes.clear();
        // After an entry larger than the buffer.
        bytes.shrink_to(*capacity);
        entries.clear();
        run
    }
}

/// Lays keys and values out in the order of the entries. One buffer fits the processor's cache, all runs together do
/// not: jumping about here, once, is cheaper than in every merge (a sixth of the processor time of loading the
/// flights).
fn in_order(bytes: &[u8], entries: &[Entry]) -> MemoryRun {
    let mut ordered = Vec::with_capacity(bytes.len());
    let mut entries = entries.to_vec();
    for entry in &mut entries {
        let start = entry.offset as usize;
        entry.offset = ordered.len() as u32;
        ordered
            .extend_from_slice(&bytes[start..start + usize::from(entry.key_len) + entry.value_len as usize]);
    }
    MemoryRun { bytes: ordered, entries }
}

fn key_of<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    let start = entry.offset as usize;
    &bytes[start..start + usize::from(entry.key_len)]
}

fn shared_prefix_len(bytes: &[u8], entries: &[Entry]) -> usize {
    let Some((first, rest)) = entries.split_first() else { return 0 };
    let mut prefix = key_of(bytes, first);
    for entry in rest {
        let key = key_of(bytes, entry);
        if !key.starts_with(prefix) {
            prefix = &prefix[..key::common_prefix_len(prefix, key)];
        }
    }
    prefix.len()
}

/// Sorted entries in memory.
#[derive(Debug)]
pub struct MemoryRun {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl MemoryRun {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the run has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes in use, the records of the entries included.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * ENTRY_BYTES
    }

    /// Key, value and place of entry `index`; `None` behind the last.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8], Place)> {
        let entry = self.entries.get(index)?;
        let value_start = entry.offset as usize + usize::from(entry.key_len);
        let value = &self.bytes[value_start..value_start + entry.value_len as usize];
        Some((key_of(&self.bytes, entry), value, entry.place))
    }

    /// The least and the greatest key; `None` if there are no entries.
    #[must_use]
    pub fn key_range(&self) -> Option<(&[u8], &[u8])> {
        let (first, last) = (self.entries.first()?, self.entries.last()?);
        Some((key_of(&self.bytes, first), key_of(&self.bytes, last)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sealing_sorts_by_key_then_place(keys in prop::collection::vec("[ab]{0,10}", 0..60)) {
            let mut buffer = Buffer::new(1 << 20);
            let mut expected = Vec::new();
            for (line, key) in keys.iter().enumerate() {
                let key = format!("shared/{key}").into_bytes();
                let place = Place::new(0, (keys.len() - line) as u64);
                buffer.push(&key, &place.line().to_le_bytes(), place);
                expected.push((key, place));
            }
            expected.sort();
            let run = buffer.seal();
            let got: Vec<_> = (0..run.len())
                .map(|at| run.get(at).unwrap())
                .inspect(|(_, value, place)| assert_eq!(*value, place.line().to_le_bytes()))
                .map(|(key, _, place)| (key.to_vec(), place))
                .collect();
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_buffer_is_full_at_its_capacity_but_takes_one_entry_of_any_size() {
        let mut buffer = Buffer::new(1000);
        assert!(buffer.has_room(10, 1 << 20));
        let mut pushed = 0;
        while buffer.has_room(10, 58) {
            buffer.push(&[0; 10], &[0; 58], Place::new(0, pushed));
            pushed += 1;
        }
        assert_eq!(pushed, 10);
        assert_eq!(buffer.used_bytes(), 1000);
    }
}
