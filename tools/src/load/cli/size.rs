//! Sizes (`512MiB`) and limits of errors (`100`, `1%`) as people write them.

use std::fmt;
use std::str::FromStr;

const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let unclear = || {
            format!("{text:?} is not a size; write for example 512MiB or 2GiB (KiB, MiB, GiB, TiB, or bytes)")
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..digits].parse().map_err(|_| unclear())?;
        let unit = text[digits..].trim_start();
        if unit.is_empty() || unit == "B" {
            return Ok(Size(number));
        }
        let (_, shift) =
            UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(unclear)?;
        number.checked_mul(1 << shift).map(Size).ok_or_else(unclear)
    }
}

impl fmt::Display for Size {
    /// Exact where the size is a whole number of a unit (and then parses back), else with one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((unit, shift)) = UNITS.iter().rev().find(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{} B", self.0);
        };
        if self.0.trailing_zeros() >= *shift {
            write!(f, "{} {unit}", self.0 >> shift)
        } else {
            write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64)
        }
    }
}

/// How many rows may be rejected before a load fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorLimit {
    /// At most so many.
    Rows(u64),
    /// At most so many in a hundred of the rows that were read.
    Percent(f64),
}

impl ErrorLimit {
    /// True if `rejected` of `rows` rows are too many.
    #[must_use]
    pub fn is_exceeded(self, rejected: u64, rows: u64) -> bool {
        match self {
            ErrorLimit::Rows(most) => rejected > most,
            ErrorLimit::Percent(percent) => rejected as f64 > rows as f64 * percent / 100.0,
        }
    }

    /// True if `rejected` rows are too many, however many rows are still to come.
    #[must_use]
    pub fn is_exceeded_for_good(self, rejected: u64) -> bool {
        match self {
            ErrorLimit::Rows(most) => rejected > most,
            ErrorLimit::Percent(percent) => percent == 0.0 && rejected > 0,
        }
    }
}

impl FromStr for ErrorLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<ErrorLimit, String> {
        let unclear =
            || format!("{text:?} is not a limit; write a number of rows (100) or a share of them (0.5%)");
        match text.strip_suffix('%') {
            Some(number) => {
                let percent: f64 = number.trim_end().parse().map_err(|_| unclear())?;
                (0.0..=100.0).contains(&percent).then_some(ErrorLimit::Percent(percent)).ok_or_else(unclear)
            }
            None => text.parse().map(ErrorLimit::Rows).map_err(|_| unclear()),
        }
    }
}

impl fmt::Display for ErrorLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorLimit::Rows(most) => write!(f, "{most}"),
            ErrorLimit::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_show() {
        for (text, bytes, shown) in [
            ("0", 0, "0 B"),
            ("1000", 1000, "1000 B"),
            ("64KiB", 65_536, "64 KiB"),
            ("512 mib", 512 << 20, "512 MiB"),
            ("2GiB", 2 << 30, "2 GiB"),
            ("1536MiB", 1536 << 20, "1.5 GiB"),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
            assert_eq!(Size(bytes).to_string(), shown);
        }
        for refused in ["", "MiB", "-1", "1.5GiB", "10MB", "99999999999TiB", "1 B B"] {
            assert!(refused.parse::<Size>().unwrap_err().contains("write for example 512MiB"), "{refused}");
        }
    }

    #[test]
    fn limits_count_rows_or_shares() {
        let rows: ErrorLimit = "10".parse().unwrap();
        assert!(!rows.is_exceeded(10, 10) && rows.is_exceeded(11, 1_000_000));
        let share: ErrorLimit = "0.5%".parse().unwrap();
        assert!(!share.is_exceeded(5, 1000) && share.is_exceeded(6, 1000));
        assert!(!share.is_exceeded_for_good(1_000_000));
        let none: ErrorLimit = "0".parse().unwrap();
        assert!(!none.is_exceeded(0, 0) && none.is_exceeded_for_good(1));
        for refused in ["", "%", "101%", "-1", "1.5", "NaN%"] {
            assert!(refused.parse::<ErrorLimit>().is_err(), "{refused}");
        }
    }
}
