//! Compression of block bodies: contexts are kept, sizes are bounded before anything is allocated.
//!
//! A compressed body is `raw length (u32) ‖ compressed bytes`. The raw length comes from a file, so it is believed
//! only up to [`limits::BLOCK_BYTES_MAX`] and only up to what the method can expand to.

use std::cell::RefCell;
use std::io;

use alluvium_base::limits;
use alluvium_base::memory::Buffer;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use crate::settings::Compression;

/// Compression must save at least one byte in this many, or the block is stored as it is: reading it back costs time.
const MIN_SAVING: usize = 8;
/// Zstandard level; 1 is the fastest of the regular ones (0.45 GB/s here).
const ZSTD_LEVEL: i32 = 1;
/// LZ4 encodes at most 255 bytes of a match per byte.
const LZ4_RATIO_MAX: usize = 256;
/// Zstandard stores a run of 128 KiB in a block of four bytes.
const ZSTD_RATIO_MAX: usize = 1 << 15;
/// The 16-bit hash table of lz4_flex serves inputs below this size.
const LZ4_SMALL_BYTES: usize = u16::MAX as usize;
/// Length of the raw length in front of compressed bytes.
const RAW_LENGTH_BYTES: usize = 4;

/// Compresses bodies one after another, reusing contexts and buffer.
pub(crate) struct Compressor {
    lz4_small: CompressTable,
    /// Made when the first large body comes.
    lz4_large: Option<CompressTable>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// Raw length and compressed bytes of the last body.
    body: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new() -> Compressor {
        Compressor { lz4_small: CompressTable::small(), lz4_large: None, zstd: None, body: Vec::new() }
    }

    /// The compressed body of `raw`, or `None` if `raw` is to be stored as it is. The caller may append to the body.
    pub(crate) fn compress(&mut self, raw: &[u8], with: Compression) -> Option<&mut Vec<u8>> {
        if with == Compression::None {
            return None;
        }
        let raw_len = u32::try_from(raw.len()).ok()?;
        // A body that does not shrink enough need not fit: running out of room is the answer "store it as it is".
        let room = match with {
            Compression::Lz4 => get_maximum_output_size(raw.len()),
            _ => zstd::zstd_safe::compress_bound(raw.len()),
        };
        self.body.resize(RAW_LENGTH_BYTES + room, 0);
        let (length, target) = self.body.split_at_mut(RAW_LENGTH_BYTES);
        length.copy_from_slice(&raw_len.to_le_bytes());
        let written = match with {
            Compression::Lz4 if raw.len() < LZ4_SMALL_BYTES => {
                compress_into_with_table(raw, target, &mut self.lz4_small).ok()?
            }
            Compression::Lz4 => {
                let table = self.lz4_large.get_or_insert_with(CompressTable::large);
                compress_into_with_table(raw, target, table).ok()?
            }
            _ => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                self.zstd.as_mut()?.compress_to_buffer(raw, target).ok()?
            }
        };
        self.body.truncate(RAW_LENGTH_BYTES + written);
        if self.body.len() + raw.len() / MIN_SAVING > raw.len() || !plausible(raw.len(), written, with) {
            return None;
        }
        Some(&mut self.body)
    }

    /// Frees room beyond `bytes` that an unusually large body left behind.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if self.body.capacity() > bytes {
            self.body.clear();
            self.body.shrink_to(bytes);
        }
    }
}

fn plausible(raw_len: usize, compressed_len: usize, with: Compression) -> bool {
    let ratio_max = if with == Compression::Lz4 { LZ4_RATIO_MAX } else { ZSTD_RATIO_MAX };
    raw_len <= limits::BLOCK_BYTES_MAX && raw_len / ratio_max <= compressed_len
}

thread_local! {
    /// A Zstandard decompression context takes 150 KiB and some time to make; one per thread is enough.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Decompresses a body; the error says what does not fit.
pub(crate) fn decompress(body: &[u8], with: Compression) -> Result<Buffer, &'static str> {
    let (length, compressed) =
        body.split_first_chunk::<RAW_LENGTH_BYTES>().ok_or("a compressed block is too short")?;
    let raw_len = u32::from_le_bytes(*length) as usize;
    if !plausible(raw_len, compressed.len(), with) {
        return Err("a compressed block claims an impossible length");
    }
    let mut raw = Buffer::new(raw_len);
    let got = match with {
        Compression::None => return Err("a block is not compressed"),
        Compression::Lz4 => {
            decompress_into(compressed, &mut raw).map_err(|_| "lz4 cannot decompress a block")?
        }
        Compression::Zstd => {
            decompress_zstd(compressed, &mut raw).map_err(|_| "zstd cannot decompress a block")?
        }
    };
    if got != raw_len {
        return Err("a compressed block has another length than it says");
    }
    Ok(raw)
}

fn decompress_zstd(compressed: &[u8], raw: &mut [u8]) -> io::Result<usize> {
    ZSTD.with(|context| {
        let mut context = context.borrow_mut();
        let decompressor = match &mut *context {
            Some(decompressor) => decompressor,
            empty => empty.insert(zstd::bulk::Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(compressed, raw)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(raw: &[u8], with: Compression) -> Option<usize> {
        let mut compressor = Compressor::new();
        let body = compressor.compress(raw, with)?.clone();
        assert_eq!(*decompress(&body, with).unwrap(), *raw);
        Some(body.len())
    }

    #[test]
    fn shrinking_bodies_round_trip_and_others_are_left_alone() {
        let zeros = vec![0; 1 << 20];
        let mut noise = vec![0; 5000];
        alluvium_base::random::Random::new(1).fill(&mut noise);
        for with in [Compression::Lz4, Compression::Zstd] {
            assert!(round_trip(&zeros, with).unwrap() < 8192);
            assert!(round_trip(&zeros[..4096], with).is_some());
            assert_eq!(round_trip(&noise, with), None);
            assert_eq!(round_trip(b"", with), None);
        }
        assert_eq!(round_trip(&zeros, Compression::None), None);
    }

    #[test]
    fn an_impossible_length_is_refused_before_allocating() {
        for with in [Compression::Lz4, Compression::Zstd] {
            for len in [u32::MAX, 300 << 20] {
                let mut body = len.to_le_bytes().to_vec();
                body.extend_from_slice(&[0; 16]);
                assert!(decompress(&body, with).is_err());
            }
            assert!(decompress(&[1, 0, 0], with).is_err());
            assert!(decompress(&[1, 0, 0, 0], with).is_err());
        }
    }
}
