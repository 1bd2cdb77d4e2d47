//! Whether files can be made in a directory, to be known before hours of work and not after.

use std::path::Path;

use alluvium_base::Error;

use crate::load::error::{LoadError, Result};

/// Makes a file without a name in `directory`, and forgets it. `option` named it.
///
/// # Errors
/// `Usage` if it does not exist or is none; those of the file system if no file can be made in it.
pub fn check_directory(option: &str, directory: &Path) -> Result<()> {
    let shown = directory.display();
    if directory.is_dir() {
        let made = tempfile::tempfile_in(directory);
        made.map_err(|error| Error::io("create a file in", directory, &error))?;
        return Ok(());
    }
    Err(LoadError::Usage(match directory.exists() {
        true => format!("{option}: {shown} is a file, not a directory"),
        false => format!("{option}: {shown} does not exist; make it first, or name another directory"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_used_was_noticed_only_when_the_load_spilled() {
        let directory = tempfile::tempdir().unwrap();
        check_directory("--tmp", directory.path()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let told = check_directory("--tmp", &file).unwrap_err().to_string();
        assert!(told.ends_with("/file is a file, not a directory"), "{told}");
        let told = check_directory("--tmp", &directory.path().join("none")).unwrap_err();
        assert_eq!(told.exit_code(), crate::load::error::exit::USAGE);
        assert!(check_directory("--tmp", Path::new("/proc")).is_err(), "no file can be made in it");
    }
}
