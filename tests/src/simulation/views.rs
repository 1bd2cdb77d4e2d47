//! Iterators that live long: what they show must not change, whatever happens meanwhile.

use alluvium::base::random::Random;
use alluvium::{Error, Iter, Keyspace};

use super::state::Map;

/// An iterator and what it must show.
pub(super) struct View {
    iter: Iter,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    at: Option<usize>,
}

impl View {
    pub(super) fn new(keyspace: &Keyspace, map: &Map) -> Result<View, Error> {
        let entries = map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(View { iter: keyspace.iter()?, entries, at: None })
    }

    /// Moves about and compares every step.
    pub(super) fn walk(
        &mut self,
        random: &mut Random,
        keys: &mut dyn FnMut() -> Vec<u8>,
    ) -> Result<(), Error> {
        let last = self.entries.len().checked_sub(1);
        for _ in 0..12 {
            self.at = match (random.below(6), self.at) {
                (0, _) => {
                    let key = keys();
                    self.iter.seek(&key)?;
                    let at = self.entries.partition_point(|(k, _)| *k < key);
                    Some(at).filter(|&at| at < self.entries.len())
                }
                (1, _) => {
                    let key = keys();
                    self.iter.seek_before(&key)?;
                    self.entries.partition_point(|(k, _)| *k < key).checked_sub(1)
                }
                (2..4, at) => {
                    self.iter.next()?;
                    match at {
                        None => last.map(|_| 0),
                        Some(at) => Some(at + 1).filter(|&at| at < self.entries.len()),
                    }
                }
                (_, at) => {
                    self.iter.prev()?;
                    match at {
                        None => last,
                        Some(at) => at.checked_sub(1),
                    }
                }
            };
            assert_eq!(self.iter.valid(), self.at.is_some(), "the end of an old iterator has moved");
            if let Some((key, value)) = self.at.and_then(|at| self.entries.get(at)) {
                assert_eq!(
                    (self.iter.key(), self.iter.value()),
                    (key.as_slice(), value.as_slice()),
                    "an old iterator shows something else"
                );
            }
        }
        Ok(())
    }
}
