//! `repair`: what is lost, and with `--apply` a database that works with what is left.
//!
//! The work is done by [`alluvium::repair`]; without `--apply` nothing is changed.

use alluvium::Options;
use alluvium::repair::{Applied, LostTable, RepairReport, repair};
use serde_json::{Value, json};

use super::database::Database;
use super::error::{Result, exit};
use super::output::{JSON_VERSION, Output};
use super::text::count;
use crate::load::cli::size::Size;
use crate::load::summary::grouped;

/// Finds out what is damaged, and repairs it if told to. Returns the exit code.
///
/// # Errors
/// `Corrupt` if the manifest itself is damaged, so that nothing can be done; `InUse`; those of writing.
pub fn run(database: &Database, apply: bool, output: &mut Output<'_>) -> Result<u8> {
    if let (false, Some(holder)) = (apply, database.writer()) {
        output.note(&format!("the database is open for writing in {holder}: what is found may be its work"));
    }
    let report = repair(database.environment.clone(), &database.directory, &Options::default(), apply)?;
    if output.json {
        output.json_line(&as_json(&report))?;
    } else {
        print(&report, output)?;
    }
    // After a repair what was lost stays lost, and a script should hear of it.
    let fine = if report.applied.is_some() { !report.is_loss() } else { !report.is_needed() };
    Ok(if fine { exit::FINE } else { exit::PROBLEMS })
}

fn as_json(report: &RepairReport) -> Value {
    let lost_table = |lost: &LostTable| {
        let holds: Vec<Value> =
            lost.holds.iter().map(|(name, entries)| json!({"name": name, "entries": entries})).collect();
        json!({
            "file": lost.file, "level": lost.level, "entries": lost.entries, "holds": holds,
            "from": hex(&lost.range.start), "to": hex(&lost.range.end), "message": lost.error.to_string(),
        })
    };
    let lost_log: Vec<Value> = (report.lost_log.iter())
        .map(|lost| json!({"from": lost.from, "to": lost.to, "message": lost.why}))
        .collect();
    let log_problems: Vec<String> = report.log_problems.iter().map(ToString::to_string).collect();
    let applied = report.applied.as_ref().map(|Applied { kept_in, kept, indexes }| {
        let indexes: Vec<Value> = (indexes.iter())
            .map(|(table, rebuilt)| {
                json!({
                    "table": table, "removed": rebuilt.removed, "written": rebuilt.written,
                    "conflicts": rebuilt.conflicts, "damaged_rows": rebuilt.damaged_rows,
                })
            })
            .collect();
        json!({"kept_in": kept_in, "kept": kept, "indexes": indexes})
    });
    json!({
        "version": JSON_VERSION, "needed": report.is_needed(), "loss": report.is_loss(),
        "manifest": report.manifest, "current": report.current_problem.as_ref().map(ToString::to_string),
        "sound_table_files": report.sound_tables,
        "lost_table_files": report.lost_tables.iter().map(lost_table).collect::<Vec<_>>(),
        "log_records": report.log_records, "lost_log": lost_log, "log_problems": log_problems,
        "applied": applied,
    })
}

/// A full key as bytes.
fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn print(report: &RepairReport, output: &mut Output<'_>) -> Result<()> {
    let (problem, lost) = (output.bad("problem"), output.bad("lost"));
    if let Some(error) = &report.current_problem {
        output.line(format_args!("{problem}: {error}; manifest {} has everything", report.manifest))?;
    }
    for table in &report.lost_tables {
        output.line(format_args!("{lost}: {}", table.error))?;
        let holds: Vec<String> = (table.holds.iter())
            .map(|(name, entries)| format!("{name} ({})", count(*entries, "entry")))
            .collect();
        output.line(format_args!("  it held  {}", holds.join(", ")))?;
        let (from, to) = (hex(&table.range.start), hex(&table.range.end));
        output.line(format_args!("  keys     from 0x{from} to 0x{to}, level {}", table.level))?;
    }
    for range in &report.lost_log {
        let bytes = Size(range.to.saturating_sub(range.from));
        let (from, to) = (grouped(range.from), grouped(range.to));
        output.line(format_args!("{lost}: log addresses {from} to {to} ({bytes}): {}", range.why))?;
    }
    for error in &report.log_problems {
        output.line(format_args!("{problem}: {error}"))?;
    }
    let sound = format!(
        "{} sound, {} read",
        count(report.sound_tables, "table file"),
        count(report.log_records, "log record")
    );
    match &report.applied {
        Some(applied) => print_applied(applied, &sound, output),
        None if report.is_needed() => {
            output.line(format_args!("nothing was changed; {sound}"))?;
            output.line("  what to do  copy the directory if you can, then repair --apply")
        }
        None => {
            let fine = output.good("fine");
            output.line(format_args!("{fine}: there is nothing to repair; {sound}"))
        }
    }
}

fn print_applied(applied: &Applied, sound: &str, output: &mut Output<'_>) -> Result<()> {
    for (table, rebuilt) in &applied.indexes {
        output.line(format_args!(
            "indexes of {table}: {} removed, {} written",
            count(rebuilt.removed, "entry"),
            grouped(rebuilt.written)
        ))?;
        if rebuilt.conflicts + rebuilt.damaged_rows > 0 {
            let problem = output.bad("problem");
            let (shared, damaged) = (count(rebuilt.conflicts, "row"), count(rebuilt.damaged_rows, "row"));
            output.line(format_args!(
                "{problem}: table {table}: {shared} with a unique value of another row, {damaged} that cannot be read"
            ))?;
        }
    }
    let done = output.good("repaired");
    output.line(format_args!("{done}: {sound}; what was damaged is kept in {}", applied.kept_in.display()))
}
