//! What a keyspace may choose about how its blocks are stored.

use alluvium_base::key::KeyspaceId;

/// How a block's bytes are compressed. The numbers are stored on disk and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    None = 0,
    /// LZ4 block format: fast both ways, the default.
    Lz4 = 1,
    /// Zstandard, level 1: smaller, about four times slower than LZ4.
    Zstd = 2,
}

impl Compression {
    /// Decodes a stored number; `None` if it is unknown.
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Compression> {
        Some(match byte {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            _ => return None,
        })
    }
}

/// How the blocks and filters of one keyspace are written. Reading needs none of this: a table says how it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceSettings {
    /// How data blocks are compressed. A block that would not shrink by an eighth is stored as it is.
    pub compression: Compression,
    /// Size, in bytes before compression, that a data block is filled to. An entry that is larger gets a block of
    /// its own.
    pub block_bytes: u32,
    /// Bits of the filters per key (and per distinct prefix); 0 means no filter. 10 bits give about 1 % of false
    /// positives.
    pub filter_bits_per_key: u8,
    /// Also keep a filter over the first so many bytes of the user keys, for scans that stay within such a prefix.
    pub prefix_bytes: Option<u16>,
}

impl Default for KeyspaceSettings {
    /// LZ4, 4 KiB blocks, 10 bits per key, no prefix filter. 4 KiB blocks beat 16 KiB blocks in cached point reads
    /// (brief, performance).
    fn default() -> KeyspaceSettings {
        KeyspaceSettings {
            compression: Compression::Lz4,
            block_bytes: 4096,
            filter_bits_per_key: 10,
            prefix_bytes: None,
        }
    }
}

/// Where a writer learns the settings of the keyspaces that it meets. Asked once per keyspace and table.
pub trait SettingsSource: Send + Sync {
    /// The settings of `keyspace`.
    fn settings(&self, keyspace: KeyspaceId) -> KeyspaceSettings;
}

/// The same settings for every keyspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed(pub KeyspaceSettings);

impl SettingsSource for Fixed {
    fn settings(&self, _keyspace: KeyspaceId) -> KeyspaceSettings {
        self.0
    }
}
