//! Values: what a column of a row holds.
//!
//! [`Value`] owns, [`ValueRef`] borrows; the engine works with the latter, so that reading and writing a row copies
//! no text. A value does not know its column's type exactly (every signed column gives [`Value::Int`], every unsigned
//! one [`Value::UInt`]): the column does, and [`ValueRef::coerce`] brings a value into the column's canonical form or
//! says that it cannot be done exactly.
//!
//! Values have a total order, the order of keys: NULL first, then by number, text, bytes or time; NaN equals itself
//! and comes after every number; −0 equals 0. A column keeps one form of what is equal: a −0 that goes in comes back as
//! 0 and any NaN as the one NaN, in columns that are part of no key as well, so that equal rows are equal bytes.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use rust_decimal::Decimal;
use uuid::Uuid;

use super::json::Json;
use super::temporal::{Date, Time, Timestamp};

/// A value, or NULL.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// Of a `bool` column.
    Bool(bool),
    /// Of any signed integer column.
    Int(i64),
    /// Of any unsigned integer column.
    UInt(u64),
    /// Of an `f32` column, which keeps −0 as 0 and every NaN as one.
    F32(f32),
    /// Of an `f64` column, which keeps −0 as 0 and every NaN as one.
    F64(f64),
    /// Of a `decimal` column.
    Decimal(Decimal),
    /// Of a `text` column.
    Text(String),
    /// Of a `bytes` column.
    Bytes(Vec<u8>),
    /// Of a `date` column.
    Date(Date),
    /// Of a `time` column.
    Time(Time),
    /// Of a `timestamp` column.
    Timestamp(Timestamp),
    /// Of a `uuid` column.
    Uuid(Uuid),
    /// Of a `json` column.
    Json(Json),
}

/// A borrowed [`Value`].
#[derive(Clone, Copy, Debug, Default)]
pub enum ValueRef<'a> {
    /// No value.
    #[default]
    Null,
    /// Of a `bool` column.
    Bool(bool),
    /// Of any signed integer column.
    Int(i64),
    /// Of any unsigned integer column.
    UInt(u64),
    /// Of an `f32` column.
    F32(f32),
    /// Of an `f64` column.
    F64(f64),
    /// Of a `decimal` column.
    Decimal(Decimal),
    /// Of a `text` column.
    Text(&'a str),
    /// Of a `bytes` column.
    Bytes(&'a [u8]),
    /// Of a `date` column.
    Date(Date),
    /// Of a `time` column.
    Time(Time),
    /// Of a `timestamp` column.
    Timestamp(Timestamp),
    /// Of a `uuid` column.
    Uuid(Uuid),
    /// Of a `json` column: its canonical text.
    Json(&'a str),
}

impl Value {
    /// The value, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Bool(*value),
            Value::Int(value) => ValueRef::Int(*value),
            Value::UInt(value) => ValueRef::UInt(*value),
            Value::F32(value) => ValueRef::F32(*value),
            Value::F64(value) => ValueRef::F64(*value),
            Value::Decimal(value) => ValueRef::Decimal(*value),
            Value::Text(value) => ValueRef::Text(value),
            Value::Bytes(value) => ValueRef::Bytes(value),
            Value::Date(value) => ValueRef::Date(*value),
            Value::Time(value) => ValueRef::Time(*value),
            Value::Timestamp(value) => ValueRef::Timestamp(*value),
            Value::Uuid(value) => ValueRef::Uuid(*value),
            Value::Json(value) => ValueRef::Json(value.as_str()),
        }
    }

    /// True for NULL.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl ValueRef<'_> {
    /// A copy that owns its text or bytes.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bool(value) => Value::Bool(value),
            ValueRef::Int(value) => Value::Int(value),
            ValueRef::UInt(value) => Value::UInt(value),
            ValueRef::F32(value) => Value::F32(value),
            ValueRef::F64(value) => Value::F64(value),
            ValueRef::Decimal(value) => Value::Decimal(value),
            ValueRef::Text(value) => Value::Text(value.to_owned()),
            ValueRef::Bytes(value) => Value::Bytes(value.to_owned()),
            ValueRef::Date(value) => Value::Date(value),
            ValueRef::Time(value) => Value::Time(value),
            ValueRef::Timestamp(value) => Value::Timestamp(value),
            ValueRef::Uuid(value) => Value::Uuid(value),
            ValueRef::Json(value) => Value::Json(Json::from_canonical(value)),
        }
    }

    /// True for NULL.
    #[must_use]
    pub fn is_null(self) -> bool {
        matches!(self, ValueRef::Null)
    }

    /// What the value is, for error messages ("null", "integer", "text", …).
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            ValueRef::Null => "null",
            ValueRef::Bool(_) => "bool",
            ValueRef::Int(_) | ValueRef::UInt(_) => "integer",
            ValueRef::F32(_) | ValueRef::F64(_) => "float",
            ValueRef::Decimal(_) => "decimal",
            ValueRef::Text(_) => "text",
            ValueRef::Bytes(_) => "bytes",
            ValueRef::Date(_) => "date",
            ValueRef::Time(_) => "time",
            ValueRef::Timestamp(_) => "timestamp",
            ValueRef::Uuid(_) => "uuid",
            ValueRef::Json(_) => "json",
        }
    }

    /// Place of the variant among the others; numbers of both signednesses compare with each other, as do floats.
    fn rank(self) -> u8 {
        match self {
            ValueRef::Null => 0,
            ValueRef::Bool(_) => 1,
            ValueRef::Int(_) | ValueRef::UInt(_) => 2,
            ValueRef::F32(_) | ValueRef::F64(_) => 3,
            ValueRef::Decimal(_) => 4,
            ValueRef::Text(_) => 5,
            ValueRef::Bytes(_) => 6,
            ValueRef::Date(_) => 7,
            ValueRef::Time(_) => 8,
            ValueRef::Timestamp(_) => 9,
            ValueRef::Uuid(_) => 10,
            ValueRef::Json(_) => 11,
        }
    }

    fn as_integer(self) -> Option<i128> {
        match self {
            ValueRef::Int(value) => Some(i128::from(value)),
            ValueRef::UInt(value) => Some(i128::from(value)),
            _ => None,
        }
    }

    fn as_float(self) -> Option<f64> {
        match self {
            ValueRef::F32(value) => Some(f64::from(value)),
            ValueRef::F64(value) => Some(value),
            _ => None,
        }
    }
}

/// The one form of a float: −0 becomes 0, every NaN the same quiet NaN.
pub(super) fn canonical_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// As [`canonical_f64`].
pub(super) fn canonical_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

/// Numbers by size, NaN equal to itself and after everything.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl Ord for ValueRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Some(a), Some(b)) = (self.as_integer(), other.as_integer()) {
            return a.cmp(&b);
        }
        if let (Some(a), Some(b)) = (self.as_float(), other.as_float()) {
            return compare_floats(a, b);
        }
        match (self, other) {
            (ValueRef::Bool(a), ValueRef::Bool(b)) => a.cmp(b),
            (ValueRef::Decimal(a), ValueRef::Decimal(b)) => a.cmp(b),
            (ValueRef::Text(a), ValueRef::Text(b)) => a.cmp(b),
            (ValueRef::Json(a), ValueRef::Json(b)) => a.cmp(b),
            (ValueRef::Bytes(a), ValueRef::Bytes(b)) => a.cmp(b),
            (ValueRef::Date(a), ValueRef::Date(b)) => a.cmp(b),
            (ValueRef::Time(a), ValueRef::Time(b)) => a.cmp(b),
            (ValueRef::Timestamp(a), ValueRef::Timestamp(b)) => a.cmp(b),
            (ValueRef::Uuid(a), ValueRef::Uuid(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for ValueRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ValueRef<'_> {}

impl Hash for ValueRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        match self {
            ValueRef::Null => {}
            ValueRef::Bool(value) => value.hash(state),
            ValueRef::Int(value) => i128::from(*value).hash(state),
            ValueRef::UInt(value) => i128::from(*value).hash(state),
            ValueRef::F32(value) => canonical_f64(f64::from(*value)).to_bits().hash(state),
            ValueRef::F64(value) => canonical_f64(*value).to_bits().hash(state),
            ValueRef::Decimal(value) => value.hash(state),
            ValueRef::Text(value) | ValueRef::Json(value) => value.hash(state),
            ValueRef::Bytes(value) => value.hash(state),
            ValueRef::Date(value) => value.hash(state),
            ValueRef::Time(value) => value.hash(state),
            ValueRef::Timestamp(value) => value.hash(state),
            ValueRef::Uuid(value) => value.hash(state),
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> ValueRef<'a> {
        value.as_ref()
    }
}

/// `From` of a Rust type for both [`Value`] and [`ValueRef`], by way of a wider type.
macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value::$variant(value.into())
            }
        }
        impl From<$from> for ValueRef<'_> {
            fn from(value: $from) -> Self {
                ValueRef::$variant(value.into())
            }
        }
    )*};
}

value_from! {
    bool => Bool,
    i8 => Int, i16 => Int, i32 => Int, i64 => Int,
    u8 => UInt, u16 => UInt, u32 => UInt, u64 => UInt,
    f32 => F32, f64 => F64,
    Decimal => Decimal, Date => Date, Time => Time, Timestamp => Timestamp, Uuid => Uuid,
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.to_owned())
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Value {
        Value::Bytes(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Value {
        Value::Bytes(value.to_owned())
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(value: &[u8; N]) -> Value {
        Value::Bytes(value.to_vec())
    }
}

impl From<Json> for Value {
    fn from(value: Json) -> Value {
        Value::Json(value)
    }
}

impl From<&Value> for Value {
    fn from(value: &Value) -> Value {
        value.clone()
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Value {
        value.to_value()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_total_over_floats_nulls_and_signs() {
        let sorted = [
            Value::Null,
            Value::F64(f64::NEG_INFINITY),
            Value::F64(-1.5),
            Value::F64(0.0),
            Value::F32(0.5),
            Value::F64(f64::INFINITY),
            Value::F64(f64::NAN),
        ];
        for pair in sorted.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        assert_eq!(Value::F64(-0.0), Value::F64(0.0));
        assert_eq!(Value::F64(-f64::NAN), Value::F32(f32::NAN));
        assert_eq!(Value::Int(5), Value::UInt(5));
        assert!(Value::Int(-1) < Value::UInt(u64::MAX));
    }

    #[test]
    fn values_that_are_equal_hash_alike() {
        let hash = |value: &Value| {
            let mut hasher = std::hash::DefaultHasher::new();
            value.hash(&mut hasher);
            hasher.finish()
        };
        for (a, b) in [
            (Value::Int(5), Value::UInt(5)),
            (Value::F64(-0.0), Value::F32(0.0)),
            (Value::Decimal(Decimal::new(150, 2)), Value::Decimal(Decimal::new(15, 1))),
        ] {
            assert_eq!(a, b);
            assert_eq!(hash(&a), hash(&b));
        }
    }

    #[test]
    fn a_value_stays_small() {
        assert_eq!(size_of::<Value>(), 32);
        assert_eq!(size_of::<ValueRef<'_>>(), 24);
    }
}
