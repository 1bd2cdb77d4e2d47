//! Which types a text could be of.
//!
//! Stricter than parsing: a type counts only if the text is how that type's values are usually written, so that
//! nothing is lost by taking it. `007` parses as an integer but would come back as `7`; it counts as text. So do
//! `+49123`, and a number with more digits than its type holds.

use std::ops::{BitAnd, BitOr};

use alluvium::row::Type;

/// A set of types that a text, or every text of a column, could be of. Text itself is always possible and not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shapes(u16);

impl Shapes {
    /// Only text.
    pub const NONE: Shapes = Shapes(0);
    /// Everything is possible: nothing has been seen.
    pub const ALL: Shapes = Shapes(u16::MAX);
    /// `true`, `false`.
    pub const BOOL: Shapes = Shapes(1);
    /// An integer of 64 bits with sign.
    pub const I64: Shapes = Shapes(1 << 1);
    /// An integer of 64 bits without sign.
    pub const U64: Shapes = Shapes(1 << 2);
    /// Digits with at most one point: an exact decimal.
    pub const DECIMAL: Shapes = Shapes(1 << 3);
    /// A number that a 64-bit float gives back digit for digit.
    pub const F64: Shapes = Shapes(1 << 4);
    /// `YYYY-MM-DD`.
    pub const DATE: Shapes = Shapes(1 << 5);
    /// Date and time.
    pub const TIMESTAMP: Shapes = Shapes(1 << 6);
    /// `HH:MM:SS`.
    pub const TIME: Shapes = Shapes(1 << 7);
    /// 8-4-4-4-12 hexadecimal digits.
    pub const UUID: Shapes = Shapes(1 << 8);

    /// True if one of `others` is possible.
    #[must_use]
    pub fn contains(self, others: Shapes) -> bool {
        self.0 & others.0 != 0
    }
}

impl BitAnd for Shapes {
    type Output = Shapes;
    fn bitand(self, other: Shapes) -> Shapes {
        Shapes(self.0 & other.0)
    }
}

impl BitOr for Shapes {
    type Output = Shapes;
    fn bitor(self, other: Shapes) -> Shapes {
        Shapes(self.0 | other.0)
    }
}

/// A number in plain notation, taken apart: `-12.50` has 2 + 2 digits, and its last one is a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainNumber {
    /// Digits before the point.
    pub whole_digits: usize,
    /// Digits behind it.
    pub fraction_digits: usize,
    /// Behind the point there are digits, and the last one is 0.
    pub ends_in_zero: bool,
}

/// Takes `[-]digits[.digits]` apart; `None` for anything else, and for leading zeros.
#[must_use]
pub fn plain_number(text: &str) -> Option<PlainNumber> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    let empty_fraction = digits.contains('.') && fraction.is_empty();
    if whole.is_empty() || leading_zero || empty_fraction || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    Some(PlainNumber {
        whole_digits: whole.len(),
        fraction_digits: fraction.len(),
        ends_in_zero: fraction.ends_with('0'),
    })
}

/// Most digits of a decimal column.
const DECIMAL_DIGITS_MAX: usize = alluvium::row::DECIMAL_PRECISION_MAX as usize;

/// The types that `text` could be of.
#[must_use]
pub fn shapes(text: &str) -> Shapes {
    let Some(&first) = text.as_bytes().first() else { return Shapes::NONE };
    if first.is_ascii_digit() || first == b'-' || first == b'.' {
        return number(text) | moment(text) | uuid(text);
    }
    if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
        return Shapes::BOOL;
    }
    if matches!(text, "NaN" | "nan" | "inf" | "Inf" | "INF") {
        return Shapes::F64;
    }
    uuid(text)
}

fn number(text: &str) -> Shapes {
    let Some(number) = plain_number(text) else {
        return if is_float_notation(text) { Shapes::F64 } else { Shapes::NONE };
    };
    let digits = number.whole_digits + number.fraction_digits;
    let mut found = Shapes::NONE;
    if digits <= DECIMAL_DIGITS_MAX {
        found = found | Shapes::DECIMAL;
    }
    if text == "-0" {
        return Shapes::NONE;
    }
    if float_gives_back(text) {
        found = found | Shapes::F64;
    }
    if number.fraction_digits == 0 && text.parse::<i64>().is_ok() {
        found = found | Shapes::I64;
    }
    if number.fraction_digits == 0 && text.parse::<u64>().is_ok() {
        found = found | Shapes::U64;
    }
    found
}

/// True for what only floats look like: `1e5`, `.5`, `5.`, `-inf`.
fn is_float_notation(text: &str) -> bool {
    if matches!(text, "-inf" | "-Inf" | "-INF") {
        return true;
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let digits = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let without_point =
        digits.strip_suffix('.').or_else(|| digits.strip_prefix('.').filter(|rest| !rest.contains('.')));
    let is_number = match without_point {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => plain_number(mantissa).is_some(),
    };
    // A number beyond the range of a float stays text: as a float it would be refused.
    is_number && exponent.parse::<i32>().is_ok() && Type::F64.parse(text).is_ok()
}

/// True if a float keeps all digits of a plain number but trailing zeros.
fn float_gives_back(text: &str) -> bool {
    let digits = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    text.parse::<f64>().is_ok_and(|value| value.to_string() == digits)
}

fn moment(text: &str) -> Shapes {
    const DATE_LEN: usize = "YYYY-MM-DD".len();
    const TIME_LEN: usize = "HH:MM:SS".len();
    if text.len() == DATE_LEN && Type::Date.parse(text).is_ok() {
        Shapes::DATE
    } else if text.len() > DATE_LEN && Type::Timestamp.parse(text).is_ok() {
        Shapes::TIMESTAMP
    } else if text.len() >= TIME_LEN && Type::Time.parse(text).is_ok() {
        Shapes::TIME
    } else {
        Shapes::NONE
    }
}

fn uuid(text: &str) -> Shapes {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let is_uuid = text.len() == 36
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| if HYPHENS.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() });
    if is_uuid { Shapes::UUID } else { Shapes::NONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_shapes_that_lose_nothing() {
        let integer = Shapes::I64 | Shapes::U64 | Shapes::DECIMAL | Shapes::F64;
        let signed = Shapes::I64 | Shapes::DECIMAL | Shapes::F64;
        let point = Shapes::DECIMAL | Shapes::F64;
        for (text, expected) in [
            ("", Shapes::NONE),
            ("0", integer),
            ("42", integer),
            ("-42", signed),
            ("9007199254740993", Shapes::I64 | Shapes::U64 | Shapes::DECIMAL),
            ("18446744073709551615", Shapes::U64 | Shapes::DECIMAL),
            ("99999999999999999999", Shapes::DECIMAL),
            ("1234567890123456789012345678901", Shapes::NONE),
            ("007", Shapes::NONE),
            ("-0", Shapes::NONE),
            ("+49", Shapes::NONE),
            ("1,000", Shapes::NONE),
            ("12.50", point),
            ("-0.5", point),
            ("00.5", Shapes::NONE),
            ("10.357019999999999", point),
            ("0.12345678901234567890", Shapes::DECIMAL),
            ("0.00000012345678901234", point),
            ("-0.0", point),
            ("1e5", Shapes::F64),
            ("1e400", Shapes::NONE),
            ("-1.5E-7", Shapes::F64),
            (".5", Shapes::F64),
            ("5.", Shapes::F64),
            ("NaN", Shapes::F64),
            ("-inf", Shapes::F64),
            ("1.2.3", Shapes::NONE),
            ("04e5", Shapes::NONE),
            ("-", Shapes::NONE),
            (".", Shapes::NONE),
            ("true", Shapes::BOOL),
            ("FALSE", Shapes::BOOL),
            ("2013-01-01", Shapes::DATE),
            ("2013-02-30", Shapes::NONE),
            ("2013-01-01T10:00:00Z", Shapes::TIMESTAMP),
            ("2013-01-01 10:00", Shapes::TIMESTAMP),
            ("2013-01-01T10:00:00.1234567Z", Shapes::NONE),
            ("10:00:00", Shapes::TIME),
            ("25:00:00", Shapes::NONE),
            ("10:00", Shapes::NONE),
            ("6f9619ff-8b86-d011-b42d-00c04fc964ff", Shapes::UUID),
            ("FF9619FF-8B86-D011-B42D-00C04FC964FF", Shapes::UUID),
            ("6f9619ff8b86d011b42d00c04fc964ff", Shapes::NONE),
            ("N14228", Shapes::NONE),
            (" 5", Shapes::NONE),
        ] {
            assert_eq!(shapes(text), expected, "{text:?}");
        }
    }
}
