//! Several sorted inputs as one.
//!
//! A [loser tree](super::loser_tree) over key heads finds the next entry. Heads are taken after a prefix that the
//! inputs' current keys share, less some slack, so that heads do differ: raw keys begin with their keyspace id and
//! often with more that is the same. The prefix is only a matter of speed, never of correctness: a key outside of it gets
//! the smallest or the greatest head, which may tie but never lies. It is chosen anew at every seek and after a run of
//! ties, as when a merge crosses into the next keyspace.
//!
//! *Total order.* Entries that compare equal in two inputs (which a sound tree never holds) are ordered by the inputs'
//! numbers, so that mixed forward and backward moves show each of them exactly once.
//!
//! *Direction.* Moving forward, every input stands at its first entry at or after the current one; moving backward, at
//! its last one at or before. Turning seeks every input but the current one; backward heads are complemented, so that
//! the smallest head always wins.

use std::cmp::Ordering;

use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{self, Trailer, common_prefix_len};
use alluvium_base::{Error, Result};

use super::loser_tree::LoserTree;

/// Bytes of what the current keys share that are left in the heads, so that the prefix stays valid while the keys move
/// on; the other four bytes of a head tell neighbours apart.
const PREFIX_SLACK_BYTES: usize = 4;

/// Ties after which the prefix is chosen anew. Small against the cost of the ties themselves.
const TIES_BEFORE_NEW_PREFIX: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Merges sorted inputs into one sorted sequence; see [`InternalIterator`] for how it moves.
///
/// The inputs may be boxed, or of one concrete type (an enum) if dynamic dispatch is too dear.
pub struct MergingIterator<I = Box<dyn InternalIterator>> {
    inputs: Vec<I>,
    tree: LoserTree,
    direction: Direction,
    /// Heads are taken after this many bytes of keys that start with it.
    prefix: Vec<u8>,
    /// Ties since the prefix was chosen.
    ties: u32,
    /// Copy of the current key while the inputs turn.
    turning_key: Vec<u8>,
    failed: Option<Error>,
}

impl<I> std::fmt::Debug for MergingIterator<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergingIterator")
            .field("inputs", &self.inputs.len())
            .field("direction", &self.direction)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl<I: InternalIterator> MergingIterator<I> {
    /// An iterator over everything in `inputs`.
    #[must_use]
    pub fn new(inputs: Vec<I>) -> MergingIterator<I> {
        MergingIterator {
            inputs,
            tree: LoserTree::default(),
            direction: Direction::Forward,
            prefix: Vec::new(),
            ties: 0,
            turning_key: Vec::new(),
            failed: None,
        }
    }

    /// The input that stands on the current entry: its number in the order given to [`new`](MergingIterator::new).
    /// Only while `valid()`.
    #[must_use]
    pub fn current_input(&self) -> usize {
        self.tree.winner()
    }

    /// Moves every input, then plays all matches.
    fn position(&mut self, direction: Direction, seek: impl Fn(&mut I) -> Result<()>) -> Result<()> {
        self.check()?;
        self.direction = direction;
        for at in 0..self.inputs.len() {
            let moved = seek(&mut self.inputs[at]);
            self.note(moved)?;
        }
        self.rebuild();
        Ok(())
    }

    fn rebuild(&mut self) {
        self.choose_prefix();
        let MergingIterator { inputs, tree, direction, prefix, ties, .. } = self;
        let heads = inputs.iter().map(|input| head_of(input, prefix, *direction));
        tree.build(heads, |a, b| {
            *ties += 1;
            comes_first(inputs, *direction, a, b)
        });
    }

    /// Shares out what the current keys have in common. Keeps the order of the inputs, so the tree needs no rebuilding.
    fn choose_prefix(&mut self) {
        self.ties = 0;
        let mut keys = self.inputs.iter().filter(|input| input.valid()).map(|input| input.key());
        let Some(first) = keys.next() else { return };
        let shared = keys.fold(first.len(), |shared, key| shared.min(common_prefix_len(first, key)));
        let prefix = first.get(..shared.saturating_sub(PREFIX_SLACK_BYTES)).unwrap_or_default();
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
    }

    /// Advances the current input by one entry and finds the next winner.
    fn step(&mut self) -> Result<()> {
        let winner = self.tree.winner();
        let moved = match self.direction {
            Direction::Forward => self.inputs[winner].next(),
            Direction::Backward => self.inputs[winner].prev(),
        };
        self.note(moved)?;
        let MergingIterator { inputs, tree, direction, prefix, ties, .. } = self;
        let head = head_of(&inputs[winner], prefix, *direction);
        tree.replace_winner(head, |a, b| {
            *ties += 1;
            comes_first(inputs, *direction, a, b)
        });
        if self.ties >= TIES_BEFORE_NEW_PREFIX {
            self.choose_prefix();
            let MergingIterator { inputs, tree, direction, prefix, .. } = self;
            tree.rehead(|input| head_of(&inputs[input], prefix, *direction));
        }
        Ok(())
    }

    /// Makes every input stand where `direction` needs it, relative to the current entry.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let current = self.tree.winner();
        let trailer = self.inputs[current].trailer();
        self.turning_key.clear();
        self.turning_key.extend_from_slice(self.inputs[current].key());
        for at in (0..self.inputs.len()).filter(|&at| at != current) {
            let input = &mut self.inputs[at];
            // An entry equal to the current one comes before it in an input with a smaller number, after it in one
            // with a greater number.
            let moved = match direction {
                Direction::Forward => seek_after(input, &self.turning_key, trailer, at > current),
                Direction::Backward => seek_until(input, &self.turning_key, trailer, at < current),
            };
            self.note(moved)?;
        }
        self.direction = direction;
        self.rebuild();
        debug_assert_eq!(self.tree.winner(), current, "turning must not move the current entry");
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Remembers a failure: an input that failed stays failed, and so does the merge.
    fn note(&mut self, moved: Result<()>) -> Result<()> {
        if let Err(error) = &moved {
            self.failed = Some(error.clone());
        }
        moved
    }
}

impl<I: InternalIterator> InternalIterator for MergingIterator<I> {
    fn valid(&self) -> bool {
        self.failed.is_none() && self.inputs.get(self.tree.winner()).is_some_and(InternalIterator::valid)
    }

    fn key(&self) -> &[u8] {
        self.inputs[self.tree.winner()].key()
    }

    fn trailer(&self) -> Trailer {
        self.inputs[self.tree.winner()].trailer()
    }

    fn value(&self) -> &[u8] {
        self.inputs[self.tree.winner()].value()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.position(Direction::Forward, |input| input.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position(Direction::Backward, |input| input.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.position(Direction::Forward, |input| input.seek(key, trailer))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.position(Direction::Backward, |input| input.seek_before(key, trailer))
    }

    fn next(&mut self) -> Result<()> {
        self.check()?;
        // A single input has no match to play.
        if let [input] = self.inputs.as_mut_slice() {
            let moved = input.next();
            return self.note(moved);
        }
        if self.direction == Direction::Backward {
            self.turn(Direction::Forward)?;
        }
        self.step()
    }

    fn prev(&mut self) -> Result<()> {
        self.check()?;
        if let [input] = self.inputs.as_mut_slice() {
            let moved = input.prev();
            return self.note(moved);
        }
        if self.direction == Direction::Forward {
            self.turn(Direction::Backward)?;
        }
        self.step()
    }
}

/// The head by which an input plays: smaller wins, an exhausted input never wins but against another one.
fn head_of(input: &impl InternalIterator, prefix: &[u8], direction: Direction) -> u64 {
    if !input.valid() {
        return u64::MAX;
    }
    let key = input.key();
    let head = match key.strip_prefix(prefix) {
        Some(suffix) => key::head(suffix),
        None if key < prefix => 0,
        None => u64::MAX,
    };
    match direction {
        Direction::Forward => head,
        Direction::Backward => !head,
    }
}

/// Decides between two inputs whose heads are equal.
fn comes_first<I: InternalIterator>(inputs: &[I], direction: Direction, a: usize, b: usize) -> bool {
    let (a_input, b_input) = (&inputs[a], &inputs[b]);
    if !a_input.valid() || !b_input.valid() {
        return a_input.valid();
    }
    let order =
        key::compare(a_input.key(), a_input.trailer(), b_input.key(), b_input.trailer()).then(a.cmp(&b));
    order == if direction == Direction::Forward { Ordering::Less } else { Ordering::Greater }
}

fn stands_on(input: &impl InternalIterator, key: &[u8], trailer: Trailer) -> bool {
    input.valid() && input.trailer() == trailer && input.key() == key
}

/// Moves to the first entry after (`key`, `trailer`), or at it if `or_at`.
fn seek_after(input: &mut impl InternalIterator, key: &[u8], trailer: Trailer, or_at: bool) -> Result<()> {
    input.seek(key, trailer)?;
    if !or_at && stands_on(input, key, trailer) { input.next() } else { Ok(()) }
}

/// Moves to the last entry before (`key`, `trailer`), or at it if `or_at`.
fn seek_until(input: &mut impl InternalIterator, key: &[u8], trailer: Trailer, or_at: bool) -> Result<()> {
    if or_at {
        input.seek(key, trailer)?;
        if stands_on(input, key, trailer) {
            return Ok(());
        }
    }
    input.seek_before(key, trailer)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alluvium_base::ErrorKind;
    use alluvium_base::key::{KeyspaceId, Kind};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Entry, Move, VecIterator, check_moves, sorted, walk_ends};

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let user = prop_oneof![
            prop::collection::vec(0u8..3, 0..3),
            // Keys that tie after any short prefix.
            (0u8..30).prop_map(|tail| [b"a-long-shared-prefix".as_slice(), &[tail]].concat()),
        ];
        (0u32..2, user).prop_map(|(keyspace, user)| KeyspaceId(keyspace).full_key(&user))
    }

    /// Up to `most` inputs; an entry lies in one of them.
    fn inputs(most: usize) -> impl Strategy<Value = Vec<Vec<Entry>>> {
        let entry = (key(), 0u64..40, any::<u8>(), 0..most);
        prop::collection::vec(entry, 0..60).prop_map(move |entries| {
            let mut inputs = vec![Vec::new(); most];
            let mut seen = std::collections::BTreeSet::new();
            for (key, seqno, value, input) in entries {
                if seen.insert((key.clone(), seqno)) {
                    inputs[input].push((key, Trailer::new(seqno, Kind::Put), vec![value]));
                }
            }
            inputs.into_iter().map(sorted).collect()
        })
    }

    fn merge(inputs: &[Vec<Entry>]) -> MergingIterator<VecIterator> {
        MergingIterator::new(inputs.iter().map(|input| VecIterator::new(input.clone().into())).collect())
    }

    proptest! {
        #[test]
        fn any_moves_see_what_a_sorted_vec_shows(
            inputs in (1usize..9).prop_flat_map(inputs),
            moves in prop::collection::vec(Move::any(key()), 0..60),
        ) {
            let all = sorted(inputs.concat());
            check_moves(&mut merge(&inputs), &all, &moves)?;
        }

        #[test]
        fn equal_entries_of_two_inputs_are_shown_once_each_way(
            entries in prop::collection::vec((0u8..6, 0u64..3), 1..8),
            moves in prop::collection::vec(Move::any(key()), 0..40),
        ) {
            let input = |value: u8| {
                let entry = |&(key, seqno): &(u8, u64)| (vec![key], Trailer::new(seqno, Kind::Put), vec![value]);
                let mut input = sorted(entries.iter().map(entry).collect());
                input.dedup();
                input
            };
            let inputs = [input(0), input(1), input(2)];
            // A stable sort keeps equal entries in the order of their inputs.
            let all = sorted(inputs.concat());
            check_moves(&mut merge(&inputs), &all, &moves)?;
        }
    }

    #[test]
    fn no_input_at_all_is_an_empty_sequence() {
        let mut merged = merge(&[]);
        walk_ends(&mut merged, &[]);
        assert!(!merged.valid());
    }

    #[test]
    fn a_failed_input_fails_the_merge_for_good() {
        let entries: Arc<[Entry]> =
            (0..10u8).map(|key| (vec![key], Trailer::new(1, Kind::Put), vec![])).collect();
        for broken_after in 0..10 {
            let whole = VecIterator::new(entries.clone());
            let broken = VecIterator::failing_after(entries.clone(), broken_after);
            let mut merged = MergingIterator::new(vec![whole, broken]);
            let mut result = merged.seek_to_first();
            while result.is_ok() && merged.valid() {
                result = merged.next();
            }
            let is_corrupt = |result: &Result<()>| matches!(result, Err(error) if matches!(error.kind(), ErrorKind::Corrupt { .. }));
            assert!(is_corrupt(&result), "an error is never an end: {result:?}");
            assert!(!merged.valid());
            assert!(is_corrupt(&merged.seek_to_first()) && is_corrupt(&merged.seek(b"", Trailer::NEWEST)));
            assert!(!merged.valid());
        }
    }

    #[test]
    fn heads_of_neighbours_differ_even_behind_long_shared_prefixes() {
        // Two inputs that alternate, keys as a benchmark makes them: all within one prefix of 14 bytes.
        let entry = |number: u32| {
            let key = KeyspaceId(9).full_key(format!("user{number:016}").as_bytes());
            (key, Trailer::new(u64::from(number), Kind::Put), vec![])
        };
        let even = (0..5000).map(|number| entry(2 * number)).collect();
        let odd = (0..5000).map(|number| entry(2 * number + 1)).collect();
        let mut merged = MergingIterator::new(vec![VecIterator::new(even), VecIterator::new(odd)]);
        merged.seek_to_first().unwrap();
        let (mut ties, mut entries) = (0, 0);
        while merged.valid() {
            let before = merged.ties;
            merged.next().unwrap();
            ties += u32::from(merged.ties != before);
            entries += 1;
        }
        assert_eq!(entries, 10_000);
        assert!(ties <= entries / 100, "{ties} ties in {entries} moves");
    }
}
