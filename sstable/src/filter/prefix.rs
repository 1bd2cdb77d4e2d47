//! The prefix filter: may a table hold any key that begins with these bytes?
//!
//! Asked once per scan, so it need not be the fastest: it is a classic Bloom filter of the `bloomfilter` crate, in
//! partitions of at most 16 KiB, all equally long, chosen by hash.
//!
//! The crate derives its probes from two SipHash functions keyed by the two halves of a seed. The halves must differ:
//! equal ones make both functions the same, and every probe a multiple of one number. It trusts what it reads back,
//! so length, seed and number of probes are checked here first (a damaged count of probes would loop for minutes).

use alluvium_base::checksum::{checksum, seed};
use alluvium_base::limits::PARTITION_BYTES_MAX;
use bloomfilter::Bloom;

use super::part_of;

/// The number of this kind of filter in a table's properties.
pub(crate) const KIND_BLOOMFILTER: u8 = 1;

/// Version, length, number of probes and seed, which the crate puts in front of the bits.
const HEADER_BYTES: usize = 1 + 8 + 4 + 32;
const BITMAP_BYTES_MAX: usize = PARTITION_BYTES_MAX - HEADER_BYTES;
/// What 255 bits per prefix ask for: 255 × ln 2.
const PROBES_MAX: u32 = 177;
const SEED: [u8; 32] = *b"alluvium prefix\x01filter probes \x02\x03";

/// The hash of a full prefix (keyspace id and first bytes of the user key) that prefix filters are fed with.
pub(crate) fn prefix_hash(full_prefix: &[u8]) -> u64 {
    // Another seed than that of key hashes: the crate's filter and ours must not err on the same keys.
    checksum(seed(0, 1), full_prefix)
}

/// Size and shape of a table's prefix filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixFilterShape {
    pub(crate) partitions: u64,
    /// Length of every partition's bits, in bytes.
    pub(crate) bitmap_bytes: usize,
}

impl PrefixFilterShape {
    /// Length of every partition, in bytes.
    pub(crate) fn partition_bytes(self) -> usize {
        HEADER_BYTES + self.bitmap_bytes
    }

    /// The partition that `hash` falls into.
    pub(crate) fn place(self, hash: u64) -> u64 {
        part_of(hash, self.partitions)
    }

    /// True for a shape that the builder can have made.
    pub(crate) fn is_sound(self) -> bool {
        self.partitions > 0 && (1..=BITMAP_BYTES_MAX).contains(&self.bitmap_bytes)
    }
}

/// Gathers the hashes of a table's prefixes, then builds its filter.
#[derive(Default)]
pub(crate) struct PrefixFilterBuilder {
    hashes: Vec<u64>,
    bits: u64,
}

impl PrefixFilterBuilder {
    /// Adds a full prefix, with the number of bits that it may take. Keys come in order, so equal prefixes come
    /// together and only the first counts.
    pub(crate) fn add(&mut self, full_prefix: &[u8], bits_per_prefix: u8) {
        let hash = prefix_hash(full_prefix);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
            self.bits += u64::from(bits_per_prefix);
        }
    }

    /// Size that the filter will have, in bytes.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        self.bits / 8
    }

    /// Builds the filter: its shape and its partitions; `None` without prefixes.
    pub(crate) fn build(self) -> Option<(PrefixFilterShape, Vec<Vec<u8>>)> {
        let prefixes = self.hashes.len();
        if prefixes == 0 {
            return None;
        }
        let bytes = (self.bits as usize).div_ceil(8).max(8);
        let partitions = bytes.div_ceil(BITMAP_BYTES_MAX);
        let shape = PrefixFilterShape {
            partitions: partitions as u64,
            bitmap_bytes: bytes.div_ceil(partitions).min(BITMAP_BYTES_MAX),
        };
        let per_partition = prefixes.div_ceil(partitions);
        let mut filters = Vec::with_capacity(partitions);
        for _ in 0..partitions {
            filters.push(Bloom::<u64>::new_with_seed(shape.bitmap_bytes, per_partition, &SEED).ok()?);
        }
        for hash in self.hashes {
            if let Some(filter) = filters.get_mut(shape.place(hash) as usize) {
                filter.set(&hash);
            }
        }
        Some((shape, filters.into_iter().map(Bloom::into_bytes).collect()))
    }
}

/// A partition in the cache.
#[derive(Debug)]
pub(crate) struct PrefixFilterPartition {
    bloom: Bloom<u64>,
    bytes: usize,
}

impl PrefixFilterPartition {
    /// Checks and unpacks the bytes of a partition; `None` if they are not what a builder of `shape` wrote.
    pub(crate) fn parse(bytes: Vec<u8>, shape: PrefixFilterShape) -> Option<PrefixFilterPartition> {
        if bytes.len() != shape.partition_bytes() || !shape.is_sound() {
            return None;
        }
        let len = bytes.len();
        let bloom = Bloom::<u64>::from_bytes(bytes).ok()?;
        let sound = bloom.seed() == SEED && (1..=PROBES_MAX).contains(&bloom.number_of_hash_functions());
        sound.then_some(PrefixFilterPartition { bloom, bytes: len })
    }

    /// False if the prefix with `hash` was certainly not added.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.bloom.check(&hash)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_the_seed_differ() {
        assert_ne!(SEED[..16], SEED[16..]);
    }

    #[test]
    fn every_prefix_is_found_and_few_others_are() {
        for count in [1u32, 50, 40_000] {
            let mut builder = PrefixFilterBuilder::default();
            (0..count).for_each(|prefix| builder.add(&prefix.to_be_bytes(), 10));
            let (shape, partitions) = builder.build().unwrap();
            assert!(partitions.iter().all(|bytes| bytes.len() <= PARTITION_BYTES_MAX));
            let partitions: Vec<PrefixFilterPartition> = partitions
                .into_iter()
                .map(|bytes| PrefixFilterPartition::parse(bytes, shape).unwrap())
                .collect();
            let may_contain = |prefix: u32| {
                let hash = prefix_hash(&prefix.to_be_bytes());
                partitions[shape.place(hash) as usize].may_contain(hash)
            };
            assert!((0..count).all(may_contain));
            let wrong = (1_000_000..1_100_000).filter(|&prefix| may_contain(prefix)).count();
            assert!(wrong <= 1500, "{count} prefixes: {wrong} of 100,000 wrong");
        }
    }

    #[test]
    fn damaged_partitions_are_refused() {
        let mut builder = PrefixFilterBuilder::default();
        builder.add(b"prefix", 10);
        let (shape, partitions) = builder.build().unwrap();
        let good = &partitions[0];
        assert!(PrefixFilterPartition::parse(good.clone(), shape).is_some());
        for at in 0..HEADER_BYTES {
            let mut damaged = good.clone();
            damaged[at] = !damaged[at];
            assert!(PrefixFilterPartition::parse(damaged, shape).is_none(), "header byte {at}");
        }
        assert!(PrefixFilterPartition::parse(good[..good.len() - 1].to_vec(), shape).is_none());
    }
}
