//! The start of every input, and what its rows show.
//!
//! Of the first [`SAMPLED_INPUTS`] inputs, [`SAMPLE_ROWS`] rows or [`SAMPLE_BYTES`] bytes are looked at, whichever ends
//! first; of further ones only as many bytes as delimiter and header need. Never fewer than the first row of data: a
//! sample that a wide row fills alone would say nothing, and every column would become text. So the start is doubled
//! until a whole row is in it, which [`ROW_BYTES_MAX`] bounds.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use alluvium_base::checksum;

use crate::load::error::{LoadError, Result};
use crate::load::input::blocks::SampleBlocks;
use crate::load::input::open::{InputName, OpenInput, Packing};
use crate::load::input::rows::{Batch, ROW_BYTES_MAX, Row, RowReader};
use crate::load::null_strings::NullStrings;
use crate::load::plan::PlannedInput;
use crate::load::sniff::column::ColumnSample;
use crate::load::sniff::dialect::{self, Dialect, Format, Header};

/// Rows of each input that are looked at.
pub const SAMPLE_ROWS: usize = 10_000;
/// Bytes of each of the first inputs that are looked at.
pub const SAMPLE_BYTES: usize = 4 << 20;
/// Inputs whose rows are looked at.
pub const SAMPLED_INPUTS: usize = 16;
/// Bytes of further inputs, for delimiter and header.
pub const HEAD_BYTES: usize = 64 << 10;
/// Where the search for a whole row ends: behind a row of names and a row of data of the greatest length.
const HEAD_BYTES_MAX: usize = 2 * ROW_BYTES_MAX as usize + SAMPLE_BYTES;

/// The start of an input.
pub struct Head {
    /// Its bytes, unpacked.
    pub bytes: Vec<u8>,
    /// True if the input ends there.
    pub whole: bool,
    /// What they look like.
    pub dialect: Dialect,
}

impl Head {
    /// Reads `wanted` bytes, or as many as the first row of data needs.
    ///
    /// # Errors
    /// Those of reading and of [`dialect::sniff`]; `Input` if there is no end to the first row.
    pub fn read(
        input: &mut OpenInput,
        wanted: usize,
        format: Option<Format>,
        header: Header,
    ) -> Result<Head> {
        let name = input.name.clone();
        let mut bytes = Vec::new();
        let mut more = wanted;
        loop {
            let start = bytes.len();
            bytes.resize(start + more, 0);
            let filled = input.read(&mut bytes[start..])?;
            bytes.truncate(start + filled);
            let whole = filled < more;
            match dialect::sniff(&name, &bytes, format, header) {
                Ok(dialect) if whole || has_whole_row(&name, &bytes, &dialect) => {
                    return Ok(Head { bytes, whole, dialect });
                }
                Ok(_) if bytes.len() >= HEAD_BYTES_MAX => {
                    let detail =
                        "its first row of data is longer than 64 MiB; is a quote (\") in it never closed?";
                    return Err(name.error(detail));
                }
                // What looks wrong in a row that is cut off may be right in the whole row.
                Err(LoadError::Input { .. }) if !whole && bytes.len() < HEAD_BYTES_MAX => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            more = bytes.len().min(HEAD_BYTES_MAX - bytes.len());
        }
    }
}

/// True if the first row of data ends before `bytes` do.
fn has_whole_row(name: &InputName, bytes: &[u8], dialect: &Dialect) -> bool {
    let Ok(mut reader) = RowReader::new(name.clone(), SampleBlocks::new(bytes.to_vec()), dialect.delimiter)
    else {
        return false;
    };
    dialect.go_to_data(&mut reader).is_ok()
        && reader.read_row(&mut Batch::default()).is_ok_and(|found| found)
        && reader.byte() < bytes.len() as u64
}

/// What the sampled rows of all inputs show.
pub struct Sampler<'a> {
    nulls: &'a NullStrings,
    columns: Vec<ColumnSample>,
    /// For suggesting a key when none is given: the hashes of each column's texts.
    distinct: Option<Vec<HashSet<u64>>>,
    rows: u64,
    /// Unpacked bytes of the sampled rows.
    row_bytes: u64,
    /// True while the samples are all that there is.
    complete: bool,
    /// Unpacked and stored bytes of what was read of packed inputs.
    unpacked: u64,
    stored: u64,
}

impl<'a> Sampler<'a> {
    /// Nothing sampled; `find_key` asks to keep what [`key_candidates`](Sampler::key_candidates) needs.
    #[must_use]
    pub fn new(nulls: &'a NullStrings, find_key: bool) -> Sampler<'a> {
        let distinct = find_key.then(Vec::new);
        Sampler {
            nulls,
            columns: Vec::new(),
            distinct,
            rows: 0,
            row_bytes: 0,
            complete: true,
            unpacked: 0,
            stored: 0,
        }
    }

    /// Samples the rows in `head`.
    ///
    /// # Errors
    /// `Input` if the bytes are not text in rows.
    pub fn add(&mut self, name: &InputName, head: &Head) -> Result<()> {
        let Head { bytes: head, whole, dialect } = head;
        self.columns.resize_with(dialect.columns.len(), ColumnSample::default);
        if let Some(distinct) = &mut self.distinct {
            distinct.resize_with(dialect.columns.len(), HashSet::new);
        }
        let mut reader = RowReader::new(name.clone(), SampleBlocks::new(head.clone()), dialect.delimiter)?;
        dialect.go_to_data(&mut reader)?;
        let mut batch = Batch::default();
        let mut start = reader.byte();
        let mut ended = false;
        for _ in 0..SAMPLE_ROWS {
            batch.clear(0, 0);
            // A row that is cut off by the end of the sample says nothing; one that is broken is for the load to tell.
            ended = !reader.read_row(&mut batch).unwrap_or(false);
            if ended || (!*whole && reader.byte() == head.len() as u64) {
                break;
            }
            self.row_bytes += reader.byte() - start;
            start = reader.byte();
            self.rows += 1;
            let sound = |row: &Row<'_>| row.len() == dialect.columns.len() && row.malformed_byte.is_none();
            for row in batch.rows().filter(sound) {
                for (at, field) in row.fields().enumerate() {
                    self.columns[at].add(field, self.nulls.says_nothing(field));
                    if let Some(distinct) = &mut self.distinct {
                        distinct[at].insert(checksum::checksum(0, field));
                    }
                }
            }
        }
        self.complete &= *whole && ended;
        Ok(())
    }

    /// Notes how much of a packed input was unpacked to what.
    pub fn add_packing(&mut self, input: &OpenInput, head: &Head) {
        if input.packing != Packing::Plain {
            self.unpacked += head.bytes.len() as u64;
            self.stored += input.read_bytes.load(Ordering::Relaxed);
        }
    }

    /// Notes that there is an input whose rows are not looked at.
    pub fn skip(&mut self) {
        self.complete = false;
    }

    /// Number of rows sampled.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What the columns show.
    #[must_use]
    pub fn columns(&self) -> &[ColumnSample] {
        &self.columns
    }

    /// About how many unpacked bytes there are in all; `None` if an input's size is not known.
    #[must_use]
    pub fn estimate_bytes(&self, inputs: &[PlannedInput]) -> Option<u64> {
        let mut total = 0;
        for input in inputs {
            let stored = input.stored_bytes?;
            total += match input.packing {
                Packing::Plain => stored,
                _ if self.stored == 0 => return None,
                _ => (stored as f64 * self.unpacked as f64 / self.stored as f64) as u64,
            };
        }
        Some(total)
    }

    /// About how many rows there are in so many unpacked bytes.
    #[must_use]
    pub fn estimate_rows(&self, bytes: u64) -> Option<u64> {
        if self.complete {
            return Some(self.rows);
        }
        (self.row_bytes > 0).then(|| (bytes as f64 * self.rows as f64 / self.row_bytes as f64) as u64)
    }

    /// Columns that are never NULL and never the same in the sample.
    #[must_use]
    pub fn key_candidates<'b>(&self, names: &[&'b str]) -> Vec<&'b str> {
        let Some(distinct) = self.distinct.as_ref().filter(|_| self.rows > 1) else { return Vec::new() };
        let is_key = |at: usize| self.columns[at].nulls == 0 && distinct[at].len() as u64 == self.rows;
        (0..distinct.len()).filter(|&at| is_key(at)).map(|at| names[at]).collect()
    }
}
