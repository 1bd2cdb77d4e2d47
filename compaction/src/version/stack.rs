//! Level 0 as a stack of sublevels.
//!
//! Every file lies in the lowest sublevel that is above every older file that it overlaps (Pebble's L0 sublevels).
//! So a lookup visits at most one file per sublevel, the number of sublevels is the true read cost of level 0, and a
//! file that overlaps nothing old sinks to the bottom, wherever the rest of the stack stands.
//!
//! The stack is a function of the set of files, whose ages come from [`FileMeta::order`]: replaying a manifest, or a
//! manifest rewritten as one edit, always gives the same stack.

use std::sync::Arc;

use alluvium_base::{Error, Result};

use super::{FileMeta, Run};

/// Sublevels of `files`, oldest first. Runs of `previous` that come out the same are taken over.
///
/// # Errors
/// `InvalidArgument` if two files overlap and have the same order, so that nobody can tell which is newer.
pub(crate) fn stack(files: Vec<Arc<FileMeta>>, previous: &[Arc<Run>]) -> Result<Arc<[Arc<Run>]>> {
    let run = |(at, files): (usize, Vec<Arc<FileMeta>>)| match previous.get(at) {
        Some(same) if same.files() == files => Ok(same.clone()),
        _ => Run::new(files).map(Arc::new).map_err(|overlap| Error::invalid(format!("level 0: {overlap}"))),
    };
    let sublevels = place(files).map_err(|(older, newer)| {
        Error::invalid(format!(
            "level 0: files {} and {} overlap and have the same order {}",
            older.id, newer.id, newer.order
        ))
    })?;
    sublevels.into_iter().enumerate().map(run).collect()
}

/// Number of sublevels that `files` alone would make: how many of them a lookup may have to visit.
pub(crate) fn stack_height(files: Vec<Arc<FileMeta>>) -> usize {
    let most = files.len();
    place(files).map_or(most, |sublevels| sublevels.len())
}

/// Puts each file into the lowest sublevel above every older one that it overlaps; sublevels come out in key order.
/// The error is two files that overlap and have the same order.
#[expect(clippy::type_complexity, reason = "used twice, just above")]
fn place(mut files: Vec<Arc<FileMeta>>) -> Result<Vec<Vec<Arc<FileMeta>>>, (Arc<FileMeta>, Arc<FileMeta>)> {
    files.sort_unstable_by(|a, b| (a.order, &a.range().start).cmp(&(b.order, &b.range().start)));
    let mut sublevels: Vec<Vec<Arc<FileMeta>>> = Vec::new();
    for file in files {
        let mut at = sublevels.len();
        while let Some(below) = at.checked_sub(1).and_then(|below| sublevels.get(below)) {
            match overlapping(below, &file) {
                Some(older) if older.order == file.order => return Err((older.clone(), file)),
                Some(_) => break,
                None => at -= 1,
            }
        }
        match sublevels.get_mut(at) {
            Some(sublevel) => {
                let place = sublevel.partition_point(|other| other.range().start < file.range().start);
                sublevel.insert(place, file);
            }
            None => sublevels.push(vec![file]),
        }
    }
    Ok(sublevels)
}

/// A file of `sublevel` (in key order, disjoint) that overlaps `file`.
fn overlapping<'a>(sublevel: &'a [Arc<FileMeta>], file: &FileMeta) -> Option<&'a Arc<FileMeta>> {
    let from = sublevel.partition_point(|other| other.range().end <= file.range().start);
    sublevel.get(from).filter(|other| other.range().overlaps(file.range()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::l0_file;

    fn ids(sublevels: &[Arc<Run>]) -> Vec<Vec<u64>> {
        sublevels.iter().map(|run| run.files().iter().map(|file| file.id).collect()).collect()
    }

    #[test]
    fn a_flushed_file_sinks_to_just_above_what_it_overlaps() {
        let mut files =
            vec![l0_file(1, 10, b"a", b"m"), l0_file(2, 20, b"c", b"d"), l0_file(3, 30, b"x", b"z")];
        let stacked = stack(files.clone(), &[]).unwrap();
        assert_eq!(ids(&stacked), [vec![1, 3], vec![2]], "file 3 overlaps nothing and lies at the bottom");
        files.push(l0_file(4, 40, b"l", b"y"));
        let next = stack(files, &stacked).unwrap();
        assert_eq!(ids(&next), [vec![1, 3], vec![2, 4]]);
        assert!(Arc::ptr_eq(&stacked[0], &next[0]));
    }

    proptest! {
        #[test]
        fn newer_of_two_overlapping_files_lies_higher(
            mut ranges in prop::collection::vec((0u8..30, 1u8..8), 0..30),
            seed: u64,
        ) {
            let mut random = alluvium_base::random::Random::new(seed);
            ranges.iter_mut().for_each(|range| range.1 += range.0);
            let mut files: Vec<_> = (1u64..)
                .zip(&ranges)
                .map(|(id, &(start, end))| l0_file(id, id, &[start], &[end]))
                .collect();
            let stacked = stack(files.clone(), &[]).unwrap();
            let place = |id: u64| ids(&stacked).iter().position(|sublevel| sublevel.contains(&id)).unwrap();
            for newer in &files {
                let below = place(newer.id);
                for older in files.iter().filter(|older| older.order < newer.order) {
                    prop_assert!(!older.range().overlaps(newer.range()) || place(older.id) < below);
                }
                let rests_on_something = files.iter().any(|older| {
                    older.order < newer.order && older.range().overlaps(newer.range()) && place(older.id) + 1 == below
                });
                prop_assert!(below == 0 || rests_on_something, "no file floats");
            }
            for i in (1..files.len()).rev() {
                files.swap(i, random.index(i + 1));
            }
            prop_assert_eq!(ids(&stack(files, &[]).unwrap()), ids(&stacked), "the order of adding does not matter");
        }
    }
}
