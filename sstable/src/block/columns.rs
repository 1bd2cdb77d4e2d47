//! The columns of an entry block: numbers of one width, and slices of an area by their ends.

use std::ops::Range;

/// Bytes per number of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Width {
    /// The column is constant and takes no room.
    #[default]
    Zero,
    Two,
    Four,
    Eight,
}

impl Width {
    /// The narrowest width that holds `max`.
    pub(super) fn of(max: u64) -> Width {
        match max {
            0 => Width::Zero,
            1..=0xffff => Width::Two,
            0x1_0000..=0xffff_ffff => Width::Four,
            _ => Width::Eight,
        }
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            Width::Zero => 0,
            Width::Two => 2,
            Width::Four => 4,
            Width::Eight => 8,
        }
    }

    fn from_code(code: u8) -> Width {
        match code & 3 {
            0 => Width::Zero,
            1 => Width::Two,
            2 => Width::Four,
            _ => Width::Eight,
        }
    }

    /// The widths of keys, trailers and values from the first byte of a block.
    pub(super) fn unpack(byte: u8) -> Option<[Width; 3]> {
        (byte >> 6 == 0).then(|| [byte, byte >> 2, byte >> 4].map(Width::from_code))
    }

    /// The first byte of a block.
    pub(super) fn pack(widths: [Width; 3]) -> u8 {
        let [keys, trailers, values] = widths.map(|width| width as u8);
        keys | trailers << 2 | values << 4
    }

    /// Appends the low bytes of `number`.
    pub(super) fn put(self, out: &mut Vec<u8>, number: u64) {
        match self {
            Width::Zero => {}
            Width::Two => out.extend_from_slice(&(number as u16).to_le_bytes()),
            Width::Four => out.extend_from_slice(&(number as u32).to_le_bytes()),
            Width::Eight => out.extend_from_slice(&number.to_le_bytes()),
        }
    }

    /// Number `at` of the column that starts at `start`; 0 outside the block, which the checks at entry rule out.
    #[inline]
    fn read(self, bytes: &[u8], start: usize, at: usize) -> u64 {
        let column = bytes.get(start + at * self.bytes()..).unwrap_or_default();
        match self {
            Width::Zero => 0,
            Width::Two => column.first_chunk().map_or(0, |chunk| u64::from(u16::from_le_bytes(*chunk))),
            Width::Four => column.first_chunk().map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk))),
            Width::Eight => column.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk)),
        }
    }
}

/// A column of numbers: base plus difference.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    width: Width,
    start: u32,
    base: u64,
}

impl Numbers {
    pub(super) const EMPTY: Numbers = Numbers { width: Width::Zero, start: 0, base: 0 };

    pub(super) fn new(width: Width, start: usize, base: u64) -> Numbers {
        Numbers { width, start: start as u32, base }
    }

    #[inline]
    pub(super) fn get(&self, bytes: &[u8], at: usize) -> u64 {
        match self.width {
            Width::Zero => self.base,
            width => self.base.wrapping_add(width.read(bytes, self.start as usize, at)),
        }
    }

    /// True if `holds` is true for each of the `count` numbers; a constant column is asked once.
    pub(super) fn all(&self, bytes: &[u8], count: usize, holds: impl Fn(u64) -> bool) -> bool {
        match self.width {
            Width::Zero => holds(self.base),
            _ => (0..count).all(|at| holds(self.get(bytes, at))),
        }
    }
}

/// A column of slices, which lie one behind the other in an area of the block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slices {
    width: Width,
    /// Where the column of ends starts.
    ends: u32,
    /// Where the area starts.
    area: u32,
    /// Length of every slice if the width is zero.
    len: u32,
}

impl Slices {
    pub(super) const EMPTY: Slices = Slices { width: Width::Zero, ends: 0, area: 0, len: 0 };

    /// A column of `count` slices that fill `area_bytes`; `None` if they are said to be equally long and cannot be.
    pub(super) fn new(
        width: Width,
        ends: usize,
        area: usize,
        area_bytes: usize,
        count: usize,
    ) -> Option<Slices> {
        let len = match width {
            Width::Zero if !area_bytes.is_multiple_of(count) => return None,
            Width::Zero => area_bytes / count,
            Width::Eight => return None,
            _ => 0,
        };
        Some(Slices { width, ends: ends as u32, area: area as u32, len: len as u32 })
    }

    /// True if the ends ascend and the last one is the end of the area.
    pub(super) fn is_monotone(&self, bytes: &[u8], count: usize, area_bytes: usize) -> bool {
        if self.width == Width::Zero {
            return true;
        }
        let mut last = 0;
        for at in 0..count {
            let end = self.width.read(bytes, self.ends as usize, at);
            if end < last {
                return false;
            }
            last = end;
        }
        last == area_bytes as u64
    }

    #[inline]
    pub(super) fn range(&self, bytes: &[u8], at: usize) -> Range<usize> {
        let area = self.area as usize;
        if self.width == Width::Zero {
            let len = self.len as usize;
            return area + at * len..area + (at + 1) * len;
        }
        let end = |at| self.width.read(bytes, self.ends as usize, at) as usize;
        let start = at.checked_sub(1).map_or(0, end);
        area + start..area + end(at)
    }

    #[inline]
    pub(super) fn get<'a>(&self, bytes: &'a [u8], at: usize) -> &'a [u8] {
        bytes.get(self.range(bytes, at)).unwrap_or_default()
    }
}
