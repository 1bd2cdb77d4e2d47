//! The footer: the fixed last bytes of a table file, from which everything else is found.
//!
//! ```text
//!  0  identity           u128  random; seeds every checksum of the file
//! 16  properties         handle (offset u64, length u32)
//! 28  top index          handle
//! 40  range tombstones   handle; all zero if there are none
//! 52  reserved           u32, zero
//! 56  checksum           u64  over bytes 0..56, seeded with identity and the footer's offset
//! 64  format version     u32
//! 68  ! format version   u32  all bits inverted, so that damage is not taken for a newer format
//! 72  magic              8 bytes
//! ```
//!
//! Version and magic stay the last 16 bytes in every future version, whatever comes before them.

use std::path::Path;

use alluvium_base::checksum::{checksum, seed};
use alluvium_base::coding::Reader;
use alluvium_base::{Error, ErrorKind, Result};

use crate::frame::BlockHandle;

/// Length of the footer of this format version.
pub(crate) const FOOTER_BYTES: usize = 80;
/// The format version that this build writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"alluvSST";
const CHECKED_BYTES: usize = 56;
const VERSION_AND_MAGIC_BYTES: usize = 16;

/// True if `tail`, the last bytes of a file, is how a table file ends: if not, it most likely never was one.
#[must_use]
pub fn ends_like_a_table(tail: &[u8]) -> bool {
    tail.ends_with(&MAGIC)
}

/// What a footer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) identity: u128,
    pub(crate) properties: BlockHandle,
    pub(crate) top_index: BlockHandle,
    /// Length 0 if there are none.
    pub(crate) range_tombstones: BlockHandle,
}

impl Footer {
    /// The footer as it stands at `offset` of the file.
    pub(crate) fn encode(&self, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.identity.to_le_bytes());
        for handle in [self.properties, self.top_index, self.range_tombstones] {
            out.extend_from_slice(&handle.to_bytes());
        }
        out.extend_from_slice(&0u32.to_le_bytes());
        let sum = checksum(seed(self.identity, offset), &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&(!FORMAT_VERSION).to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out
    }

    /// Reads the footer at the end of `tail`, which are the last bytes of a file of `file_bytes`.
    pub(crate) fn decode(path: &Path, tail: &[u8], file_bytes: u64) -> Result<Footer> {
        let corrupt = |offset, detail: &str| Err(Error::corrupt(path, offset, detail));
        let last = file_bytes.saturating_sub(VERSION_AND_MAGIC_BYTES as u64);
        let Some((_, end)) = tail.split_last_chunk::<VERSION_AND_MAGIC_BYTES>() else {
            return corrupt(0, "the file is too short for a table");
        };
        let mut reader = Reader::new(end);
        let (Some(version), Some(inverted)) = (reader.u32(), reader.u32()) else {
            return corrupt(last, "the footer is cut off");
        };
        if reader.rest() != MAGIC {
            return corrupt(last, "the file does not end like a table (no footer magic)");
        }
        if version != !inverted {
            return corrupt(last, "the format version is damaged");
        }
        if version != FORMAT_VERSION {
            let file = path.to_owned();
            return Err(
                ErrorKind::UnsupportedFormat { file, found: version, supported: FORMAT_VERSION }.into()
            );
        }
        let offset = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let Some((_, footer)) = tail.split_last_chunk::<FOOTER_BYTES>() else {
            return corrupt(0, "the file is too short for a table");
        };
        match Footer::decode_checked(footer, offset) {
            Some(footer) => Ok(footer),
            None => corrupt(offset, "footer checksum differs"),
        }
    }

    fn decode_checked(footer: &[u8; FOOTER_BYTES], offset: u64) -> Option<Footer> {
        let mut reader = Reader::new(footer);
        let checked = Reader::new(footer).take(CHECKED_BYTES)?;
        let identity = reader.u128()?;
        let properties = BlockHandle::read(&mut reader)?;
        let top_index = BlockHandle::read(&mut reader)?;
        let range_tombstones = BlockHandle::read(&mut reader)?;
        let reserved = reader.u32()?;
        let sound = reader.u64()? == checksum(seed(identity, offset), checked) && reserved == 0;
        sound.then_some(Footer { identity, properties, top_index, range_tombstones })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOOTER: Footer = Footer {
        identity: 0x1234_5678_9abc,
        properties: BlockHandle { offset: 900, len: 50 },
        top_index: BlockHandle { offset: 800, len: 91 },
        range_tombstones: BlockHandle { offset: 0, len: 0 },
    };

    #[test]
    fn footer_round_trips_and_every_damaged_byte_is_found() {
        let good = FOOTER.encode(1000);
        assert_eq!(good.len(), FOOTER_BYTES);
        let path = Path::new("7.sst");
        assert_eq!(Footer::decode(path, &good, 1080).unwrap(), FOOTER);
        assert!(Footer::decode(path, &good, 1081).is_err(), "elsewhere in the file");
        for at in 0..FOOTER_BYTES {
            let mut damaged = good.clone();
            damaged[at] ^= 0x10;
            let error = Footer::decode(path, &damaged, 1080).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "byte {at}: {error}");
        }
        for len in 0..FOOTER_BYTES {
            assert!(Footer::decode(path, &good[FOOTER_BYTES - len..], 1080).is_err());
        }
    }

    #[test]
    fn newer_version_is_refused_by_name() {
        let mut newer = FOOTER.encode(1000);
        newer[64..68].copy_from_slice(&9u32.to_le_bytes());
        newer[68..72].copy_from_slice(&(!9u32).to_le_bytes());
        let error = Footer::decode(Path::new("7.sst"), &newer, 1080).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::UnsupportedFormat { found: 9, supported: 1, .. }),
            "{error}"
        );
    }
}
