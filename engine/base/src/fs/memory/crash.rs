//! How much of what was not synced a power loss keeps.

use crate::random::Random;

/// A coin thrown for every sector would almost never give "all of this file, nothing of that one", which is what real
/// crashes mostly look like and what finds most bugs. So a crash first leans one way as a whole, then per file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaning {
    /// Nothing that was not synced stays.
    Nothing,
    /// Everything stays.
    Everything,
    /// Any part of it stays.
    Mixed,
}

impl Leaning {
    /// Nothing and everything once in eight each.
    pub(super) fn pick(random: &mut Random) -> Leaning {
        match random.below(8) {
            0 => Leaning::Nothing,
            1 => Leaning::Everything,
            _ => Leaning::Mixed,
        }
    }

    /// The leaning of one part of a crash that leans like `self`.
    pub(super) fn pick_part(self, random: &mut Random) -> Leaning {
        if self == Leaning::Mixed { Leaning::pick(random) } else { self }
    }
}
