//! The data: keys of 16 decimal digits, values of which half compresses away.

use alluvium::base::random::Random;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

/// Writes the key of number `n`: 16 decimal digits, so that keys sort like numbers.
pub fn write_key(mut n: u64, key: &mut [u8; KEY_BYTES]) {
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
}

/// A permutation of `0..count`: a Feistel network of four rounds over the next power of four, walked until the result
/// is in range (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). So keys arrive in random order, each
/// once, without a table of them.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// A permutation of `0..count`, chosen by `seed`.
    #[must_use]
    pub fn new(count: u64, seed: u64) -> Permutation {
        let bits = 64 - count.max(2).saturating_sub(1).leading_zeros();
        Permutation { count, half_bits: bits.div_ceil(2), seed }
    }

    /// Where `n` goes.
    #[must_use]
    pub fn apply(&self, n: u64) -> u64 {
        let mut n = n;
        loop {
            n = self.rounds(n);
            if n < self.count {
                return n;
            }
        }
    }

    fn rounds(&self, n: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (n >> self.half_bits, n & mask);
        for round in 0..4 {
            let mixed = Random::new(right ^ self.seed.rotate_left(round * 13)).next_u64() & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half_bits | right
    }
}

/// Values: pieces of a pool in which every 50 random bytes are followed by 50 equal ones.
#[derive(Debug)]
pub struct Values {
    pool: Vec<u8>,
    value_bytes: usize,
}

impl Values {
    /// Values of `value_bytes` each.
    #[must_use]
    pub fn new(value_bytes: usize) -> Values {
        let mut random = Random::new(301);
        let mut pool = Vec::with_capacity((1 << 20) + value_bytes + 100);
        while pool.len() < (1 << 20) + value_bytes {
            let mut piece = [b'x'; 100];
            random.fill(piece.split_at_mut(50).0);
            pool.extend_from_slice(&piece);
        }
        Values { pool, value_bytes }
    }

    /// A value chosen by `n`.
    #[must_use]
    pub fn get(&self, n: u64) -> &[u8] {
        let at = (Random::new(n).next_u64() % (1 << 20)) as usize;
        self.pool.get(at..at + self.value_bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_hits_every_number_once() {
        for count in [1, 2, 3, 1000, 4097] {
            let permutation = Permutation::new(count, 7);
            let mut seen: Vec<u64> = (0..count).map(|n| permutation.apply(n)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..count), "{count}");
        }
    }

    #[test]
    fn keys_sort_like_numbers() {
        let key = |n| {
            let mut key = [0; KEY_BYTES];
            write_key(n, &mut key);
            key
        };
        assert!(key(9) < key(10) && key(99) < key(100));
        assert_eq!(&key(123), b"0000000000000123");
    }
}
