//! Exact conversion of a value into the canonical form of a column's type.
//!
//! A value that is written, and a value that is looked up, is converted once, before anything is encoded; what cannot
//! be converted without loss is refused. Nothing is rounded, cut or wrapped, and text is never taken for a number:
//! tools that start from text say so with [`Type::parse`].

use alluvium_base::{Error, ErrorKind, Result};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::temporal::Time;
use super::types::Type;
use super::value::{Value, ValueRef, canonical_f32, canonical_f64};

impl<'a> ValueRef<'a> {
    /// The value in the canonical form of `ty`; `None` if it cannot be converted exactly. NULL stays NULL.
    ///
    /// Integers, floats and decimals convert into each other when the number stays the same; a date becomes its
    /// midnight UTC, and a midnight UTC its date. Nothing else converts.
    #[must_use]
    pub fn coerce(self, ty: Type) -> Option<ValueRef<'a>> {
        Some(match (self, ty) {
            (ValueRef::Null, _) => self,
            (ValueRef::Bool(_), Type::Bool)
            | (ValueRef::Text(_), Type::Text)
            | (ValueRef::Bytes(_), Type::Bytes)
            | (ValueRef::Date(_), Type::Date)
            | (ValueRef::Time(_), Type::Time)
            | (ValueRef::Timestamp(_), Type::Timestamp)
            | (ValueRef::Uuid(_), Type::Uuid)
            | (ValueRef::Json(_), Type::Json) => self,
            (ValueRef::Date(date), Type::Timestamp) => ValueRef::Timestamp(date.midnight()),
            (ValueRef::Timestamp(moment), Type::Date) => {
                (moment.time() == Time::default()).then(|| ValueRef::Date(moment.date()))?
            }
            (_, Type::I8) => signed(self, i64::from(i8::MIN), i64::from(i8::MAX))?,
            (_, Type::I16) => signed(self, i64::from(i16::MIN), i64::from(i16::MAX))?,
            (_, Type::I32) => signed(self, i64::from(i32::MIN), i64::from(i32::MAX))?,
            (_, Type::I64) => signed(self, i64::MIN, i64::MAX)?,
            (_, Type::U8) => unsigned(self, u64::from(u8::MAX))?,
            (_, Type::U16) => unsigned(self, u64::from(u16::MAX))?,
            (_, Type::U32) => unsigned(self, u64::from(u32::MAX))?,
            (_, Type::U64) => unsigned(self, u64::MAX)?,
            (_, Type::F32) => ValueRef::F32(exact_f32(float(self)?)?),
            (_, Type::F64) => ValueRef::F64(canonical_f64(float(self)?)),
            (_, Type::Decimal { precision, scale }) => {
                ValueRef::Decimal(decimal_of_scaled(scaled(self, u32::from(scale))?, precision, scale)?)
            }
            _ => return None,
        })
    }

    /// As [`coerce`](Self::coerce), for the column called `column`.
    ///
    /// # Errors
    /// `TypeMismatch` if the value cannot be converted exactly.
    pub fn coerce_for(self, column: &str, ty: Type) -> Result<ValueRef<'a>> {
        self.coerce(ty).ok_or_else(|| type_mismatch(column, ty, self))
    }
}

impl Value {
    /// The value in the canonical form of `ty`, see [`ValueRef::coerce`].
    #[must_use]
    pub fn coerce(&self, ty: Type) -> Option<Value> {
        self.as_ref().coerce(ty).map(ValueRef::to_value)
    }
}

/// The error for a value that is not of its column's type.
pub(super) fn type_mismatch(column: &str, ty: Type, value: ValueRef<'_>) -> Error {
    const SHOWN_CHARS: usize = 40;
    let text = value.to_string();
    let mut found = format!("{} {}", value.describe(), text.chars().take(SHOWN_CHARS).collect::<String>());
    if value.is_null() {
        found = "null, which the column does not allow".to_owned();
    } else if text.chars().nth(SHOWN_CHARS).is_some() {
        found.push('…');
    }
    ErrorKind::TypeMismatch { column: column.to_owned(), expected: ty.to_string(), found }.into()
}

/// The integer that the value is exactly.
fn integer(value: ValueRef<'_>) -> Option<i128> {
    match value {
        ValueRef::Int(value) => Some(i128::from(value)),
        ValueRef::UInt(value) => Some(i128::from(value)),
        ValueRef::F32(_) | ValueRef::F64(_) | ValueRef::Decimal(_) => scaled(value, 0),
        _ => None,
    }
}

fn signed(value: ValueRef<'_>, min: i64, max: i64) -> Option<ValueRef<'static>> {
    let number = i64::try_from(integer(value)?).ok()?;
    (min..=max).contains(&number).then_some(ValueRef::Int(number))
}

fn unsigned(value: ValueRef<'_>, max: u64) -> Option<ValueRef<'static>> {
    let number = u64::try_from(integer(value)?).ok()?;
    (number <= max).then_some(ValueRef::UInt(number))
}

/// The `f64` that the value is exactly.
fn float(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::F32(value) => Some(f64::from(value)),
        ValueRef::F64(value) => Some(value),
        ValueRef::Int(_) | ValueRef::UInt(_) => {
            let number = integer(value)?;
            let float = number as f64;
            (float as i128 == number).then_some(float)
        }
        ValueRef::Decimal(number) => {
            // Not rounded if the float, taken back to a decimal, is the same number.
            let float = number.to_f64()?;
            (scaled(ValueRef::F64(float), number.scale())? == number.mantissa()).then_some(float)
        }
        _ => None,
    }
}

fn exact_f32(value: f64) -> Option<f32> {
    let narrow = canonical_f32(value as f32);
    (value.is_nan() || f64::from(narrow) == value).then_some(narrow)
}

/// The number times 10^`scale`, if that is exactly an integer of at most 127 bits.
pub(super) fn scaled(value: ValueRef<'_>, scale: u32) -> Option<i128> {
    match value {
        ValueRef::Int(_) | ValueRef::UInt(_) => integer(value)?.checked_mul(10i128.checked_pow(scale)?),
        ValueRef::F32(value) => scaled_float(f64::from(value), scale),
        ValueRef::F64(value) => scaled_float(value, scale),
        ValueRef::Decimal(number) => match scale.checked_sub(number.scale()) {
            Some(more) => number.mantissa().checked_mul(10i128.checked_pow(more)?),
            None => {
                let unit = 10i128.checked_pow(number.scale() - scale)?;
                (number.mantissa() % unit == 0).then(|| number.mantissa() / unit)
            }
        },
        _ => None,
    }
}

/// A float is m·2^e with an odd m. With e ≥ 0 it is an integer; with e < 0 it has exactly −e decimal places, since
/// 2^e = 5^−e / 10^−e, so that it fits a scale of at least −e and no smaller one.
fn scaled_float(value: f64, scale: u32) -> Option<i128> {
    if value == 0.0 {
        return Some(0);
    }
    if !value.is_finite() {
        return None;
    }
    let bits = value.to_bits();
    let stored_exponent = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) =
        if stored_exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, stored_exponent - 1075) };
    let odd = i128::from(mantissa >> mantissa.trailing_zeros());
    let exponent = exponent + mantissa.trailing_zeros() as i32;
    let magnitude = if exponent >= 0 {
        let doublings = 2i128.checked_pow(exponent as u32)?;
        odd.checked_mul(doublings)?.checked_mul(10i128.checked_pow(scale)?)?
    } else {
        let places = exponent.unsigned_abs();
        let more = scale.checked_sub(places)?;
        odd.checked_mul(5i128.checked_pow(places)?)?.checked_mul(10i128.checked_pow(more)?)?
    };
    Some(if value < 0.0 { -magnitude } else { magnitude })
}

/// The decimal of a scaled integer; `None` if it has more than `precision` digits.
pub(super) fn decimal_of_scaled(scaled: i128, precision: u8, scale: u8) -> Option<Decimal> {
    let limit = 10u128.checked_pow(u32::from(precision))?;
    (scaled.unsigned_abs() < limit)
        .then(|| Decimal::try_from_i128_with_scale(scaled, u32::from(scale)).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::Date;

    fn coerce(value: impl Into<Value>, ty: Type) -> Option<Value> {
        value.into().coerce(ty)
    }

    const MONEY: Type = Type::Decimal { precision: 5, scale: 2 };

    #[test]
    fn numbers_convert_only_when_exact() {
        assert_eq!(coerce(300, Type::U8), None);
        assert_eq!(coerce(-1, Type::U64), None);
        assert_eq!(coerce(7u64, Type::I8), Some(Value::Int(7)));
        assert_eq!(coerce(u64::MAX, Type::I64), None);
        assert_eq!(coerce(5.0, Type::I32), Some(Value::Int(5)));
        assert_eq!(coerce(5.5, Type::I32), None);
        assert_eq!(coerce((1i64 << 53) + 1, Type::F64), None);
        assert_eq!(coerce(0.1, Type::F32), None);
        assert_eq!(coerce(0.1f32, Type::F64), Some(Value::F64(f64::from(0.1f32))));
        assert_eq!(coerce(f64::NAN, Type::I64), None);
    }

    #[test]
    fn decimals_keep_every_digit_or_are_refused() {
        let decimal = |text: &str| Value::Decimal(text.parse().unwrap());
        assert_eq!(coerce(decimal("1.50"), MONEY).map(|v| v.to_string()).as_deref(), Some("1.50"));
        assert_eq!(coerce(decimal("1.5"), MONEY).map(|v| v.to_string()).as_deref(), Some("1.50"));
        assert_eq!(coerce(decimal("1.500"), MONEY), Some(decimal("1.5")));
        assert_eq!(coerce(decimal("1.505"), MONEY), None);
        assert_eq!(coerce(decimal("1000"), MONEY), None);
        assert_eq!(coerce(decimal("-999.99"), MONEY), Some(decimal("-999.99")));
        assert_eq!(coerce(0.25, MONEY), Some(decimal("0.25")));
        assert_eq!(coerce(0.1, MONEY), None);
        assert_eq!(coerce(decimal("0.5"), Type::F64), Some(Value::F64(0.5)));
        assert_eq!(coerce(decimal("0.1"), Type::F64), None);
        assert_eq!(coerce(decimal("-0"), MONEY).map(|v| v.to_string()).as_deref(), Some("0.00"));
    }

    #[test]
    fn dates_are_their_midnight_and_text_is_only_text() {
        let date = Date::from_ymd(2013, 2, 3).unwrap();
        assert_eq!(coerce(date, Type::Timestamp), Some(Value::Timestamp(date.midnight())));
        assert_eq!(coerce(date.midnight(), Type::Date), Some(Value::Date(date)));
        assert_eq!(coerce("7", Type::I32), None);
        assert_eq!(coerce("a", Type::Bytes), None);
        assert_eq!(coerce(true, Type::U8), None);
        assert_eq!(coerce(Value::Null, Type::U8), Some(Value::Null));
    }

    #[test]
    fn a_mismatch_names_column_type_and_value() {
        let error = ValueRef::Text(&"x".repeat(100)).coerce_for("age", Type::U8).unwrap_err().to_string();
        assert_eq!(error, format!("column age holds u8, but the value is text {}…", "x".repeat(40)));
    }

    proptest! {
        #[test]
        fn floats_scale_exactly(mantissa in -(1i64 << 40)..1 << 40, places in 0u32..12) {
            let float = mantissa as f64 / f64::from(1u32 << places);
            let scaled = scaled_float(float, 12);
            let expected = i128::from(mantissa) * 10i128.pow(12) / (1 << places);
            prop_assert_eq!(scaled, Some(expected));
        }

        #[test]
        fn coercion_never_panics(bits: u64, int: i64, precision in 1u8..=28, scale in 0u8..=28) {
            let ty = Type::Decimal { precision, scale: scale.min(precision) };
            for value in [Value::F64(f64::from_bits(bits)), Value::Int(int), Value::UInt(bits)] {
                if let Some(decimal) = value.coerce(ty) {
                    prop_assert_eq!(decimal.coerce(ty), Some(decimal.clone()));
                    if let Some(back) = decimal.coerce(Type::F64) {
                        prop_assert_eq!(back.coerce(ty), Some(decimal));
                    }
                }
            }
        }
    }
}
