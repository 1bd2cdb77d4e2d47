//! Values, keys and sizes as text and as JSON.

use std::fmt;

use alluvium::row::Timestamp;
use alluvium::{Type, Value, ValueRef};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::grid::Align;
pub use crate::load::summary::count;

/// Characters of a value that a table shows.
const CELL_CHARS_MAX: usize = 80;

/// What stands in one place of a grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text.
    pub text: String,
    /// True if it is to be less visible than others.
    pub dim: bool,
}

impl Cell {
    /// What stands for no value.
    #[must_use]
    pub fn null() -> Cell {
        Cell { text: "NULL".to_owned(), dim: true }
    }

    /// A value, in full.
    #[must_use]
    pub fn of(value: ValueRef<'_>) -> Cell {
        if value.is_null() { Cell::null() } else { Cell { text: show(value), dim: false } }
    }

    /// The cell with a long text cut.
    #[must_use]
    pub fn cut(mut self) -> Cell {
        if let Some((at, _)) = self.text.char_indices().nth(CELL_CHARS_MAX) {
            self.text.truncate(at);
            self.text.push('…');
        }
        self
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell { text: text.to_owned(), dim: false }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, dim: false }
    }
}

/// A value so that nothing else looks like it: text that is empty, reads `NULL`, has blanks at its ends, quotes or
/// control characters (which could otherwise reach the terminal) stands in quotes.
#[must_use]
pub fn show(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(text) if !is_plain(text) => quote(text),
        ValueRef::Json(text) if text.contains(char::is_control) => quote(text),
        _ => value.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let ends = |c: char| c.is_whitespace() || c == '"';
    let hidden = |c: char| c.is_control() || is_direction_mark(c);
    text != "NULL"
        && !text.is_empty()
        && !text.starts_with(ends)
        && !text.ends_with(ends)
        && !text.contains(hidden)
}

/// Characters that turn the direction of what follows, and so can make a line read as something else.
fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() || is_direction_mark(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Values as `(N725MQ, NULL, 3)`.
#[must_use]
pub fn show_tuple(values: &[Value]) -> String {
    let shown: Vec<String> = values.iter().map(|value| show(value.as_ref())).collect();
    format!("({})", shown.join(", "))
}

/// Bytes that are not known to be anything: as text where they are, with the rest escaped, in quotes.
#[must_use]
pub fn show_bytes(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

/// The start of [`show_bytes`].
#[must_use]
pub fn show_bytes_cut(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 64;
    match bytes.get(..BYTES_MAX) {
        Some(start) if start.len() < bytes.len() => format!("{}…", show_bytes(start)),
        _ => show_bytes(bytes),
    }
}

/// Bytes for JSON: `0x` and hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    ValueRef::Bytes(bytes).to_string()
}

/// To which side values of a type go.
#[must_use]
pub fn align_of(ty: Type) -> Align {
    match ty {
        Type::Bool | Type::Text | Type::Bytes | Type::Uuid | Type::Json => Align::Left,
        Type::Date | Type::Time | Type::Timestamp => Align::Left,
        _ => Align::Right,
    }
}

/// A value as JSON: numbers as numbers, documents as documents, NULL as null; everything else, and what JSON has no
/// number for (decimals, NaN, infinities), as its text.
#[must_use]
pub fn to_json(value: ValueRef<'_>) -> serde_json::Value {
    match value {
        ValueRef::Null => serde_json::Value::Null,
        ValueRef::Bool(value) => value.into(),
        ValueRef::Int(value) => value.into(),
        ValueRef::UInt(value) => value.into(),
        // By way of its text, since the nearest f64 of an f32 has more digits than the value has.
        ValueRef::F32(_) | ValueRef::F64(_) => {
            let text = value.to_string();
            let number = text.parse().ok().and_then(serde_json::Number::from_f64);
            number.map_or(serde_json::Value::String(text), serde_json::Value::Number)
        }
        ValueRef::Json(text) => {
            serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()))
        }
        _ => serde_json::Value::String(value.to_string()),
    }
}

/// Values as a JSON list.
#[must_use]
pub fn to_json_list(values: &[Value]) -> Vec<serde_json::Value> {
    values.iter().map(|value| to_json(value.as_ref())).collect()
}

/// Names and values as a JSON object, in this order.
#[derive(Clone, Debug)]
pub struct JsonRow<'a>(pub &'a [(&'a str, ValueRef<'a>)]);

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, &to_json(*value))?;
        }
        map.end()
    }
}

/// A moment that a file or an edit carries, in seconds.
#[must_use]
pub fn show_moment(micros: i64) -> String {
    let whole = micros - micros.rem_euclid(1_000_000);
    Timestamp::from_micros(whole).map_or_else(|| format!("{micros} µs"), |moment| moment.to_string())
}

/// Parts of a whole in per cent: `12 %`, `0.3 %`, `0 %`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl Percent {
    /// `part` of `whole`; nothing of nothing is 0.
    #[must_use]
    pub fn of(part: u64, whole: u64) -> Percent {
        Percent(if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0.0 => f.write_str("0 %"),
            percent if percent < 0.1 => f.write_str("less than 0.1 %"),
            percent if percent < 10.0 => write!(f, "{percent:.1} %"),
            percent => write!(f, "{percent:.0} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_looks_like_something_else() {
        let shown = |text| show(ValueRef::Text(text));
        assert_eq!(show(ValueRef::Null), "NULL");
        for (text, expected) in [
            ("NULL", "\"NULL\""),
            ("", "\"\""),
            (" a", "\" a\""),
            ("\"a\"", "\"\\\"a\\\"\""),
            ("a\nb", "\"a\\nb\""),
            ("\u{1b}[31mred", "\"\\u{1b}[31mred\""),
            ("a\u{202e}b", "\"a\\u{202e}b\""),
            ("a \"b\" c", "a \"b\" c"),
            ("né日本", "né日本"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn json_has_numbers_where_it_can() {
        let cases = [
            (ValueRef::F32(0.1), "0.1"),
            (ValueRef::F64(f64::NAN), "\"NaN\""),
            (ValueRef::UInt(u64::MAX), "18446744073709551615"),
            (ValueRef::Json("{\"a\":[1]}"), "{\"a\":[1]}"),
            (ValueRef::Bytes(&[0, 255]), "\"0x00ff\""),
            (ValueRef::Null, "null"),
        ];
        for (value, expected) in cases {
            assert_eq!(to_json(value).to_string(), expected);
        }
    }

    #[test]
    fn numbers_of_things_read_well() {
        let shown = [count(1, "entry"), count(2, "entry"), count(1000, "key"), count(0, "index")];
        assert_eq!(shown, ["1 entry", "2 entries", "1,000 keys", "0 indexes"]);
        let percents = [Percent::of(0, 0), Percent::of(1, 10_000), Percent::of(1, 32), Percent::of(1, 8)];
        assert_eq!(percents.map(|p| p.to_string()), ["0 %", "less than 0.1 %", "3.1 %", "12 %"]);
    }

    #[test]
    fn long_cells_are_cut_between_characters() {
        let cell = Cell::of(ValueRef::Text(&"é".repeat(100))).cut();
        assert_eq!(cell.text, format!("{}…", "é".repeat(80)));
    }
}
