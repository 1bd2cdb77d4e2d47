//! `index-check`: do indexes and rows agree?

use alluvium::row::{IndexCheck, IndexProblem};
use serde::Serialize;

use super::database::{Database, no_such_table};
use super::error::{Result, exit};
use super::grid::Grid;
use super::output::{JSON_VERSION, Output};
use super::text::count;
use crate::load::summary::grouped;

/// Differences that are printed per index; JSON has more.
const PROBLEMS_SHOWN_MAX: usize = 10;
const ADVICE: &str = "copy the rows into a new table, which builds the indexes anew; if verify --deep finds nothing, \
                      please report this: it is a bug";

#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    fine: bool,
    tables: Vec<TableReport>,
}

#[derive(Debug, Serialize)]
struct TableReport {
    table: String,
    fine: bool,
    rows: u64,
    damaged_rows: u64,
    /// What keeps the table from being checked, or the first damaged row.
    error: Option<String>,
    #[serde(skip)]
    index_count: usize,
    indexes: Vec<IndexReport>,
}

#[derive(Debug, Serialize)]
struct IndexReport {
    index: String,
    fine: bool,
    entries: u64,
    problem_count: u64,
    problems: Vec<String>,
}

/// Checks one table or all of them. Returns the exit code.
///
/// # Errors
/// `NotFound` if there is no such table; those of opening the database. What is wrong with tables is in the result.
pub fn run(database: &Database, table: Option<&str>, output: &mut Output<'_>) -> Result<u8> {
    let db = database.open()?;
    let all = db.tables()?;
    let names = match table {
        Some(name) if !all.iter().any(|table| table == name) => return Err(no_such_table(name, &all)),
        Some(name) => vec![name.to_owned()],
        None => all,
    };
    let mut tables = Vec::new();
    for name in names {
        let table = db.table(&name);
        let indexes = table.as_ref().map_or(0, |table| table.schema().indexes().len());
        let report = TableReport::new(name, indexes, table.and_then(|table| table.check_indexes()));
        if !output.json {
            report.print(output)?;
            output.flush()?;
        }
        tables.push(report);
    }
    let report = Report { version: JSON_VERSION, fine: tables.iter().all(|table| table.fine), tables };
    if let (false, Some(holder)) = (report.fine, database.writer()) {
        output.note(&format!(
            "the database is open for writing in {holder}, which may have removed files that were needed: try again"
        ));
    }
    if output.json {
        output.json_line(&report)?;
    } else {
        report.print_sum(output)?;
    }
    Ok(if report.fine { exit::FINE } else { exit::PROBLEMS })
}

impl TableReport {
    fn new(table: String, index_count: usize, checked: alluvium::Result<IndexCheck>) -> TableReport {
        match checked {
            Ok(check) => TableReport {
                table,
                fine: check.is_clean(),
                rows: check.rows,
                damaged_rows: check.damaged_rows,
                error: check.first_damage,
                index_count,
                indexes: check
                    .indexes
                    .into_iter()
                    .map(|index| IndexReport {
                        index: index.index,
                        fine: index.agrees,
                        entries: index.entries,
                        problem_count: index.problem_count,
                        problems: index.problems.iter().map(IndexProblem::to_string).collect(),
                    })
                    .collect(),
            },
            Err(error) => TableReport {
                table,
                fine: false,
                rows: 0,
                damaged_rows: 0,
                error: Some(error.to_string()),
                index_count,
                indexes: Vec::new(),
            },
        }
    }

    fn print(&self, output: &mut Output<'_>) -> Result<()> {
        let title = output.bold(&format!("table {}", self.table));
        let indexes = count(self.index_count as u64, "index");
        output.line(format_args!("{title}: {}, {indexes}", count(self.rows, "row")))?;
        if let Some(error) = &self.error {
            let word = output.bad("problem");
            let damaged = match self.damaged_rows {
                0 => "the check could not be finished".to_owned(),
                rows => format!("{} cannot be read, the first one because", count(rows, "row")),
            };
            output.line(format_args!("  {word}: {damaged}: {error}"))?;
        }
        let mut grid = Grid::new(2).text("index").number("entries").text("result");
        for index in &self.indexes {
            let result = match (index.fine, index.problem_count) {
                (true, _) => "agrees".to_owned(),
                // Damaged rows have no entry that could be computed.
                (false, 0) => "differs, because of the damaged rows".to_owned(),
                (false, problems) => count(problems, "difference"),
            };
            grid.row([index.index.clone(), grouped(index.entries), result]);
        }
        if !self.indexes.is_empty() {
            grid.write(output)?;
        }
        for index in self.indexes.iter().filter(|index| index.problem_count > 0) {
            for problem in index.problems.iter().take(PROBLEMS_SHOWN_MAX) {
                let word = output.bad("problem");
                output.line(format_args!("  {word}: index {}: {problem}", index.index))?;
            }
            let rest = index.problem_count.saturating_sub(PROBLEMS_SHOWN_MAX as u64);
            if rest > 0 {
                output.line(format_args!("  … and {} more of index {}", grouped(rest), index.index))?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn print_sum(&self, output: &mut Output<'_>) -> Result<()> {
        let tables = count(self.tables.len() as u64, "table");
        if self.fine {
            let fine = output.good("fine");
            return output.line(format_args!("{fine}: the indexes of {tables} agree with the rows"));
        }
        let bad = self.tables.iter().filter(|table| !table.fine).count() as u64;
        let found = output.bad(&format!("problems in {bad} of {tables}"));
        output.line(found)?;
        output.line(format_args!("  what to do  {ADVICE}"))
    }
}
