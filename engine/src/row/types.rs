//! The types a column can have.

use std::fmt;
use std::str::FromStr;

use alluvium_base::coding::Reader;
use alluvium_base::{Error, Result};

/// Most digits of a decimal: what fits the 96 bits of [`Decimal`](rust_decimal::Decimal).
pub const DECIMAL_PRECISION_MAX: u8 = 28;

/// The type of a column.
///
/// Shown and parsed as `bool`, `i8` … `i64`, `u8` … `u64`, `f32`, `f64`, `decimal(precision,scale)`, `text`, `bytes`,
/// `date`, `time`, `timestamp`, `uuid`, `json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// True or false; false sorts first.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE 754, 32 bits. One NaN, which sorts last; −0 is stored as 0.
    F32,
    /// IEEE 754, 64 bits. One NaN, which sorts last; −0 is stored as 0.
    F64,
    /// An exact decimal number.
    Decimal {
        /// Number of digits in all, 1 to [`DECIMAL_PRECISION_MAX`].
        precision: u8,
        /// Number of them behind the point, at most `precision`.
        scale: u8,
    },
    /// UTF-8 text; sorts by its bytes, which is the order of its code points.
    Text,
    /// Bytes.
    Bytes,
    /// A calendar date, years 0000 to 9999.
    Date,
    /// A time of day in microseconds.
    Time,
    /// A moment in microseconds, UTC, years 0000 to 9999.
    Timestamp,
    /// 128 bits; sorts by its bytes.
    Uuid,
    /// A JSON document in canonical form. Cannot be part of a key.
    Json,
}

/// How a value of a type lies in a row: in a fixed number of bytes, or in as many as it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Fixed(usize),
    Variable,
}

impl Type {
    /// Bytes that a value takes in a row and (without NULL marker) in a key.
    pub(super) fn width(self) -> Width {
        Width::Fixed(match self {
            Type::Bool | Type::I8 | Type::U8 => 1,
            Type::I16 | Type::U16 => 2,
            Type::I32 | Type::U32 | Type::F32 | Type::Date => 4,
            Type::I64 | Type::U64 | Type::F64 | Type::Time | Type::Timestamp => 8,
            Type::Decimal { precision, .. } => decimal_bytes(precision),
            Type::Uuid => 16,
            Type::Text | Type::Bytes | Type::Json => return Width::Variable,
        })
    }

    /// True if values of the type can be part of a primary key or of an index. Only JSON cannot: it has no order that
    /// anyone would expect.
    #[must_use]
    pub fn can_be_key(self) -> bool {
        self != Type::Json
    }

    /// True for the types of which an index may hold a prefix: text (counted in characters) and bytes.
    #[must_use]
    pub fn has_prefixes(self) -> bool {
        matches!(self, Type::Text | Type::Bytes)
    }

    /// False for a decimal whose precision or scale is out of range.
    #[must_use]
    pub fn is_valid(self) -> bool {
        match self {
            Type::Decimal { precision, scale } => {
                (1..=DECIMAL_PRECISION_MAX).contains(&precision) && scale <= precision
            }
            _ => true,
        }
    }

    /// Appends the stored form: one byte, and two more for a decimal.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(match self {
            Type::Bool => 1,
            Type::I8 => 2,
            Type::I16 => 3,
            Type::I32 => 4,
            Type::I64 => 5,
            Type::U8 => 6,
            Type::U16 => 7,
            Type::U32 => 8,
            Type::U64 => 9,
            Type::F32 => 10,
            Type::F64 => 11,
            Type::Decimal { .. } => 12,
            Type::Text => 13,
            Type::Bytes => 14,
            Type::Date => 15,
            Type::Time => 16,
            Type::Timestamp => 17,
            Type::Uuid => 18,
            Type::Json => 19,
        });
        if let Type::Decimal { precision, scale } = self {
            out.extend_from_slice(&[precision, scale]);
        }
    }

    /// Reads the stored form; `None` if it is not one.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Type> {
        let ty = match reader.u8()? {
            1 => Type::Bool,
            2 => Type::I8,
            3 => Type::I16,
            4 => Type::I32,
            5 => Type::I64,
            6 => Type::U8,
            7 => Type::U16,
            8 => Type::U32,
            9 => Type::U64,
            10 => Type::F32,
            11 => Type::F64,
            12 => Type::Decimal { precision: reader.u8()?, scale: reader.u8()? },
            13 => Type::Text,
            14 => Type::Bytes,
            15 => Type::Date,
            16 => Type::Time,
            17 => Type::Timestamp,
            18 => Type::Uuid,
            19 => Type::Json,
            _ => return None,
        };
        ty.is_valid().then_some(ty)
    }
}

/// Bytes of the scaled integer of a decimal: the fewest of 1, 2, 4, 8, 12 whose signed range holds `precision` digits
/// (10²⁸ < 2⁹⁵).
fn decimal_bytes(precision: u8) -> usize {
    match precision {
        0..=2 => 1,
        3..=4 => 2,
        5..=9 => 4,
        10..=18 => 8,
        _ => 12,
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Bool => "bool",
            Type::I8 => "i8",
            Type::I16 => "i16",
            Type::I32 => "i32",
            Type::I64 => "i64",
            Type::U8 => "u8",
            Type::U16 => "u16",
            Type::U32 => "u32",
            Type::U64 => "u64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::Decimal { precision, scale } => return write!(f, "decimal({precision},{scale})"),
            Type::Text => "text",
            Type::Bytes => "bytes",
            Type::Date => "date",
            Type::Time => "time",
            Type::Timestamp => "timestamp",
            Type::Uuid => "uuid",
            Type::Json => "json",
        })
    }
}

impl FromStr for Type {
    type Err = Error;

    /// Parses what `Display` shows.
    ///
    /// # Errors
    /// `InvalidArgument` if the text names no type.
    fn from_str(text: &str) -> Result<Type> {
        let unknown = || {
            Error::invalid(format!(
                "{text:?} is not a type; use bool, i8 to i64, u8 to u64, f32, f64, decimal(precision,scale), text, \
                 bytes, date, time, timestamp, uuid or json"
            ))
        };
        if let Some(arguments) = text.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')')) {
            let (precision, scale) = arguments.split_once(',').ok_or_else(unknown)?;
            let number = |digits: &str| digits.trim().parse().map_err(|_| unknown());
            let ty = Type::Decimal { precision: number(precision)?, scale: number(scale)? };
            return ty.is_valid().then_some(ty).ok_or_else(unknown);
        }
        Ok(match text {
            "bool" => Type::Bool,
            "i8" => Type::I8,
            "i16" => Type::I16,
            "i32" => Type::I32,
            "i64" => Type::I64,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "text" => Type::Text,
            "bytes" => Type::Bytes,
            "date" => Type::Date,
            "time" => Type::Time,
            "timestamp" => Type::Timestamp,
            "uuid" => Type::Uuid,
            "json" => Type::Json,
            _ => return Err(unknown()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_round_trips_as_bytes_and_as_text() {
        for code in 1..=19u8 {
            let Some(ty) = Type::decode(&mut Reader::new(&[code, 12, 2])) else { panic!("code {code}") };
            let mut bytes = Vec::new();
            ty.encode(&mut bytes);
            assert_eq!(Type::decode(&mut Reader::new(&bytes)), Some(ty));
            assert_eq!(ty.to_string().parse::<Type>().unwrap(), ty);
        }
        assert_eq!(Type::decode(&mut Reader::new(&[20])), None);
    }

    #[test]
    fn decimals_out_of_range_are_refused() {
        for refused in ["decimal(0,0)", "decimal(29,0)", "decimal(4,5)", "decimal(4)", "decimal(-1,0)"] {
            assert!(refused.parse::<Type>().is_err(), "{refused}");
        }
        for (precision, bytes) in [(2, 1u32), (4, 2), (9, 4), (18, 8), (28, 12)] {
            assert!(10i128.pow(precision) - 1 < 1i128 << (bytes * 8 - 1));
            assert_eq!(decimal_bytes(precision as u8), bytes as usize);
        }
    }
}
