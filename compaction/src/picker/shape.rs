//! The shape that the tree should have: how large each level may be, and where level 0 goes.
//!
//! Targets follow the data (RocksDB's "dynamic level bytes", Pebble's smoothing): the bottom level holds what it
//! holds; every level above is smaller by the same factor, at most [`TreeShape::multiplier`], and the smallest is about
//! [`TreeShape::base_bytes`]. So nine tenths of the data lie at the bottom whatever the size, which bounds the space
//! taken by old versions, and a small tree has few levels. Level 0 goes to the *base level*, the topmost one in use.

use crate::version::{BOTTOM_LEVEL, Version};

/// Constants that give the tree its shape. All sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeShape {
    /// Size of the base level. About four memtables: level 0 is then merged into something of its own size.
    pub base_bytes: u64,
    /// Most that a level may be larger than the one above it.
    pub multiplier: u64,
    /// Sublevels of level 0 at which it wants to be compacted.
    pub level_0_sublevels: usize,
    /// Size of table files in the base level and in level 0; it doubles from level to level.
    pub file_bytes_min: u64,
    /// Size at which table files stop growing from level to level.
    pub file_bytes_max: u64,
    /// A file may overlap this many times its size in the level below its own. More would make its next compaction
    /// dear, so outputs are cut and files are not moved.
    pub overlap_max: u64,
    /// Largest job, by input bytes, that is put together if there is a choice. A single file with what it overlaps
    /// may be more.
    pub job_bytes_max: u64,
    /// Share of tombstones among a file's entries from which it is compacted even if its level is not too large.
    pub tombstone_share: f64,
    /// Share of garbage (tombstones that hide nothing, data of dropped keyspaces) from which a file is rewritten in
    /// place.
    pub garbage_share: f64,
}

impl Default for TreeShape {
    fn default() -> TreeShape {
        TreeShape {
            base_bytes: 256 << 20,
            multiplier: 10,
            level_0_sublevels: 4,
            file_bytes_min: 4 << 20,
            file_bytes_max: 64 << 20,
            overlap_max: 10,
            job_bytes_max: 1 << 30,
            tombstone_share: 0.5,
            garbage_share: 0.2,
        }
    }
}

/// Where the tree stands against its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelTargets {
    /// The level that level 0 is compacted into.
    pub base_level: u8,
    /// Target size per level, in bytes; nothing for level 0 and no limit for the bottom level.
    bytes: [u64; BOTTOM_LEVEL as usize + 1],
}

impl LevelTargets {
    /// Targets for the data that `version` holds below level 0.
    #[must_use]
    pub fn new(version: &Version, shape: &TreeShape) -> LevelTargets {
        let multiplier = shape.multiplier.max(2);
        let total: u64 = (1..=BOTTOM_LEVEL).map(|level| version.level_bytes(level)).sum();
        // What the bottom level holds once everything has its shape.
        let bottom_bytes = total / multiplier * (multiplier - 1);
        let mut ideal_base = BOTTOM_LEVEL;
        let mut capacity = shape.base_bytes.max(1);
        while capacity < bottom_bytes && ideal_base > 1 {
            capacity = capacity.saturating_mul(multiplier);
            ideal_base -= 1;
        }
        let steps = f64::from(BOTTOM_LEVEL - ideal_base).max(1.0);
        let factor = (bottom_bytes as f64 / shape.base_bytes.max(1) as f64).powf(1.0 / steps).max(1.0);
        let mut bytes = [0; BOTTOM_LEVEL as usize + 1];
        for (level, target) in (0u8..).zip(&mut bytes).skip(1) {
            *target = match level {
                BOTTOM_LEVEL => u64::MAX,
                // Left over from when the tree was larger: to be drained, the higher the sooner.
                _ if level < ideal_base => {
                    shape.base_bytes / multiplier.saturating_pow(u32::from(ideal_base - level))
                }
                _ => (shape.base_bytes as f64 * factor.powi(i32::from(level - ideal_base))) as u64,
            };
        }
        // Level 0 must never be placed below older data, so it goes no deeper than the first level that has any.
        let first_used =
            (1..BOTTOM_LEVEL).find(|&level| !version.level(level).is_empty()).unwrap_or(BOTTOM_LEVEL);
        LevelTargets { base_level: ideal_base.min(first_used), bytes }
    }

    /// Target size of `level` (1 to [`BOTTOM_LEVEL`]) in bytes.
    #[must_use]
    pub fn bytes(&self, level: u8) -> u64 {
        self.bytes.get(usize::from(level)).copied().unwrap_or(0)
    }

    /// Size of the table files of `level`, in bytes.
    #[must_use]
    pub fn file_bytes(&self, level: u8, shape: &TreeShape) -> u64 {
        let doublings = u32::from(level.saturating_sub(self.base_level));
        shape.file_bytes_min.saturating_mul(1 << doublings).min(shape.file_bytes_max).max(1)
    }

    /// Most bytes that a file of `level` should overlap in the next level.
    #[must_use]
    pub fn overlap_bytes_max(&self, level: u8, shape: &TreeShape) -> u64 {
        self.file_bytes(level, shape).saturating_mul(shape.overlap_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    fn shape() -> TreeShape {
        TreeShape {
            base_bytes: 100,
            multiplier: 10,
            file_bytes_min: 4,
            file_bytes_max: 16,
            ..TreeShape::default()
        }
    }

    /// A tree whose levels 1 to 6 have the given sizes.
    fn with_sizes(sizes: [u64; 6]) -> Version {
        tree((1u8..).zip(sizes).filter(|(_, bytes)| *bytes > 0).map(|(level, bytes)| (level, "aa-zz", bytes)))
    }

    #[test]
    fn levels_shrink_geometrically_from_the_bottom_to_the_base() {
        // (sizes of levels 1 to 6, base level, targets of levels 1 to 5)
        let cases = [
            ([0, 0, 0, 0, 0, 0], 6, [0, 0, 0, 1, 10]),
            ([0, 0, 0, 0, 0, 100], 6, [0, 0, 0, 1, 10]),
            ([0, 0, 0, 0, 0, 200], 5, [0, 0, 1, 10, 100]),
            ([0, 0, 0, 0, 0, 1000], 5, [0, 0, 1, 10, 100]),
            ([0, 0, 0, 0, 1000, 9000], 4, [0, 1, 10, 100, 948]),
            // The tree has shrunk: level 3 is drained, and level 0 must not pass it.
            ([0, 0, 50, 0, 0, 100], 3, [0, 0, 1, 10, 100]),
        ];
        for (sizes, base_level, targets) in cases {
            let found = LevelTargets::new(&with_sizes(sizes), &shape());
            assert_eq!(found.base_level, base_level, "{sizes:?}");
            assert_eq!([1, 2, 3, 4, 5].map(|level| found.bytes(level)), targets, "{sizes:?}");
        }
    }

    #[test]
    fn files_grow_towards_the_bottom() {
        let targets = LevelTargets::new(&with_sizes([0, 0, 0, 0, 1000, 9000]), &shape());
        assert_eq!([0, 4, 5, 6].map(|level| targets.file_bytes(level, &shape())), [4, 4, 8, 16]);
    }
}
