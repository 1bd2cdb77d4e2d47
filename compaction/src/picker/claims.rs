//! What running jobs have taken for themselves.
//!
//! A job claims its input files, and in its output level the key range of its outputs. Two jobs may run at once if
//!
//! 1. they share no input file, and
//! 2. their outputs could not overlap within a level (level 0 aside, whose stack sorts out overlaps by age), and
//! 3. a job that takes level 0 past a level does not pass the outputs of another one there.

use std::collections::HashSet;

use alluvium_base::KeyRange;

use crate::version::FileMeta;

/// What one running job has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Ids of its input files.
    pub files: Vec<u64>,
    /// Lowest number among its inputs' levels.
    pub from_level: u8,
    /// Where its outputs go.
    pub output_level: u8,
    /// Range that holds its outputs.
    pub range: KeyRange,
}

/// All claims, ready to be asked.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    claims: &'a [Claim],
    files: HashSet<u64>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(claims: &'a [Claim]) -> Claims<'a> {
        Claims { claims, files: claims.iter().flat_map(|claim| claim.files.iter().copied()).collect() }
    }

    pub(super) fn holds(&self, file: &FileMeta) -> bool {
        self.files.contains(&file.id)
    }

    pub(super) fn holds_any<'f>(
        &self,
        files: impl IntoIterator<Item = &'f std::sync::Arc<FileMeta>>,
    ) -> bool {
        !self.files.is_empty() && files.into_iter().any(|file| self.holds(file))
    }

    /// True if a job from `from_level` to `output_level` with outputs in `range` would collide with another's outputs.
    pub(super) fn block_output(&self, from_level: u8, output_level: u8, range: &KeyRange) -> bool {
        self.claims.iter().any(|claim| {
            let same_level = claim.output_level == output_level && output_level > 0;
            // Nothing older may come to lie above: neither this job's below theirs, nor theirs below this one's.
            let passes = |from: u8, to: u8, other: u8| from < other && other < to;
            let in_the_way = passes(from_level, output_level, claim.output_level)
                || passes(claim.from_level, claim.output_level, output_level);
            (same_level || in_the_way) && claim.range.overlaps(range)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_must_neither_overlap_nor_pass_each_other() {
        let claim = |from_level, output_level, range: (&str, &str)| Claim {
            files: vec![],
            from_level,
            output_level,
            range: KeyRange::new(range.0, range.1),
        };
        let range = KeyRange::new("f", "k");
        // (claim, from, to, blocked?)
        let cases = [
            (claim(4, 5, ("a", "g")), 4, 5, true),
            (claim(4, 5, ("a", "f")), 4, 5, false),
            (claim(4, 5, ("a", "g")), 5, 6, false),
            (claim(4, 5, ("a", "g")), 3, 4, false),
            (claim(0, 0, ("a", "g")), 0, 0, false),
            (claim(0, 4, ("a", "g")), 0, 5, true),
            (claim(0, 5, ("a", "g")), 0, 4, true),
            (claim(0, 0, ("a", "g")), 0, 4, false),
            (claim(6, 6, ("a", "g")), 6, 6, true),
        ];
        for (claim, from, to, blocked) in cases {
            let all = [claim];
            assert_eq!(
                Claims::new(&all).block_output(from, to, &range),
                blocked,
                "{all:?} against {from} to {to}"
            );
        }
    }
}
