//! Delimiter and header of an input.

use crate::load::error::{LoadError, Result};
use crate::load::input::blocks::{BlockSource, SampleBlocks};
use crate::load::input::open::InputName;
use crate::load::input::rows::{Batch, RowReader};
use crate::load::sniff::shape::{Shapes, shapes};

/// How the fields of an input are separated, as far as the user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Separated by commas (or, as found in the first rows, by `;` or `|`).
    Csv,
    /// Separated by tabs.
    Tsv,
}

/// Whether the first row holds the names of the columns, as far as the user says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Header {
    /// Look at the first row: it is a header if nothing in it looks like a value.
    #[default]
    Auto,
    /// It does.
    Yes,
    /// It does not; columns are called c1, c2, …
    No,
}

/// What was found out about an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Between fields.
    pub delimiter: u8,
    /// True if the first row holds the names.
    pub has_header: bool,
    /// False if the first row could as well be the other thing: data, or names.
    pub header_is_certain: bool,
    /// Names of the columns.
    pub columns: Vec<String>,
}

impl Dialect {
    /// Leads a reader at the start of the input to the first row of data.
    ///
    /// # Errors
    /// Those of reading the row of names.
    pub fn go_to_data<S: BlockSource>(&self, reader: &mut RowReader<S>) -> Result<()> {
        if self.has_header {
            reader.read_row(&mut Batch::default())?;
        }
        if self.columns.len() == 1 {
            reader.take_empty_lines();
        }
        Ok(())
    }

    /// The delimiter, for people.
    #[must_use]
    pub fn delimiter_name(&self) -> &'static str {
        match self.delimiter {
            b'\t' => "tab",
            b';' => "semicolon",
            b'|' => "bar",
            _ => "comma",
        }
    }
}

/// Rows that are looked at to find the delimiter.
const ROWS: usize = 50;

/// Finds delimiter and header from the first bytes of an input.
///
/// # Errors
/// `Usage` if there is no row to get the columns from, or if its names repeat; `Input` if the bytes are not text in
/// rows, or the quotes of the row of names make no sense.
pub fn sniff(name: &InputName, head: &[u8], format: Option<Format>, header: Header) -> Result<Dialect> {
    let tabs = format == Some(Format::Tsv)
        || (format.is_none() && matches!(name.extension().as_deref(), Some("tsv" | "tab")));
    let candidates: &[u8] = match format {
        _ if tabs => b"\t",
        Some(Format::Csv) => b",;|",
        _ => b",\t;|",
    };
    let mut best: Option<(usize, u8, FirstRows)> = None;
    for &delimiter in candidates {
        let rows = first_rows(name, head, delimiter, ROWS)?;
        let score = score(&rows.rows);
        // Of equals the first wins: the candidates stand in the order of how common they are.
        if best.as_ref().is_none_or(|(best, ..)| score > *best) {
            best = Some((score, delimiter, rows));
        }
    }
    let Some((_, delimiter, rows)) = best else { return Err(empty(name)) };
    let Some((first, rest)) = rows.rows.split_first() else { return Err(empty(name)) };
    let FirstRow { has_header, is_certain } = match header {
        Header::Yes => FirstRow { has_header: true, is_certain: true },
        Header::No => FirstRow { has_header: false, is_certain: true },
        Header::Auto => judge_first_row(name, first, rest)?,
    };
    if let Some(byte) = rows.first_malformed_byte.filter(|_| has_header) {
        let detail = format!("the row of names has text behind a closing quote, at byte {byte}");
        return Err(name.error(detail));
    }
    let named = |(at, text): (usize, &String)| match text.trim() {
        "" => format!("c{}", at + 1),
        name if has_header => name.to_owned(),
        _ => format!("c{}", at + 1),
    };
    let columns = first.iter().enumerate().map(named).collect();
    Ok(Dialect { delimiter, has_header, header_is_certain: is_certain, columns })
}

fn empty(name: &InputName) -> LoadError {
    LoadError::Usage(format!("{name} is empty: there is no row to learn the columns from"))
}

/// The rows that a guess is made from.
struct FirstRows {
    rows: Vec<Vec<String>>,
    /// Where text stands behind a closing quote of the first row.
    first_malformed_byte: Option<u64>,
}

/// Up to `count` rows from the start of `head`. A last row without a line end may be cut off by the end of the sample:
/// it is left out if it is not the only one.
fn first_rows(name: &InputName, head: &[u8], delimiter: u8, count: usize) -> Result<FirstRows> {
    let mut reader = RowReader::new(name.clone(), SampleBlocks::new(head.to_vec()), delimiter)?;
    let mut batch = Batch::default();
    while batch.len() <= count {
        match reader.read_row(&mut batch) {
            Ok(true) => {}
            Ok(false) => break,
            // An open quote at the end of the sample: the quote may close behind it.
            Err(_) if !batch.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let mut rows: Vec<Vec<String>> = batch.rows().map(|row| row.fields().map(text).collect()).collect();
    let cut_off = rows.len() <= count && !head.ends_with(b"\n");
    if rows.len() > 1 && cut_off {
        rows.pop();
    }
    let first_malformed_byte = batch.rows().next().and_then(|row| row.malformed_byte);
    Ok(FirstRows { rows, first_malformed_byte })
}

/// How well a delimiter fits: the more fields the better, if at least four rows in five have as many as the first.
fn score(rows: &[Vec<String>]) -> usize {
    let Some(first) = rows.first() else { return 0 };
    let alike = rows.iter().filter(|row| row.len() == first.len()).count();
    if first.len() > 1 && alike * 5 >= rows.len() * 4 { first.len() } else { 0 }
}

/// What the first row is taken for.
struct FirstRow {
    has_header: bool,
    /// False if there is no sign that tells names from data, or signs for both.
    is_certain: bool,
}

/// A header has a name for at least one column, no name twice, and nothing that looks like a value. What makes it
/// certain is a column that has values in all other rows, but none in the first.
fn judge_first_row(name: &InputName, first: &[String], rest: &[Vec<String>]) -> Result<FirstRow> {
    let mut names: Vec<&str> = first.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
    let has_named_column = (0..first.len()).any(|at| is_named(at, first, rest));
    if names.iter().any(|name| shapes(name) != Shapes::NONE) {
        return Ok(FirstRow { has_header: false, is_certain: !has_named_column });
    }
    names.sort_unstable();
    let twice = names.windows(2).find_map(|pair| if pair[0] == pair[1] { Some(pair[0]) } else { None });
    if let Some(twice) = twice.filter(|_| has_named_column) {
        return Err(LoadError::Usage(format!(
            "{name}: the first row looks like column names, but {twice:?} stands in it more than once; give each column \
             a name of its own, or say --header no if the row is data"
        )));
    }
    // A row that comes again is data, or several files with headers were joined.
    let again = rest.iter().any(|row| row == first);
    let has_header = !names.is_empty() && twice.is_none() && !again;
    Ok(FirstRow { has_header, is_certain: if has_header { has_named_column } else { names.is_empty() } })
}

/// True if a column has a name in the first row, and values of one type in all others that have any.
fn is_named(at: usize, first: &[String], rest: &[Vec<String>]) -> bool {
    let name = first.get(at).map_or("", |name| name.trim());
    let texts = rest.iter().filter_map(|row| row.get(at)).map(|text| text.trim());
    let mut found = texts.filter(|text| !text.is_empty()).map(shapes);
    let Some(start) = found.next() else { return false };
    !name.is_empty()
        && shapes(name) == Shapes::NONE
        && found.fold(start, |all, one| all & one) != Shapes::NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sniffed(name: &str, head: &str) -> Dialect {
        sniff(&InputName::new(name), head.as_bytes(), None, Header::Auto).unwrap()
    }

    #[test]
    fn the_delimiter_is_the_one_that_cuts_all_rows_alike() {
        assert_eq!(sniffed("x", "a;b,c;d\n1;2,5;3\n4;5;6\n").delimiter, b';');
        assert_eq!(sniffed("x", "a\tb, c\n1\t2\n").delimiter, b'\t');
        assert_eq!(sniffed("x", "a|b|c\n1|2|3\n").delimiter, b'|');
        assert_eq!(sniffed("x", &format!("a;b\n{}bad\n1;2\n", "1;2\n".repeat(9))).delimiter, b';');
        assert_eq!(sniffed("x.csv", "a,b\n1,2\n").delimiter, b',');
        assert_eq!(sniffed("x.tsv", "a,b\n1,2\n").delimiter, b'\t');
        assert_eq!(sniffed("x.csv", "only\n1\n2\n").columns, ["only"]);
    }

    #[test]
    fn a_first_row_of_names_is_a_header() {
        let found = sniffed("x.csv", "id, name,\n1,ann,x\n2,bob,y\n");
        assert!(found.has_header);
        assert_eq!(found.columns, ["id", "name", "c3"]);
    }

    #[test]
    fn a_first_row_with_a_value_is_data() {
        for head in [
            "1,ann\n2,bob\n",
            "ann,2013-01-01\nbob,2013-01-02\n",
            "x,x\ny,z\n",
            "ann,bob\ncat,dog\nann,bob\n-,-\n",
        ] {
            let found = sniffed("x.csv", head);
            assert!(!found.has_header, "{head:?}");
            assert_eq!(found.columns, ["c1", "c2"], "{head:?}");
        }
    }

    #[test]
    fn a_doubtful_first_row_was_taken_silently() {
        for (head, has_header, certain) in [
            ("id,name\n1,ann\n2,bob\n", true, true),
            ("name,town\nann,bonn\n", true, false),
            ("name,town\n", true, false),
            ("1,ann\n2,bob\n", false, true),
            // Years as names of columns.
            ("id,2013\n1,5\n2,6\n", false, false),
            ("ann,bob\ncat,dog\nann,bob\n", false, false),
            ("x,x\ny,z\n", false, false),
        ] {
            let found = sniffed("x.csv", head);
            assert_eq!((found.has_header, found.header_is_certain), (has_header, certain), "{head:?}");
        }
        let given = sniff(&InputName::new("x"), b"a,b\nc,d\n", None, Header::No).unwrap();
        assert!(given.header_is_certain && !given.has_header);
    }

    #[test]
    fn names_that_repeat_made_the_header_a_row_of_data() {
        let error = sniff(&InputName::new("x.csv"), b"id,a,a\n1,2,3\n", None, Header::Auto).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x.csv: the first row looks like column names, but \"a\" stands in it more than once; give each column a \
             name of its own, or say --header no if the row is data"
        );
    }

    #[test]
    fn a_name_with_text_behind_its_closing_quote_is_an_error() {
        let error = sniff(&InputName::new("x.csv"), b"\"id\"x,a\n1,2\n", None, Header::Auto).unwrap_err();
        let expected = "cannot read x.csv: the row of names has text behind a closing quote, at byte 4";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_row_cut_off_by_the_end_of_the_sample_does_not_count() {
        assert_eq!(sniffed("x", "a,b,c\n1,2,3\n4,5").columns.len(), 3);
        assert_eq!(sniffed("x", "a,b,c\n1,2,3\n4,\"5").columns.len(), 3);
    }

    #[test]
    fn an_empty_input_is_told() {
        let error = sniff(&InputName::new("x.csv"), b"\n\n", None, Header::Auto).unwrap_err();
        assert_eq!(error.to_string(), "x.csv is empty: there is no row to learn the columns from");
    }
}
