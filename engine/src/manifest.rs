//! The manifest: an append-only file of version edits, and the pointer that says which file and how much of it counts.
//!
//! ```text
//! CURRENT   (one 512-byte sector, rewritten in place)
//!   magic "ALLUCURR" | format u32 | 0 u32 | database id u128 | manifest number u64 | durable bytes u64 | checksum u64
//! MANIFEST-NNNNNN
//!   magic "ALLUMANI" | format u32 | 0 u32 | database id u128 | number u64 | checksum u64     (48 bytes)
//!   record*: length u32 | 0 u32 | checksum u64 | edit (length bytes) | zeros up to a multiple of 8
//! ```
//!
//! An edit counts once it is durable in the manifest **and** `CURRENT` covers it: append the record, sync the manifest,
//! rewrite the sector, sync it. So a crash leaves either a manifest longer than `CURRENT` says (the rest was never
//! acknowledged and is ignored) or exactly what it says; anything invalid or missing *below* that length is damage, and
//! is reported, never taken for a torn tail. That is why the pointer holds a length: without it a cut-off manifest would
//! silently be an older database. Checksums are seeded with database id, manifest number and offset, so that an old
//! record in a reused block never validates.
//!
//! When the file has grown past four times the size of a snapshot of the state, a new manifest that begins with that
//! snapshot is written, synced (file, then directory) and switched to by `CURRENT`. The same happens after a failed
//! append: the state of the old file is then unknown, so it is never appended to again. The old file stays until no
//! process can be reading it (see `lease.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::checksum::{checksum, seed};
use alluvium_base::coding::Reader;
use alluvium_base::fs::{File, Fs, OpenMode};
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_compaction::{ManifestState, VersionEdit};

use crate::layout;

const CURRENT_MAGIC: &[u8; 8] = b"ALLUCURR";
const MANIFEST_MAGIC: &[u8; 8] = b"ALLUMANI";
/// Newest format of both files that this build reads and the one that it writes.
pub(crate) const FORMAT_VERSION: u32 = 1;
const CURRENT_BYTES: usize = 512;
const HEADER_BYTES: u64 = 48;
const FRAME_BYTES: u64 = 16;
/// A manifest shorter than this is never rewritten.
const REWRITE_BYTES_MIN: u64 = 1 << 20;
/// Largest edit: a snapshot of a million files of about 200 bytes stays below it.
const EDIT_BYTES_MAX: u32 = 1 << 30;

/// A moment in the history of a database: a manifest and how much of it counts. Later moments are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) number: u64,
    pub(crate) durable_bytes: u64,
}

/// What `CURRENT` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) database_id: u128,
    pub(crate) number: u64,
    pub(crate) durable_bytes: u64,
}

impl Current {
    /// Reads `CURRENT`; `None` if there is no database in the directory.
    pub(crate) fn read(fs: &dyn Fs, directory: &Path) -> Result<Option<Current>> {
        let path = layout::current(directory);
        let file = match fs.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.is_missing_file() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = [0; CURRENT_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        loop {
            let before = bytes;
            match Current::decode(&path, &bytes) {
                Err(error) if error.is_corrupt() => {
                    // A writer may have been rewriting the sector at this very moment; damage stays the same.
                    file.read_exact_at(&mut bytes, 0)?;
                    if bytes == before {
                        return Err(error);
                    }
                }
                decoded => return decoded.map(Some),
            }
        }
    }

    fn decode(path: &Path, bytes: &[u8; CURRENT_BYTES]) -> Result<Current> {
        let damaged = || Error::corrupt(path, 0, "it does not name a manifest; restore it from a backup");
        let mut reader = Reader::new(bytes);
        if reader.take(8) != Some(CURRENT_MAGIC) {
            return Err(damaged());
        }
        let format = reader.u32().ok_or_else(damaged)?;
        let mut rest = || {
            reader.u32()?;
            let current =
                Current { database_id: reader.u128()?, number: reader.u64()?, durable_bytes: reader.u64()? };
            let covered = reader.position();
            let stored = reader.u64()?;
            (stored == checksum(0, bytes.get(..covered)?)).then_some(current)
        };
        let current = rest();
        // The checksum keeps its place in every format, so a newer format is told from damage.
        if current.is_some() {
            check_format(path, format)?;
        }
        // The rest of the sector is zero, so that damage anywhere in it is found.
        let padding_is_zero = bytes.get(56..).is_some_and(|rest| rest.iter().all(|&byte| byte == 0));
        current.filter(|_| padding_is_zero).ok_or_else(damaged)
    }

    /// The moment that it names.
    pub(crate) fn position(&self) -> Position {
        Position { number: self.number, durable_bytes: self.durable_bytes }
    }

    fn to_bytes(self) -> [u8; CURRENT_BYTES] {
        let mut out = Vec::with_capacity(CURRENT_BYTES);
        out.extend_from_slice(CURRENT_MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.database_id.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.durable_bytes.to_le_bytes());
        out.extend_from_slice(&checksum(0, &out).to_le_bytes());
        let mut sector = [0; CURRENT_BYTES];
        for (to, from) in sector.iter_mut().zip(out) {
            *to = from;
        }
        sector
    }
}

fn check_format(path: &Path, found: u32) -> Result<()> {
    if found > FORMAT_VERSION || found == 0 {
        let file = path.to_owned();
        return Err(ErrorKind::UnsupportedFormat { file, found, supported: FORMAT_VERSION }.into());
    }
    Ok(())
}

fn identity(database_id: u128, number: u64) -> u128 {
    database_id ^ u128::from(number) << 64
}

fn header(database_id: u128, number: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES as usize);
    out.extend_from_slice(MANIFEST_MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&database_id.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&checksum(0, &out).to_le_bytes());
    out
}

fn encode(edit: &VersionEdit) -> Vec<u8> {
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    bytes
}

fn frame(database_id: u128, number: u64, offset: u64, edit: &[u8], out: &mut Vec<u8>) {
    let length = (edit.len() as u32).to_le_bytes();
    let mut covered = length.to_vec();
    covered.extend_from_slice(edit);
    let sum = checksum(seed(identity(database_id, number), offset), &covered);
    out.extend_from_slice(&length);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(edit);
    out.resize(out.len().next_multiple_of(8), 0);
}

/// One edit of a manifest, and where it stands.
#[derive(Clone, Debug)]
pub struct ManifestRecord {
    /// Offset of its frame in the file, in bytes.
    pub offset: u64,
    /// Length of the encoded edit, in bytes.
    pub bytes: u64,
    /// What it says.
    pub edit: VersionEdit,
}

/// Reads every acknowledged edit of the manifest that `current` names, in order.
///
/// # Errors
/// `Corrupt`, with file and offset, for anything invalid below the durable length.
pub(crate) fn read(fs: &dyn Fs, directory: &Path, current: &Current) -> Result<Vec<ManifestRecord>> {
    let path = layout::manifest(directory, current.number);
    let file = fs.open(&path, OpenMode::Read).map_err(|error| {
        if error.is_missing_file() {
            Error::corrupt(
                layout::current(directory),
                24,
                format!("it names {}, which does not exist", path.display()),
            )
        } else {
            error
        }
    })?;
    let size = file.len()?;
    if size < current.durable_bytes {
        return Err(Error::corrupt(
            &path,
            size,
            format!("the file ends here, but {} bytes of it are known to be durable", current.durable_bytes),
        ));
    }
    let mut bytes = vec![0; current.durable_bytes as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let mut reader = Reader::new(&bytes);
    if reader.take(8) != Some(MANIFEST_MAGIC) {
        return Err(Error::corrupt(&path, 0, "it does not begin like a manifest"));
    }
    let expected = header(current.database_id, current.number);
    if bytes.get(..HEADER_BYTES as usize) != Some(expected.as_slice()) {
        // The checksum keeps its place in every format, so a newer format is told from damage.
        let format = reader.u32().unwrap_or_default();
        let covered = bytes.get(..HEADER_BYTES as usize - 8).unwrap_or_default();
        let stored =
            bytes.get(covered.len()..).and_then(<[u8]>::first_chunk).copied().map(u64::from_le_bytes);
        if stored == Some(checksum(0, covered)) {
            check_format(&path, format)?;
        }
        return Err(Error::corrupt(&path, 8, "its header is not that of this database and number"));
    }
    reader = Reader::new(&bytes);
    reader.take(HEADER_BYTES as usize);
    let mut records = Vec::new();
    while !reader.is_empty() {
        let offset = reader.position() as u64;
        records.push(read_record(&mut reader, &path, current, offset)?);
    }
    Ok(records)
}

fn read_record(
    reader: &mut Reader<'_>,
    path: &Path,
    current: &Current,
    offset: u64,
) -> Result<ManifestRecord> {
    let cut_off = || Error::corrupt(path, offset, "a manifest record is cut off");
    let length = reader.u32().filter(|&length| length <= EDIT_BYTES_MAX).ok_or_else(cut_off)?;
    let reserved = reader.u32().ok_or_else(cut_off)?;
    let stored = reader.u64().ok_or_else(cut_off)?;
    let edit = reader.take(length as usize).ok_or_else(cut_off)?;
    let padding = reader.take((8 - length as usize % 8) % 8).ok_or_else(cut_off)?;
    let mut covered = length.to_le_bytes().to_vec();
    covered.extend_from_slice(edit);
    let computed = checksum(seed(identity(current.database_id, current.number), offset), &covered);
    if stored != computed || reserved != 0 || padding.iter().any(|&byte| byte != 0) {
        return Err(Error::corrupt(path, offset, "the checksum of a manifest record differs"));
    }
    let edit = VersionEdit::decode(edit, path, offset + FRAME_BYTES)?;
    Ok(ManifestRecord { offset, bytes: u64::from(length), edit })
}

/// What `CURRENT` would say if it named manifest `number` and all of it, for a repair without `CURRENT`.
///
/// # Errors
/// `Corrupt` if the header does not hold; those of reading.
pub(crate) fn whole(fs: &dyn Fs, directory: &Path, number: u64) -> Result<Current> {
    let path = layout::manifest(directory, number);
    let file = fs.open(&path, OpenMode::Read)?;
    let mut bytes = [0; HEADER_BYTES as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let mut reader = Reader::new(&bytes);
    let database_id = reader.take(16).and_then(|_| reader.u128()).unwrap_or_default();
    if bytes.as_slice() != header(database_id, number) {
        return Err(Error::corrupt(&path, 0, "the header of the manifest does not hold"));
    }
    Ok(Current { database_id, number, durable_bytes: file.len()? })
}

/// What all edits together say. `path` is the manifest's, for errors.
///
/// # Errors
/// `Corrupt` if an edit does not fit to those before it, or they are of another database.
pub(crate) fn state_of(records: &[ManifestRecord], database_id: u128, path: &Path) -> Result<ManifestState> {
    let mut state = ManifestState::default();
    for record in records {
        state
            .apply(&record.edit)
            .map_err(|error| Error::corrupt(path, record.offset, format!("an edit does not fit: {error}")))?;
    }
    if state.database_id != database_id {
        return Err(Error::corrupt(path, 0, "it belongs to another database than CURRENT"));
    }
    Ok(state)
}

/// The manifest while the database is open for writing.
pub(crate) struct Manifest {
    fs: Arc<dyn Fs>,
    directory: PathBuf,
    current: Current,
    current_file: Arc<dyn File>,
    file: Arc<dyn File>,
    /// Size of the snapshot that this manifest began with.
    snapshot_bytes: u64,
    /// A failed write leaves the file in an unknown state: it is then replaced, never appended to.
    broken: bool,
    /// Manifests that this one has replaced, for whoever removes files.
    superseded: Vec<u64>,
}

impl Manifest {
    /// Creates the first manifest of a new database, or a new one for an existing database, beginning with `snapshot`.
    pub(crate) fn create(
        fs: &Arc<dyn Fs>,
        directory: &Path,
        database_id: u128,
        number: u64,
        snapshot: &VersionEdit,
    ) -> Result<Manifest> {
        let (file, bytes) = write_new(fs.as_ref(), directory, database_id, number, snapshot)?;
        let current = Current { database_id, number, durable_bytes: bytes };
        let path = layout::current(directory);
        let current_file = if fs.exists(&path)? {
            let current_file = fs.open(&path, OpenMode::ReadWrite)?;
            current_file.write_at(&current.to_bytes(), 0)?;
            current_file.sync_data()?;
            current_file
        } else {
            alluvium_base::fs::replace_file(fs.as_ref(), &path, &current.to_bytes())?;
            fs.open(&path, OpenMode::ReadWrite)?
        };
        Ok(Manifest {
            fs: Arc::clone(fs),
            directory: directory.to_owned(),
            current,
            current_file,
            file,
            snapshot_bytes: bytes,
            broken: false,
            superseded: Vec::new(),
        })
    }

    /// Opens the manifest that `current` names, to append after what it covers.
    pub(crate) fn open(
        fs: &Arc<dyn Fs>,
        directory: &Path,
        current: Current,
        snapshot_bytes: u64,
    ) -> Result<Manifest> {
        let file = fs.open(&layout::manifest(directory, current.number), OpenMode::ReadWrite)?;
        // What lies behind the durable length was never acknowledged.
        if file.len()? > current.durable_bytes {
            file.set_len(current.durable_bytes)?;
        }
        let current_file = fs.open(&layout::current(directory), OpenMode::ReadWrite)?;
        Ok(Manifest {
            fs: Arc::clone(fs),
            directory: directory.to_owned(),
            current,
            current_file,
            file,
            snapshot_bytes,
            broken: false,
            superseded: Vec::new(),
        })
    }

    /// The last edit that was made durable.
    pub(crate) fn position(&self) -> Position {
        self.current.position()
    }

    /// Makes the next edit begin a new manifest.
    pub(crate) fn begin_anew(&mut self) {
        self.broken = true;
    }

    /// Numbers of the manifests that were replaced since this was last asked.
    pub(crate) fn take_superseded(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.superseded)
    }

    /// Makes `edit` durable. `snapshot` gives the whole state *including* the edit; it is asked for only when the
    /// manifest is to be rewritten.
    ///
    /// # Errors
    /// If writing fails. The edit may then be found after a crash or not; the next call writes a new manifest.
    pub(crate) fn append(
        &mut self,
        edit: &VersionEdit,
        snapshot: impl FnOnce() -> Result<VersionEdit>,
    ) -> Result<()> {
        let long = self.current.durable_bytes > REWRITE_BYTES_MIN.max(4 * self.snapshot_bytes);
        if self.broken || long {
            return self.rewrite(&snapshot()?);
        }
        let result = self.append_record(edit);
        self.broken = result.is_err();
        result
    }

    fn append_record(&mut self, edit: &VersionEdit) -> Result<()> {
        let offset = self.current.durable_bytes;
        let mut bytes = Vec::new();
        frame(self.current.database_id, self.current.number, offset, &encode(edit), &mut bytes);
        self.file.write_at(&bytes, offset)?;
        self.file.sync_data()?;
        let current = Current { durable_bytes: offset + bytes.len() as u64, ..self.current };
        self.current_file.write_at(&current.to_bytes(), 0)?;
        self.current_file.sync_data()?;
        self.current = current;
        Ok(())
    }

    fn rewrite(&mut self, snapshot: &VersionEdit) -> Result<()> {
        let number = self.current.number + 1;
        // A failed attempt uses its number up, since CURRENT may already name it: truncating that file again would
        // leave a moment in which CURRENT names an empty manifest.
        let result = Manifest::create(&self.fs, &self.directory, self.current.database_id, number, snapshot);
        match result {
            Ok(new) => {
                let mut superseded = std::mem::take(&mut self.superseded);
                superseded.push(self.current.number);
                *self = new;
                self.superseded = superseded;
                Ok(())
            }
            Err(error) => {
                self.broken = true;
                self.superseded.push(self.current.number);
                self.current.number = number;
                Err(error)
            }
        }
    }
}

fn write_new(
    fs: &dyn Fs,
    directory: &Path,
    database_id: u128,
    number: u64,
    snapshot: &VersionEdit,
) -> Result<(Arc<dyn File>, u64)> {
    let path = layout::manifest(directory, number);
    let file = fs.open(&path, OpenMode::CreateOrTruncate)?;
    let mut bytes = header(database_id, number);
    frame(database_id, number, HEADER_BYTES, &encode(snapshot), &mut bytes);
    file.write_at(&bytes, 0)?;
    file.sync_data()?;
    fs.sync_directory(directory)?;
    debug_assert!(bytes.len() as u64 >= HEADER_BYTES + FRAME_BYTES);
    Ok((file, bytes.len() as u64))
}
