//! What a load did: a few lines for people, one JSON object for programs.

use std::fmt;

use serde::Serialize;

use crate::load::cli::size::Size;
use crate::load::error::exit;
use crate::load::plan::Plan;
use crate::load::progress::{PHASES, Phase, Progress};

/// Version of the JSON form. Fields may be added to a version, but never change or go.
pub const JSON_VERSION: u32 = 1;

/// What a load did.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    version: u32,
    /// Name of the table.
    pub table: String,
    /// What became of the rows.
    pub rows: Rows,
    /// Bytes of the inputs as they are stored, packed or not.
    pub input_bytes: u64,
    /// Bytes written to temporary files.
    pub spilled_bytes: u64,
    /// The primary index and the secondary ones.
    pub targets: Vec<TargetSummary>,
    /// Time that each phase took.
    pub phases: Vec<PhaseSummary>,
    /// The whole load, in seconds.
    pub seconds: f64,
}

/// What became of the rows; read = loaded + rejected + superseded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rows {
    /// Rows in the inputs.
    pub read: u64,
    /// Rows in the table.
    pub loaded: u64,
    /// Rows that could not be loaded.
    pub rejected: u64,
    /// Rows that made room for another one with the same primary key.
    pub superseded: u64,
}

/// One index of the new table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetSummary {
    /// Its name; `primary key` for the rows themselves.
    pub name: String,
    /// Number of entries.
    pub entries: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
}

/// One phase of the load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseSummary {
    /// Which.
    pub phase: Phase,
    /// How long it took.
    pub seconds: f64,
}

impl Summary {
    /// The summary of a load that has just ended.
    #[must_use]
    pub fn new(plan: &Plan, progress: &Progress, rows: Rows, targets: Vec<TargetSummary>) -> Summary {
        let end = progress.elapsed_nanos();
        let begins = PHASES.map(|phase| progress.phase_began_nanos(phase));
        let ends = begins.iter().skip(1).copied().chain([end]);
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let phases = PHASES.iter().zip(begins.iter().zip(ends));
        Summary {
            version: JSON_VERSION,
            table: plan.schema.name().to_owned(),
            rows,
            input_bytes: progress.read_bytes.get(),
            spilled_bytes: progress.spilled_bytes.get(),
            targets,
            phases: phases
                .map(|(&phase, (&begin, end))| PhaseSummary {
                    phase,
                    seconds: seconds(end.saturating_sub(begin)),
                })
                .collect(),
            seconds: seconds(end),
        }
    }

    /// The exit code of a process that did this.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.rows.rejected > 0 { exit::ROWS_REJECTED } else { exit::CLEAN }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rows { read, loaded, rejected, superseded } = self.rows;
        let rate = if self.seconds > 0.0 { read as f64 / self.seconds } else { 0.0 };
        let (table, seconds) = (&self.table, self.seconds);
        writeln!(f, "{table}: {} loaded in {seconds:.1} s", count(loaded, "row"))?;
        write!(
            f,
            "  read {}, {} of input ({}/s)",
            count(read, "row"),
            Size(self.input_bytes),
            count(rate as u64, "row")
        )?;
        writeln!(f, "; {} rejected, {} superseded", grouped(rejected), grouped(superseded))?;
        let width = self.targets.iter().map(|target| target.name.chars().count()).max().unwrap_or(0);
        for target in &self.targets {
            let (name, entries, bytes) = (&target.name, grouped(target.entries), Size(target.file_bytes));
            let word = if target.entries == 1 { "entry  " } else { "entries" };
            writeln!(f, "  {name:width$}  {entries:>12} {word}  {:>10}", bytes.to_string())?;
        }
        let phases: Vec<String> = self
            .phases
            .iter()
            .map(|phase| format!("{} {:.1} s", phase.phase.describe(), phase.seconds))
            .collect();
        writeln!(f, "  {}", phases.join(", "))?;
        if self.spilled_bytes > 0 {
            writeln!(
                f,
                "  {} went through temporary files; more --memory avoids that",
                Size(self.spilled_bytes)
            )?;
        }
        Ok(())
    }
}

/// A number with its thousands set apart: `336,776`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 file`, `2 files`.
#[must_use]
pub fn count(number: u64, what: &str) -> String {
    let number_text = grouped(number);
    match (number, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number_text} {stem}ies"),
        (_, _) if what.ends_with('x') => format!("{number_text} {what}es"),
        _ => format!("{number_text} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_row_was_called_1_rows() {
        assert_eq!([0, 1, 1000].map(|rows| count(rows, "row")), ["0 rows", "1 row", "1,000 rows"]);
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, shown) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (336_776, "336,776"), (1_000_000, "1,000,000")]
        {
            assert_eq!(grouped(number), shown);
        }
    }

    #[test]
    fn the_summary_reads_well_and_has_a_version() {
        let summary = Summary {
            version: JSON_VERSION,
            table: "flights".into(),
            rows: Rows { read: 336_776, loaded: 336_770, rejected: 2, superseded: 4 },
            input_bytes: 8_200_162,
            spilled_bytes: 3 << 20,
            targets: vec![
                TargetSummary { name: "primary key".into(), entries: 336_770, file_bytes: 12_900_000 },
                TargetSummary { name: "by_tail".into(), entries: 336_770, file_bytes: 4096 },
            ],
            phases: vec![PhaseSummary { phase: Phase::Encode, seconds: 0.91 }],
            seconds: 2.0,
        };
        assert_eq!(
            summary.to_string(),
            "flights: 336,770 rows loaded in 2.0 s\n  \
             read 336,776 rows, 7.8 MiB of input (168,388 rows/s); 2 rejected, 4 superseded\n  \
             primary key       336,770 entries    12.3 MiB\n  \
             by_tail           336,770 entries       4 KiB\n  \
             reading 0.9 s\n  \
             3 MiB went through temporary files; more --memory avoids that\n"
        );
        assert_eq!(summary.exit_code(), 3);
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!((&json["version"], &json["rows"]["superseded"]), (&1.into(), &4.into()));
        assert_eq!(json["phases"][0]["phase"], "encode");
    }
}
