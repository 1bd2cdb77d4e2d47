//! Values from text and to text, for tools: one canonical text per value, which parses back to the same value.
//!
//! | type | canonical text | also understood |
//! |---|---|---|
//! | bool | `true`, `false` | `t`, `f`, `1`, `0`, any case |
//! | integers | `-42` | leading `+` and zeros |
//! | floats | the shortest decimal that reads back the same, `inf`, `-inf`, `NaN` | exponents, `infinity`, more digits than the type keeps (rounded to the nearest), `-0` (which is 0); beyond the largest finite number is out of range |
//! | decimal(p,s) | exactly s digits behind the point | fewer digits, exponents, if nothing is lost |
//! | text, json | itself (JSON in canonical form) | any JSON |
//! | bytes | `0x` and lower-case hexadecimal | upper case, `\x` |
//! | date, time | `2013-01-31`, `05:00:00[.123[456]]` | a time without seconds |
//! | timestamp | `2013-01-31T05:00:00[.123[456]]Z` | a blank for `T`, any offset, no zone (UTC), no time (midnight) |
//! | uuid | lower case with hyphens | what the uuid crate reads |

use std::fmt;

use super::convert::decimal_of_scaled;
use super::json::Json;
use super::temporal::{parse_date, parse_time, parse_timestamp};
use super::types::Type;
use super::value::{Value, ValueRef, canonical_f32, canonical_f64};

/// Why a text is not a value of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseFailure {
    /// The type that was asked for.
    pub ty: Type,
    /// What a text of that type looks like, or what does not fit.
    pub reason: &'static str,
}

impl fmt::Display for ParseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a {}: {}", self.ty, self.reason)
    }
}

impl std::error::Error for ParseFailure {}

impl Type {
    /// Parses the text of a value of this type. Allocates only for text, bytes and JSON; no text is NULL.
    ///
    /// # Errors
    /// A [`ParseFailure`] if the text is not a value of the type, or only after rounding.
    pub fn parse(self, text: &str) -> Result<Value, ParseFailure> {
        let parsed = match self {
            Type::Bool => parse_bool(text).ok_or("expected true or false"),
            Type::I8 => signed::<i8>(text),
            Type::I16 => signed::<i16>(text),
            Type::I32 => signed::<i32>(text),
            Type::I64 => signed::<i64>(text),
            Type::U8 => unsigned::<u8>(text),
            Type::U16 => unsigned::<u16>(text),
            Type::U32 => unsigned::<u32>(text),
            Type::U64 => unsigned::<u64>(text),
            Type::F32 => float(text, f32::is_infinite).map(|value| Value::F32(canonical_f32(value))),
            Type::F64 => float(text, f64::is_infinite).map(|value| Value::F64(canonical_f64(value))),
            Type::Decimal { precision, scale } => decimal(text, precision, scale),
            Type::Text => Ok(Value::Text(text.to_owned())),
            Type::Bytes => parse_hex(text)
                .map(Value::Bytes)
                .ok_or("expected 0x and an even number of hexadecimal digits"),
            Type::Date => parse_date(text).map(Value::Date).ok_or("expected YYYY-MM-DD"),
            Type::Time => parse_time(text)
                .map(Value::Time)
                .ok_or("expected HH:MM:SS with at most six digits behind the point"),
            Type::Timestamp => parse_timestamp(text)
                .map(Value::Timestamp)
                .ok_or("expected YYYY-MM-DDTHH:MM:SSZ with at most six digits behind the point"),
            Type::Uuid => text.parse().map(Value::Uuid).map_err(|_| "expected 32 hexadecimal digits"),
            Type::Json => Json::parse(text).map(Value::Json).ok_or("expected a JSON document"),
        };
        parsed.map_err(|reason| ParseFailure { ty: self, reason })
    }
}

fn parse_bool(text: &str) -> Option<Value> {
    const TRUE: [&str; 3] = ["true", "t", "1"];
    const FALSE: [&str; 3] = ["false", "f", "0"];
    if TRUE.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Some(Value::Bool(true));
    }
    FALSE.iter().any(|word| text.eq_ignore_ascii_case(word)).then_some(Value::Bool(false))
}

fn integer_failure(error: &std::num::ParseIntError) -> &'static str {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    match error.kind() {
        PosOverflow | NegOverflow => "out of range",
        _ => "expected an integer",
    }
}

fn signed<T: std::str::FromStr<Err = std::num::ParseIntError> + Into<i64>>(
    text: &str,
) -> Result<Value, &'static str> {
    text.parse::<T>().map(|value| Value::Int(value.into())).map_err(|error| integer_failure(&error))
}

fn unsigned<T: std::str::FromStr<Err = std::num::ParseIntError> + Into<u64>>(
    text: &str,
) -> Result<Value, &'static str> {
    if text.starts_with('-') && text.len() > 1 && text.bytes().skip(1).all(|byte| byte.is_ascii_digit()) {
        return Err("out of range");
    }
    text.parse::<T>().map(|value| Value::UInt(value.into())).map_err(|error| integer_failure(&error))
}

fn float<T: std::str::FromStr + Copy>(text: &str, is_infinite: fn(T) -> bool) -> Result<T, &'static str> {
    let value = text.parse().map_err(|_| "expected a number")?;
    // Infinity is written as a word. Digits that become it are a finite number that the type does not hold.
    if is_infinite(value) && text.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err("out of range");
    }
    Ok(value)
}

/// Digits with an optional sign, point and exponent, as an exact scaled integer.
fn decimal(text: &str, precision: u8, scale: u8) -> Result<Value, &'static str> {
    const SHAPE: &str = "expected digits with an optional sign and point";
    const LOSS: &str = "more digits behind the point than the column keeps";
    const RANGE: &str = "out of range";
    let (number, exponent) = match text.find(['e', 'E']) {
        None => (text, 0),
        Some(at) => {
            let (number, exponent) = text.split_at(at);
            let exponent: i32 = exponent.get(1..).unwrap_or_default().parse().map_err(|_| SHAPE)?;
            (number, exponent)
        }
    };
    let (negative, number) = match number.as_bytes().first() {
        Some(b'-') => (true, &number[1..]),
        Some(b'+') => (false, &number[1..]),
        _ => (false, number),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(SHAPE);
    }
    let mut mantissa = 0i128;
    let mut places = -i64::from(exponent);
    // Zeros are held back until a digit follows: trailing ones cost no precision.
    let mut zeros = 0u32;
    for (byte, behind_point) in whole.bytes().map(|b| (b, 0)).chain(fraction.bytes().map(|b| (b, 1))) {
        if !byte.is_ascii_digit() {
            return Err(SHAPE);
        }
        places += behind_point;
        zeros += 1;
        if byte != b'0' {
            if mantissa == 0 {
                mantissa = i128::from(byte - b'0');
            } else {
                let shifted =
                    10i128.checked_pow(zeros).and_then(|unit| mantissa.checked_mul(unit)).ok_or(RANGE)?;
                mantissa = shifted.checked_add(i128::from(byte - b'0')).ok_or(RANGE)?;
            }
            zeros = 0;
        }
    }
    if mantissa != 0 {
        let shift = i64::from(scale) - places + i64::from(zeros);
        let shift = u32::try_from(shift).map_err(|_| LOSS)?;
        mantissa = 10i128.checked_pow(shift).and_then(|unit| mantissa.checked_mul(unit)).ok_or(RANGE)?;
    }
    let scaled = if negative { -mantissa } else { mantissa };
    decimal_of_scaled(scaled, precision, scale).map(Value::Decimal).ok_or(RANGE)
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("\\x"))?.as_bytes();
    let nibble = |digit: &u8| char::from(*digit).to_digit(16);
    if digits.len() % 2 != 0 {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| match pair {
            [high, low] => Some((nibble(high)? << 4 | nibble(low)?) as u8),
            _ => None,
        })
        .collect()
}

impl fmt::Display for ValueRef<'_> {
    /// The canonical text; NULL shows as `NULL`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueRef::Null => f.write_str("NULL"),
            ValueRef::Bool(value) => write!(f, "{value}"),
            ValueRef::Int(value) => write!(f, "{value}"),
            ValueRef::UInt(value) => write!(f, "{value}"),
            ValueRef::F32(value) => write!(f, "{value}"),
            ValueRef::F64(value) => write!(f, "{value}"),
            ValueRef::Decimal(value) => write!(f, "{value}"),
            ValueRef::Text(value) | ValueRef::Json(value) => f.write_str(value),
            ValueRef::Bytes(value) => {
                f.write_str("0x")?;
                value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            ValueRef::Date(value) => write!(f, "{value}"),
            ValueRef::Time(value) => write!(f, "{value}"),
            ValueRef::Timestamp(value) => write!(f, "{value}"),
            ValueRef::Uuid(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for Value {
    /// The canonical text; NULL shows as `NULL`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::testing::{any_type, any_value};

    fn reason(ty: Type, text: &str) -> &'static str {
        ty.parse(text).unwrap_err().reason
    }

    #[test]
    fn numbers_out_of_range_are_told_from_what_is_no_number() {
        assert_eq!(reason(Type::U8, "256"), "out of range");
        assert_eq!(reason(Type::U8, "-1"), "out of range");
        assert_eq!(reason(Type::U8, "-"), "expected an integer");
        assert_eq!(reason(Type::I8, "-129"), "out of range");
        assert_eq!(reason(Type::I8, " 1"), "expected an integer");
        assert_eq!(reason(Type::I64, "1.0"), "expected an integer");
    }

    #[test]
    fn finite_texts_beyond_a_float_became_infinity() {
        for (ty, text) in
            [(Type::F64, "1e309"), (Type::F64, "-1e309"), (Type::F32, "3.5e38"), (Type::F32, "-1e39")]
        {
            assert_eq!(reason(ty, text), "out of range", "{text}");
        }
        let digits = "9".repeat(400);
        assert_eq!(reason(Type::F64, &digits), "out of range");
        for text in ["inf", "-inf", "INF", "infinity", "+inf"] {
            let value = if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY };
            assert_eq!(Type::F64.parse(text), Ok(Value::F64(value)), "{text}");
        }
        assert_eq!(Type::F64.parse("1.7976931348623157e308"), Ok(Value::F64(f64::MAX)));
        assert_eq!(Type::F32.parse("3.4028235e38"), Ok(Value::F32(f32::MAX)));
        assert_eq!(reason(Type::F64, "x"), "expected a number");
    }

    #[test]
    fn decimals_parse_exactly() {
        let money = Type::Decimal { precision: 5, scale: 2 };
        for (text, shown) in [
            ("1", "1.00"),
            ("-1.5", "-1.50"),
            ("+.5", "0.50"),
            ("5.", "5.00"),
            ("1.5000000000000000000000000000000000000000000000000", "1.50"),
            ("15e-1", "1.50"),
            ("0.0999e4", "999.00"),
            ("00000000000000000000000000000000000000000000000000.1", "0.10"),
            ("-0", "0.00"),
            ("0e999999999", "0.00"),
        ] {
            assert_eq!(money.parse(text).map(|value| value.to_string()).as_deref(), Ok(shown), "{text}");
        }
        assert_eq!(reason(money, "1.005"), "more digits behind the point than the column keeps");
        assert_eq!(reason(money, "1000"), "out of range");
        assert_eq!(reason(money, "1e2000000000"), "out of range");
        assert_eq!(reason(money, "1e-2000000000"), "more digits behind the point than the column keeps");
        for refused in ["", ".", "-", "1_000", "1,5", "e5", "1e", "1e5.5", "--1", "NaN"] {
            assert_eq!(
                reason(money, refused),
                "expected digits with an optional sign and point",
                "{refused}"
            );
        }
    }

    #[test]
    fn bytes_are_hexadecimal() {
        assert_eq!(Type::Bytes.parse("0x00fF"), Ok(Value::Bytes(vec![0, 255])));
        assert_eq!(Type::Bytes.parse("\\x"), Ok(Value::Bytes(vec![])));
        for refused in ["", "00", "0x0", "0xgg", "0x+1"] {
            assert!(Type::Bytes.parse(refused).is_err(), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn canonical_text_parses_back((ty, value) in any_type().prop_flat_map(|ty| (Just(ty), any_value(ty)))) {
            let text = value.to_string();
            let parsed = ty.parse(&text);
            prop_assert_eq!(parsed.as_ref(), Ok(&value), "{}", text);
            prop_assert_eq!(parsed.map(|value| value.to_string()), Ok(text));
        }

        #[test]
        fn parsers_survive_any_text(ty in any_type(), text: String) {
            if let Ok(value) = ty.parse(&text) {
                prop_assert_eq!(value.coerce(ty), Some(value.clone()));
                prop_assert_eq!(ty.parse(&value.to_string()), Ok(value));
            }
        }
    }
}
