//! Which texts stand for NULL.
//!
//! An empty field is NULL, except in a text column, where the empty text is a value; nobody writes a number or a date
//! as nothing. Each `--null` adds a text that is NULL in every column, the empty one included.

use alluvium::row::Type;

/// The texts of `--null`.
#[derive(Clone, Debug, Default)]
pub struct NullStrings(Vec<Vec<u8>>);

impl NullStrings {
    /// The texts as given.
    #[must_use]
    pub fn new(texts: &[String]) -> NullStrings {
        NullStrings(texts.iter().map(|text| text.clone().into_bytes()).collect())
    }

    /// True if `field` is NULL in a column of type `ty`.
    #[must_use]
    pub fn is_null(&self, field: &[u8], ty: Type) -> bool {
        (field.is_empty() && ty != Type::Text) || self.contains(field)
    }

    /// True if `field` is NULL in a column whose type is yet to be found: there, empty texts say nothing.
    #[must_use]
    pub fn says_nothing(&self, field: &[u8]) -> bool {
        field.is_empty() || self.contains(field)
    }

    fn contains(&self, field: &[u8]) -> bool {
        self.0.iter().any(|text| text == field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_field_is_null_but_in_a_text_column() {
        let none = NullStrings::new(&[]);
        assert!(none.is_null(b"", Type::I64) && !none.is_null(b"", Type::Text));
        assert!(!none.is_null(b"NA", Type::Text));
        let both = NullStrings::new(&["NA".to_owned(), String::new()]);
        assert!(
            both.is_null(b"", Type::Text)
                && both.is_null(b"NA", Type::Text)
                && both.is_null(b"NA", Type::I64)
        );
    }
}
