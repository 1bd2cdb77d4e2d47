//! When a scan reads ahead: a pure rule over the blocks that it asks for.
//!
//! 1. Blocks that follow each other (in either direction) make a run; any jump ends it.
//! 2. From the third block of a run on, a block that is not in the cache also asks for what lies behind it, at first
//!    16 KiB, doubling up to 256 KiB.
//! 3. Nothing is asked for twice, and a new piece is asked for when half of the last one is used up.

use std::ops::Range;

const WINDOW_BYTES_MIN: u64 = 16 << 10;
const WINDOW_BYTES_MAX: u64 = 256 << 10;
/// Blocks in a row before reading ahead pays.
const RUN_MIN: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Watches the blocks that one iterator asks for.
#[derive(Clone, Debug)]
pub(crate) struct ReadAhead {
    last: Range<u64>,
    direction: Direction,
    run: u32,
    window: u64,
    /// How far has been asked for, in the direction of the run.
    asked: u64,
}

impl ReadAhead {
    pub(super) fn new() -> ReadAhead {
        ReadAhead { last: 0..0, direction: Direction::Forward, run: 0, window: 0, asked: 0 }
    }

    /// Notes that the block at `block` is asked for.
    pub(super) fn note(&mut self, block: Range<u64>) {
        let direction = if block.start == self.last.end {
            Some(Direction::Forward)
        } else if block.end == self.last.start {
            Some(Direction::Backward)
        } else {
            None
        };
        match direction {
            Some(direction) if direction == self.direction => self.run += 1,
            _ => {
                self.run = u32::from(direction.is_some());
                self.window = 0;
            }
        }
        self.direction = direction.unwrap_or(Direction::Forward);
        self.last = block;
    }

    /// What to read ahead, now that the block noted last is not in the cache. `end` is where the blocks end.
    pub(super) fn on_miss(&mut self, end: u64) -> Option<Range<u64>> {
        if self.run < RUN_MIN {
            return None;
        }
        if self.window == 0 {
            self.asked = match self.direction {
                Direction::Forward => self.last.end,
                Direction::Backward => self.last.start,
            };
        }
        let left = match self.direction {
            Direction::Forward => self.asked.saturating_sub(self.last.end),
            Direction::Backward => self.last.start.saturating_sub(self.asked),
        };
        if left > self.window / 2 {
            return None;
        }
        self.window = (self.window * 2).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        let piece = match self.direction {
            Direction::Forward => self.asked.max(self.last.end)..(self.last.end + self.window).min(end),
            Direction::Backward => {
                self.last.start.saturating_sub(self.window)..self.asked.min(self.last.start)
            }
        };
        self.asked = if self.direction == Direction::Forward { piece.end } else { piece.start };
        (!piece.is_empty()).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a scan over `blocks` asks for ahead, if nothing is in the cache.
    fn pieces(blocks: impl Iterator<Item = Range<u64>>, end: u64) -> Vec<Range<u64>> {
        let mut ahead = ReadAhead::new();
        blocks
            .filter_map(|block| {
                ahead.note(block);
                ahead.on_miss(end)
            })
            .collect()
    }

    #[test]
    fn long_scans_ask_for_every_byte_once_in_growing_pieces() {
        let (block, end) = (3000u64, 3_000_000u64);
        let forward = pieces((0..1000).map(|at| at * block..(at + 1) * block), end);
        assert_eq!(forward.first().map(|piece| piece.end - piece.start), Some(WINDOW_BYTES_MIN));
        assert!(forward.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(forward.last().map(|piece| piece.end), Some(end));
        assert!(forward.len() < 40, "{} calls", forward.len());

        let backward = pieces((0..1000).rev().map(|at| at * block..(at + 1) * block), end);
        assert!(backward.windows(2).all(|pair| pair[0].start == pair[1].end));
        assert_eq!(backward.last().map(|piece| piece.start), Some(0));
        assert!(backward.len() < 40, "{} calls", backward.len());
    }

    #[test]
    fn jumps_ask_for_nothing() {
        let jumps = (1..500u64).map(|at| (at * 7919) % 1000 * 4096..(at * 7919) % 1000 * 4096 + 4000);
        assert_eq!(pieces(jumps, 1 << 30), []);
    }
}
