//! Filters: "this key (or prefix) is certainly not in the table", without reading data.
//!
//! Both filters are cut into partitions **by hash**, so that the partition of a key is known without searching an
//! index, all partitions are equally large, and each is at most 16 KiB and charged to the block cache like any block.

pub(crate) mod point;
pub(crate) mod prefix;

/// The part of `count` parts that `hash` falls into (multiplication instead of division: Lemire 2019).
fn part_of(hash: u64, count: u64) -> u64 {
    ((u128::from(hash) * u128::from(count)) >> 64) as u64
}
