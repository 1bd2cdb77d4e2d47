//! A set of keys as disjoint ranges: where older data may exist, what a job has claimed.

use alluvium_base::KeyRange;

/// The union of key ranges, kept as disjoint ranges in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRanges {
    ranges: Vec<KeyRange>,
}

impl KeyRanges {
    /// The union of `ranges`.
    #[must_use]
    pub fn union<'a>(ranges: impl IntoIterator<Item = &'a KeyRange>) -> KeyRanges {
        let mut sorted: Vec<&KeyRange> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_unstable();
        let mut union: Vec<KeyRange> = Vec::new();
        for range in sorted {
            match union.last_mut() {
                Some(last) if range.start <= last.end => {
                    if range.end > last.end {
                        last.end.clone_from(&range.end);
                    }
                }
                _ => union.push(range.clone()),
            }
        }
        KeyRanges { ranges: union }
    }

    /// The disjoint ranges, in order; no two of them touch.
    #[must_use]
    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }

    /// True if some key of `range` lies in the union.
    #[must_use]
    pub fn overlaps(&self, range: &KeyRange) -> bool {
        let from = self.ranges.partition_point(|held| held.end <= range.start);
        self.ranges.get(from).is_some_and(|held| held.overlaps(range))
    }

    /// True if `key` lies in the union. `cursor` remembers the place between calls, which must come with keys that
    /// never go back; it starts at 0.
    #[must_use]
    pub fn contains_ascending(&self, key: &[u8], cursor: &mut usize) -> bool {
        while let Some(range) = self.ranges.get(*cursor) {
            if key < range.end.as_slice() {
                return key >= range.start.as_slice();
            }
            *cursor += 1;
        }
        false
    }

    /// True if every key of `range` lies in the union.
    #[must_use]
    pub fn covers(&self, range: &KeyRange) -> bool {
        let from = self.ranges.partition_point(|held| held.end <= range.start);
        range.is_empty() || self.ranges.get(from).is_some_and(|held| held.covers(range))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn union_holds_what_its_ranges_hold(bounds in prop::collection::vec((0u8..12, 0u8..12), 0..8)) {
            let ranges: Vec<KeyRange> = bounds.iter().map(|&(a, b)| KeyRange::new([a], [b])).collect();
            let union = KeyRanges::union(&ranges);
            let mut cursor = 0;
            for key in 0..12u8 {
                let expected = ranges.iter().any(|range| range.contains(&[key]));
                prop_assert_eq!(union.contains_ascending(&[key], &mut cursor), expected);
                prop_assert_eq!(union.overlaps(&KeyRange::point(&[key])), expected);
                prop_assert_eq!(union.covers(&KeyRange::point(&[key])), expected);
            }
        }
    }
}
