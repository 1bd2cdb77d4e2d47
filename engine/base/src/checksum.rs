//! Checksums and hashes: xxh3, always seeded by where the bytes belong.
//!
//! A checksum that covers only the bytes cannot tell a block from the same block in the wrong place. Every checksum
//! of a log record or a table block is therefore seeded with identity and position, see [`seed`].

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The seed for bytes at `position` of the thing identified by `identity` (a database, a table, a manifest).
#[must_use]
pub fn seed(identity: u128, position: u64) -> u64 {
    let mut bytes = [0; 24];
    let (id, at) = bytes.split_at_mut(16);
    id.copy_from_slice(&identity.to_le_bytes());
    at.copy_from_slice(&position.to_le_bytes());
    xxh3_64(&bytes)
}

/// xxh3-64 of `bytes` under `seed`.
#[must_use]
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// The hash of a full key. Computed once per read and used by every filter and by the latches.
#[must_use]
pub fn key_hash(full_key: &[u8]) -> u64 {
    xxh3_64(full_key)
}

/// A running xxh3-64 over bytes that arrive in pieces, such as a whole file while it is written.
#[derive(Clone, Default)]
pub struct Hasher(xxhash_rust::xxh3::Xxh3);

impl Hasher {
    /// A hasher that has seen nothing.
    #[must_use]
    pub fn new() -> Hasher {
        Hasher::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of everything added so far; equals [`checksum`] with seed 0 over the joined bytes.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.0.digest()
    }
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hasher({:016x})", self.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_elsewhere_have_another_checksum() {
        assert_ne!(checksum(seed(1, 0), b"block"), checksum(seed(1, 4096), b"block"));
        assert_ne!(checksum(seed(1, 0), b"block"), checksum(seed(2, 0), b"block"));
    }

    #[test]
    fn pieces_hash_like_the_whole() {
        let mut hasher = Hasher::new();
        hasher.update(b"ab");
        hasher.update(b"c");
        assert_eq!(hasher.digest(), checksum(0, b"abc"));
    }
}
