//! Finding text behind a closing quote, as in `"abc"def`.
//!
//! csv-core takes such a field for `abcdef`. It is more likely that a quote inside of a text was not doubled, and then
//! the row may have been cut in the wrong places: it must not be loaded as if nothing were wrong. csv-core does not tell,
//! so the bytes that it has taken are looked at again, with the same rules. A piece of a row without a quote costs one
//! search for it; only rows with quotes are gone through byte by byte.

/// Where in a row the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the start of a field.
    Start,
    /// In a field without quotes.
    Plain,
    /// Behind an opening quote.
    Quoted,
    /// Behind a quote in a quoted field: it closes the field, or is the first of two that stand for one.
    AfterQuote,
}

/// Looks at the bytes of rows, piece by piece.
#[derive(Clone, Debug)]
pub struct Quotes {
    delimiter: u8,
    state: State,
    malformed_byte: Option<u64>,
}

impl Quotes {
    /// At the start of a row whose fields are separated by `delimiter`.
    #[must_use]
    pub fn new(delimiter: u8) -> Quotes {
        Quotes { delimiter, state: State::Start, malformed_byte: None }
    }

    /// Forgets the row before.
    pub fn begin_row(&mut self) {
        self.state = State::Start;
        self.malformed_byte = None;
    }

    /// Where the first text behind a closing quote stands in the row so far, in bytes of the input.
    #[must_use]
    pub fn malformed_byte(&self) -> Option<u64> {
        self.malformed_byte
    }

    /// Looks at the next piece of the row, which begins at byte `start` of the input.
    pub fn scan(&mut self, piece: &[u8], start: u64) {
        let Some(&last) = piece.last() else { return };
        if matches!(self.state, State::Start | State::Plain) && !piece.contains(&b'"') {
            self.state = if self.ends_field(last) { State::Start } else { State::Plain };
            return;
        }
        for (&byte, at) in piece.iter().zip(start..) {
            self.state = match (self.state, byte) {
                (State::Start, b'"') => State::Quoted,
                (State::Quoted, b'"') => State::AfterQuote,
                (State::AfterQuote, b'"') | (State::Quoted, _) => State::Quoted,
                (_, byte) if self.ends_field(byte) => State::Start,
                (State::AfterQuote, _) => {
                    self.malformed_byte = self.malformed_byte.or(Some(at));
                    State::Plain
                }
                (State::Start | State::Plain, _) => State::Plain,
            };
        }
    }

    fn ends_field(&self, byte: u8) -> bool {
        byte == self.delimiter || byte == b'\n' || byte == b'\r'
    }
}
