//! Where a row came from, in eight bytes.
//!
//! Every sort entry carries the place of its row: the number of the input (16 bits) and the line on which the row
//! begins (48 bits). No two rows share a place, and places grow in the order of the input. So one word serves to name
//! both rows of a violated uniqueness, to say which of two duplicates came first, and to drop a row from all indexes,
//! without a table that maps row numbers to lines.

use std::fmt;

const LINE_BITS: u32 = 48;

/// Most inputs of one load: their number has 16 bits.
pub const INPUTS_MAX: usize = 1 << 16;

/// Input and line of a row; ordered like the rows of the inputs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

impl Place {
    /// The place of the row that begins on `line` (counted from 1) of input number `input` (counted from 0).
    #[must_use]
    pub fn new(input: u16, line: u64) -> Place {
        debug_assert!(line < 1 << LINE_BITS, "line {line} exceeds 48 bits");
        Place(u64::from(input) << LINE_BITS | line)
    }

    /// Number of the input, counted from 0 in the order of the command line.
    #[must_use]
    pub fn input(self) -> u16 {
        (self.0 >> LINE_BITS) as u16
    }

    /// The line on which the row begins, counted from 1.
    #[must_use]
    pub fn line(self) -> u64 {
        self.0 & ((1 << LINE_BITS) - 1)
    }

    /// The word to store.
    #[must_use]
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// A stored word.
    #[must_use]
    pub fn from_u64(word: u64) -> Place {
        Place(word)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.input(), self.line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_order_like_the_rows_of_the_inputs() {
        let places = [Place::new(0, 1), Place::new(0, 2), Place::new(1, 1), Place::new(u16::MAX, 7)];
        assert!(places.is_sorted());
        assert_eq!((places[3].input(), places[3].line()), (u16::MAX, 7));
        assert_eq!(Place::from_u64(places[2].to_u64()), places[2]);
    }
}
