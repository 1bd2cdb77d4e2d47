//! The machine's file system.
//!
//! Linux-only calls (`sync_file_range`, `statfs`, the boot id) stay in this file, each with a portable fallback.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::{DirectoryEntry, File, FileLock, Fs, Mapping, OpenMode};
use crate::{Error, ErrorKind, Result, checksum};

/// The machine's file system; see [`RealFs::shared`].
#[derive(Debug, Default)]
pub struct RealFs;

impl RealFs {
    /// The machine's file system, shared.
    #[must_use]
    pub fn shared() -> Arc<dyn Fs> {
        Arc::new(RealFs)
    }
}

impl Fs for RealFs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
            OpenMode::CreateOrTruncate => {
                options.write(true).create(true).truncate(true);
            }
        }
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                ErrorKind::AlreadyExists { what: path.display().to_string() }.into()
            }
            _ => Error::io("open", path, &error),
        })?;
        Ok(Arc::new(RealFile { file, path: path.to_owned() }))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| Error::io("remove", path, &error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| Error::io("rename", from, &error))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(|error| Error::io("link", to, &error))
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(|error| match error.kind() {
            // A directory that exists is no error, so it is something else.
            io::ErrorKind::AlreadyExists => {
                Error::io("create directory", path, &io::ErrorKind::NotADirectory.into())
            }
            _ => Error::io("create directory", path, &error),
        })
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|error| Error::io("remove directory", path, &error))
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let directory = fs::File::open(path).map_err(|error| Error::io("open directory", path, &error))?;
        directory.sync_all().map_err(|error| Error::io("sync directory", path, &error))
    }

    fn list_directory(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let list = || -> io::Result<Vec<DirectoryEntry>> {
            let mut entries = Vec::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                entries.push(DirectoryEntry {
                    name: entry.file_name().to_string_lossy().into_owned(),
                    is_directory: entry.file_type()?.is_dir(),
                });
            }
            entries.sort();
            Ok(entries)
        };
        list().map_err(|error| Error::io("list", path, &error))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        fs::exists(path).map_err(|error| Error::io("look for", path, &error))
    }

    fn file_size(&self, path: &Path) -> Result<u64> {
        let metadata = fs::metadata(path).map_err(|error| Error::io("get the size of", path, &error))?;
        Ok(metadata.len())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| Error::io("open", path, &error))?;
        match file.try_lock() {
            Ok(()) => {
                // For whoever finds the lock held; not needed for the lock itself, so a failure does not matter.
                let _ = file.set_len(0).and_then(|()| file.write_all_at(holder().as_bytes(), 0));
                Ok(Box::new(RealLock { file, path: path.to_owned() }))
            }
            Err(TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(path).ok().filter(|text| !text.is_empty());
                Err(ErrorKind::InUse { path: path.to_owned(), holder }.into())
            }
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path, &error)),
        }
    }

    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| Error::io("open", path, &error))?;
        if !mapping_is_safe(&file) {
            return Ok(None);
        }
        let size = file.metadata().map_err(|error| Error::io("get the size of", path, &error))?.len();
        if size < len as u64 {
            return Err(Error::invalid(format!(
                "cannot map {len} bytes of {}, which has {size}",
                path.display()
            )));
        }
        let map =
            MmapOptions::new().len(len).map_raw(&file).map_err(|error| Error::io("map", path, &error))?;
        Ok(Some(Arc::new(RealMapping { map })))
    }

    fn available_space(&self, path: &Path) -> Result<u64> {
        let statistics = rustix::fs::statvfs(path)
            .map_err(|error| Error::io("get the free space of", path, &io::Error::from(error)))?;
        Ok(statistics.f_bavail.saturating_mul(statistics.f_frsize))
    }

    fn boot_id(&self) -> u128 {
        // Without the kernel's id (not Linux) every open counts as another boot: the ring is then ignored, which is
        // always correct for what was synced.
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        if text.is_empty() {
            return u128::from(std::process::id()) << 64 | 1;
        }
        let half =
            |identity| u128::from(checksum::checksum(checksum::seed(identity, 0), text.trim().as_bytes()));
        half(0) << 64 | half(1)
    }

    fn open_files_max(&self) -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        limit.current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    }
}

/// Memory that this process may use, in bytes: the machine's, or less if its control group (version 2) says so.
#[must_use]
pub fn memory_limit_bytes() -> u64 {
    let information = rustix::system::sysinfo();
    let machine = information.totalram.saturating_mul(u64::from(information.mem_unit));
    let group =
        fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    group.unwrap_or(machine).min(machine)
}

/// Says who holds a lock, for the error of the next one who wants it.
fn holder() -> String {
    let program = std::env::args().next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("process {}, {name}", std::process::id())
}

/// False for file systems on which a shared mapping is not coherent with `pwrite`, whose files another machine may
/// shorten (network and user-space file systems), or on which storing into a filled page needs new space, so that a full
/// disk would kill the process by SIGBUS (those that copy on write).
fn mapping_is_safe(file: &fs::File) -> bool {
    const UNSAFE_TYPES: [u64; 10] = [
        0x6969,      // NFS
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB2
        0x6573_5546, // FUSE
        0x0102_1997, // 9P
        0x00c3_6400, // Ceph
        0x5346_414f, // AFS
        0x9123_683e, // Btrfs
        0x2fc1_2fc1, // ZFS
        0xca45_1a4e, // bcachefs
    ];
    rustix::fs::fstatfs(file).is_ok_and(|statistics| {
        let kind = statistics.f_type as u64 & 0xffff_ffff;
        !UNSAFE_TYPES.contains(&kind)
    })
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    path: PathBuf,
}

impl File for RealFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", &self.path, &error)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| Error::io("write", &self.path, &error))
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::io("sync", &self.path, &error))
    }

    #[cfg(target_os = "linux")]
    #[expect(
        unsafe_code,
        reason = "no safe wrapper of sync_file_range exists; without it large files end in one long fsync"
    )]
    fn start_writeback(&self, offset: u64, len: u64) -> Result<()> {
        use std::os::fd::AsRawFd;
        // SAFETY: the call takes a descriptor, which `self.file` keeps open, and integers; it touches no memory.
        let result = unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                offset as i64,
                len as i64,
                libc::SYNC_FILE_RANGE_WRITE,
            )
        };
        // A hint that a file system does not know is no failure; a real write error comes back from `sync_data`.
        let _ = result;
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let metadata =
            self.file.metadata().map_err(|error| Error::io("get the size of", &self.path, &error))?;
        Ok(metadata.len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|error| Error::io("change the size of", &self.path, &error))
    }

    fn read_ahead(&self, offset: u64, len: u64) -> Result<()> {
        let len = std::num::NonZeroU64::new(len);
        // A hint: a file system that does not know it reads when asked.
        let _ = rustix::fs::fadvise(&self.file, offset, len, rustix::fs::Advice::WillNeed);
        Ok(())
    }
}

#[derive(Debug)]
struct RealLock {
    file: fs::File,
    path: PathBuf,
}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing the file would not do: a child process that is being started elsewhere in this program holds a copy of
        // the descriptor until it has become its own program, and the lock with it. A failure leaves it to closing.
        let _ = self.file.unlock();
    }
}

impl FileLock for RealLock {
    fn path(&self) -> &Path {
        &self.path
    }
}

#[derive(Debug)]
struct RealMapping {
    map: MmapRaw,
}

impl RealMapping {
    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.map.len()),
            "{len} bytes at {offset} are outside a mapping of {} bytes",
            self.map.len()
        );
    }

    #[expect(
        unsafe_code,
        reason = "the log's ring is a shared mapping: a memcpy into it costs 12 ns, a pwrite 470"
    )]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word at {offset} is not aligned");
        self.check(offset, 8);
        // SAFETY: the word lies within the mapping (checked), which lives as long as `self`; mappings start at a page,
        // so a multiple of 8 is aligned; other processes and threads touch this word only through atomics.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }
}

impl Mapping for RealMapping {
    fn len(&self) -> usize {
        self.map.len()
    }

    #[expect(
        unsafe_code,
        reason = "the log's ring is a shared mapping: a memcpy into it costs 12 ns, a pwrite 470"
    )]
    fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: source and target are valid for `bytes.len()` bytes (checked) and do not overlap, since no Rust slice
        // refers to the mapping. Callers of `Mapping` never write one byte from two threads at once.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(offset), bytes.len())
        }
    }

    #[expect(
        unsafe_code,
        reason = "the log's ring is a shared mapping: a memcpy into it costs 12 ns, a pwrite 470"
    )]
    fn read(&self, offset: usize, buffer: &mut [u8]) {
        self.check(offset, buffer.len());
        // SAFETY: as in `write`, in the other direction.
        unsafe {
            std::ptr::copy_nonoverlapping(self.map.as_ptr().add(offset), buffer.as_mut_ptr(), buffer.len())
        }
    }

    fn store_u64(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    fn load_u64(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_lock_is_free_although_a_child_process_has_a_copy_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let held =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        held.try_lock().unwrap();
        // What a child that has not become its own program yet has: the same open file under another number.
        let _copy = held.try_clone().unwrap();
        drop(RealLock { file: held, path: path.clone() });
        RealFs.lock(&path).unwrap();
    }

    #[test]
    fn a_second_lock_says_who_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let held = RealFs.lock(&path).unwrap();
        let error = RealFs.lock(&path).unwrap_err();
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        RealFs.lock(&path).unwrap();
    }

    #[test]
    fn mapped_bytes_are_the_files_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ring");
        let file = RealFs.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(&[7; 8192], 0).unwrap();
        let mapping = RealFs.map(&path, 8192).unwrap().expect("a local file system can be mapped");
        mapping.write(100, b"hello");
        mapping.store_u64(4096, 42);
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 100).unwrap();
        assert_eq!(&bytes, b"hello");
        assert_eq!(mapping.load_u64(4096), 42);
        assert!(RealFs.map(&path, 9000).is_err(), "mapping past the end would fault later");
    }

    #[test]
    fn missing_and_existing_files_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        assert!(RealFs.open(&path, OpenMode::Read).unwrap_err().is_missing_file());
        RealFs.open(&path, OpenMode::CreateNew).unwrap();
        let error = RealFs.open(&path, OpenMode::CreateNew).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::AlreadyExists { .. }));
    }

    /// See `memory/tests.rs`: the sanitizer must complain.
    #[cfg(planted_fault)]
    #[test]
    fn planted_fault_two_threads_write_one_range_of_a_mapping() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ring");
        RealFs.open(&path, OpenMode::CreateNew).unwrap().write_at(&[7; 4096], 0).unwrap();
        let mapping = RealFs.map(&path, 4096).unwrap().expect("a local file system can be mapped");
        let write = || (0..1000_u64).for_each(|n| mapping.write(64, &n.to_le_bytes()));
        std::thread::scope(|scope| {
            scope.spawn(write);
            scope.spawn(write);
        });
    }
}
