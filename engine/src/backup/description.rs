//! What one backup consists of, as a small file.
//!
//! ```text
//! magic "ALLUBACK" | format u32 | 0 u32 | number u64 | created micros i64 | state length u64
//! state: a manifest edit that holds everything (design/formats/manifest-edit.md)
//! copies varint, then for each table: file id varint | number of the backup that copied it varint
//! checksum u64 over everything before, seeded with the number
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use alluvium_base::checksum::{checksum, seed};
use alluvium_base::coding::{Reader, put_varint};
use alluvium_base::fs::{Fs, read_file};
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_compaction::{FileMeta, ManifestState, VersionEdit};

use super::Backup;

const MAGIC: &[u8; 8] = b"ALLUBACK";
/// Newest format that this build reads, and the one that it writes.
const FORMAT: u32 = 1;
/// Largest description: that of a million tables stays below it.
const BYTES_MAX: u64 = 1 << 30;

/// The name of a backup's description.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:06}.backup")
}

/// The number in such a name.
pub(super) fn parse_file_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".backup")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// One copy of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CopyName {
    id: u64,
    identity: u128,
    checksum: u64,
    /// The backup that made it.
    pub(super) number: u64,
}

impl CopyName {
    pub(super) fn of(file: &FileMeta, number: u64) -> CopyName {
        CopyName { id: file.id, identity: file.summary.identity, checksum: file.summary.checksum, number }
    }

    pub(super) fn parse(name: &str) -> Option<CopyName> {
        let mut parts = name.strip_suffix(".sst")?.split('-');
        let id = parts.next()?.parse().ok()?;
        let identity = u128::from_str_radix(parts.next()?, 16).ok()?;
        let checksum = u64::from_str_radix(parts.next()?, 16).ok()?;
        let copy = CopyName { id, identity, checksum, number: parts.next()?.parse().ok()? };
        (copy.to_string() == name).then_some(copy)
    }
}

impl fmt::Display for CopyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CopyName { id, identity, checksum, number } = self;
        write!(f, "{id:08}-{identity:032x}-{checksum:016x}-{number}.sst")
    }
}

/// A backup.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) number: u64,
    pub(super) created_micros: i64,
    /// What the manifest said.
    pub(super) state: ManifestState,
    /// For each table, by file id: the backup that copied it.
    pub(super) copies: BTreeMap<u64, u64>,
}

impl Description {
    /// Tables with the numbers of their copies.
    pub(super) fn files(&self) -> impl Iterator<Item = (&FileMeta, u64)> {
        self.state.version.files().filter_map(|(_, file)| Some((&**file, *self.copies.get(&file.id)?)))
    }

    /// Those that were copied for this backup.
    pub(super) fn own_copies(&self) -> impl Iterator<Item = (&FileMeta, u64)> {
        self.files().filter(|(_, copy)| *copy == self.number)
    }

    pub(super) fn info(&self) -> Backup {
        Backup {
            number: self.number,
            created_micros: self.created_micros,
            database_id: self.state.database_id,
            last_seqno: self.state.last_seqno,
            files: self.files().count() as u64,
            bytes: self.state.version.bytes(),
            copied_files: self.own_copies().count() as u64,
            copied_bytes: self.own_copies().map(|(file, _)| file.bytes()).sum(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut state = Vec::new();
        self.state.to_edit().encode(&mut state);
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.created_micros.to_le_bytes());
        out.extend_from_slice(&(state.len() as u64).to_le_bytes());
        out.extend_from_slice(&state);
        put_varint(&mut out, self.copies.len() as u64);
        for (&id, &copy) in &self.copies {
            put_varint(&mut out, id);
            put_varint(&mut out, copy);
        }
        let sum = checksum(seed(u128::from(self.number), 0), &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads and checks the description of backup `number`.
    ///
    /// # Errors
    /// `Corrupt` if anything in it does not hold; `UnsupportedFormat`; those of reading.
    pub(super) fn read(fs: &dyn Fs, path: &Path, number: u64) -> Result<Description> {
        let bytes = read_file(fs, path, BYTES_MAX)?;
        let damaged = |detail: &str| Error::corrupt(path, 0, detail);
        let Some((covered, stored)) = bytes.split_last_chunk::<8>() else {
            return Err(damaged("the description of a backup is cut off"));
        };
        let mut reader = Reader::new(covered);
        if reader.take(8) != Some(MAGIC) {
            return Err(damaged("it does not begin like the description of a backup"));
        }
        if checksum(seed(u128::from(number), 0), covered) != u64::from_le_bytes(*stored) {
            return Err(damaged("the checksum of a backup's description differs"));
        }
        // The checksum keeps its place in every format, so that a newer one is told from damage.
        let found = reader.u32().unwrap_or_default();
        if found != FORMAT {
            let file = path.to_owned();
            return Err(ErrorKind::UnsupportedFormat { file, found, supported: FORMAT }.into());
        }
        Description::decode(&mut reader, path)
            .unwrap_or_else(|| Err(damaged("the description of a backup is not understood")))
    }

    /// Everything behind the format; `None` if it is cut off or inconsistent.
    fn decode(reader: &mut Reader<'_>, path: &Path) -> Option<Result<Description>> {
        reader.u32()?;
        let number = reader.u64()?;
        let created_micros = reader.u64()?.cast_signed();
        let state_bytes = usize::try_from(reader.u64()?).ok()?;
        let offset = reader.position() as u64;
        let edit = match VersionEdit::decode(reader.take(state_bytes)?, path, offset) {
            Ok(edit) => edit,
            Err(error) => return Some(Err(error)),
        };
        let mut copies = BTreeMap::new();
        for _ in 0..reader.length(reader.remaining())? {
            copies.insert(reader.varint()?, reader.varint()?);
        }
        let mut state = ManifestState::default();
        if let Err(error) = state.apply(&edit) {
            return Some(Err(Error::corrupt(path, offset, error.to_string())));
        }
        let complete = state.version.files().all(|(_, file)| copies.contains_key(&file.id));
        (complete && reader.is_empty()).then_some(Ok(Description { number, created_micros, state, copies }))
    }
}
