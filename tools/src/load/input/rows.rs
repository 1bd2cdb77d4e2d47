//! Cutting bytes into rows of fields, with the place of every row.
//!
//! csv-core does the cutting: delimiters, quotes, doubled quotes, line ends inside quotes. What stands here is around
//! it: batches that are filled without an allocation per row, exact bytes and lines, and three errors that csv-core,
//! which takes any input, leaves to its caller: a quote that is never closed, a row without end, and text behind a
//! closing quote ([`quotes`](super::quotes)).
//!
//! Lines end with `\n`, `\r\n` or `\r`. Empty lines are skipped, unless they are the empty values of a file of one
//! column. A quote counts as such at the start of a field only (`5" pipe` is text). A byte-order mark is skipped. Bytes
//! and lines count the unpacked input.

use csv_core::ReadRecordResult;

use crate::load::error::Result;
use crate::load::input::blocks::BlockSource;
use crate::load::input::open::InputName;
use crate::load::input::quotes::Quotes;
use crate::load::place::Place;

/// Longest row in bytes (64 MiB). A longer one is most likely a quote that was never closed.
pub const ROW_BYTES_MAX: u64 = 64 << 20;

/// A batch is full at this many rows, or at this many bytes of fields.
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 256 << 10;

/// Rows on their way from the reader to an encoder. Reused, so that reading allocates nothing once it runs.
#[derive(Debug, Default)]
pub struct Batch {
    /// Number of the first row among all rows of all inputs, counted from 0.
    pub first_row: u64,
    input: u16,
    rows: Vec<RowSpan>,
    /// Fields of all rows, one behind the other, without quotes and delimiters; only `text_len` bytes are in use.
    text: Vec<u8>,
    text_len: usize,
    /// Where each field ends, counted from the start of its row; only `ends_len` are in use.
    ends: Vec<usize>,
    ends_len: usize,
}

#[derive(Clone, Copy, Debug)]
struct RowSpan {
    byte: u64,
    line: u64,
    text_start: usize,
    ends_start: usize,
    ends_end: usize,
    malformed_byte: Option<u64>,
}

impl Batch {
    /// Empties the batch, for rows of input number `input`.
    pub fn clear(&mut self, input: u16, first_row: u64) {
        self.input = input;
        self.first_row = first_row;
        self.rows.clear();
        self.text_len = 0;
        self.ends_len = 0;
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= BATCH_ROWS || self.text_len >= BATCH_BYTES
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|span| Row {
            place: Place::new(self.input, span.line),
            byte: span.byte,
            text: &self.text[span.text_start..self.text_len],
            ends: &self.ends[span.ends_start..span.ends_end],
            malformed_byte: span.malformed_byte,
        })
    }

    fn make_room(&mut self) {
        if self.text.len() <= self.text_len {
            self.text.resize((2 * self.text.len()).max(BATCH_BYTES + (64 << 10)), 0);
        }
        if self.ends.len() <= self.ends_len {
            self.ends.resize((2 * self.ends.len()).max(4096), 0);
        }
    }
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Input and line on which the row begins.
    pub place: Place,
    /// Where the row begins, in unpacked bytes from the start of the input.
    pub byte: u64,
    /// Where text stands behind a closing quote, as in `"abc"def`: the row cannot be trusted.
    pub malformed_byte: Option<u64>,
    text: &'a [u8],
    ends: &'a [usize],
}

impl<'a> Row<'a> {
    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are no fields; a row that was read has at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (text, ends) = (self.text, self.ends);
        let mut start = 0;
        ends.iter().map(move |&end| &text[std::mem::replace(&mut start, end)..end])
    }
}

/// What comes next.
enum Start {
    Row,
    EmptyLine,
    End,
}

/// Cuts the blocks of one input into rows.
#[derive(Debug)]
pub struct RowReader<S> {
    name: InputName,
    source: S,
    core: csv_core::Reader,
    quotes: Quotes,
    /// True if an empty line is a row with one empty field.
    empty_lines_are_rows: bool,
    block: Vec<u8>,
    /// Next byte of `block`.
    at: usize,
    /// Offset of that byte in the input.
    byte: u64,
    /// Line of that byte, counted from 1.
    line: u64,
    /// The byte before it was `\r`: a `\n` belongs to the same line end.
    after_return: bool,
}

impl<S: BlockSource> RowReader<S> {
    /// A reader at the start of an input.
    ///
    /// # Errors
    /// `Input` if the first block cannot be read, or is UTF-16.
    pub fn new(name: InputName, source: S, delimiter: u8) -> Result<RowReader<S>> {
        let mut core = csv_core::ReaderBuilder::new().delimiter(delimiter).build();
        // It drops a byte-order mark from the first bytes that it sees, which need not be the first of the input: where
        // blocks end would then decide what a field holds. After an empty line it looks for none.
        let _ = core.read_record(b"\n", &mut [0; 8], &mut [0; 8]);
        let mut reader = RowReader {
            name,
            source,
            core,
            quotes: Quotes::new(delimiter),
            empty_lines_are_rows: false,
            block: Vec::new(),
            at: 0,
            byte: 0,
            line: 1,
            after_return: false,
        };
        reader.refill()?;
        if reader.block.starts_with(b"\xff\xfe") || reader.block.starts_with(b"\xfe\xff") {
            return Err(reader.name.error("it is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8"));
        }
        if reader.block.starts_with(b"\xef\xbb\xbf") {
            reader.consume(3);
        }
        Ok(reader)
    }

    /// Offset of the next byte in the unpacked input.
    #[must_use]
    pub fn byte(&self) -> u64 {
        self.byte
    }

    /// From here on an empty line is a row with one empty field, as it must be in a file of one column.
    pub fn take_empty_lines(&mut self) {
        self.empty_lines_are_rows = true;
    }

    /// Appends rows to `batch` until it is full; false if the input ended before it got any.
    ///
    /// # Errors
    /// `Input`, with the line and byte of the row for the two errors above.
    pub fn read_batch(&mut self, batch: &mut Batch) -> Result<bool> {
        while !batch.is_full() {
            if !self.read_row(batch)? {
                break;
            }
        }
        Ok(!batch.is_empty())
    }

    /// Appends the next row to `batch`; false at the end.
    ///
    /// # Errors
    /// As [`read_batch`](RowReader::read_batch).
    pub fn read_row(&mut self, batch: &mut Batch) -> Result<bool> {
        match self.start_of_row()? {
            Start::End => return Ok(false),
            Start::EmptyLine => return self.read_empty_line(batch),
            Start::Row => {}
        }
        let (byte, line) = (self.byte, self.line);
        let (text_start, ends_start) = (batch.text_len, batch.ends_len);
        self.quotes.begin_row();
        let mut closing = false;
        loop {
            batch.make_room();
            closing = closing || (self.at == self.block.len() && !self.refill()?);
            // At the end, one more line end closes the last row, unless a quote is open: then it is just text.
            let bytes = if closing { &b"\n"[..] } else { &self.block[self.at..] };
            let (text, ends) = (&mut batch.text[batch.text_len..], &mut batch.ends[batch.ends_len..]);
            let (result, read, text_len, ends_len) = self.core.read_record(bytes, text, ends);
            batch.text_len += text_len;
            batch.ends_len += ends_len;
            if !closing {
                self.quotes.scan(&self.block[self.at..self.at + read], self.byte);
                self.consume(read);
            }
            match result {
                ReadRecordResult::Record => {
                    let malformed_byte = self.quotes.malformed_byte();
                    let ends_end = batch.ends_len;
                    batch.rows.push(RowSpan { byte, line, text_start, ends_start, ends_end, malformed_byte });
                    return Ok(true);
                }
                ReadRecordResult::End => return Ok(false),
                ReadRecordResult::InputEmpty if closing => {
                    return Err(self.row_error(line, byte, "has a quote (\") that is never closed"));
                }
                ReadRecordResult::InputEmpty if self.byte - byte > ROW_BYTES_MAX => {
                    let detail = "is longer than 64 MiB; is a quote (\") in it never closed?";
                    return Err(self.row_error(line, byte, detail));
                }
                _ => {}
            }
        }
    }

    fn row_error(&self, line: u64, byte: u64, detail: &str) -> crate::load::error::LoadError {
        self.name.error(format!("the row that begins at line {line} (byte {byte}) {detail}"))
    }

    /// Steps over the rest of a line end, and over empty lines that are no rows.
    fn start_of_row(&mut self) -> Result<Start> {
        loop {
            match self.block.get(self.at) {
                // The second half of a line end.
                Some(b'\n') if self.after_return => self.consume(1),
                Some(b'\n' | b'\r') if self.empty_lines_are_rows => return Ok(Start::EmptyLine),
                Some(b'\n' | b'\r') => self.consume(1),
                Some(_) => return Ok(Start::Row),
                None => {
                    if !self.refill()? {
                        return Ok(Start::End);
                    }
                }
            }
        }
    }

    /// Appends the row that an empty line is.
    fn read_empty_line(&mut self, batch: &mut Batch) -> Result<bool> {
        batch.make_room();
        let (text_start, ends_start) = (batch.text_len, batch.ends_len);
        batch.ends[ends_start] = 0;
        batch.ends_len += 1;
        let (byte, line, ends_end) = (self.byte, self.line, batch.ends_len);
        batch.rows.push(RowSpan { byte, line, text_start, ends_start, ends_end, malformed_byte: None });
        self.consume(1);
        Ok(true)
    }

    /// Gets the next block; false at the end.
    fn refill(&mut self) -> Result<bool> {
        self.block = self.source.next_block(std::mem::take(&mut self.block))?;
        self.at = 0;
        Ok(!self.block.is_empty())
    }

    fn consume(&mut self, count: usize) {
        let bytes = &self.block[self.at..self.at + count];
        let returns = bytes.iter().filter(|&&byte| byte == b'\r').count();
        if returns == 0 && !self.after_return {
            self.line += bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
        } else {
            for &byte in bytes {
                self.line += u64::from(byte == b'\r' || (byte == b'\n' && !self.after_return));
                self.after_return = byte == b'\r';
            }
        }
        self.at += count;
        self.byte += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Yields bytes in pieces of a given size.
    struct Pieces(Vec<u8>, usize);

    impl BlockSource for Pieces {
        fn next_block(&mut self, _emptied: Vec<u8>) -> Result<Vec<u8>> {
            let len = self.1.min(self.0.len());
            Ok(self.0.drain(..len).collect())
        }
    }

    type Owned = (u64, u64, Vec<String>);

    fn read_in_pieces(text: &[u8], piece: usize) -> Result<Vec<Owned>> {
        let mut reader = RowReader::new(InputName::new("x.csv"), Pieces(text.to_vec(), piece), b',')?;
        let mut rows = Vec::new();
        let mut batch = Batch::default();
        loop {
            batch.clear(0, 0);
            if !reader.read_batch(&mut batch)? {
                return Ok(rows);
            }
            for row in batch.rows() {
                let fields = row.fields().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
                rows.push((row.place.line(), row.byte, fields));
            }
        }
    }

    fn read(text: &str) -> Result<Vec<Owned>> {
        let whole = read_in_pieces(text.as_bytes(), 1 << 20);
        for piece in [3, 5, 7] {
            let in_pieces = read_in_pieces(text.as_bytes(), piece);
            assert_eq!(format!("{in_pieces:?}"), format!("{whole:?}"), "pieces of {piece}");
        }
        whole
    }

    fn row(line: u64, byte: u64, fields: &[&str]) -> Owned {
        (line, byte, fields.iter().map(|&field| field.to_owned()).collect())
    }

    #[test]
    fn rows_know_the_line_and_byte_where_they_begin() {
        let rows = read("a,b\n1,\"two\nlines\"\n\n3,\n").unwrap();
        let expected = [row(1, 0, &["a", "b"]), row(2, 4, &["1", "two\nlines"]), row(5, 19, &["3", ""])];
        assert_eq!(rows, expected);
    }

    #[test]
    fn every_kind_of_line_end_counts_once() {
        for end in ["\n", "\r\n", "\r"] {
            let rows = read(&["a,b", "1,2", "", "3,4"].join(end)).unwrap();
            let step = end.len() as u64;
            let expected =
                [row(1, 0, &["a", "b"]), row(2, 3 + step, &["1", "2"]), row(4, 6 + 3 * step, &["3", "4"])];
            assert_eq!(rows, expected, "{end:?}");
        }
    }

    #[test]
    fn quotes_inside_a_field_are_text_and_doubled_ones_are_one() {
        let rows = read("5\" pipe,\"say \"\"hi\"\"\"\n").unwrap();
        assert_eq!(rows, [row(1, 0, &["5\" pipe", "say \"hi\""])]);
    }

    #[test]
    fn text_behind_a_closing_quote_was_joined_to_the_field() {
        for (text, malformed) in [
            ("1,\"a\"b\n2,x\n", [Some(5), None]),
            ("1,\"a\"\"b\",\"c\" \n2,x\n", [Some(12), None]),
            ("\"a\n\"\"b\"c,d\n\"e\",f\n", [Some(7), None]),
            ("1,a\"b\"c\n2,\"x\"", [None, None]),
        ] {
            for piece in [1, 2, 3, 100] {
                let source = Pieces(text.into(), piece);
                let mut reader = RowReader::new(InputName::new("x.csv"), source, b',').unwrap();
                let mut batch = Batch::default();
                reader.read_batch(&mut batch).unwrap();
                let found: Vec<_> = batch.rows().map(|row| row.malformed_byte).collect();
                assert_eq!(found, malformed, "{text:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn empty_lines_of_a_single_column_were_dropped() {
        for end in ["\n", "\r\n", "\r"] {
            let text = ["", "a", "", "", "\"\"", "b", "", ""].join(end);
            for piece in [3, 4, 100] {
                let source = Pieces(text.clone().into(), piece);
                let mut reader = RowReader::new(InputName::new("x.csv"), source, b',').unwrap();
                reader.take_empty_lines();
                let mut batch = Batch::default();
                reader.read_batch(&mut batch).unwrap();
                let field = |row: Row<'_>| String::from_utf8(row.fields().next().unwrap().into()).unwrap();
                let found: Vec<_> =
                    batch.rows().map(|row| (row.place.line(), row.len(), field(row))).collect();
                let expected = ["", "a", "", "", "", "b", ""];
                let expected = (1..).zip(expected).map(|(line, text)| (line, 1, text.to_owned()));
                assert_eq!(found, expected.collect::<Vec<_>>(), "{end:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_name() {
        assert_eq!(read("\u{feff}a,b\n").unwrap(), [row(1, 3, &["a", "b"])]);
    }

    #[test]
    fn a_byte_order_mark_behind_the_start_is_text_wherever_blocks_end() {
        assert_eq!(read("\n\u{feff}a,b\n").unwrap(), [row(2, 1, &["\u{feff}a", "b"])]);
        assert_eq!(read("\u{feff}\u{feff}a\n").unwrap(), [row(1, 3, &["\u{feff}a"])]);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_an_error_with_its_row() {
        for text in ["a,b\n1,2\n3,\"x\n4,5\n", "a,b\n1,2\n3,\"x", "a,b\n1,2\n3,\"x\"\"\n"] {
            let error = read(text).unwrap_err().to_string();
            let expected = "cannot read x.csv: the row that begins at line 3 (byte 8) has a quote (\") that is never closed";
            assert_eq!(error, expected);
        }
        assert_eq!(read("1,\"x\"").unwrap(), [row(1, 0, &["1", "x"])]);
        assert_eq!(read("1,\"\"").unwrap(), [row(1, 0, &["1", ""])]);
        assert_eq!(read("1,").unwrap(), [row(1, 0, &["1", ""])]);
    }

    #[test]
    fn utf_16_is_refused_with_the_way_out() {
        let error = read_in_pieces(b"\xff\xfea\0,\0b\0", 100).unwrap_err().to_string();
        assert!(error.contains("iconv"), "{error}");
    }

    #[test]
    fn an_endless_row_is_an_error_before_memory_runs_out() {
        struct Endless(u64);
        impl BlockSource for Endless {
            fn next_block(&mut self, mut block: Vec<u8>) -> Result<Vec<u8>> {
                self.0 += 1;
                assert!(self.0 < 100, "the reader does not give up");
                block.clear();
                block.resize(1 << 20, b'x');
                block[0] = if self.0 == 1 { b'"' } else { b'x' };
                Ok(block)
            }
        }
        let mut reader = RowReader::new(InputName::new("x.csv"), Endless(0), b',').unwrap();
        let error = reader.read_row(&mut Batch::default()).unwrap_err().to_string();
        assert!(error.contains("line 1 (byte 0) is longer than 64 MiB"), "{error}");
    }

    proptest! {
        #[test]
        fn quoted_rows_survive_the_trip(
            rows in prop::collection::vec(prop::collection::vec("[a\",\n\r ]{0,6}", 1..4), 0..40)
        ) {
            let mut text = String::new();
            let mut expected = Vec::new();
            for fields in &rows {
                let (line, byte) = (1 + line_ends(&text), text.len() as u64);
                let quoted: Vec<_> =
                    fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\""))).collect();
                expected.push((line, byte, fields.clone()));
                text.push_str(&quoted.join(","));
                text.push('\n');
            }
            prop_assert_eq!(read(&text).unwrap(), expected);
        }
    }

    fn line_ends(text: &str) -> u64 {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        text.matches('\n').count() as u64
    }
}
