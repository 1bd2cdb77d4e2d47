//! The type of a column, from a sample of its texts.
//!
//! The rules, in order; a column is the first that all of its texts in the sample are:
//!
//! | type | when |
//! |---|---|
//! | bool | `true` and `false` |
//! | i64, else u64 | integers; u64 only if one is beyond i64 |
//! | decimal(18,s) | all have the same number s ≥ 2 of digits behind the point, and one ends in 0: nothing but a fixed scale prints trailing zeros, so this is money and the like. 28 digits if 18 are too few |
//! | f64 | other numbers that a float gives back digit for digit |
//! | date, timestamp, time, uuid | as usually written |
//! | text | everything else, and columns without any value in the sample |
//!
//! A column is nullable unless it is part of the primary key or named by `--not-null`: that a sample has no NULL does
//! not say that there is none.

use alluvium::row::Type;

use crate::load::sniff::shape::{Shapes, plain_number, shapes};

/// Words that usually stand for a missing value. They are never taken for NULL silently, but the plan tells when one
/// of them is all that keeps a column from being a number or a date.
const MISSING_WORDS: [&str; 12] =
    ["NA", "N/A", "n/a", "NULL", "null", "Null", "\\N", "None", "NONE", "nil", "-", "?"];

/// Scale from which trailing zeros show a fixed scale: floats are printed as `1.0` by many programs.
const DECIMAL_SCALE_MIN: usize = 2;
const DECIMAL_PRECISION_COMMON: usize = 18;

/// What a sample shows of one column.
#[derive(Clone, Debug)]
pub struct ColumnSample {
    /// Texts that are not NULL.
    pub values: u64,
    /// Texts that are NULL for a column that is not text: empty, or one of `--null`.
    pub nulls: u64,
    /// What all values could be.
    fits: Shapes,
    /// What all values but the missing words could be, and how often each word came.
    fits_otherwise: Shapes,
    missing_words: [u64; MISSING_WORDS.len()],
    fraction_digits: Option<(usize, usize)>,
    whole_digits_max: usize,
    any_ends_in_zero: bool,
}

impl Default for ColumnSample {
    fn default() -> ColumnSample {
        ColumnSample {
            values: 0,
            nulls: 0,
            fits: Shapes::ALL,
            fits_otherwise: Shapes::ALL,
            missing_words: [0; MISSING_WORDS.len()],
            fraction_digits: None,
            whole_digits_max: 0,
            any_ends_in_zero: false,
        }
    }
}

/// A guess at a column's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The type.
    pub ty: Type,
    /// Something that the user may want to know about it.
    pub note: Option<String>,
}

impl ColumnSample {
    /// Looks at one more text of the column.
    pub fn add(&mut self, text: &[u8], is_null: bool) {
        if is_null {
            self.nulls += 1;
            return;
        }
        self.values += 1;
        let text = std::str::from_utf8(text).unwrap_or_default();
        if let Some(word) = MISSING_WORDS.iter().position(|&word| word == text) {
            self.missing_words[word] += 1;
            self.fits = Shapes::NONE;
            return;
        }
        let found = shapes(text);
        self.fits = self.fits & found;
        self.fits_otherwise = self.fits_otherwise & found;
        if let Some(number) = plain_number(text) {
            let digits = number.fraction_digits;
            let (least, most) = self.fraction_digits.unwrap_or((digits, digits));
            self.fraction_digits = Some((least.min(digits), most.max(digits)));
            self.whole_digits_max = self.whole_digits_max.max(number.whole_digits);
            self.any_ends_in_zero |= number.ends_in_zero;
        }
    }

    /// The type that the sample suggests.
    #[must_use]
    pub fn guess(&self) -> Guess {
        if self.values == 0 {
            let note = if self.nulls > 0 {
                "no value in the sample: taken for text"
            } else {
                "no row in the sample"
            };
            return Guess { ty: Type::Text, note: Some(note.to_owned()) };
        }
        let ty = self.type_for(self.fits);
        let missing: u64 = self.missing_words.iter().sum();
        if ty != Type::Text || missing == 0 || missing == self.values {
            return Guess { ty, note: None };
        }
        let otherwise = self.type_for(self.fits_otherwise);
        if otherwise == Type::Text {
            return Guess { ty, note: None };
        }
        let words = self.missing_words.iter().zip(MISSING_WORDS).filter(|(count, _)| **count > 0);
        let words: Vec<String> = words.map(|(_, word)| format!("--null {}", shell_word(word))).collect();
        let note = format!(
            "text only because of {missing} of {} values; {otherwise} with {}",
            self.values,
            words.join(" ")
        );
        Guess { ty, note: Some(note) }
    }

    fn type_for(&self, fits: Shapes) -> Type {
        if fits == Shapes::ALL || fits == Shapes::NONE {
            return Type::Text;
        }
        if let Some(decimal) = self.fixed_scale().filter(|_| fits.contains(Shapes::DECIMAL)) {
            return decimal;
        }
        let rules = [
            (Shapes::BOOL, Type::Bool),
            (Shapes::I64, Type::I64),
            (Shapes::U64, Type::U64),
            (Shapes::F64, Type::F64),
            (Shapes::DATE, Type::Date),
            (Shapes::TIMESTAMP, Type::Timestamp),
            (Shapes::TIME, Type::Time),
            (Shapes::UUID, Type::Uuid),
        ];
        rules.iter().find(|(shape, _)| fits.contains(*shape)).map_or(Type::Text, |(_, ty)| *ty)
    }

    fn fixed_scale(&self) -> Option<Type> {
        let (least, most) = self.fraction_digits?;
        if least != most || least < DECIMAL_SCALE_MIN || !self.any_ends_in_zero {
            return None;
        }
        let common = self.whole_digits_max + least <= DECIMAL_PRECISION_COMMON;
        let precision =
            if common { DECIMAL_PRECISION_COMMON as u8 } else { alluvium::row::DECIMAL_PRECISION_MAX };
        let ty = Type::Decimal { precision, scale: least as u8 };
        ty.is_valid().then_some(ty)
    }
}

/// A word as it has to be written in a shell.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(texts: &[&str]) -> Guess {
        let mut column = ColumnSample::default();
        texts.iter().for_each(|text| column.add(text.as_bytes(), text.is_empty()));
        column.guess()
    }

    fn ty(texts: &[&str]) -> String {
        guess(texts).ty.to_string()
    }

    #[test]
    fn the_first_type_that_fits_all_wins() {
        for (texts, expected) in [
            (&["true", "FALSE", ""][..], "bool"),
            (&["0", "1"], "i64"),
            (&["-1", "18446744073709551615"], "text"),
            (&["1", "18446744073709551615"], "u64"),
            (&["1", "2.5"], "f64"),
            (&["1", "NaN"], "f64"),
            (&["39.02", "39.2"], "f64"),
            (&["1.0", "2.5"], "f64"),
            (&["12.50", "3.00", "-7.25"], "decimal(18,2)"),
            (&["12.51", "3.07"], "f64"),
            (&["12.50", "3"], "f64"),
            (&["12345678901234567890.10"], "decimal(28,2)"),
            (&["007", "8"], "text"),
            (&["2013-01-01", ""], "date"),
            (&["2013-01-01", "2013-01-01T00:00:00Z"], "text"),
            (&["2013-01-01T10:00:00Z"], "timestamp"),
            (&["10:00:00"], "time"),
            (&["6f9619ff-8b86-d011-b42d-00c04fc964ff"], "uuid"),
            (&["N14228", "5"], "text"),
            (&[""], "text"),
            (&[], "text"),
        ] {
            assert_eq!(ty(texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn a_missing_word_that_hides_a_number_is_told() {
        let found = guess(&["517", "NA", "533", "NA"]);
        assert_eq!(found.ty, Type::Text);
        assert_eq!(found.note.as_deref(), Some("text only because of 2 of 4 values; i64 with --null NA"));
        let found = guess(&["2013-01-01", "\\N"]);
        assert_eq!(found.note.as_deref(), Some("text only because of 1 of 2 values; date with --null '\\N'"));
        assert_eq!(guess(&["N14228", "NA"]).note, None);
        assert_eq!(guess(&["NA", "NA"]).note, None);
    }
}
