//! The names of a database's files. All lie in one directory:
//!
//! | name | what |
//! |---|---|
//! | `LOCK` | held by the one process that writes |
//! | `CURRENT` | names the manifest and how much of it is durable |
//! | `MANIFEST-NNNNNN` | the history of versions |
//! | `NNNNNNNN.sst` | a table |
//! | `lease-NNNNNNNNNNNNNNNN` | held by a process that reads; see `lease.rs` |
//! | `ring`, `AAAAAAAAAAAAAAAA.log` | the log (see the `wal` crate) |

use std::path::{Path, PathBuf};

/// The lock file.
pub(crate) fn lock(directory: &Path) -> PathBuf {
    directory.join("LOCK")
}

/// The pointer to the manifest.
pub(crate) fn current(directory: &Path) -> PathBuf {
    directory.join("CURRENT")
}

/// A manifest.
pub(crate) fn manifest(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("MANIFEST-{number:06}"))
}

/// A table.
pub(crate) fn table(directory: &Path, id: u64) -> PathBuf {
    directory.join(format!("{id:08}.sst"))
}

/// A reader's lease.
pub(crate) fn lease(directory: &Path, id: u64) -> PathBuf {
    directory.join(format!("lease-{id:016x}"))
}

/// The number of a manifest's name.
pub(crate) fn parse_manifest(name: &str) -> Option<u64> {
    name.strip_prefix("MANIFEST-")?.parse().ok()
}

/// The id of a table's name.
pub(crate) fn parse_table(name: &str) -> Option<u64> {
    name.strip_suffix(".sst")?.parse().ok()
}

/// The number of a lease's name.
pub(crate) fn parse_lease(name: &str) -> Option<u64> {
    let number = name.strip_prefix("lease-")?;
    (number.len() == 16).then(|| u64::from_str_radix(number, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(parse_manifest(&name(manifest(Path::new("d"), 1_234_567))), Some(1_234_567));
        assert_eq!(parse_table(&name(table(Path::new("d"), 7))), Some(7));
        assert_eq!(parse_lease(&name(lease(Path::new("d"), u64::MAX - 1))), Some(u64::MAX - 1));
        assert_eq!(parse_table("7.sst.tmp"), None);
        assert_eq!(parse_lease("lease-7"), None);
    }
}
