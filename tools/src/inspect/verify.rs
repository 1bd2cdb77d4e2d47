//! `verify`: is everything that the manifest names there and intact?
//!
//! 1. `CURRENT` and the manifest: they say what the rest must be like. If they are damaged, nothing else can be judged.
//! 2. Every table file, one after the other.
//! 3. The log, replayed as opening would, into nothing.
//!
//! A problem ends nothing: all are listed, each with its file, the place in it, what is lost with it, and what to do.

use std::collections::BTreeSet;
use std::fs;

use alluvium::inspect::{check_log, check_table_file, placed_files};
use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, ErrorKind};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::database::{Database, Description};
use super::error::{InspectError, Result, exit};
use super::names::Names;
use super::output::{JSON_VERSION, Output};
use super::text::count;
use crate::load::cli::size::Size;

/// Something that is wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// What kind of file: `manifest`, `table file`, `log`.
    pub kind: &'static str,
    /// The file.
    pub file: Option<String>,
    /// Where in the file, in bytes.
    pub offset: Option<u64>,
    /// What is wrong.
    pub message: String,
    /// What the file holds, as far as is known.
    pub holds: Vec<String>,
    /// What to do.
    pub advice: String,
}

impl Problem {
    /// The problem that an error tells of.
    #[must_use]
    pub fn new(kind: &'static str, error: &Error, holds: Vec<String>, advice: &str) -> Problem {
        let (file, offset) = match error.kind() {
            ErrorKind::Corrupt { file, offset, .. } => (Some(file), Some(*offset)),
            ErrorKind::Io { path, .. } => (Some(path), None),
            ErrorKind::UnsupportedFormat { file, .. } => (Some(file), None),
            _ => (None, None),
        };
        let file = file.map(|file| file.display().to_string());
        Problem { kind, file, offset, message: error.to_string(), holds, advice: advice.to_owned() }
    }

    /// Writes it down.
    ///
    /// # Errors
    /// Those of writing.
    pub fn print(&self, output: &mut Output<'_>) -> Result<()> {
        let word = output.bad("problem");
        output.line(format_args!("{word}: {}", self.message))?;
        if !self.holds.is_empty() {
            output.line(format_args!("  it holds  {}", self.holds.join(", ")))?;
        }
        output.line(format_args!("  what to do  {}", self.advice))
    }
}

/// The result.
#[derive(Debug, Default, Serialize)]
struct Report {
    version: u32,
    deep: bool,
    fine: bool,
    table_files: u64,
    table_bytes: u64,
    entries: u64,
    log_records: u64,
    problems: Vec<Problem>,
    notes: Vec<String>,
}

const MANIFEST_ADVICE: &str = "restore the whole database from a backup; without the manifest its table files cannot be \
                               put together. If only CURRENT is damaged, repair makes it anew";
const LOG_ADVICE: &str = "opening refuses this; repair (or recovery mode Salvage) reads on behind the damage and reports \
                          what it lost. Keep a copy of the directory before";
const ROWS_ADVICE: &str = "restore the database from a backup; reads of what lies elsewhere still work. If there is none, \
                           repair gives the file up and says what is lost with it";
const INDEXES_ADVICE: &str = "only entries of indexes are in it: the rows are intact. repair --apply gives the file \
                              up and writes the entries anew";

/// Checks the database. Returns the exit code.
///
/// # Errors
/// Those of writing the result; what is wrong with the database is in it.
pub fn run(database: &Database, deep: bool, output: &mut Output<'_>) -> Result<u8> {
    let mut report = Report { version: JSON_VERSION, deep, ..Report::default() };
    match database.describe() {
        Ok(description) => check(database, &description, deep, output, &mut report),
        Err(InspectError::Engine(error)) => {
            report.problems.push(Problem::new("manifest", &error, Vec::new(), MANIFEST_ADVICE));
            report.notes.push(
                "table files and log were not checked: only the manifest tells what must be there".into(),
            );
        }
        Err(other) => return Err(other),
    }
    report.fine = report.problems.is_empty();
    if output.json {
        output.json_line(&report)?
    } else {
        report.print(output)?
    }
    Ok(if report.fine { exit::FINE } else { exit::PROBLEMS })
}

fn check(
    database: &Database,
    description: &Description,
    deep: bool,
    output: &Output<'_>,
    report: &mut Report,
) {
    let Description { state, .. } = description;
    let names = Names::of(description);
    let bar = progress_bar(state.version.bytes(), deep && !output.json);
    let mut known = BTreeSet::new();
    for placed in placed_files(&state.version) {
        let file = &placed.file;
        let (entries, problems) = check_table_file(&database.environment, &database.directory, file, deep);
        report.table_files += 1;
        report.table_bytes += file.bytes();
        report.entries += entries;
        known.insert(file.file_name());
        bar.inc(file.bytes());
        let keyspaces: Vec<KeyspaceId> = file.summary.keyspaces.iter().map(|found| found.keyspace).collect();
        let advice = if !keyspaces.is_empty() && keyspaces.iter().all(|&keyspace| names.is_index(keyspace)) {
            INDEXES_ADVICE
        } else {
            ROWS_ADVICE
        };
        let holds = || keyspaces.iter().map(|&keyspace| names.label(keyspace)).collect::<Vec<_>>();
        report
            .problems
            .extend(problems.iter().map(|error| Problem::new("table file", error, holds(), advice)));
    }
    bar.finish_and_clear();
    check_recovery(database, description, report);
    let left_over = left_over(database, &known);
    if left_over > 0 {
        report.notes.push(format!(
            "{} in use no more: replaced, or left by an interrupted job; removed when the database is next opened for \
             writing",
            count(left_over, "table file")
        ));
    }
    if let Some(holder) = database.writer() {
        report.notes.push(format!(
            "the database is open for writing in {holder}; what it changed meanwhile may show as a problem that is none: \
             run verify again"
        ));
    }
}

fn check_recovery(database: &Database, description: &Description, report: &mut Report) {
    match check_log(&database.environment, &database.directory, &description.state) {
        Ok(found) => {
            report.log_records = found.report.records;
            for dropped in &found.report.dropped {
                report.notes.push(format!(
                    "{} at the end of the log belong to a commit that was never acknowledged as durable, and are \
                     dropped: {}",
                    Size(dropped.to - dropped.from),
                    dropped.why
                ));
            }
            let problems = found.report.problems.iter();
            report.problems.extend(problems.map(|error| {
                Problem::new(
                    "log",
                    error,
                    Vec::new(),
                    "nothing is lost by it: everything in the log can be read",
                )
            }));
        }
        Err(error) => report.problems.push(Problem::new("log", &error, Vec::new(), LOG_ADVICE)),
    }
}

fn left_over(database: &Database, known: &BTreeSet<String>) -> u64 {
    let entries = fs::read_dir(&database.directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".sst") && !known.contains(name)).count() as u64
}

fn progress_bar(bytes: u64, shown: bool) -> ProgressBar {
    // Hides itself where standard error is no terminal.
    let bar = if shown { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template("verifying [{bar:30}] {percent:>3}%  {binary_bytes_per_sec}, {eta} left")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

impl Report {
    fn print(&self, output: &mut Output<'_>) -> Result<()> {
        for problem in &self.problems {
            problem.print(output)?;
        }
        for note in &self.notes {
            output.line(format_args!("note: {note}"))?;
        }
        let read = if self.deep {
            format!("read in full ({})", count(self.entries, "entry"))
        } else {
            "there, with the right size and footer".to_owned()
        };
        let what = format!(
            "manifest, {} ({}) {read}, {} replayed",
            count(self.table_files, "table file"),
            Size(self.table_bytes),
            count(self.log_records, "log record")
        );
        if !self.fine {
            let found = output.bad(&format!("{} found", count(self.problems.len() as u64, "problem")));
            return output.line(format_args!("{found}; checked: {what}"));
        }
        let fine = output.good("fine");
        output.line(format_args!("{fine}: {what}"))?;
        match self.deep {
            true => output.line("  index-check compares indexes with rows"),
            false => output.line("  --deep reads every block"),
        }
    }
}
