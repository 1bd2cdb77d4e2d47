//! Targets for text: delimited input of the bulk loader, and texts of values. (There is no SQL input yet.)
#![expect(clippy::panic, reason = "a target panics if an oracle does not hold")]

use alluvium::Type;
use alluvium_tools::load::error::LoadError;
use alluvium_tools::load::input::blocks::BlockSource;
use alluvium_tools::load::input::open::InputName;
use alluvium_tools::load::input::rows::{Batch, RowReader};
use alluvium_tools::load::sniff::column::ColumnSample;
use alluvium_tools::load::sniff::dialect::{Header, sniff};

/// Yields bytes in pieces of a given size.
struct Pieces<'a>(&'a [u8], usize);

impl BlockSource for Pieces<'_> {
    fn next_block(&mut self, _emptied: Vec<u8>) -> Result<Vec<u8>, LoadError> {
        let (piece, rest) = self.0.split_at(self.1.min(self.0.len()));
        self.0 = rest;
        Ok(piece.to_vec())
    }
}

/// Where each row begins, and its fields.
type Rows = Vec<(u64, u64, Vec<Vec<u8>>)>;

fn read(text: &[u8], piece: usize, delimiter: u8) -> Result<Rows, String> {
    let read = || -> Result<Rows, LoadError> {
        let mut reader = RowReader::new(InputName::new("x.csv"), Pieces(text, piece), delimiter)?;
        let (mut rows, mut batch) = (Rows::new(), Batch::default());
        loop {
            batch.clear(0, 0);
            if !reader.read_batch(&mut batch)? {
                return Ok(rows);
            }
            let taken = batch
                .rows()
                .map(|row| (row.place.line(), row.byte, row.fields().map(<[u8]>::to_vec).collect()));
            rows.extend(taken);
        }
    };
    read().map_err(|error| error.to_string())
}

/// Delimited text: cut in whole and in pieces, its dialect and types found out, each field parsed by the type guessed.
pub(super) fn csv(text: &[u8]) {
    let whole = read(text, usize::MAX, b',');
    // The first block is looked at for a byte-order mark, which must not be cut.
    for piece in [3, 7, 64] {
        assert_eq!(read(text, piece, b','), whole, "in pieces of {piece}");
    }
    if let Ok(rows) = &whole {
        let bytes: usize = rows.iter().flat_map(|(_, _, fields)| fields).map(Vec::len).sum();
        assert!(bytes <= text.len(), "fields are longer than the text");
        let in_order = |pair: &[(u64, u64, Vec<Vec<u8>>)]| pair[0].1 < pair[1].1 && pair[0].0 <= pair[1].0;
        assert!(rows.windows(2).all(in_order), "rows are not in order");
        assert_eq!(
            read(&quoted(rows), 64, b',').map(fields),
            Ok(fields(rows.clone())),
            "quoting changes fields"
        );
    }
    let Ok(dialect) = sniff(&InputName::new("x.csv"), text, None, Header::Auto) else { return };
    let Ok(rows) = read(text, usize::MAX, dialect.delimiter) else { return };
    let rows = rows.get(usize::from(dialect.has_header)..).unwrap_or_default();
    for column in 0..dialect.columns.len().min(8) {
        let texts = || rows.iter().filter_map(|(_, _, fields)| fields.get(column));
        let mut sample = ColumnSample::default();
        texts().for_each(|text| sample.add(text, text.is_empty()));
        let guess = sample.guess();
        // A guess never loses anything: every text of the sample can be stored.
        for text in texts().filter(|text| !text.is_empty()) {
            let Ok(text) = std::str::from_utf8(text) else { continue };
            let missing = guess.ty != Type::Text && guess.ty.parse(text).is_err();
            assert!(!missing, "{text:?} is no {}", guess.ty);
        }
    }
}

fn fields(rows: Rows) -> Vec<Vec<Vec<u8>>> {
    rows.into_iter().map(|(_, _, fields)| fields).collect()
}

/// The rows with every field in quotes.
fn quoted(rows: &Rows) -> Vec<u8> {
    let mut text = Vec::new();
    for (_, _, fields) in rows {
        for (number, field) in fields.iter().enumerate() {
            text.extend_from_slice(if number == 0 { b"\"" } else { b",\"" });
            for &byte in field {
                text.extend_from_slice(if byte == b'"' { b"\"\"" } else { std::slice::from_ref(&byte) });
            }
            text.push(b'"');
        }
        text.push(b'\n');
    }
    text
}

pub(super) fn csv_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "a,b,c\n1,2.50,x\n3,4.25,\"y \"\"z\"\"\"\n",
        "id;when;ok\r\n1;2013-01-02;true\r\n2;2013-02-03;false\r\n",
        "\u{feff}name\tvalue\nä\t-7\n\n\"two\nlines\"\t1e5\n",
        "1,\"never closed\n2,3\n",
        "x|y\r1|NA\r2|\r",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// The text of a value of each type: what is read and shown is read the same.
pub(super) fn value_text(bytes: &[u8]) {
    let Some((number, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let types = [
        Type::Bool,
        Type::I8,
        Type::I64,
        Type::U16,
        Type::U64,
        Type::F32,
        Type::F64,
        Type::Decimal { precision: 28, scale: 10 },
        Type::Decimal { precision: 3, scale: 3 },
        Type::Text,
        Type::Bytes,
        Type::Date,
        Type::Time,
        Type::Timestamp,
        Type::Uuid,
        Type::Json,
    ];
    let ty = types[usize::from(*number) % types.len()];
    let Ok(value) = ty.parse(text) else { return };
    let shown = value.to_string();
    let again =
        ty.parse(&shown).unwrap_or_else(|_| panic!("{ty}: {shown:?}, shown for {text:?}, is not read"));
    assert_eq!(again, value, "{ty}: {text:?} is shown as {shown:?}");
}

pub(super) fn value_text_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "true",
        "-128",
        "9223372036854775807",
        "65535",
        "0",
        "1.5e-3",
        "NaN",
        "12.3456789",
        "0.999",
        "text",
        "00ff",
        "2013-01-02",
        "23:59:59.999999",
        "2026-12-01T01:02:03Z",
        "67e55044-10b1-426f-9247-bb680e5fe0c8",
        "{\"a\": [1, null]}",
    ];
    let seed = |(number, text): (usize, &&str)| [&[number as u8], text.as_bytes()].concat();
    texts.iter().enumerate().map(seed).collect()
}
