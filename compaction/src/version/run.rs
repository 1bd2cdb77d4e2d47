//! A sorted run: files that do not overlap, in key order. Every level below 0 is one, level 0 is a stack of them.
//!
//! Looking up a key must find its file without touching the files' descriptions, whose keys lie scattered in memory.
//! A run therefore keeps *fences*: per keyspace, the prefix shared by the first keys of its files, once, and the key
//! heads after it, packed. Fences decide by integer comparison; only equal heads fall back to the keys.

use std::cmp::Ordering;
use std::sync::Arc;

use alluvium_base::KeyRange;
use alluvium_base::key::{KEYSPACE_ID_BYTES, common_prefix_len, head};

use super::FileMeta;

/// Files in key order that do not overlap.
#[derive(Clone, Debug, Default)]
pub struct Run {
    files: Vec<Arc<FileMeta>>,
    fences: Vec<Fences>,
    bytes: u64,
}

/// The first keys of the files of a run that begin in one keyspace.
#[derive(Clone, Debug)]
struct Fences {
    /// Keyspace id in which the files begin (the first four bytes of their first keys).
    keyspace: u32,
    /// Index of the first of the files.
    first: usize,
    /// What all of the first keys have in common, keyspace id included.
    prefix: Vec<u8>,
    /// Heads of the first keys after the prefix.
    heads: Vec<u64>,
}

impl Run {
    /// A run of `files`, which are sorted here.
    ///
    /// # Errors
    /// The two files that overlap, if there are such.
    pub fn new(mut files: Vec<Arc<FileMeta>>) -> Result<Run, Overlap> {
        files.sort_unstable_by(|a, b| a.range().start.cmp(&b.range().start));
        if let Some([a, b]) = files.array_windows::<2>().find(|[a, b]| a.range().end > b.range().start) {
            return Err(Overlap { files: [a.clone(), b.clone()] });
        }
        let fences = files
            .chunk_by(|a, b| keyspace_of(&a.range().start) == keyspace_of(&b.range().start))
            .scan(0, |next, chunk| {
                let first = *next;
                *next += chunk.len();
                Some(Fences::new(first, chunk))
            })
            .collect();
        let bytes = files.iter().map(|file| file.bytes()).sum();
        Ok(Run { files, fences, bytes })
    }

    /// The files, in key order.
    #[must_use]
    pub fn files(&self) -> &[Arc<FileMeta>] {
        &self.files
    }

    /// True if the run has no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Sum of the files' sizes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file that may hold `key`: the one whose range contains it.
    #[must_use]
    pub fn file_of(&self, key: &[u8]) -> Option<&Arc<FileMeta>> {
        let index = self.files_starting_up_to(key).checked_sub(1)?;
        self.files.get(index).filter(|file| key < file.range().end.as_slice())
    }

    /// Index of the first file that may hold `key` or a greater one; the number of files if there is none.
    #[must_use]
    pub fn index_at_or_after(&self, key: &[u8]) -> usize {
        let after = self.files_starting_up_to(key);
        let holds =
            |index: usize| self.files.get(index).is_some_and(|file| key < file.range().end.as_slice());
        match after.checked_sub(1) {
            Some(index) if holds(index) => index,
            _ => after,
        }
    }

    /// The files that overlap `range`.
    #[must_use]
    pub fn overlapping(&self, range: &KeyRange) -> &[Arc<FileMeta>] {
        if range.is_empty() {
            return &[];
        }
        let from = self.index_at_or_after(&range.start);
        let to = self.files.partition_point(|file| file.range().start < range.end);
        self.files.get(from..to).unwrap_or_default()
    }

    /// Sum of the sizes of the files that overlap `range`, in bytes.
    #[must_use]
    pub fn overlapping_bytes(&self, range: &KeyRange) -> u64 {
        self.overlapping(range).iter().map(|file| file.bytes()).sum()
    }

    /// Number of files whose first key is at most `key`.
    fn files_starting_up_to(&self, key: &[u8]) -> usize {
        let keyspace = keyspace_of(key);
        let groups = self.fences.partition_point(|fences| fences.keyspace <= keyspace);
        let Some(fences) = groups.checked_sub(1).and_then(|group| self.fences.get(group)) else { return 0 };
        if fences.keyspace < keyspace {
            return fences.first + fences.heads.len();
        }
        fences.first + fences.starting_up_to(key, self.files.get(fences.first..).unwrap_or_default())
    }
}

impl Fences {
    fn new(first: usize, files: &[Arc<FileMeta>]) -> Fences {
        let (Some(front), Some(back)) = (files.first(), files.last()) else {
            return Fences { keyspace: 0, first, prefix: Vec::new(), heads: Vec::new() };
        };
        let (front, back) = (&front.range().start, &back.range().start);
        // Sorted keys share what the first and the last share.
        let prefix_len = common_prefix_len(front, back);
        let after_prefix =
            |file: &Arc<FileMeta>| head(file.range().start.get(prefix_len..).unwrap_or_default());
        Fences {
            keyspace: keyspace_of(front),
            first,
            prefix: front.get(..prefix_len).unwrap_or_default().to_vec(),
            heads: files.iter().map(after_prefix).collect(),
        }
    }

    /// Number of fences at or before `key`. `files` are the files of these fences, and maybe more.
    fn starting_up_to(&self, key: &[u8], files: &[Arc<FileMeta>]) -> usize {
        let shared = key.get(..self.prefix.len()).unwrap_or(key);
        match shared.cmp(self.prefix.as_slice()) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.heads.len(),
            Ordering::Equal => {}
        }
        let wanted = head(key.get(self.prefix.len()..).unwrap_or_default());
        let from = self.heads.partition_point(|&fence| fence < wanted);
        let ties = self.heads.get(from..).unwrap_or_default().partition_point(|&fence| fence == wanted);
        let tied = files.get(from..from + ties).unwrap_or_default();
        from + tied.partition_point(|file| file.range().start.as_slice() <= key)
    }
}

/// The keyspace id at the front of a key, padded with zeros if the key is shorter: padding keeps the order.
fn keyspace_of(key: &[u8]) -> u32 {
    let mut id = [0; KEYSPACE_ID_BYTES];
    for (to, from) in id.iter_mut().zip(key) {
        *to = *from;
    }
    u32::from_be_bytes(id)
}

/// Two files that must not overlap, but do.
#[derive(Clone, Debug)]
pub struct Overlap {
    /// The files, in the order of their first keys.
    pub files: [Arc<FileMeta>; 2],
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b] = &self.files;
        write!(f, "file {} {:?} overlaps file {} {:?}", a.id, a.range(), b.id, b.range())
    }
}

#[cfg(test)]
mod tests {
    use alluvium_base::key::KeyspaceId;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::file;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let user = prop_oneof![
            prop::collection::vec(0u8..3, 0..4),
            // Long shared prefixes, so that heads tie.
            prop::collection::vec(0u8..2, 0..3)
                .prop_map(|tail| [b"shared-prefix".as_slice(), &tail].concat()),
        ];
        (0u32..3, user).prop_map(|(keyspace, user)| KeyspaceId(keyspace).full_key(&user))
    }

    #[test]
    fn heads_of_neighbouring_fences_differ_on_the_keys_of_the_benchmarks() {
        // Sixteen decimal digits, a file every 9,973 keys, in two keyspaces.
        let start =
            |keyspace: u32, n: u64| KeyspaceId(keyspace).full_key(format!("{:016}", n * 9973).as_bytes());
        let files = (1..3).flat_map(|keyspace| {
            let file_at = move |n: u64| {
                file(u64::from(keyspace) * 1000 + n, &start(keyspace, n), &start(keyspace, n + 1))
            };
            (0..1000).map(file_at)
        });
        let run = Run::new(files.collect()).unwrap();
        let pairs = || run.fences.iter().flat_map(|fences| fences.heads.windows(2));
        let distinct = pairs().filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(pairs().count(), 1998);
        assert!(distinct as f64 >= 0.99 * 1998.0, "{distinct} of 1998 neighbours differ");
    }

    proptest! {
        #[test]
        fn lookup_through_fences_agrees_with_a_scan(bounds in prop::collection::btree_set(key(), 0..24), wanted in key()) {
            let bounds: Vec<Vec<u8>> = bounds.into_iter().collect();
            // Every other gap between two bounds is a file.
            let files: Vec<Arc<FileMeta>> = bounds
                .chunks_exact(2)
                .enumerate()
                .map(|(id, pair)| file(id as u64, &pair[0], &pair[1]))
                .collect();
            let run = Run::new(files.clone()).unwrap();
            prop_assert_eq!(run.file_of(&wanted), files.iter().find(|file| file.range().contains(&wanted)));
            let at_or_after = files.iter().position(|file| file.range().end > wanted).unwrap_or(files.len());
            prop_assert_eq!(run.index_at_or_after(&wanted), at_or_after);
            let range = KeyRange::new(wanted, KeyspaceId(2).full_key(b"\x01"));
            let overlapping: Vec<_> = files.iter().filter(|file| file.range().overlaps(&range)).cloned().collect();
            prop_assert_eq!(run.overlapping(&range), overlapping.as_slice());
        }
    }

    #[test]
    fn overlapping_files_make_no_run() {
        let overlap = Run::new(vec![file(1, b"aaaa", b"cccc"), file(2, b"bbbb", b"dddd")]).unwrap_err();
        assert_eq!(overlap.files.map(|file| file.id), [1, 2]);
        assert!(
            Run::new(vec![file(1, b"aaaa", b"cccc"), file(2, b"cccc", b"dddd")]).is_ok(),
            "touching is fine"
        );
    }
}
