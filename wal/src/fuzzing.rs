//! Doors to parsers that have no public one, for fuzz targets only (`tests/src/fuzz`). No part of the API.

use alluvium_base::checksum::{checksum, seed};
use alluvium_base::limits::LOG_PAGE_BYTES;

use crate::format::{RECORD_HEADER_BYTES, RecordHeader, RingHeader, SegmentHeader};

/// Length of a record's header, in bytes.
pub const HEADER_BYTES: usize = RECORD_HEADER_BYTES;

/// Gives a header the checksum that it should have.
pub fn seal_header(bytes: &mut [u8], identity: u128, address: u64) {
    if let Some((check, fields)) =
        bytes.get_mut(..RECORD_HEADER_BYTES).and_then(|b| b.split_at_mut_checked(8))
    {
        check.copy_from_slice(&checksum(seed(identity, address), fields).to_le_bytes());
    }
}

/// Reads a record's header and writes it again; `None` if it is none. Also tells the length of the payload and the
/// durable address that it names.
#[must_use]
pub fn header(bytes: &[u8], identity: u128, address: u64) -> Option<([u8; HEADER_BYTES], u32, u64)> {
    let header = RecordHeader::decode(bytes, identity, address)?;
    Some((header.encode(identity, address), header.payload_len, header.durable_address))
}

/// Reads the header page of a segment or (`ring`) of the ring, after its checksum was put right, and writes it again;
/// `None` if it is none.
#[must_use]
pub fn header_page(bytes: &[u8], ring: bool) -> Option<[u8; LOG_PAGE_BYTES]> {
    let mut page = bytes.to_vec();
    page.resize(LOG_PAGE_BYTES, 0);
    let fields = if ring { 72 } else { 64 };
    let (covered, rest) = page.split_at_mut_checked(fields)?;
    rest.get_mut(..8)?.copy_from_slice(&checksum(seed(0, fields as u64), covered).to_le_bytes());
    if ring {
        RingHeader::decode(&page, None).ok().map(|header| header.encode(0))
    } else {
        SegmentHeader::decode(&page, None).ok().map(|header| header.encode())
    }
}
