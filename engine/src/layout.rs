//! The names of a database's files. All lie in one directory:
//!
//! | name | what |
//! |---|---|
//! | `LOCK` | held by the one process that writes |
//! | `CURRENT` | names the manifest and how much of it is durable |
//! | `MANIFEST-NNNNNN` | the history of versions |
//! | `NNNNNNNN.sst` | a table |
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

/// The number of a manifest's name.
pub(crate) fn parse_manifest(name: &str) -> Option<u64> {
    name.strip_prefix("MANIFEST-")?.parse().ok()
}

/// The id of a table's name.
pub(crate) fn parse_table(name: &str) -> Option<u64> {
    name.strip_suffix(".sst")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(parse_manifest(&name(manifest(Path::new("d"), 1_234_567))), Some(1_234_567));
        assert_eq!(parse_table(&name(table(Path::new("d"), 7))), Some(7));
        assert_eq!(parse_table("7.sst.tmp"), None);
    }
}
