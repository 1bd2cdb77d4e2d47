//! Opening one input: a file or standard input, plain or packed.
//!
//! How it is packed is read from its first bytes, not from its name: a `.gz` that somebody unpacked without renaming
//! loads all the same.

use std::fs::File;
use std::io::{self, Chain, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_base::error::describe_io;

use crate::load::error::{LoadError, Result};

/// The name that stands for standard input.
pub const STANDARD_INPUT: &str = "-";

/// One input of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputName(PathBuf);

impl InputName {
    /// An input as given: a path, or `-`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> InputName {
        InputName(path.into())
    }

    /// True for standard input.
    #[must_use]
    pub fn is_standard_input(&self) -> bool {
        self.0.as_os_str() == STANDARD_INPUT
    }

    /// The path as given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file's name without `.gz` and `.zst` and without the extension before it: `data/flights.csv.gz` → `flights`.
    /// `None` for standard input.
    #[must_use]
    pub fn stem(&self) -> Option<String> {
        let name = self.unpacked_name()?;
        let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
        (!stem.is_empty()).then(|| stem.to_owned())
    }

    /// The last extension under `.gz` or `.zst`, in lower case: `data/flights.CSV.gz` → `csv`.
    #[must_use]
    pub fn extension(&self) -> Option<String> {
        self.unpacked_name()?.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase())
    }

    fn unpacked_name(&self) -> Option<String> {
        if self.is_standard_input() {
            return None;
        }
        let name = self.0.file_name()?.to_string_lossy().into_owned();
        let packed = [".gz", ".zst"].iter().find(|end| name.to_ascii_lowercase().ends_with(*end));
        Some(packed.map_or(name.clone(), |end| name[..name.len() - end.len()].to_owned()))
    }

    /// An error about this input.
    #[must_use]
    pub fn error(&self, detail: impl Into<String>) -> LoadError {
        LoadError::Input { input: self.to_string(), detail: detail.into() }
    }
}

impl std::fmt::Display for InputName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_standard_input() { f.write_str("standard input") } else { self.0.display().fmt(f) }
    }
}

/// How the bytes of an input are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip, possibly of several members.
    Gzip,
    /// Zstandard, possibly of several frames.
    Zstd,
}

impl Packing {
    fn of(head: &[u8]) -> Packing {
        match head {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            _ => Packing::Plain,
        }
    }
}

/// An open input that yields unpacked bytes.
pub struct OpenInput {
    /// Its name.
    pub name: InputName,
    /// How it is packed.
    pub packing: Packing,
    /// Size of the file in bytes, as stored; `None` if it has no size (a pipe).
    pub stored_bytes: Option<u64>,
    /// Stored bytes read so far.
    pub read_bytes: Arc<AtomicU64>,
    reader: Box<dyn Read + Send>,
}

impl OpenInput {
    /// Opens an input and finds out how it is packed.
    ///
    /// # Errors
    /// `Input` if it cannot be opened or read.
    pub fn open(name: &InputName) -> Result<OpenInput> {
        if name.is_standard_input() {
            return OpenInput::from_reader(name, Box::new(io::stdin()), None);
        }
        let file = File::open(name.path()).map_err(|error| name.error(describe_io(&error)))?;
        let metadata = file.metadata().map_err(|error| name.error(describe_io(&error)))?;
        if metadata.is_dir() {
            return Err(name.error("it is a directory; name the files in it"));
        }
        let stored_bytes = metadata.is_file().then_some(metadata.len());
        OpenInput::from_reader(name, Box::new(file), stored_bytes)
    }

    /// An input that yields what `reader` yields, unpacked.
    ///
    /// # Errors
    /// `Input` if the first bytes cannot be read.
    pub fn from_reader(
        name: &InputName,
        mut reader: Box<dyn Read + Send>,
        stored_bytes: Option<u64>,
    ) -> Result<OpenInput> {
        let mut head = Vec::new();
        reader.by_ref().take(4).read_to_end(&mut head).map_err(|error| name.error(describe_io(&error)))?;
        let packing = Packing::of(&head);
        let read_bytes = Arc::new(AtomicU64::new(0));
        let stored = Counted { inner: Cursor::new(head).chain(reader), count: Arc::clone(&read_bytes) };
        let reader: Box<dyn Read + Send> = match packing {
            Packing::Plain => Box::new(stored),
            Packing::Gzip => {
                let buffered = io::BufReader::with_capacity(STORED_BUFFER_BYTES, stored);
                Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
            }
            Packing::Zstd => Box::new(
                zstd::stream::read::Decoder::new(stored).map_err(|error| name.error(error.to_string()))?,
            ),
        };
        Ok(OpenInput { name: name.clone(), packing, stored_bytes, read_bytes, reader })
    }

    /// Puts bytes that were already read back in front of what is left.
    #[must_use]
    pub fn with_head(self, head: Vec<u8>) -> OpenInput {
        OpenInput { reader: Box::new(Cursor::new(head).chain(self.reader)), ..self }
    }

    /// Fills `buffer` with the next unpacked bytes; fewer only at the end.
    ///
    /// # Errors
    /// `Input`, saying what is wrong with packed data if it is not the reading that failed.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.name.error(self.read_error(&error))),
            }
        }
        Ok(filled)
    }

    fn read_error(&self, error: &io::Error) -> String {
        let at = self.read_bytes.load(Ordering::Relaxed);
        let what = match self.packing {
            Packing::Plain => return describe_io(error),
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        };
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return format!(
                "its {what} data stops in the middle, after {at} bytes; the file is cut off, fetch or pack it again"
            );
        }
        format!("its {what} data is damaged near byte {at} ({error})")
    }
}

/// Bytes of a gzip file that are read at once.
const STORED_BUFFER_BYTES: usize = 128 << 10;

struct Counted {
    inner: Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn open(bytes: Vec<u8>) -> OpenInput {
        let len = bytes.len() as u64;
        OpenInput::from_reader(&InputName::new("rows.csv.gz"), Box::new(Cursor::new(bytes)), Some(len))
            .unwrap()
    }

    fn read_all(bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mut input = open(bytes);
        let mut out = vec![0; 1 << 16];
        let len = input.read(&mut out)?;
        out.truncate(len);
        Ok(out)
    }

    #[test]
    fn names_lose_their_packing_and_extension() {
        let stem = |name: &str| InputName::new(name).stem();
        assert_eq!(stem("data/flights.csv.gz").as_deref(), Some("flights"));
        assert_eq!(stem("flights.TSV.ZST").as_deref(), Some("flights"));
        assert_eq!(stem("2013.01.csv").as_deref(), Some("2013.01"));
        assert_eq!(stem("flights").as_deref(), Some("flights"));
        assert_eq!(stem("-"), None);
        assert_eq!(InputName::new("a/b.TSV.gz").extension().as_deref(), Some("tsv"));
    }

    #[test]
    fn packing_is_read_from_the_bytes() {
        let text = b"a,b\n1,2\n".repeat(100);
        assert_eq!(read_all(text.clone()).unwrap(), text);
        assert_eq!(read_all(gzip(&text)).unwrap(), text);
        assert_eq!(read_all(zstd::encode_all(&text[..], 1).unwrap()).unwrap(), text);
        let two_members = [gzip(b"a,b\n"), gzip(b"1,2\n")].concat();
        assert_eq!(read_all(two_members).unwrap(), b"a,b\n1,2\n");
        assert_eq!(read_all(Vec::new()).unwrap(), b"");
    }

    #[test]
    fn a_cut_off_file_is_told_from_a_damaged_one() {
        let noise: Vec<u8> = (0..10_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut packed = gzip(&noise);
        let cut = read_all(packed[..packed.len() / 2].to_vec()).unwrap_err();
        assert!(cut.to_string().contains("cut off"), "{cut}");
        let middle = packed.len() / 2;
        packed[middle] ^= 0x55;
        let damaged = read_all(packed).unwrap_err();
        assert!(damaged.to_string().contains("gzip data is damaged"), "{damaged}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = OpenInput::open(&InputName::new("/nonexistent/x.csv")).err().unwrap();
        assert_eq!(error.to_string(), "cannot read /nonexistent/x.csv: no such file or directory");
    }
}
