//! Following one run from record to record, and judging the place where that ends.

use std::collections::VecDeque;

use alluvium_base::{Error, Result};

use super::plan::Run;
use super::{DroppedRange, Found, RecoveredRecord, RecoveryMode, RecoveryReport};
use crate::files::WRITE_BYTES_MAX;
use crate::format::{RecordHeader, RecordKind};

/// The walk along one run.
pub(crate) struct Walk {
    pub(crate) run: Run,
    mode: RecoveryMode,
    /// Records known durable from what records say.
    durable: u64,
    /// Addresses of some records, at least one write apart; the first is the last of them below `durable`.
    marks: VecDeque<u64>,
}

/// What follows a place where no record is.
#[derive(Debug, Default)]
struct Evidence {
    /// Highest durable address that a later header names.
    durable: u64,
    /// End of the last later record.
    last_end: Option<u64>,
}

impl Walk {
    pub(crate) fn new(run: Run, mode: RecoveryMode) -> Walk {
        Walk { run, mode, durable: 0, marks: VecDeque::new() }
    }

    /// A record from which on everything may have to be made durable.
    pub(crate) fn unsettled_from(&self) -> Option<u64> {
        self.marks.front().copied()
    }

    /// Replays the run and returns where it ends.
    pub(crate) fn run(
        &mut self,
        report: &mut RecoveryReport,
        on_record: &mut dyn FnMut(RecoveredRecord<'_>) -> Result<()>,
    ) -> Result<u64> {
        let mut at = self.run.start;
        report.closed_cleanly = false;
        while self.run.limit.is_none_or(|limit| at < limit) {
            let found = self.run.source.record_at(at)?;
            match found {
                Found::Record(header) if self.is_within(at, &header) => {
                    self.note(at, &header);
                    self.deliver(at, &header, report, on_record)?;
                    at += header.record_bytes();
                }
                _ => match self.judge(at, found, report)? {
                    Some(next) => at = next,
                    None => break,
                },
            }
        }
        Ok(at)
    }

    fn is_within(&self, at: u64, header: &RecordHeader) -> bool {
        self.run.limit.is_none_or(|limit| at + header.record_bytes() <= limit)
    }

    fn deliver(
        &self,
        at: u64,
        header: &RecordHeader,
        report: &mut RecoveryReport,
        on_record: &mut dyn FnMut(RecoveredRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        report.closed_cleanly = header.kind == RecordKind::Close;
        if header.kind != RecordKind::Data {
            return Ok(());
        }
        report.records += 1;
        report.bytes += u64::from(header.payload_len);
        report.highest_seqno = report.highest_seqno.max(header.seqno);
        on_record(RecoveredRecord {
            address: at,
            end: at + header.record_bytes(),
            seqno: header.seqno,
            payload: self.run.source.payload(),
            incarnation: self.run.incarnation,
        })
    }

    fn note(&mut self, at: u64, header: &RecordHeader) {
        self.durable = self.durable.max(header.durable_address);
        self.run.known = self.run.known.max(header.durable_address);
        if self.marks.back().is_none_or(|&last| at - last >= WRITE_BYTES_MAX as u64) {
            self.marks.push_back(at);
        }
        while self.marks.get(1).is_some_and(|&second| second <= self.durable) {
            self.marks.pop_front();
        }
    }

    /// No record is at `at`: says where to go on, or that the run ends here.
    fn judge(&mut self, at: u64, found: Found, report: &mut RecoveryReport) -> Result<Option<u64>> {
        if at >= self.run.known && self.run.end_is_exact {
            return Ok(None);
        }
        self.run.source.refuse_unknown_kind(at)?;
        let mut evidence = Evidence::default();
        if at >= self.run.known {
            evidence = self.look_ahead(at)?;
            self.run.known = self.run.known.max(evidence.durable);
        }
        if at < self.run.known {
            return self.damage(at, report);
        }
        let torn_end = match found {
            Found::Torn(header) => Some(at + header.record_bytes()),
            _ => None,
        };
        if let Some(to) = evidence.last_end.max(torn_end) {
            let (file, offset) = self.run.source.locate(at);
            let why = format!("torn tail in {} at byte {offset}", file.display());
            if self.mode == RecoveryMode::Strict {
                return Err(Error::corrupt(file, offset, "torn tail: records follow that are not complete"));
            }
            report.dropped.push(DroppedRange { from: at, to, why });
        }
        Ok(None)
    }

    fn damage(&mut self, at: u64, report: &mut RecoveryReport) -> Result<Option<u64>> {
        let (file, offset) = self.run.source.locate(at);
        let known = self.run.known;
        let detail = format!("no valid log record at address {at}, but the log is known up to {known}");
        if self.mode != RecoveryMode::Salvage {
            return Err(Error::corrupt(file, offset, detail));
        }
        let until = self.run.limit.unwrap_or(self.run.source.reach());
        let mut from = at + 1;
        let next = loop {
            match self.run.source.next_found(from, until)? {
                Some((next, Found::Record(header))) if self.is_within(next, &header) => break Some(next),
                Some((next, _)) => from = next + 1,
                None => break None,
            }
        };
        // Behind the known end a gap is what a torn tail looks like: what follows it does not count.
        let next = next.filter(|&next| next <= known);
        let why = format!("damage in {} at byte {offset}", file.display());
        report.dropped.push(DroppedRange { from: at, to: next.unwrap_or(known), why });
        Ok(next)
    }

    /// Reads everything behind `at` that is a record.
    fn look_ahead(&mut self, at: u64) -> Result<Evidence> {
        let mut evidence = Evidence::default();
        let until = self.run.limit.unwrap_or(self.run.source.reach());
        let mut from = at + 1;
        while let Some((next, found)) = self.run.source.next_found(from, until)? {
            let (Found::Record(header) | Found::Torn(header)) = found else { break };
            evidence.durable = evidence.durable.max(header.durable_address);
            from = next + 1;
            if let Found::Record(_) = found {
                from = next + header.record_bytes();
                evidence.last_end = Some(from);
            }
        }
        Ok(evidence)
    }
}
