//! Targets for whole files. An input is a list of changes to a file of the golden database, four bytes each: where (three
//! bytes) and the new byte; behind them whatever is left. Checksums are put right after the changes.
#![expect(clippy::panic, clippy::expect_used, reason = "a target panics if an oracle does not hold")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use alluvium::base::checksum::{checksum, key_hash, seed};
use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::fs::{Fs, OpenMode};
use alluvium::base::iter::InternalIterator;
use alluvium::base::random::Random;
use alluvium::inspect::{DumpItem, ReadPurpose, check_log, dump_log, open_table_file, read_manifest};
use alluvium::{Environment, Error, ErrorKind};

use crate::golden::{self, DIRECTORY, VERSION};

/// The golden database, loaded once; a fork shares its pages.
pub(super) fn golden() -> MemoryFs {
    static GOLDEN: OnceLock<MemoryFs> = OnceLock::new();
    GOLDEN.get_or_init(|| golden::load(VERSION).expect("golden files")).fork()
}

fn environment(fs: &MemoryFs) -> Environment {
    Environment::simulated(fs.shared(), 1).0
}

fn paths(fs: &MemoryFs, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    fs.files().into_iter().filter(|path| wanted(&path.to_string_lossy())).collect()
}

/// An error about bytes must name the file and must not be anything else.
fn must_be_about_a_file(error: &Error) {
    let named = match error.kind() {
        ErrorKind::Corrupt { file, .. } | ErrorKind::UnsupportedFormat { file, .. } => {
            file.starts_with(DIRECTORY)
        }
        ErrorKind::InvalidArgument { .. } => true,
        _ => false,
    };
    assert!(named, "{error:?}");
}

fn patch(bytes: &mut [u8], changes: &[u8]) {
    for [a, b, c, value] in changes.as_chunks::<4>().0 {
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = *value;
        }
    }
}

pub(super) fn patch_seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(3);
    let mut seed = |changes: usize| {
        let mut bytes = vec![0; 1 + 4 * changes];
        random.fill(&mut bytes);
        bytes
    };
    [0, 1, 1, 2, 3, 8, 30].map(&mut seed).to_vec()
}

/// Where each block of a table lies with its frame, and the table's identity.
struct Layout {
    bytes: Vec<u8>,
    blocks: Vec<(usize, usize)>,
    identity: u128,
}

fn tables() -> &'static [Layout] {
    static TABLES: OnceLock<Vec<Layout>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let fs = golden();
        let layout = |path: PathBuf| {
            let table = open_table_file(&environment(&fs), &path).expect("a table");
            let blocks = table.blocks().map(|block| block.expect("sound"));
            let blocks = blocks.map(|block| (block.offset as usize, block.stored_bytes as usize)).collect();
            Layout { bytes: fs.contents(&path).expect("readable"), blocks, identity: table.identity() }
        };
        paths(&fs, |name| name.ends_with(".sst")).into_iter().map(layout).collect()
    })
}

/// A table: the first byte chooses it, and whether its checksums are put right.
pub(super) fn table_file(input: &[u8]) {
    let Some((&choice, changes)) = input.split_first() else { return };
    let Some(layout) = tables().get(usize::from(choice >> 1) % tables().len().max(1)) else { return };
    let mut bytes = layout.bytes.clone();
    patch(&mut bytes, changes);
    if choice & 1 == 0 {
        for &(offset, len) in &layout.blocks {
            let covered = offset..offset + len - 8;
            let sum = checksum(seed(layout.identity, offset as u64), &bytes[covered.clone()]);
            bytes[covered.end..covered.end + 8].copy_from_slice(&sum.to_le_bytes());
        }
        let footer = bytes.len() - 80;
        bytes[footer..footer + 16].copy_from_slice(&layout.identity.to_le_bytes());
        let sum = checksum(seed(layout.identity, footer as u64), &bytes[footer..footer + 56]);
        bytes[footer + 56..footer + 64].copy_from_slice(&sum.to_le_bytes());
    }
    let fs = MemoryFs::new();
    fs.create_directory_all(Path::new(DIRECTORY)).expect("a directory");
    let path = Path::new(DIRECTORY).join("00000001.sst");
    write(&fs, &path, &bytes);
    if let Err(error) = read_table(&fs, &path) {
        must_be_about_a_file(&error);
    }
}

fn write(fs: &MemoryFs, path: &Path, bytes: &[u8]) {
    let file = fs.open(path, OpenMode::CreateOrTruncate).expect("opens");
    file.write_at(bytes, 0).expect("writes");
}

/// Reads a table in every way. If it verifies, every way must agree.
fn read_table(fs: &MemoryFs, path: &Path) -> Result<(), Error> {
    let table = open_table_file(&environment(fs), path)?;
    for block in table.blocks() {
        if let Err(error) = block {
            must_be_about_a_file(&error);
        }
    }
    let verified = table.verify();
    let mut forward = Vec::new();
    let mut iter = table.iter(ReadPurpose::Scan);
    let mut read = || -> Result<(), Error> {
        iter.seek_to_first()?;
        while iter.valid() {
            forward.push((iter.key().to_vec(), iter.trailer()));
            iter.next()?;
        }
        Ok(())
    };
    let scanned = read();
    for (key, trailer) in forward.iter().take(50) {
        match table.get(key, key_hash(key), trailer.seqno()) {
            Ok(found) => assert!(verified.is_err() || found.is_some(), "a verified table misses a key"),
            Err(error) => must_be_about_a_file(&error),
        }
    }
    if let Ok(verified) = &verified {
        assert!(scanned.is_ok(), "a verified table cannot be scanned: {scanned:?}");
        assert_eq!(forward.len() as u64, verified.entries, "scan and verify differ");
        let ordered = |pair: &[(Vec<u8>, _)]| pair[0].0 <= pair[1].0;
        assert!(forward.windows(2).all(ordered), "a verified table is not in order");
    }
    scanned?;
    verified.map(|_| ())
}

/// Segments and ring of the log: the first byte chooses the file. The header of a segment and of the ring are put right.
pub(super) fn log_files(input: &[u8]) {
    let Some((&choice, changes)) = input.split_first() else { return };
    let fs = golden();
    let files = paths(&fs, |name| name.ends_with(".log") || name.ends_with("ring"));
    let Some(path) = files.get(usize::from(choice >> 1) % files.len().max(1)) else { return };
    let mut bytes = fs.contents(path).expect("readable");
    patch_log(&mut bytes, changes);
    if choice & 1 == 0 {
        let fields = if path.ends_with("ring") { 72 } else { 64 };
        let sum = checksum(seed(0, fields as u64), &bytes[..fields]);
        bytes[fields..fields + 8].copy_from_slice(&sum.to_le_bytes());
    }
    write(&fs, path, &bytes);
    let environment = environment(&fs);
    let directory = Path::new(DIRECTORY);
    let mut last = None;
    dump_log(&environment, directory, &mut |item| {
        match item {
            DumpItem::Record(record) => {
                assert!(record.end > record.address && record.durable_address <= record.address);
                assert!(last.is_none_or(|last| last <= (record.incarnation, record.address)), "out of order");
                last = Some((record.incarnation, record.end));
            }
            DumpItem::Problem(error) => must_be_about_a_file(&error),
            _ => {}
        }
        Ok(())
    })
    .unwrap_or_else(|error| panic!("a dump fails: {error:?}"));
    let state =
        read_manifest(&environment, directory).expect("a manifest").state(directory).expect("a state");
    if let Err(error) = check_log(&environment, directory, &state) {
        must_be_about_a_file(&error);
    }
}

/// Changes lie where something is: in the header page and the first pages of records.
fn patch_log(bytes: &mut [u8], changes: &[u8]) {
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap_or_default() + 64;
    let used = used.min(bytes.len());
    patch(&mut bytes[..used], changes);
}

/// One edit more in the manifest, framed as the format says.
pub(super) fn manifest_file(edit: &[u8]) {
    let fs = golden();
    let (environment, directory) = (environment(&fs), Path::new(DIRECTORY));
    let dump = read_manifest(&environment, directory).expect("a manifest");
    let path = dump.path(directory);
    let mut bytes = fs.contents(&path).expect("readable");
    bytes.truncate(dump.durable_bytes as usize);
    let length = (edit.len() as u32).to_le_bytes();
    let identity = dump.database_id ^ u128::from(dump.number) << 64;
    let sum = checksum(seed(identity, bytes.len() as u64), &[&length[..], edit].concat());
    bytes.extend_from_slice(&[&length[..], &[0; 4], &sum.to_le_bytes(), edit].concat());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    write(&fs, &path, &bytes);
    let current = directory.join("CURRENT");
    let mut sector = fs.contents(&current).expect("readable");
    sector[40..48].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    let sum = checksum(0, &sector[..48]);
    sector[48..56].copy_from_slice(&sum.to_le_bytes());
    write(&fs, &current, &sector);
    let state = read_manifest(&environment, directory).and_then(|dump| dump.state(directory));
    match state.map(|state| alluvium::inspect::read_catalog(&path, &state)) {
        Ok(Ok(_)) => {}
        // A schema that breaks the rules is no damage of bytes.
        Ok(Err(error)) if matches!(error.kind(), ErrorKind::SchemaMismatch { .. }) => {}
        Ok(Err(error)) | Err(error) => must_be_about_a_file(&error),
    }
}
