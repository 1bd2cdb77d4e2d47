//! Names in the log's directory, and making segment files.
//!
//! ```text
//! {base:016x}.log     a segment, named by its base address
//! {base:016x}.spare   a former segment, filled, waiting to be used again
//! {base:016x}.tmp     a segment that is being filled
//! ring, ring.tmp      the ring; the ring while it is being filled
//! ```
//!
//! *Invariant.* A name `.log` never shows a header that is not its own, whatever a crash leaves of unsynced names: a
//! header is written and synced under another name, then renamed, then the directory is synced before a record goes
//! in; and a segment's old name is durably gone before its header is overwritten. So a `.log` file whose header does
//! not hold is damage, not a trace of a crash.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_base::fs::{File, Fs, OpenMode};
use alluvium_base::limits::LOG_PAGE_BYTES;
use alluvium_base::{Error, ErrorKind, Result};

use crate::format::{ADDRESS_MAX, FORMAT_VERSION, HeaderProblem, PAGE_BYTES, SegmentHeader};

/// Largest single write into a segment, in bytes. Segments that were filled by larger writes had a 60 % slower
/// fdatasync (measured on ext4; brief, "performance").
pub(crate) const WRITE_BYTES_MAX: usize = 64 << 10;

/// Name of the ring file.
pub(crate) const RING_NAME: &str = "ring";

pub(crate) fn segment_path(directory: &Path, base: u64) -> PathBuf {
    directory.join(format!("{base:016x}.log"))
}

pub(crate) fn spare_path(directory: &Path, base: u64) -> PathBuf {
    directory.join(format!("{base:016x}.spare"))
}

fn temporary_path(directory: &Path, base: u64) -> PathBuf {
    directory.join(format!("{base:016x}.tmp"))
}

/// What the names in a log's directory say.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Segments by base address, ascending.
    pub(crate) segments: Vec<(u64, PathBuf)>,
    pub(crate) spares: Vec<PathBuf>,
    pub(crate) temporaries: Vec<PathBuf>,
}

impl Listing {
    pub(crate) fn read(fs: &dyn Fs, directory: &Path) -> Result<Listing> {
        let mut listing = Listing::default();
        for entry in fs.list_directory(directory)? {
            let path = directory.join(&entry.name);
            if entry.name == "ring.tmp" {
                listing.temporaries.push(path);
                continue;
            }
            let Some((stem, extension)) = entry.name.split_once('.') else { continue };
            let Some(base) = parse_base(stem).filter(|_| !entry.is_directory) else { continue };
            match extension {
                "log" => listing.segments.push((base, path)),
                "spare" => listing.spares.push(path),
                "tmp" => listing.temporaries.push(path),
                _ => {}
            }
        }
        listing.segments.sort();
        Ok(listing)
    }
}

fn parse_base(stem: &str) -> Option<u64> {
    let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let canonical = stem.len() == 16 && stem.bytes().all(lower_hex);
    let base = canonical.then(|| u64::from_str_radix(stem, 16).ok()).flatten();
    base.filter(|&base| base.is_multiple_of(PAGE_BYTES) && base < ADDRESS_MAX)
}

/// A segment that is open for writing.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) file: Arc<dyn File>,
}

impl Segment {
    /// The first address behind the segment.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.bytes
    }

    /// Where in the file `address` lies.
    pub(crate) fn offset(&self, address: u64) -> u64 {
        PAGE_BYTES + (address - self.base)
    }
}

/// Makes the segment files of one incarnation.
#[derive(Clone, Debug)]
pub(crate) struct SegmentMaker {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) directory: PathBuf,
    pub(crate) database_id: u128,
    pub(crate) incarnation: u64,
    /// Address of the incarnation's first segment.
    pub(crate) incarnation_start: u64,
    pub(crate) segment_bytes: u64,
    /// True if the incarnation has a mapped ring.
    pub(crate) has_ring: bool,
}

impl SegmentMaker {
    /// Makes the segment at `base`, from `spare` if there is one. When this returns, name, header and space are
    /// durable, so that bytes synced into it count.
    pub(crate) fn make(&self, base: u64, spare: Option<&Path>) -> Result<Segment> {
        let prepared = match spare {
            Some(spare) => {
                let file = self.fs.open(spare, OpenMode::ReadWrite)?;
                file.write_at(&self.header_page(base), 0)?;
                file.sync_data()?;
                spare.to_owned()
            }
            None => {
                let path = temporary_path(&self.directory, base);
                if let Err(error) = self.fill(&path, base) {
                    // Half a segment is of no use, and on a full disk the space is. If this fails too, the next open
                    // removes the file.
                    let _ = self.fs.remove_file(&path);
                    return Err(error);
                }
                path
            }
        };
        let path = segment_path(&self.directory, base);
        self.fs.rename(&prepared, &path)?;
        self.fs.sync_directory(&self.directory)?;
        // Opened again by its new name, so that errors name the file that is there.
        let file = self.fs.open(&path, OpenMode::ReadWrite)?;
        Ok(Segment { base, bytes: self.segment_bytes, file })
    }

    fn header_page(&self, base: u64) -> [u8; LOG_PAGE_BYTES] {
        let header = SegmentHeader {
            database_id: self.database_id,
            incarnation: self.incarnation,
            incarnation_start: self.incarnation_start,
            base,
            segment_bytes: self.segment_bytes,
            has_ring: self.has_ring,
        };
        header.encode()
    }

    /// Writes the file as a whole, so that later writes change neither its size nor where its blocks are.
    fn fill(&self, path: &Path, base: u64) -> Result<()> {
        let file = self.fs.open(path, OpenMode::CreateOrTruncate)?;
        file.write_at(&self.header_page(base), 0)?;
        fill_with_zeros(file.as_ref(), PAGE_BYTES, self.segment_bytes)?;
        file.sync_data()
    }
}

/// Writes `len` zeros at `offset`.
pub(crate) fn fill_with_zeros(file: &dyn File, offset: u64, len: u64) -> Result<()> {
    let zeros = vec![0; WRITE_BYTES_MAX];
    let mut done = 0;
    while done < len {
        let piece = usize::try_from(len - done).unwrap_or(usize::MAX).min(zeros.len());
        file.write_at(zeros.get(..piece).unwrap_or_default(), offset + done)?;
        done += piece as u64;
    }
    Ok(())
}

/// Reads the first page of a file, or as much of it as there is.
pub(crate) fn read_header_page(file: &dyn File) -> Result<Vec<u8>> {
    let mut page = vec![0; LOG_PAGE_BYTES];
    let got = file.read_at(&mut page, 0)?;
    page.truncate(got);
    Ok(page)
}

/// The error for a header page that was not accepted.
pub(crate) fn header_error(file: &Path, problem: &HeaderProblem) -> Error {
    match problem {
        HeaderProblem::Damaged(detail) => Error::corrupt(file, 0, *detail),
        HeaderProblem::Foreign => Error::corrupt(file, 16, "the file belongs to another database"),
        HeaderProblem::Newer(found) => {
            ErrorKind::UnsupportedFormat { file: file.to_owned(), found: *found, supported: FORMAT_VERSION }
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_segments() {
        assert_eq!(parse_base("0000000000001000"), Some(4096));
        assert_eq!(parse_base("00000000000ab000"), Some(0xab000));
        for other in [
            "ffffffffffff0000",
            "0000000000000008",
            "00000000000AB000",
            "+000000000001000",
            "1000",
            "",
            "00000000000000000",
        ] {
            assert_eq!(parse_base(other), None, "{other}");
        }
    }
}
