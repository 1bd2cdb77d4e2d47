//! Internal keys: what the tree sorts by.
//!
//! An entry of the tree is (*full key*, *trailer*, *value*):
//!
//! ```text
//! full key = keyspace id (4 bytes, big-endian) ‖ user key (0 to 65,535 bytes)
//! trailer  = seqno (56 bits) ‖ kind (8 bits), as one u64
//! ```
//!
//! Entries sort by full key ascending (bytes, unsigned), then by trailer **descending**, so that the newest version
//! of a key comes first. [`compare`] is that order; everything in the workspace uses it.
//!
//! A *key head* is the eight bytes that follow the prefix shared by the structure that holds the key (leaf, block,
//! fence array, merge input), big-endian and padded with zeros, so that comparing two heads as integers decides most
//! comparisons without touching the keys. Heads that are equal decide nothing (`"a"` and `"a\0"` share a head): fall
//! back to the bytes.

use std::cmp::Ordering;

use crate::limits;

/// Number of bytes that a keyspace id takes at the front of a full key.
pub const KEYSPACE_ID_BYTES: usize = 4;

/// The number of a keyspace. Never reused, even after a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

impl KeyspaceId {
    /// The engine's own keyspace: the catalog of keyspaces, tables and indexes.
    pub const CATALOG: KeyspaceId = KeyspaceId(0);

    /// The id as it stands at the front of a full key.
    #[must_use]
    pub fn to_bytes(self) -> [u8; KEYSPACE_ID_BYTES] {
        self.0.to_be_bytes()
    }

    /// Reads the id at the front of `full_key`; `None` if the key is shorter than an id.
    #[must_use]
    pub fn of(full_key: &[u8]) -> Option<KeyspaceId> {
        full_key.first_chunk::<KEYSPACE_ID_BYTES>().map(|bytes| KeyspaceId(u32::from_be_bytes(*bytes)))
    }

    /// Appends the full key of `user_key` in this keyspace to `out`.
    pub fn write_full_key(self, user_key: &[u8], out: &mut Vec<u8>) {
        out.reserve(KEYSPACE_ID_BYTES + user_key.len());
        out.extend_from_slice(&self.to_bytes());
        out.extend_from_slice(user_key);
    }

    /// The full key of `user_key` in this keyspace.
    #[must_use]
    pub fn full_key(self, user_key: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_full_key(user_key, &mut out);
        out
    }

    /// The smallest full key after every key of this keyspace; `None` for the last id, which has no successor.
    #[must_use]
    pub fn end(self) -> Option<[u8; KEYSPACE_ID_BYTES]> {
        self.0.checked_add(1).map(u32::to_be_bytes)
    }
}

/// The user's part of a full key: what follows the keyspace id (empty if the key is shorter than an id).
#[must_use]
pub fn user_key(full_key: &[u8]) -> &[u8] {
    full_key.get(KEYSPACE_ID_BYTES..).unwrap_or_default()
}

/// What an entry does to its key.
///
/// The numbers are stored on disk and never change. `RangeDelete` entries live in their own block, beside the
/// point entries, and never appear in an [`InternalIterator`](crate::iter::InternalIterator).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Hides every older version of the key.
    Delete = 0,
    /// The key has this value.
    Put = 1,
    /// An operand to be combined with the older value by the keyspace's merge operator.
    Merge = 2,
    /// Hides every older version of every key in `[key, value)`.
    RangeDelete = 3,
    /// A tombstone that vanishes together with the single `Put` that it covers. For index entries. Contract: per
    /// key, `Put` and `DeleteOnce` strictly alternate.
    DeleteOnce = 4,
}

impl Kind {
    /// The kind with the highest number.
    pub const NEWEST: Kind = Kind::DeleteOnce;

    /// Decodes a stored kind; `None` if the number is unknown.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Kind> {
        Some(match byte {
            0 => Kind::Delete,
            1 => Kind::Put,
            2 => Kind::Merge,
            3 => Kind::RangeDelete,
            4 => Kind::DeleteOnce,
            _ => return None,
        })
    }

    /// True for the kinds that hide a single key.
    #[must_use]
    pub fn is_point_tombstone(self) -> bool {
        matches!(self, Kind::Delete | Kind::DeleteOnce)
    }
}

/// The sequence number of a write: the place of an operation in the order of all commits.
pub type Seqno = u64;

/// Sequence number and kind of an entry, packed into one word; greater means newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trailer(pub u64);

impl Trailer {
    /// Sorts before every entry of its key: seek to (key, `Trailer::NEWEST`) to find the newest version.
    pub const NEWEST: Trailer = Trailer(u64::MAX);
    /// Sorts after every entry of its key.
    pub const OLDEST: Trailer = Trailer(0);

    /// Packs a sequence number and a kind.
    ///
    /// # Panics
    /// In debug builds, if `seqno` exceeds [`limits::SEQNO_MAX`]: sequence numbers are handed out by the engine.
    #[must_use]
    pub fn new(seqno: Seqno, kind: Kind) -> Trailer {
        debug_assert!(seqno <= limits::SEQNO_MAX, "sequence number {seqno} exceeds 56 bits");
        Trailer(seqno << 8 | kind as u64)
    }

    /// Where a reader at snapshot `seqno` starts within a key: before every version with a sequence number of at
    /// most `seqno`, after every newer one.
    #[must_use]
    pub fn at_snapshot(seqno: Seqno) -> Trailer {
        Trailer(seqno << 8 | 0xff)
    }

    /// The sequence number.
    #[must_use]
    pub fn seqno(self) -> Seqno {
        self.0 >> 8
    }

    /// The stored number of the kind, which may be unknown if the bytes come from a file.
    #[must_use]
    pub fn kind_byte(self) -> u8 {
        self.0 as u8
    }

    /// The kind; `None` if its number is unknown, which means that the entry is corrupt.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        Kind::from_u8(self.kind_byte())
    }
}

impl std::fmt::Debug for Trailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind() {
            Some(kind) => write!(f, "{}·{kind:?}", self.seqno()),
            None => write!(f, "{}·?{}", self.seqno(), self.kind_byte()),
        }
    }
}

/// The order of the tree: full key ascending, then trailer descending.
#[must_use]
pub fn compare(a_key: &[u8], a_trailer: Trailer, b_key: &[u8], b_trailer: Trailer) -> Ordering {
    a_key.cmp(b_key).then_with(|| b_trailer.cmp(&a_trailer))
}

/// The key head of a key whose shared prefix has been taken off: its first eight bytes, big-endian, zero-padded.
#[must_use]
pub fn head(suffix: &[u8]) -> u64 {
    if let Some(bytes) = suffix.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut padded = [0; 8];
    for (to, from) in padded.iter_mut().zip(suffix) {
        *to = *from;
    }
    u64::from_be_bytes(padded)
}

/// Length of the longest common prefix of two keys.
#[must_use]
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The smallest key greater than every key that starts with `prefix`; `None` if there is none (all bytes 0xff).
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_of_a_key_sorts_first() {
        let key = KeyspaceId(7).full_key(b"k");
        let newer = Trailer::new(9, Kind::Put);
        let older = Trailer::new(8, Kind::Delete);
        assert_eq!(compare(&key, newer, &key, older), Ordering::Less);
        assert_eq!(compare(&key, Trailer::NEWEST, &key, newer), Ordering::Less);
        assert_eq!(compare(&key, Trailer::at_snapshot(8), &key, newer), Ordering::Greater);
        assert_eq!(compare(&key, Trailer::at_snapshot(8), &key, older), Ordering::Less);
    }

    #[test]
    fn heads_order_like_keys_or_tie() {
        let keys: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi", b"b"];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                assert!(head(a) <= head(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn prefix_end_skips_trailing_ff() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
