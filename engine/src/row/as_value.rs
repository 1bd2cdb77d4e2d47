//! Rust types as values: what can be a column's field, a key, a bound.

use alluvium_base::Result;
use rust_decimal::Decimal;
use uuid::Uuid;

use super::json::Json;
use super::temporal::{Date, Time, Timestamp};
use super::types::{DECIMAL_PRECISION_MAX, Type};
use super::value::{Value, ValueRef};

/// Something that is one value, without copying it.
pub trait AsValue {
    /// The value.
    fn as_value(&self) -> ValueRef<'_>;
}

/// A Rust type that holds the values of a column: the field of a struct that derives [`Row`](super::Row).
pub trait ColumnType: AsValue + Sized {
    /// The column's type, unless an attribute says otherwise.
    const TYPE: Type;
    /// True for an `Option`: the column is nullable.
    const NULLABLE: bool = false;

    /// Takes the value of a column of this type; `None` if it is of another type or out of range.
    fn from_value(value: ValueRef<'_>) -> Option<Self>;
}

/// One or more values in order: a primary key, or the beginning of an index key. Implemented for single values, for
/// tuples of up to eight, and for slices of [`Value`].
pub trait KeyValues {
    /// Calls `each` with every value.
    ///
    /// # Errors
    /// The first error of `each`.
    fn for_each_value(&self, each: &mut dyn FnMut(ValueRef<'_>) -> Result<()>) -> Result<()>;
}

/// Types that are copied into a value, widened where needed.
macro_rules! plain {
    ($($rust:ty => $variant:ident, $ty:expr);* $(;)?) => {$(
        impl AsValue for $rust {
            fn as_value(&self) -> ValueRef<'_> {
                ValueRef::$variant((*self).into())
            }
        }
        impl ColumnType for $rust {
            const TYPE: Type = $ty;
            fn from_value(value: ValueRef<'_>) -> Option<Self> {
                match value {
                    ValueRef::$variant(value) => value.try_into().ok(),
                    _ => None,
                }
            }
        }
    )*};
}

plain! {
    bool => Bool, Type::Bool;
    i8 => Int, Type::I8;
    i16 => Int, Type::I16;
    i32 => Int, Type::I32;
    i64 => Int, Type::I64;
    u8 => UInt, Type::U8;
    u16 => UInt, Type::U16;
    u32 => UInt, Type::U32;
    u64 => UInt, Type::U64;
    f32 => F32, Type::F32;
    f64 => F64, Type::F64;
    Decimal => Decimal, Type::Decimal { precision: DECIMAL_PRECISION_MAX, scale: 6 };
    Date => Date, Type::Date;
    Time => Time, Type::Time;
    Timestamp => Timestamp, Type::Timestamp;
    Uuid => Uuid, Type::Uuid;
}

/// Types that lend their bytes to a value.
macro_rules! borrowed {
    ($($rust:ty => $variant:ident, $ty:expr);* $(;)?) => {$(
        impl AsValue for $rust {
            fn as_value(&self) -> ValueRef<'_> {
                ValueRef::$variant(self)
            }
        }
        impl ColumnType for $rust {
            const TYPE: Type = $ty;
            fn from_value(value: ValueRef<'_>) -> Option<Self> {
                match value {
                    ValueRef::$variant(value) => Some(value.into()),
                    _ => None,
                }
            }
        }
    )*};
}

borrowed! {
    String => Text, Type::Text;
    Box<str> => Text, Type::Text;
    Vec<u8> => Bytes, Type::Bytes;
    Box<[u8]> => Bytes, Type::Bytes;
}

impl AsValue for Json {
    fn as_value(&self) -> ValueRef<'_> {
        ValueRef::Json(self.as_str())
    }
}

impl ColumnType for Json {
    const TYPE: Type = Type::Json;

    fn from_value(value: ValueRef<'_>) -> Option<Json> {
        match value {
            ValueRef::Json(text) => Some(Json::from_canonical(text)),
            _ => None,
        }
    }
}

impl<T: ColumnType> ColumnType for Option<T> {
    const TYPE: Type = T::TYPE;
    const NULLABLE: bool = true;

    fn from_value(value: ValueRef<'_>) -> Option<Option<T>> {
        if value.is_null() { Some(None) } else { T::from_value(value).map(Some) }
    }
}

impl<T: AsValue> AsValue for Option<T> {
    fn as_value(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, T::as_value)
    }
}

impl<T: AsValue + ?Sized> AsValue for &T {
    fn as_value(&self) -> ValueRef<'_> {
        (**self).as_value()
    }
}

impl AsValue for str {
    fn as_value(&self) -> ValueRef<'_> {
        ValueRef::Text(self)
    }
}

impl AsValue for [u8] {
    fn as_value(&self) -> ValueRef<'_> {
        ValueRef::Bytes(self)
    }
}

impl<const N: usize> AsValue for [u8; N] {
    fn as_value(&self) -> ValueRef<'_> {
        ValueRef::Bytes(self)
    }
}

impl AsValue for Value {
    fn as_value(&self) -> ValueRef<'_> {
        self.as_ref()
    }
}

impl AsValue for ValueRef<'_> {
    fn as_value(&self) -> ValueRef<'_> {
        *self
    }
}

impl<T: AsValue> KeyValues for T {
    fn for_each_value(&self, each: &mut dyn FnMut(ValueRef<'_>) -> Result<()>) -> Result<()> {
        each(self.as_value())
    }
}

impl KeyValues for &[Value] {
    fn for_each_value(&self, each: &mut dyn FnMut(ValueRef<'_>) -> Result<()>) -> Result<()> {
        self.iter().try_for_each(|value| each(value.as_ref()))
    }
}

impl KeyValues for Vec<Value> {
    fn for_each_value(&self, each: &mut dyn FnMut(ValueRef<'_>) -> Result<()>) -> Result<()> {
        self.as_slice().for_each_value(each)
    }
}

impl KeyValues for &Vec<Value> {
    fn for_each_value(&self, each: &mut dyn FnMut(ValueRef<'_>) -> Result<()>) -> Result<()> {
        self.as_slice().for_each_value(each)
    }
}

macro_rules! tuples {
    ($(($($name:ident),+))*) => {$(
        impl<$($name: AsValue),+> KeyValues for ($($name,)+) {
            fn for_each_value(&self, each: &mut dyn FnMut(ValueRef<'_>) -> Result<()>) -> Result<()> {
                #[expect(non_snake_case, reason = "the macro names each variable like its type")]
                let ($($name,)+) = self;
                $(each($name.as_value())?;)+
                Ok(())
            }
        }
    )*};
}

tuples! {
    (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G) (A, B, C, D, E, F, G, H)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(key: impl KeyValues) -> Vec<Value> {
        let mut out = Vec::new();
        key.for_each_value(&mut |value| {
            out.push(value.to_value());
            Ok(())
        })
        .unwrap();
        out
    }

    #[test]
    fn single_values_tuples_and_slices_are_keys() {
        assert_eq!(values(7), [Value::Int(7)]);
        assert_eq!(values("a"), [Value::from("a")]);
        assert_eq!(values(b"a"), [Value::Bytes(b"a".to_vec())]);
        assert_eq!(values((7u32, Some("x".to_owned()), None::<u8>)), [7.into(), "x".into(), Value::Null]);
        assert_eq!(values(vec![Value::Int(1), Value::Null]), [Value::Int(1), Value::Null]);
    }

    #[test]
    fn fields_take_their_own_values_and_refuse_others() {
        assert_eq!(u8::from_value(ValueRef::UInt(255)), Some(255));
        assert_eq!(u8::from_value(ValueRef::UInt(256)), None);
        assert_eq!(u8::from_value(ValueRef::Int(1)), None);
        assert_eq!(Option::<u8>::from_value(ValueRef::Null), Some(None));
        assert_eq!(u8::from_value(ValueRef::Null), None);
        assert_eq!(String::from_value(ValueRef::Text("é")), Some("é".to_owned()));
        assert_eq!(f64::from_value(ValueRef::F64(0.5)), Some(0.5));
    }
}
