//! Mutations of an input, in the order that a seed gives.

use alluvium::base::random::Random;

/// Longest input, in bytes.
const BYTES_MAX: usize = 16 << 10;

/// Numbers at which parsers like to break.
const INTERESTING: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// A mutation of `input`, sometimes with a piece of `other`.
#[must_use]
pub fn mutate(random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        let at = if bytes.is_empty() { 0 } else { random.index(bytes.len()) };
        let end = (at + 1 + random.index(16)).min(bytes.len());
        match random.below(9) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.next_u64() as u8,
            2 if !bytes.is_empty() => {
                let number = INTERESTING[random.index(INTERESTING.len())].to_le_bytes();
                let width = [1, 2, 4, 8][random.index(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            3 => drop(bytes.drain(at..end)),
            4 => bytes.truncate(at),
            5 => {
                let mut piece = vec![0; random.index(9)];
                random.fill(&mut piece);
                bytes.splice(at..at, piece);
            }
            6 if !bytes.is_empty() => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            7 if !other.is_empty() => {
                let from = random.index(other.len());
                let piece = other[from..(from + 1 + random.index(64)).min(other.len())].to_vec();
                bytes.splice(at..end, piece);
            }
            _ if !bytes.is_empty() => bytes[at] = bytes[at].wrapping_add(random.below(3) as u8),
            _ => bytes.push(random.next_u64() as u8),
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}
