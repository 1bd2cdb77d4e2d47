//! `wal dump`: the log as it lies in its files. Shows what is there; what of it counts, recovery decides (`verify`).

use alluvium::inspect::{
    DumpItem, LogReader, RecordInfo, RecordKind, RingInfo, SegmentInfo, SegmentState, dump_log,
};
use alluvium_base::key::Kind;
use alluvium_base::{Error, ErrorKind};
use serde_json::json;

use super::cli::Limit;
use super::database::Database;
use super::error::{InspectError, Result};
use super::names::{Names, Shown};
use super::output::{JSON_VERSION, Output};
use super::sst::kind_word;
use super::text::{count, hex};
use crate::load::cli::size::Size;
use crate::load::summary::grouped;

/// Prints the log.
///
/// # Errors
/// Those of reading files. Damage is printed, not returned.
pub fn run(database: &Database, records: bool, limit: Option<Limit>, output: &mut Output<'_>) -> Result<()> {
    // A log without a readable manifest is shown, too, with keys as bytes.
    let names = match database.describe() {
        Ok(description) => Names::of(&description),
        Err(error) => {
            output.note(&format!("keys are shown as bytes, since the catalog cannot be read: {error}"));
            Names::default()
        }
    };
    if let Some(holder) = database.writer() {
        output.note(&format!(
            "the database is open for writing in {holder}; this is what is there at the moment"
        ));
    }
    if output.json {
        let directory = database.directory.display().to_string();
        output.json_line(&json!({"version": JSON_VERSION, "event": "start", "directory": directory}))?;
    }
    let mut dump = Dump {
        names,
        output,
        records: if records { Limit::of(limit).unwrap_or(u64::MAX) } else { 0 },
        reader: LogReader::new(),
        segment: Sum::default(),
        total: Sum::default(),
        segments: 0,
        problems: 0,
        failed: None,
    };
    let visited = dump_log(&database.environment, &database.directory, &mut |item| {
        dump.visit(item).map_err(|error| {
            // The engine's walk ends with an error of its own kind; the real one is kept.
            dump.failed = Some(error);
            Error::from(ErrorKind::Cancelled { what: "the dump" })
        })
    });
    if let Some(error) = dump.failed {
        return Err(error);
    }
    visited?;
    dump.finish()
}

/// Records of a segment, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    records: u64,
    bytes: u64,
}

struct Dump<'a, 'o> {
    names: Names,
    output: &'a mut Output<'o>,
    /// Records that may still be printed.
    records: u64,
    reader: LogReader,
    /// The segment that is being visited.
    segment: Sum,
    total: Sum,
    segments: u64,
    problems: u64,
    failed: Option<InspectError>,
}

impl Dump<'_, '_> {
    fn visit(&mut self, item: DumpItem<'_>) -> Result<()> {
        match item {
            DumpItem::Ring(ring) => self.ring(ring),
            DumpItem::Segment(segment) => {
                self.end_segment()?;
                self.segment(&segment)
            }
            DumpItem::Record(record) => self.record(&record),
            DumpItem::Spare(path) => {
                self.end_segment()?;
                let path = path.display().to_string();
                match self.output.json {
                    true => self.output.json_line(&json!({"event": "spare", "file": path})),
                    false => self.output.line(format_args!("spare {path}: waits to become a segment")),
                }
            }
            DumpItem::Problem(error) => {
                self.problems += 1;
                let message = error.to_string();
                match self.output.json {
                    true => self.output.json_line(&json!({"event": "problem", "message": message})),
                    false => {
                        let word = self.output.bad("problem");
                        self.output.line(format_args!("  {word}: {message}"))
                    }
                }
            }
        }
    }

    fn ring(&mut self, ring: RingInfo) -> Result<()> {
        if self.output.json {
            return self.output.json_line(&json!({
                "event": "ring", "incarnation": ring.incarnation, "same_boot": ring.same_boot, "bytes": ring.bytes,
                "drained_address": ring.drained_address, "end_address": ring.end_address,
            }));
        }
        let title = self.output.bold("ring");
        let counts = match ring.same_boot {
            true => format!(
                "records from {} to {} may be in it only",
                grouped(ring.drained_address),
                grouped(ring.end_address)
            ),
            false => "from before the machine was restarted: ignored".to_owned(),
        };
        let (bytes, incarnation) = (Size(ring.bytes), ring.incarnation);
        self.output.line(format_args!("{title} of {bytes}, incarnation {incarnation}: {counts}"))
    }

    fn segment(&mut self, segment: &SegmentInfo) -> Result<()> {
        self.segments += 1;
        let state = match segment.state {
            SegmentState::Full => "full",
            SegmentState::Last => "the last one in use",
            SegmentState::Unused => "not used yet",
            SegmentState::Unreadable => "its header cannot be read",
        };
        let path = segment.path.display().to_string();
        if self.output.json {
            return self.output.json_line(&json!({
                "event": "segment", "file": path, "base": segment.base, "bytes": segment.bytes,
                "incarnation": segment.incarnation, "state": state,
            }));
        }
        let title = self.output.bold(&format!("segment {path}"));
        let incarnation =
            segment.incarnation.map_or_else(String::new, |number| format!(", incarnation {number}"));
        self.output.line(format_args!(
            "{title}: {} from address {}{incarnation}, {state}",
            Size(segment.bytes),
            grouped(segment.base)
        ))
    }

    fn end_segment(&mut self) -> Result<()> {
        let Sum { records, bytes } = std::mem::take(&mut self.segment);
        if records > 0 && !self.output.json {
            self.output.line(format_args!("  {}, {} of payload", count(records, "record"), Size(bytes)))?;
        }
        Ok(())
    }

    fn record(&mut self, record: &RecordInfo<'_>) -> Result<()> {
        for sum in [&mut self.segment, &mut self.total] {
            sum.records += 1;
            sum.bytes += record.payload.len() as u64;
        }
        // Parts of one batch are put together even where they are not printed.
        let operations = match record.kind {
            RecordKind::Close => Ok(Some(Vec::new())),
            RecordKind::Data => self.reader.operations(record.incarnation, record.payload),
        };
        if self.records == 0 {
            return Ok(());
        }
        self.records -= 1;
        let (kind, shown, problem) = match operations {
            Ok(None) => ("part of a batch", Vec::new(), None),
            Ok(Some(operations)) => {
                let kind = if record.kind == RecordKind::Close { "closed" } else { "commit" };
                let show = |operation: &alluvium::inspect::LoggedOperation| self.operation(operation);
                (kind, operations.iter().map(show).collect(), None)
            }
            Err(error) => ("commit", Vec::new(), Some(error.to_string())),
        };
        if self.output.json {
            let operations: Vec<_> = shown.into_iter().map(|shown| shown.json).collect();
            return self.output.json_line(&json!({
                "event": "record", "kind": kind, "address": record.address, "end": record.end,
                "seqno": record.seqno, "incarnation": record.incarnation,
                "durable_address": record.durable_address, "payload_bytes": record.payload.len(),
                "operations": operations, "problem": problem,
            }));
        }
        self.output.line(format_args!(
            "  {kind} at {}, sequence number {}, {}",
            grouped(record.address),
            grouped(record.seqno),
            Size(record.payload.len() as u64)
        ))?;
        for operation in shown {
            self.output.line(format_args!("    {}", operation.text))?;
        }
        problem.map_or(Ok(()), |problem| {
            let word = self.output.bad("problem");
            self.output.line(format_args!("    {word}: {problem}"))
        })
    }

    fn operation(&self, operation: &alluvium::inspect::LoggedOperation) -> Shown {
        let kind = kind_word(operation.kind);
        let names = &self.names;
        let label = alluvium_base::key::KeyspaceId::of(&operation.key).map(|id| names.label(id));
        let mut shown = match operation.kind {
            Kind::Put | Kind::Merge => names.entry(&operation.key, Some(&operation.value)),
            _ => names.key(&operation.key),
        };
        if operation.kind == Kind::RangeDelete {
            let (start, end) = (names.bound(&operation.key), names.bound(&operation.value));
            shown.text = format!("from {start} to {end}");
            shown.json.insert("end".to_owned(), hex(&operation.value).into());
        }
        shown.text = match (operation.kind, label) {
            (Kind::RangeDelete, _) | (_, None) => format!("{kind} {}", shown.text),
            (_, Some(label)) => format!("{kind} {label} {}", shown.text),
        };
        shown.json.insert("operation".to_owned(), kind.into());
        shown
    }

    fn finish(mut self) -> Result<()> {
        self.end_segment()?;
        let Sum { records, bytes } = self.total;
        if self.output.json {
            return self.output.json_line(&json!({
                "event": "end", "segments": self.segments, "records": records, "payload_bytes": bytes,
                "problems": self.problems,
            }));
        }
        let (segments, records) = (count(self.segments, "segment"), count(records, "record"));
        self.output.line(format_args!("({segments}, {records}, {})", count(self.problems, "problem")))
    }
}
