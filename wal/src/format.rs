//! The bytes of records and of the header pages, as `design/formats/log.md` draws them.
//!
//! Everything here is a pure function of bytes. A checksum is seeded with the *identity* of its stream (database id
//! and incarnation) and with the address of the record, so that bytes which were written elsewhere, or by another
//! incarnation, never validate: a recycled segment needs no wiping, and reading can resume behind damage by trying
//! every eighth byte.
//!
//! A record's header checks itself, payload hash included. So a search through bytes that users control costs the
//! same for every position, whatever lengths those bytes pretend to; and a header that holds over a payload that
//! does not is known to be a torn record, not noise.

use alluvium_base::checksum::{checksum, seed};
use alluvium_base::coding::Reader;
use alluvium_base::key::Seqno;
use alluvium_base::limits::{LOG_PAGE_BYTES, LOG_RECORD_BYTES_MAX, SEQNO_MAX};

/// [`LOG_PAGE_BYTES`] as an address difference.
pub(crate) const PAGE_BYTES: u64 = LOG_PAGE_BYTES as u64;

/// No address lies above: so sums of addresses and file offsets cannot overflow. At 4 GB/s it lasts for 73 years.
pub(crate) const ADDRESS_MAX: u64 = 1 << 63;

/// Size of a record's header, in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;

/// Where in a header the kind stands.
pub(crate) const RECORD_KIND_OFFSET: usize = 16;

/// Records start at multiples of this many bytes.
pub(crate) const RECORD_ALIGNMENT_BYTES: u64 = 8;

/// The newest format version of segments and rings, which this build writes.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Offset in the ring's header page of the word that holds the drained address.
pub(crate) const RING_DRAINED_OFFSET: usize = 512;

/// Offset in the ring's header page of the word that holds the end of the last complete record. Far from the drained
/// word, since another thread writes it.
pub(crate) const RING_END_OFFSET: usize = 1024;

const SEGMENT_MAGIC: &[u8; 8] = b"ALVMSEGM";
const RING_MAGIC: &[u8; 8] = b"ALVMRING";

/// Bytes that a record takes in the log, header and padding included.
pub(crate) fn record_bytes(payload_len: usize) -> u64 {
    (RECORD_HEADER_BYTES as u64 + payload_len as u64).next_multiple_of(RECORD_ALIGNMENT_BYTES)
}

/// The start of the page that holds `address`.
pub(crate) fn page_floor(address: u64) -> u64 {
    address & !(PAGE_BYTES - 1)
}

/// The start of the first page at or after `address`.
pub(crate) fn page_ceil(address: u64) -> u64 {
    address.checked_next_multiple_of(PAGE_BYTES).unwrap_or(ADDRESS_MAX)
}

/// What seeds the checksums of one incarnation's records.
pub(crate) fn stream_identity(database_id: u128, incarnation: u64) -> u128 {
    u128::from(seed(database_id, incarnation)) << 64 | u128::from(seed(!database_id, incarnation))
}

/// The hash of a payload, computed before the append lock is taken.
pub(crate) fn payload_hash(payload: &[u8]) -> u64 {
    checksum(0, payload)
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A payload of the engine.
    Data = 1,
    /// The last record of a log that was closed; everything below it was durable.
    Close = 2,
}

impl RecordKind {
    /// The kind with the highest number.
    pub(crate) const NEWEST: RecordKind = RecordKind::Close;

    fn from_u8(byte: u8) -> Option<RecordKind> {
        match byte {
            1 => Some(RecordKind::Data),
            2 => Some(RecordKind::Close),
            _ => None,
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) seqno: Seqno,
    pub(crate) payload_len: u32,
    pub(crate) payload_hash: u64,
    /// Everything below this address was durable when the record was written.
    pub(crate) durable_address: u64,
}

impl RecordHeader {
    /// The header as it stands at `address`.
    pub(crate) fn encode(&self, identity: u128, address: u64) -> [u8; RECORD_HEADER_BYTES] {
        let lag = address.saturating_sub(self.durable_address) / RECORD_ALIGNMENT_BYTES;
        let lag = u32::try_from(lag).unwrap_or(u32::MAX);
        let kind_and_seqno = self.seqno << 8 | self.kind as u64;
        let length_and_lag = u64::from(self.payload_len) | u64::from(lag) << 32;
        let fields = [self.payload_hash, kind_and_seqno, length_and_lag].map(u64::to_le_bytes);
        let check = checksum(seed(identity, address), fields.as_flattened());
        let mut bytes = [0; RECORD_HEADER_BYTES];
        let (first, rest) = bytes.split_at_mut(8);
        first.copy_from_slice(&check.to_le_bytes());
        rest.copy_from_slice(fields.as_flattened());
        bytes
    }

    /// Reads a header at the start of `bytes`; `None` if no record of this stream starts at `address`.
    pub(crate) fn decode(bytes: &[u8], identity: u128, address: u64) -> Option<RecordHeader> {
        let kind = RecordKind::from_u8(*bytes.get(RECORD_KIND_OFFSET)?)?;
        let mut reader = Reader::new(bytes);
        let (stored, fields) = (reader.u64()?, reader.take(RECORD_HEADER_BYTES - 8)?);
        let mut reader = Reader::new(fields);
        let (payload_hash, kind_and_seqno) = (reader.u64()?, reader.u64()?);
        let (payload_len, lag) = (reader.u32()?, reader.u32()?);
        if payload_len as usize > LOG_RECORD_BYTES_MAX || checksum(seed(identity, address), fields) != stored
        {
            return None;
        }
        let durable_address = match lag {
            u32::MAX => 0,
            lag => address.checked_sub(u64::from(lag) * RECORD_ALIGNMENT_BYTES)?,
        };
        let seqno = kind_and_seqno >> 8;
        Some(RecordHeader { kind, seqno, payload_len, payload_hash, durable_address })
    }

    /// The kind of a record at the start of `bytes` whose header holds, but whose kind this build does not know.
    pub(crate) fn unknown_kind(bytes: &[u8], identity: u128, address: u64) -> Option<u8> {
        let kind = *bytes.get(RECORD_KIND_OFFSET)?;
        let mut reader = Reader::new(bytes);
        let (stored, fields) = (reader.u64()?, reader.take(RECORD_HEADER_BYTES - 8)?);
        let is_unknown = RecordKind::from_u8(kind).is_none();
        (is_unknown && checksum(seed(identity, address), fields) == stored).then_some(kind)
    }

    /// Bytes that the record takes in the log.
    pub(crate) fn record_bytes(&self) -> u64 {
        record_bytes(self.payload_len as usize)
    }
}

/// True if [`RecordHeader::decode`] could accept `bytes`: a filter that costs one comparison per position.
pub(crate) fn may_be_header(bytes: &[u8]) -> bool {
    bytes.get(RECORD_KIND_OFFSET).is_some_and(|&kind| may_be_kind(kind))
}

/// True for the bytes that name a kind of record.
pub(crate) fn may_be_kind(byte: u8) -> bool {
    RecordKind::from_u8(byte).is_some()
}

/// Checks that a sequence number fits a header.
pub(crate) fn seqno_fits(seqno: Seqno) -> bool {
    seqno <= SEQNO_MAX
}

/// Why a header page was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderProblem {
    /// The bytes are not a header that was ever written.
    Damaged(&'static str),
    /// A sound header of a newer format.
    Newer(u32),
    /// A sound header of another database.
    Foreign,
}

/// The header page of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) database_id: u128,
    pub(crate) incarnation: u64,
    /// Where the incarnation began: below it, addresses are another one's or nobody's.
    pub(crate) incarnation_start: u64,
    /// Address of the first byte behind the header page.
    pub(crate) base: u64,
    /// Number of addresses that the segment holds.
    pub(crate) segment_bytes: u64,
    /// True if a mapped ring holds what has not been drained into segments yet.
    pub(crate) has_ring: bool,
}

/// Flag of a segment header: the incarnation has a mapped ring.
const FLAG_RING: u32 = 1;

/// Bytes of a segment header that its checksum covers.
const SEGMENT_FIELDS_BYTES: usize = 64;

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; LOG_PAGE_BYTES] {
        let mut fields = Vec::with_capacity(SEGMENT_FIELDS_BYTES);
        let flags = if self.has_ring { FLAG_RING } else { 0 };
        fields.extend_from_slice(SEGMENT_MAGIC);
        fields.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        fields.extend_from_slice(&flags.to_le_bytes());
        fields.extend_from_slice(&self.database_id.to_le_bytes());
        fields.extend_from_slice(&self.incarnation.to_le_bytes());
        fields.extend_from_slice(&self.incarnation_start.to_le_bytes());
        fields.extend_from_slice(&self.base.to_le_bytes());
        fields.extend_from_slice(&self.segment_bytes.to_le_bytes());
        seal_page(fields)
    }

    /// Reads the header at the start of a file. With a `database_id`, refuses the file of another database.
    pub(crate) fn decode(page: &[u8], database_id: Option<u128>) -> Result<SegmentHeader, HeaderProblem> {
        let (mut reader, flags) = unseal_page(page, SEGMENT_MAGIC, SEGMENT_FIELDS_BYTES)?;
        let mut fields = || {
            Some(SegmentHeader {
                database_id: reader.u128()?,
                incarnation: reader.u64()?,
                incarnation_start: reader.u64()?,
                base: reader.u64()?,
                segment_bytes: reader.u64()?,
                has_ring: flags & FLAG_RING != 0,
            })
        };
        let header = fields().ok_or(HeaderProblem::Damaged("the header page is cut off"))?;
        if database_id.is_some_and(|expected| expected != header.database_id) {
            return Err(HeaderProblem::Foreign);
        }
        let pages_only =
            header.base.is_multiple_of(PAGE_BYTES) && header.segment_bytes.is_multiple_of(PAGE_BYTES);
        if !pages_only || header.segment_bytes == 0 || header.base.checked_add(header.segment_bytes).is_none()
        {
            return Err(HeaderProblem::Damaged("base or size is impossible"));
        }
        Ok(header)
    }
}

/// The header page of the ring, without its two words that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingHeader {
    pub(crate) database_id: u128,
    pub(crate) incarnation: u64,
    pub(crate) boot_id: u128,
    /// Number of bytes behind the header page.
    pub(crate) ring_bytes: u64,
    /// Size of the segments that the ring drains into.
    pub(crate) segment_bytes: u64,
}

/// Bytes of a ring header that its checksum covers.
const RING_FIELDS_BYTES: usize = 72;

impl RingHeader {
    /// The page of a ring that holds nothing yet: both words say `start`.
    pub(crate) fn encode(&self, start: u64) -> [u8; LOG_PAGE_BYTES] {
        let mut fields = Vec::with_capacity(RING_FIELDS_BYTES);
        fields.extend_from_slice(RING_MAGIC);
        fields.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        fields.extend_from_slice(&0u32.to_le_bytes());
        fields.extend_from_slice(&self.database_id.to_le_bytes());
        fields.extend_from_slice(&self.incarnation.to_le_bytes());
        fields.extend_from_slice(&self.boot_id.to_le_bytes());
        fields.extend_from_slice(&self.ring_bytes.to_le_bytes());
        fields.extend_from_slice(&self.segment_bytes.to_le_bytes());
        let mut page = seal_page(fields);
        for offset in [RING_DRAINED_OFFSET, RING_END_OFFSET] {
            for (to, from) in page.iter_mut().skip(offset).zip(start.to_le_bytes()) {
                *to = from;
            }
        }
        page
    }

    /// Reads the header at the start of the ring file. With a `database_id`, refuses the ring of another database.
    pub(crate) fn decode(page: &[u8], database_id: Option<u128>) -> Result<RingHeader, HeaderProblem> {
        let (mut reader, _) = unseal_page(page, RING_MAGIC, RING_FIELDS_BYTES)?;
        let mut fields = || {
            Some(RingHeader {
                database_id: reader.u128()?,
                incarnation: reader.u64()?,
                boot_id: reader.u128()?,
                ring_bytes: reader.u64()?,
                segment_bytes: reader.u64()?,
            })
        };
        let header = fields().ok_or(HeaderProblem::Damaged("the header page is cut off"))?;
        if database_id.is_some_and(|expected| expected != header.database_id) {
            return Err(HeaderProblem::Foreign);
        }
        let pages_only =
            header.ring_bytes.is_multiple_of(PAGE_BYTES) && header.segment_bytes.is_multiple_of(PAGE_BYTES);
        if !pages_only || header.ring_bytes == 0 || header.ring_bytes.max(header.segment_bytes) > ADDRESS_MAX
        {
            return Err(HeaderProblem::Damaged("the size is impossible"));
        }
        Ok(header)
    }
}

/// The aligned word at `offset` of the ring's header page; 0 if the page is shorter.
pub(crate) fn ring_word(page: &[u8], offset: usize) -> u64 {
    page.get(offset..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
}

/// A page that starts with `fields` and their checksum.
fn seal_page(fields: Vec<u8>) -> [u8; LOG_PAGE_BYTES] {
    let check = checksum(seed(0, fields.len() as u64), &fields);
    let mut page = [0; LOG_PAGE_BYTES];
    for (to, from) in page.iter_mut().zip(fields.into_iter().chain(check.to_le_bytes())) {
        *to = from;
    }
    page
}

/// Checks magic, checksum and version; the reader stands at the database id.
fn unseal_page<'a>(
    page: &'a [u8],
    magic: &[u8; 8],
    fields: usize,
) -> Result<(Reader<'a>, u32), HeaderProblem> {
    let cut_off = || HeaderProblem::Damaged("the header page is cut off");
    let covered = page.get(..fields).ok_or_else(cut_off)?;
    let stored = page.get(fields..).and_then(<[u8]>::first_chunk).ok_or_else(cut_off)?;
    let mut reader = Reader::new(covered);
    if reader.take(8) != Some(magic.as_slice()) {
        return Err(HeaderProblem::Damaged("the magic number is missing"));
    }
    if checksum(seed(0, fields as u64), covered) != u64::from_le_bytes(*stored) {
        return Err(HeaderProblem::Damaged("the header's checksum differs"));
    }
    let version = reader.u32().ok_or_else(cut_off)?;
    if version > FORMAT_VERSION {
        return Err(HeaderProblem::Newer(version));
    }
    let flags = reader.u32().ok_or_else(cut_off)?;
    Ok((reader, flags))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn record_header_round_trips(
            seqno in 0..=SEQNO_MAX, len in 0..=LOG_RECORD_BYTES_MAX as u32, payload_hash: u64,
            words in 0u64..1 << 40, lag in 0u64..1 << 31, close: bool,
        ) {
            let address = words * 8;
            let durable_address = address.saturating_sub(lag * 8);
            let kind = if close { RecordKind::Close } else { RecordKind::Data };
            let header = RecordHeader { kind, seqno, payload_len: len, payload_hash, durable_address };
            let bytes = header.encode(7, address);
            prop_assert_eq!(RecordHeader::decode(&bytes, 7, address), Some(header));
            prop_assert!(may_be_header(&bytes));
            prop_assert_eq!(RecordHeader::decode(&bytes, 7, address + 8), None);
            prop_assert_eq!(RecordHeader::decode(&bytes, 8, address), None);
        }

        #[test]
        fn no_flipped_bit_of_a_header_goes_unseen(bit in 0usize..RECORD_HEADER_BYTES * 8, seqno in 0..=SEQNO_MAX) {
            let header = RecordHeader {
                kind: RecordKind::Data, seqno, payload_len: 100, payload_hash: 3, durable_address: 4096,
            };
            let mut bytes = header.encode(1, 8192);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(RecordHeader::decode(&bytes, 1, 8192), None);
        }

        #[test]
        fn page_headers_survive_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(SegmentHeader::decode(&bytes, None).is_err());
            prop_assert!(RingHeader::decode(&bytes, None).is_err());
        }
    }

    #[test]
    fn an_unknown_kind_is_told_from_damage() {
        let header = RecordHeader {
            kind: RecordKind::Data,
            seqno: 1,
            payload_len: 0,
            payload_hash: 0,
            durable_address: 0,
        };
        let mut bytes = header.encode(1, 8192);
        assert_eq!(RecordHeader::unknown_kind(&bytes, 1, 8192), None, "a known kind");
        bytes[RECORD_KIND_OFFSET] = 9;
        assert_eq!(RecordHeader::unknown_kind(&bytes, 1, 8192), None, "damage");
        let check = checksum(seed(1, 8192), &bytes[8..]);
        bytes[..8].copy_from_slice(&check.to_le_bytes());
        assert_eq!(RecordHeader::unknown_kind(&bytes, 1, 8192), Some(9));
        assert_eq!(RecordHeader::decode(&bytes, 1, 8192), None);
    }

    #[test]
    fn a_lag_that_does_not_fit_claims_nothing() {
        let header = RecordHeader {
            kind: RecordKind::Data,
            seqno: 1,
            payload_len: 0,
            payload_hash: 0,
            durable_address: 8,
        };
        let address = 1 << 50;
        let decoded = RecordHeader::decode(&header.encode(1, address), 1, address).unwrap();
        assert_eq!(decoded.durable_address, 0);
    }

    #[test]
    fn segment_header_names_what_is_wrong() {
        let header = SegmentHeader {
            database_id: 5,
            incarnation: 2,
            incarnation_start: 4096,
            base: 8192,
            segment_bytes: 65536,
            has_ring: true,
        };
        let page = header.encode();
        assert_eq!(SegmentHeader::decode(&page, Some(5)), Ok(header));
        assert_eq!(SegmentHeader::decode(&page, Some(6)), Err(HeaderProblem::Foreign));
        for byte in 0..SEGMENT_FIELDS_BYTES + 8 {
            let mut damaged = page;
            damaged[byte] ^= 4;
            assert!(
                matches!(SegmentHeader::decode(&damaged, None), Err(HeaderProblem::Damaged(_))),
                "{byte}"
            );
        }
        let mut newer = page[..SEGMENT_FIELDS_BYTES].to_vec();
        newer[8] = 9;
        assert_eq!(SegmentHeader::decode(&seal_page(newer), None), Err(HeaderProblem::Newer(9)));
    }

    #[test]
    fn ring_header_round_trips() {
        let header = RingHeader {
            database_id: 5,
            incarnation: 2,
            boot_id: 77,
            ring_bytes: 65536,
            segment_bytes: 4096,
        };
        let page = header.encode(12_288);
        assert_eq!(RingHeader::decode(&page, Some(5)), Ok(header));
        assert_eq!(ring_word(&page, RING_DRAINED_OFFSET), 12_288);
        assert_eq!(ring_word(&page, RING_END_OFFSET), 12_288);
        assert_eq!(RingHeader::decode(&page, Some(1)), Err(HeaderProblem::Foreign));
    }
}
