//! Half-open ranges of full keys: what tables cover, jobs claim and scans ask for.
//!
//! A range holds every key `k` with `start <= k < end`. A single key `k` is the range `[k, k ‖ 0x00)`, because
//! nothing sorts between a key and the key with a zero byte appended; so one kind of bound serves points and range
//! tombstones alike, and two ranges that touch (`a.end == b.start`) do not overlap.

use std::fmt;

/// The full keys `k` with `start <= k < end`; holds nothing if `start >= end`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// First full key of the range.
    pub start: Vec<u8>,
    /// First full key after the range.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// The range from `start` (included) to `end` (excluded).
    #[must_use]
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> KeyRange {
        KeyRange { start: start.into(), end: end.into() }
    }

    /// The range that holds the keys from `first` to `last`, both included.
    #[must_use]
    pub fn inclusive(first: &[u8], last: &[u8]) -> KeyRange {
        KeyRange { start: first.to_vec(), end: successor(last) }
    }

    /// The range that holds `key` and nothing else.
    #[must_use]
    pub fn point(key: &[u8]) -> KeyRange {
        KeyRange::inclusive(key, key)
    }

    /// True if the range holds no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// True if `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }

    /// True if every key of `other` lies in this range.
    #[must_use]
    pub fn covers(&self, other: &KeyRange) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// True if some key lies in both ranges.
    #[must_use]
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.start < other.end && other.start < self.end && !self.is_empty() && !other.is_empty()
    }

    /// The keys that lie in both ranges; `None` if there are none.
    #[must_use]
    pub fn intersection(&self, other: &KeyRange) -> Option<KeyRange> {
        self.overlaps(other).then(|| KeyRange {
            start: self.start.as_slice().max(&other.start).to_vec(),
            end: self.end.as_slice().min(&other.end).to_vec(),
        })
    }

    /// Grows the range to the smallest one that also holds `other` (and what lies between them).
    pub fn extend(&mut self, other: &KeyRange) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        if other.start < self.start {
            self.start.clone_from(&other.start);
        }
        if other.end > self.end {
            self.end.clone_from(&other.end);
        }
    }

    /// The smallest range that holds all of `ranges`; `None` if there is no key in any of them.
    #[must_use]
    pub fn hull<'a>(ranges: impl IntoIterator<Item = &'a KeyRange>) -> Option<KeyRange> {
        let mut hull = KeyRange::default();
        ranges.into_iter().for_each(|range| hull.extend(range));
        (!hull.is_empty()).then_some(hull)
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[\"{}\", \"{}\")", self.start.escape_ascii(), self.end.escape_ascii())
    }
}

/// The smallest key after `key`: the key with a zero byte appended.
#[must_use]
pub fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every key of up to two letters out of three.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = vec![vec![]];
        for a in 0..3u8 {
            keys.push(vec![a]);
            keys.extend((0..3u8).map(|b| vec![a, b]));
        }
        keys
    }

    fn any_range() -> impl Strategy<Value = KeyRange> {
        let key = || prop::collection::vec(0u8..3, 0..3);
        (key(), key()).prop_map(|(start, end)| KeyRange { start, end })
    }

    proptest! {
        #[test]
        fn relations_agree_with_the_keys_held(a in any_range(), b in any_range()) {
            let held = |range: &KeyRange| keys().into_iter().filter(|key| range.contains(key)).collect::<Vec<_>>();
            let (in_a, in_b) = (held(&a), held(&b));
            // The keys tried are dense enough for every bound that the strategy makes, the empty key aside.
            prop_assert_eq!(a.overlaps(&b), in_a.iter().any(|key| in_b.contains(key)));
            prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
            if let Some(both) = a.intersection(&b) {
                prop_assert!(held(&both).iter().all(|key| in_a.contains(key) && in_b.contains(key)));
                prop_assert!(a.covers(&both) && b.covers(&both));
            }
            if a.covers(&b) {
                prop_assert!(in_b.iter().all(|key| in_a.contains(key)));
            }
            match KeyRange::hull([&a, &b]) {
                Some(hull) => prop_assert!(hull.covers(&a) && hull.covers(&b)),
                None => prop_assert!(a.is_empty() && b.is_empty()),
            }
        }
    }

    #[test]
    fn a_point_range_holds_exactly_its_key() {
        let range = KeyRange::point(b"k");
        assert!(range.contains(b"k") && !range.contains(b"k\0") && !range.contains(b"j\xff"));
    }

    #[test]
    fn touching_ranges_do_not_overlap() {
        assert!(!KeyRange::new("a", "b").overlaps(&KeyRange::new("b", "c")));
        assert!(!KeyRange::new("b", "b").overlaps(&KeyRange::new("a", "c")));
    }
}
