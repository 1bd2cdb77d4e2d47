//! The small languages of the command line: column lists and indexes.
//!
//! ```text
//! COLS    = part[,part…][;include=column[,column…]]
//! part    = column[:desc][:N]                         N = length of the prefix that the index keeps
//! column  = a name without , : ; or the name in double quotes, where "" stands for a quote
//! ```
//!
//! An error shows the text with the place marked, since a shell has usually been at it before.

use std::fmt;
use std::str::FromStr;

/// A text that does not fit its grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    text: String,
    /// Where in `text` it stops fitting, in bytes.
    at: usize,
    /// Bytes to mark, at least 1.
    len: usize,
    message: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.at).unwrap_or(&self.text).chars().count();
        let marked = self.text.get(self.at..self.at + self.len).map_or(1, |text| text.chars().count().max(1));
        writeln!(f, "{}", self.message)?;
        writeln!(f, "  {}", self.text)?;
        write!(f, "  {:before$}{:^>marked$}", "", "")
    }
}

impl std::error::Error for SpecError {}

/// Columns by name: `a,b,"odd, name"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnList(pub Vec<String>);

impl FromStr for ColumnList {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<ColumnList, SpecError> {
        let mut cursor = Cursor { text, at: 0 };
        let columns = cursor.columns()?;
        cursor.expect_end("expected `,` and another column, or the end")?;
        Ok(ColumnList(columns))
    }
}

/// One column of an index's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Its name.
    pub column: String,
    /// True if the index sorts it descending.
    pub descending: bool,
    /// Length of the prefix that the index keeps, if not all of it: characters of text, or bytes.
    pub prefix: Option<u16>,
}

/// An index as given to `--index` and `--unique-index`: `NAME=COLS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Its name.
    pub name: String,
    /// Columns of its key, in order.
    pub parts: Vec<KeyPart>,
    /// Further columns that it keeps, so that reading them needs no visit to the row.
    pub include: Vec<String>,
}

impl FromStr for IndexSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<IndexSpec, SpecError> {
        let mut cursor = Cursor { text, at: 0 };
        let name = cursor.name("=", "the name of the index")?;
        if !cursor.take('=') {
            return Err(cursor.error("expected `=` and the columns of the index, as in by_name=last,first"));
        }
        let mut parts = vec![cursor.part()?];
        while cursor.take(',') {
            parts.push(cursor.part()?);
        }
        let mut include = Vec::new();
        if cursor.take(';') {
            if !cursor.take_word("include=") {
                return Err(cursor.error("expected `include=` and the columns to keep in the index"));
            }
            include = cursor.columns()?;
        }
        cursor.expect_end("expected `,` and another column, `;include=`, or the end")?;
        Ok(IndexSpec { name, parts, include })
    }
}

impl fmt::Display for IndexSpec {
    /// The text that parses to this index.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", quoted(&self.name))?;
        for (at, part) in self.parts.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { "," } else { "" }, quoted(&part.column))?;
            f.write_str(if part.descending { ":desc" } else { "" })?;
            part.prefix.map_or(Ok(()), |len| write!(f, ":{len}"))?;
        }
        if !self.include.is_empty() {
            write!(f, ";include={}", ColumnList(self.include.clone()))?;
        }
        Ok(())
    }
}

impl fmt::Display for ColumnList {
    /// The text that parses to this list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|name| quoted(name)).collect();
        f.write_str(&names.join(","))
    }
}

/// A name as it has to be written in a list.
fn quoted(name: &str) -> String {
    if !name.is_empty() && !name.contains([',', ':', ';', '=', '"']) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn take_word(&mut self, wanted: &str) -> bool {
        let found = self.rest().starts_with(wanted);
        self.at += if found { wanted.len() } else { 0 };
        found
    }

    /// An error that marks the word at the cursor.
    fn error(&self, message: impl Into<String>) -> SpecError {
        let len = self.rest().find([',', ':', ';', '=']).unwrap_or(self.rest().len()).max(1);
        SpecError { text: self.text.to_owned(), at: self.at, len, message: message.into() }
    }

    fn expect_end(&self, message: &str) -> Result<(), SpecError> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.error(message)) }
    }

    /// A name, up to one of `, : ;` or `also`, or in quotes.
    fn name(&mut self, also: &str, what: &str) -> Result<String, SpecError> {
        let start = self.at;
        if self.take('"') {
            let mut name = String::new();
            loop {
                let Some(len) = self.rest().find('"') else {
                    self.at = start;
                    return Err(self.error("this quote is never closed"));
                };
                name.push_str(&self.rest()[..len]);
                self.at += len + 1;
                if !self.take('"') {
                    return Ok(name);
                }
                name.push('"');
            }
        }
        let is_end = |c: char| matches!(c, ',' | ':' | ';') || also.contains(c);
        let len = self.rest().find(is_end).unwrap_or(self.rest().len());
        if len == 0 {
            return Err(self.error(format!("expected {what}")));
        }
        self.at += len;
        Ok(self.text[start..self.at].to_owned())
    }

    fn columns(&mut self) -> Result<Vec<String>, SpecError> {
        let mut columns = vec![self.name("", "a column")?];
        while self.take(',') {
            columns.push(self.name("", "a column")?);
        }
        Ok(columns)
    }

    fn part(&mut self) -> Result<KeyPart, SpecError> {
        let column = self.name("", "a column")?;
        let mut part = KeyPart { column, descending: false, prefix: None };
        let mut directed = false;
        while self.take(':') {
            let start = self.at;
            let len = self.rest().find([',', ':', ';']).unwrap_or(self.rest().len());
            let word = &self.rest()[..len];
            match word.parse::<u16>() {
                Ok(1..) if part.prefix.is_none() => part.prefix = word.parse().ok(),
                _ if (word == "desc" || word == "asc") && !directed => {
                    part.descending = word == "desc";
                    directed = true;
                }
                Ok(_) if part.prefix.is_some() => return Err(self.error("a second prefix length")),
                _ if word == "desc" || word == "asc" => return Err(self.error("a second direction")),
                _ => {
                    return Err(self.error("expected `desc`, or the length of a prefix from 1 to 65535"));
                }
            }
            self.at = start + len;
        }
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(text: &str) -> IndexSpec {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn part(column: &str, descending: bool, prefix: Option<u16>) -> KeyPart {
        KeyPart { column: column.to_owned(), descending, prefix }
    }

    fn shown(text: &str) -> String {
        text.parse::<IndexSpec>().unwrap_err().to_string()
    }

    #[test]
    fn the_indexes_of_the_readme_parse() {
        assert_eq!(
            index("by_tail=tailnum,time_hour:desc"),
            IndexSpec {
                name: "by_tail".into(),
                parts: vec![part("tailnum", false, None), part("time_hour", true, None)],
                include: vec![],
            }
        );
        assert_eq!(index("by_route=origin,dest;include=carrier,arr_delay").include, ["carrier", "arr_delay"]);
        assert_eq!(index("by_dest=dest:2").parts, [part("dest", false, Some(2))]);
        assert_eq!(index("x=a:desc:16").parts, index("x=a:16:desc").parts);
        assert_eq!(index("x=\"a,b\":desc,\"say \"\"hi\"\"\"").parts[1].column, "say \"hi\"");
    }

    #[test]
    fn errors_mark_the_place() {
        assert_eq!(
            shown("by_tail=tailnum,time_hour:dsc"),
            "expected `desc`, or the length of a prefix from 1 to 65535\n\
             \x20 by_tail=tailnum,time_hour:dsc\n\
             \x20                           ^^^"
        );
        assert_eq!(
            shown("tailnum"),
            "expected `=` and the columns of the index, as in by_name=last,first\n  tailnum\n         ^"
        );
        assert_eq!(shown("x=a,,b"), "expected a column\n  x=a,,b\n      ^");
        assert_eq!(
            shown("x=a;includes=b"),
            "expected `include=` and the columns to keep in the index\n  x=a;includes=b\n      ^^^^^^^^"
        );
        assert_eq!(shown("größe=\"a"), "this quote is never closed\n  größe=\"a\n        ^^");
        assert!(shown("x=a:0").ends_with("  x=a:0\n      ^"));
        assert!(shown("x=a:5:6").starts_with("a second prefix length"));
        assert!(shown("x=a:desc:asc").starts_with("a second direction"));
        assert!(shown("x=\"a\"b").starts_with("expected `,` and another column, `;include=`, or the end"));
    }

    #[test]
    fn a_list_keeps_its_order() {
        assert_eq!("b,a,\"c,d\"".parse::<ColumnList>().unwrap().0, ["b", "a", "c,d"]);
        assert!("a:desc".parse::<ColumnList>().is_err());
        assert!("".parse::<ColumnList>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_back(
            name in "[a=,\"ß]{1,4}",
            parts in prop::collection::vec(("[a:;,\" ]{1,4}", any::<bool>(), prop::option::of(1u16..)), 1..4),
            include in prop::collection::vec("[b,;]{1,3}", 0..3),
        ) {
            let parts = parts.iter().map(|(column, descending, prefix)| part(column, *descending, *prefix)).collect();
            let spec = IndexSpec { name, parts, include };
            prop_assert_eq!(spec.to_string().parse::<IndexSpec>(), Ok(spec));
        }

        #[test]
        fn any_text_parses_or_marks_a_place(text: String) {
            if let Err(error) = text.parse::<IndexSpec>() {
                prop_assert!(error.to_string().ends_with('^'));
            }
        }
    }
}
