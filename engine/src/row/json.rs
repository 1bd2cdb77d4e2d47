//! JSON documents in canonical form.

use std::fmt;

/// A JSON document, kept as its canonical text: no white space, object keys sorted, the last of repeated keys.
/// Integers beyond 64 bits and fractions become the nearest `f64`, as in JavaScript.
///
/// ```
/// use alluvium::row::Json;
/// let json = Json::parse(r#"{"b": 1.50, "a": [true, null]}"#).unwrap();
/// assert_eq!(json.as_str(), r#"{"a":[true,null],"b":1.5}"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json(Box<str>);

impl Json {
    /// Parses a document and brings it into canonical form; `None` if it is not JSON or nests deeper than 128 levels.
    #[must_use]
    pub fn parse(text: &str) -> Option<Json> {
        serde_json::from_str::<serde_json::Value>(text).ok().map(|value| Json::from(&value))
    }

    /// Takes a text that is canonical already, because it comes from a row.
    pub(super) fn from_canonical(text: &str) -> Json {
        Json(text.into())
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The document; `None` if the stored text is damaged.
    #[must_use]
    pub fn to_json(&self) -> Option<serde_json::Value> {
        serde_json::from_str(&self.0).ok()
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Json {
        Json(value.to_string().into())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards the canonical form against a feature of serde_json (`preserve_order`, `arbitrary_precision`) that
    /// another crate of the build may switch on.
    #[test]
    fn canonical_form_is_sorted_compact_and_stable() {
        let json = Json::parse(
            " {\"z\": 1e2, \"a\": {\"y\": -0.5, \"b\": \"\\u0041\\n\"}, \"z\": 18446744073709551615} ",
        )
        .unwrap();
        assert_eq!(json.as_str(), r#"{"a":{"b":"A\n","y":-0.5},"z":18446744073709551615}"#);
        assert_eq!(Json::parse(json.as_str()), Some(json.clone()));
        assert_eq!(json.to_json().map(|value| Json::from(&value)), Some(json));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for refused in ["", "{", "nul", "{\"a\":1} x", "NaN", &"[".repeat(200)] {
            assert_eq!(Json::parse(refused), None, "{refused}");
        }
    }
}
