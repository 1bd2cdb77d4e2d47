//! Which manifest to go by when `CURRENT` is lost or damaged.
//!
//! With `CURRENT`, the manifest that it names counts, up to the length that it names. Without it, the manifest with the
//! highest number does, to its end: a number is only used for a manifest that begins with the whole state, and the switch
//! to it follows at once. What was appended and not acknowledged then counts too, which is always right: its tables were
//! synced before it was.

use std::path::Path;

use alluvium_base::fs::Fs;
use alluvium_base::{Error, Result};
use alluvium_compaction::ManifestState;

use crate::layout;
use crate::manifest::{self, Current};

/// The state to go by.
pub(super) struct Base {
    pub(super) state: ManifestState,
    /// The manifest that it stands in.
    pub(super) number: u64,
    /// Why `CURRENT` could not be used.
    pub(super) current_problem: Option<Error>,
    /// A number that no manifest in the directory has.
    pub(super) next_number: u64,
}

/// Finds the state to go by.
///
/// # Errors
/// `Corrupt` if no manifest can be read as far as it must be; `NotFound` if there is no database; those of reading.
pub(super) fn find(fs: &dyn Fs, directory: &Path) -> Result<Base> {
    let entries = fs.list_directory(directory)?;
    let numbers: Vec<u64> = entries.iter().filter_map(|entry| layout::parse_manifest(&entry.name)).collect();
    let highest = numbers.iter().copied().max();
    let current_path = layout::current(directory);
    let (current, current_problem) = match Current::read(fs, directory) {
        Ok(Some(current)) => (current, None),
        Ok(None)
            if entries.iter().all(|entry| layout::parse_table(&entry.name).is_none())
                && highest.is_none() =>
        {
            return Err(Error::not_found(format!("database in {}", directory.display())));
        }
        missing_or_damaged => {
            let problem = match missing_or_damaged {
                Err(error) if !error.is_corrupt() => return Err(error),
                Err(error) => error,
                Ok(_) => Error::corrupt(&current_path, 0, "it is missing"),
            };
            let Some(number) = highest else {
                return Err(Error::corrupt(
                    &current_path,
                    0,
                    "there is no manifest to go by: names, schemas and the order of the table files are lost; restore \
                     the database from a backup",
                ));
            };
            (manifest::whole(fs, directory, number)?, Some(problem))
        }
    };
    let state = manifest::read(fs, directory, &current).and_then(|records| {
        manifest::state_of(&records, current.database_id, &layout::manifest(directory, current.number))
    });
    let state = state.map_err(|error| {
        error.context(
            "the manifest cannot be read to its end, so which table files count is unknown; restore the database from a \
             backup",
        )
    })?;
    let next_number = highest.unwrap_or(0).max(current.number) + 1;
    Ok(Base { state, number: current.number, current_problem, next_number })
}
