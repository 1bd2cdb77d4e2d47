//! Admission: how fast writers may go, as a pure function of how far behind the tree is.
//!
//! Below the soft debt there is no limit at all. Above it, the admitted rate is *capacity* × f(debt): f falls smoothly
//! from 2 at the soft limit over 1 half-way to 0.5 at the hard limit, so that writers feel a little resistance long
//! before they would hit a wall. Capacity is what the slowest stage (flush or compaction) has been able to absorb per
//! *busy* second, so an idle night does not lower it. A writer's wait is computed once, from its bytes and the rate.
//! Past the hard limit writers stop; that is a backstop, and is counted with its cause.

use std::fmt;

/// How far behind the tree is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    /// Sublevels of level 0: what a read must look at.
    pub level0_sublevels: usize,
    /// Frozen memtables that wait for their flush.
    pub immutable_memtables: usize,
    /// Bytes that compaction must still move for the levels to be within their targets.
    pub pending_bytes: u64,
}

/// Where resistance begins and where writers stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Level-0 sublevels: soft and hard limit.
    pub level0_sublevels: (usize, usize),
    /// Frozen memtables: soft and hard limit.
    pub immutable_memtables: (usize, usize),
    /// Pending compaction bytes: soft and hard limit.
    pub pending_bytes: (u64, u64),
}

/// What holds writers back most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Level 0 has many sublevels.
    Level0,
    /// Flushes do not keep up.
    Memtables,
    /// Compaction has much left to do.
    PendingBytes,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Level0 => "level 0 is deep",
            Cause::Memtables => "flushes are behind",
            Cause::PendingBytes => "compaction is behind",
        })
    }
}

/// What writers may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// As fast as they like.
    Free,
    /// At this many bytes per second.
    Paced {
        /// The rate, in user bytes per second.
        bytes_per_second: f64,
        /// Why.
        cause: Cause,
    },
    /// Not at all until the debt is below the hard limit.
    Stopped {
        /// Why.
        cause: Cause,
    },
}

/// Share of the way from the soft limit (0) to the hard limit (1).
fn pressure(value: f64, (soft, hard): (f64, f64)) -> f64 {
    if value >= hard {
        return 1.0;
    }
    ((value - soft) / (hard - soft).max(1.0)).max(0.0)
}

/// Decides what writers may do at `debt`, when the slowest stage absorbs `capacity` user bytes per busy second.
#[must_use]
pub fn decide(debt: &Debt, limits: &Limits, capacity_bytes_per_second: f64) -> Admission {
    let count = |(soft, hard): (usize, usize)| (soft as f64, hard as f64);
    let pressures = [
        (pressure(debt.level0_sublevels as f64, count(limits.level0_sublevels)), Cause::Level0),
        (pressure(debt.immutable_memtables as f64, count(limits.immutable_memtables)), Cause::Memtables),
        (
            pressure(
                debt.pending_bytes as f64,
                (limits.pending_bytes.0 as f64, limits.pending_bytes.1 as f64),
            ),
            Cause::PendingBytes,
        ),
    ];
    let mut worst = (0.0, Cause::Level0);
    for (pressure, cause) in pressures {
        if pressure > worst.0 {
            worst = (pressure, cause);
        }
    }
    let (pressure, cause) = worst;
    if pressure >= 1.0 {
        return Admission::Stopped { cause };
    }
    if pressure <= 0.0 {
        return Admission::Free;
    }
    Admission::Paced { bytes_per_second: capacity_bytes_per_second * factor(pressure), cause }
}

/// 2 at pressure 0, 1 at one half, 0.5 at 1: each half of the way halves the rate, without a step anywhere.
#[must_use]
pub fn factor(pressure: f64) -> f64 {
    2.0 * 0.25f64.powf(pressure.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { level0_sublevels: (8, 24), immutable_memtables: (2, 4), pending_bytes: (8 << 30, 64 << 30) };
    const CAPACITY: f64 = 100e6;

    fn at(level0_sublevels: usize, immutable_memtables: usize, pending_gib: u64) -> Admission {
        decide(
            &Debt { level0_sublevels, immutable_memtables, pending_bytes: pending_gib << 30 },
            &LIMITS,
            CAPACITY,
        )
    }

    #[test]
    fn below_the_soft_limit_nobody_waits() {
        assert_eq!(at(0, 0, 0), Admission::Free);
        assert_eq!(at(8, 2, 8), Admission::Free);
    }

    #[test]
    fn the_worst_debt_decides() {
        assert!(matches!(at(9, 0, 0), Admission::Paced { cause: Cause::Level0, .. }));
        assert!(matches!(at(9, 3, 0), Admission::Paced { cause: Cause::Memtables, .. }));
        assert!(matches!(at(9, 0, 60), Admission::Paced { cause: Cause::PendingBytes, .. }));
        assert_eq!(at(24, 0, 0), Admission::Stopped { cause: Cause::Level0 });
        assert_eq!(at(0, 4, 0), Admission::Stopped { cause: Cause::Memtables });
    }

    #[test]
    fn the_rate_falls_without_steps() {
        let rates: Vec<f64> = (9..24)
            .map(|sublevels| match at(sublevels, 0, 0) {
                Admission::Paced { bytes_per_second, .. } => bytes_per_second,
                other => panic!("{other:?}"),
            })
            .collect();
        for pair in rates.windows(2) {
            assert!(pair[1] < pair[0] && pair[1] > 0.85 * pair[0], "{rates:?}");
        }
        assert_eq!(factor(0.0), 2.0);
        assert_eq!(factor(0.5), 1.0);
        assert_eq!(factor(1.0), 0.5);
    }
}
