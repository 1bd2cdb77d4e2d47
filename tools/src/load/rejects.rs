//! Rows that cannot be loaded: counted, shown, written to a file.
//!
//! Workers report rejects as they find them. All go to the `--rejects` file, one JSON object per line. The first few
//! in the order of the input are kept to be shown. When there are more than `--max-errors` allows, whatever is still
//! to come, the load ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use alluvium::row::Type;
use serde::Serialize;

use crate::load::cli::size::ErrorLimit;
use crate::load::error::{LoadError, Result};
use crate::load::input::open::InputName;
use crate::load::place::Place;
use crate::load::rejects_file::RejectsFile;
use crate::load::sniff::column::shell_word;
use crate::load::summary::grouped;

/// Rejects that are shown on the terminal.
const SHOWN: usize = 10;
/// Characters of a text that are shown.
const SHOWN_CHARS: usize = 60;

/// One row that is not loaded, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Input and line where the row begins.
    pub place: Place,
    /// Byte of the unpacked input where it begins; not known any more for duplicates, which are found after sorting.
    pub byte: Option<u64>,
    /// The column that is at fault, if it is one.
    pub column: Option<String>,
    /// What should have been there.
    pub expected: Option<String>,
    /// What was there.
    pub text: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What may help.
    pub advice: Option<Advice>,
}

/// What may help against a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Another type for the column, which would accept the text, or `--null`.
    Type {
        /// The type.
        accepts: Type,
    },
    /// The file is not UTF-8.
    Encoding,
}

/// A reject as it stands in the file.
#[derive(Serialize)]
struct Line<'a> {
    file: String,
    line: u64,
    byte: Option<u64>,
    column: Option<&'a str>,
    expected: Option<&'a str>,
    text: Option<&'a str>,
    reason: &'a str,
}

/// Where rejects go. Shared by the workers.
pub struct Rejects {
    inputs: Vec<InputName>,
    limit: ErrorLimit,
    count: AtomicU64,
    /// True if rows were not looked at, since the load fails without them.
    stopped_early: AtomicBool,
    state: Mutex<State>,
}

struct State {
    file: Option<RejectsFile>,
    shown: BTreeMap<Place, Reject>,
}

impl Rejects {
    /// No rejects yet; all that come go to `file`.
    #[must_use]
    pub fn new(inputs: Vec<InputName>, limit: ErrorLimit, file: Option<RejectsFile>) -> Rejects {
        let state = State { file, shown: BTreeMap::new() };
        let (count, stopped_early) = (AtomicU64::new(0), AtomicBool::new(false));
        Rejects { inputs, limit, count, stopped_early, state: Mutex::new(state) }
    }

    /// Number of rejects so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Notes that rows were not looked at: there may be more rejects than are counted.
    pub fn stop_early(&self) {
        self.stopped_early.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a reject on record.
    ///
    /// # Errors
    /// Those of writing the file.
    pub fn add(&self, reject: Reject) -> Result<()> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        if let Some(file) = &mut state.file {
            let line = Line {
                file: self.name(reject.place),
                line: reject.place.line(),
                byte: reject.byte,
                column: reject.column.as_deref(),
                expected: reject.expected.as_deref(),
                text: reject.text.as_deref(),
                reason: &reject.reason,
            };
            // Cannot fail: the keys are strings and nothing writes.
            file.add(&serde_json::to_string(&line).unwrap_or_default())?;
        }
        if state.shown.len() < SHOWN
            || state.shown.keys().next_back().is_some_and(|last| reject.place < *last)
        {
            state.shown.insert(reject.place, reject);
            if state.shown.len() > SHOWN {
                state.shown.pop_last();
            }
        }
        Ok(())
    }

    /// True if there are too many, however many rows are still to come.
    #[must_use]
    pub fn are_too_many_for_good(&self) -> bool {
        self.would_be_too_many_for_good(self.count())
    }

    /// True if `count` would be too many, however many rows are still to come.
    #[must_use]
    pub fn would_be_too_many_for_good(&self, count: u64) -> bool {
        self.limit.is_exceeded_for_good(count)
    }

    /// Publishes the file; an error if there are too many rejects among `rows` rows.
    ///
    /// # Errors
    /// `TooManyErrors`, which shows the first rejects; those of writing the file.
    pub fn check(&self, rows: u64) -> Result<()> {
        self.publish()?;
        let count = self.count();
        if !self.limit.is_exceeded(count, rows) {
            return Ok(());
        }
        let at_least = if self.stopped_early.load(Ordering::Relaxed) { "at least " } else { "" };
        let were = if count == 1 { "1 row was".to_owned() } else { format!("{} rows were", grouped(count)) };
        let limit = match self.limit {
            ErrorLimit::Rows(most) => grouped(most),
            ErrorLimit::Percent(_) => format!("{} of {} rows", self.limit, grouped(rows)),
        };
        Err(LoadError::TooManyErrors(format!(
            "nothing was loaded: {at_least}{were} rejected, --max-errors allows {limit}\n{}",
            self.describe()
        )))
    }

    /// Makes sure that the file, if there are rejects and one was asked for, holds all of them under its name.
    ///
    /// # Errors
    /// Those of writing the file.
    pub fn publish(&self) -> Result<()> {
        self.lock().file.as_mut().map_or(Ok(()), RejectsFile::publish)
    }

    /// The first rejects and what may help, for people; empty if there are none.
    #[must_use]
    pub fn describe(&self) -> String {
        let state = self.lock();
        let mut lines: Vec<String> = state.shown.values().map(|reject| self.describe_one(reject)).collect();
        let more = self.count().saturating_sub(lines.len() as u64);
        if more > 0 {
            let all = if state.file.is_some() { "" } else { "; --rejects FILE keeps all" };
            lines.push(format!("  and {} more{all}", grouped(more)));
        }
        lines.extend(advice_for(state.shown.values()).iter().map(|advice| format!("  help: {advice}")));
        lines.join("\n")
    }

    fn describe_one(&self, reject: &Reject) -> String {
        let mut text = format!("  {}", self.describe_place(reject.place));
        if let Some(byte) = reject.byte {
            text.push_str(&format!(" (byte {byte})"));
        }
        if let Some(column) = &reject.column {
            text.push_str(&format!(", column {column}"));
        }
        text.push_str(": ");
        match (&reject.expected, &reject.text) {
            (Some(expected), Some(found)) => {
                text.push_str(&format!("expected {expected}, found {} – {}", shown(found), reject.reason));
            }
            (None, Some(found)) => text.push_str(&format!("{}: {}", reject.reason, shown(found))),
            _ => text.push_str(&reject.reason),
        }
        text
    }

    fn name(&self, place: Place) -> String {
        self.inputs.get(usize::from(place.input())).map_or_else(String::new, InputName::to_string)
    }

    /// `flights.csv line 17`.
    #[must_use]
    pub fn describe_place(&self, place: Place) -> String {
        format!("{} line {}", self.name(place), place.line())
    }
}

/// A text in quotes, cut to a bearable length, with control characters escaped.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

/// What may help against some rejects, one line each.
fn advice_for<'a>(rejects: impl Iterator<Item = &'a Reject>) -> Vec<String> {
    let (mut types, mut words, mut encodings) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for reject in rejects {
        let (Some(column), Some(text)) = (&reject.column, &reject.text) else { continue };
        match reject.advice {
            Some(Advice::Type { accepts }) => {
                // Texts that need different types have only text in common.
                let common = types.entry(column).or_insert(accepts);
                *common = if *common == accepts { accepts } else { Type::Text };
                if accepts == Type::Text && is_word(text) {
                    words.insert(text);
                }
            }
            Some(Advice::Encoding) => drop(encodings.insert(column)),
            None => {}
        }
    }
    let null =
        |text: &String| format!("if {text:?} stands for a missing value, say --null {}", shell_word(text));
    let ty = |(column, ty): (&String, Type)| {
        format!("to take column {column} as it is, say --column {}", shell_word(&format!("{column}={ty}")))
    };
    let encoding = |column: &String| {
        format!("column {column} is not UTF-8: convert the file, for example iconv -f LATIN1 -t UTF-8")
    };
    let words = words.into_iter().map(null);
    words.chain(types.into_iter().map(ty)).chain(encodings.into_iter().map(encoding)).collect()
}

/// A short word where something else is expected is most likely somebody's way to write NULL.
fn is_word(text: &str) -> bool {
    const WORD_BYTES_MAX: usize = 8;
    (1..=WORD_BYTES_MAX).contains(&text.len()) && !text.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad_value(line: u64, text: &str) -> Reject {
        Reject {
            place: Place::new(0, line),
            byte: Some(line * 10),
            column: Some("dep_time".into()),
            expected: Some("i64".into()),
            text: Some(text.into()),
            reason: "expected an integer".into(),
            advice: Some(Advice::Type { accepts: Type::Text }),
        }
    }

    fn rejects(limit: &str, file: Option<RejectsFile>) -> Rejects {
        Rejects::new(vec![InputName::new("flights.csv.gz")], limit.parse().unwrap(), file)
    }

    #[test]
    fn a_newcomer_learns_where_what_and_what_to_do() {
        let rejects = rejects("0", None);
        rejects.add(bad_value(839, "NA")).unwrap();
        assert!(rejects.are_too_many_for_good());
        assert_eq!(
            rejects.check(10_240).unwrap_err().to_string(),
            "nothing was loaded: 1 row was rejected, --max-errors allows 0\n  \
             flights.csv.gz line 839 (byte 8390), column dep_time: expected i64, found \"NA\" – expected an integer\n  \
             help: if \"NA\" stands for a missing value, say --null NA\n  \
             help: to take column dep_time as it is, say --column dep_time=text"
        );
    }

    #[test]
    fn only_the_first_in_the_order_of_the_input_are_shown() {
        let rejects = rejects("100", None);
        for line in (1..=30).rev() {
            rejects.add(bad_value(line, &"12345678901".repeat(9))).unwrap();
        }
        rejects.check(1000).unwrap();
        let shown = rejects.describe();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 12);
        assert!(lines[0].contains("line 1 (byte 10)") && lines[9].contains("line 10 "), "{shown}");
        assert_eq!(lines[10], "  and 20 more; --rejects FILE keeps all");
        assert_eq!(lines[11], "  help: to take column dep_time as it is, say --column dep_time=text");
        assert!(lines[0].contains("12345\"… – expected"), "{shown}");
    }

    #[test]
    fn the_file_has_every_reject_as_a_line_of_json() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bad.jsonl");
        let file = RejectsFile::new(&path, &[], std::path::Path::new("db")).unwrap();
        let rejects = rejects("50%", Some(file));
        for line in 1..=12 {
            rejects.add(bad_value(line, "\"quoted\"\n")).unwrap();
        }
        rejects.check(100).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 12);
        assert_eq!(
            text.lines().next().unwrap(),
            r#"{"file":"flights.csv.gz","line":1,"byte":10,"column":"dep_time","expected":"i64","text":"\"quoted\"\n","reason":"expected an integer"}"#
        );
    }
}
