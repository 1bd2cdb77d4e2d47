//! Batches that are longer than a log record: cut into parts, joined again when the log is replayed.
//!
//! ```text
//! part = 0xf0 (more follow) or 0xf1 (the last) | batch number varint | piece of the batch's bytes
//! ```
//!
//! No operation has such a kind byte, so a part is told from a whole batch by its first byte. The batch's sequence
//! numbers are given with its **last** part, which is therefore its place in the order of commits: a log that ends
//! before it holds no trace of the batch for readers. Parts of several batches may interleave; their numbers tell them
//! apart within one incarnation.

use std::collections::BTreeMap;

use alluvium_base::coding::{Reader, put_varint};

const MORE: u8 = 0xf0;
const LAST: u8 = 0xf1;
/// Most bytes that a part's own framing takes.
const FRAMING_BYTES_MAX: usize = 11;

/// The payloads of the log records that carry `batch`, number `number`, each of at most `payload_bytes_max` bytes.
pub(crate) fn split(
    batch: &[u8],
    number: u64,
    payload_bytes_max: usize,
) -> impl Iterator<Item = (bool, Vec<u8>)> {
    let pieces = batch.chunks(payload_bytes_max.saturating_sub(FRAMING_BYTES_MAX).max(1));
    let last = pieces.len().saturating_sub(1);
    pieces.enumerate().map(move |(index, piece)| {
        let is_last = index == last;
        let mut payload = Vec::with_capacity(FRAMING_BYTES_MAX + piece.len());
        payload.push(if is_last { LAST } else { MORE });
        put_varint(&mut payload, number);
        payload.extend_from_slice(piece);
        (is_last, payload)
    })
}

/// What a log record's payload is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// A whole batch.
    Whole(&'a [u8]),
    /// A batch whose last part this was.
    Joined(Vec<u8>),
    /// A part of a batch that is not complete yet.
    Pending,
    /// None of these: damage.
    Unknown,
}

/// Joins parts while a log is replayed.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    /// Bytes so far, by incarnation and batch number.
    pending: BTreeMap<(u64, u64), Vec<u8>>,
}

impl Joiner {
    /// True if no batch is waiting for more parts.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes the payload of the next record.
    pub(crate) fn take<'a>(&mut self, incarnation: u64, payload: &'a [u8]) -> Payload<'a> {
        let is_last = match payload.first() {
            Some(&MORE) => false,
            Some(&LAST) => true,
            _ => return Payload::Whole(payload),
        };
        let mut reader = Reader::new(payload);
        let number = reader.u8().and_then(|_| reader.varint());
        let Some(number) = number else { return Payload::Unknown };
        let mut bytes = self.pending.remove(&(incarnation, number)).unwrap_or_default();
        bytes.extend_from_slice(reader.rest());
        if is_last {
            return Payload::Joined(bytes);
        }
        self.pending.insert((incarnation, number), bytes);
        Payload::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_parts_are_joined() {
        let (a, b) = (vec![1; 100], vec![2; 70]);
        let parts = |batch: &[u8], number| split(batch, number, 40).collect::<Vec<_>>();
        let (of_a, of_b) = (parts(&a, 300), parts(&b, 301));
        assert!(of_a.iter().all(|(_, payload)| payload.len() <= 40));
        assert_eq!(of_a.iter().filter(|(is_last, _)| *is_last).count(), 1);
        let mut joiner = Joiner::default();
        let mut joined = Vec::new();
        for index in 0..of_a.len().max(of_b.len()) {
            for parts in [&of_a, &of_b] {
                let Some((_, payload)) = parts.get(index) else { continue };
                if let Payload::Joined(bytes) = joiner.take(1, payload) {
                    joined.push(bytes);
                }
            }
        }
        assert_eq!(joined, [b, a]);
        assert_eq!(joiner.take(1, &[1, 2]), Payload::Whole(&[1, 2]));
        assert_eq!(joiner.take(1, &[LAST]), Payload::Unknown);
    }

    #[test]
    fn the_same_number_in_another_incarnation_is_another_batch() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.take(1, &[MORE, 1, 7]), Payload::Pending);
        assert_eq!(joiner.take(2, &[LAST, 1, 8]), Payload::Joined(vec![8]));
    }
}
