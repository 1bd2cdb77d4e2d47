//! The third and fourth phase: runs to table files, and the files read back.
//!
//! Targets are written by different threads, each by one merge. Three sums must agree before anything becomes part of
//! the database, for every target:
//!
//! 1. what was encoded = what was merged and written + what was left out with the losers (sorting lost nothing),
//! 2. what was written = what the files give back (writing lost nothing),
//! 3. entries in the files = rows read − rejected − superseded (every row is in every index).

use alluvium_base::ErrorKind;

use crate::load::duplicates::Losers;
use crate::load::error::{LoadError, Result};
use crate::load::job::{Job, Ticker};
use crate::load::parallel;
use crate::load::progress::Phase;
use crate::load::sort::merge::{Merge, Run};
use crate::load::target::{EntrySum, EntryWriter, LoadTarget};

/// One target's files, and the sum of their entries.
pub struct WrittenTarget<W> {
    /// The files.
    pub written: W,
    /// What went into them.
    pub sum: EntrySum,
}

/// Merges the runs of every target into files, without the entries of losers.
///
/// # Errors
/// `Verification` if the first sum does not agree; `Stopped`; those of reading runs and writing files.
pub fn write<T: LoadTarget>(
    job: &Job<'_, T>,
    runs: &[Vec<Run>],
    encoded: &[EntrySum],
    losers: &Losers,
) -> Result<Vec<WrittenTarget<T::Written>>> {
    parallel::for_each(job, runs.len(), |target| {
        let mut writer = job.target.writer(target)?;
        let mut merge = Merge::new(&runs[target]);
        let (mut sum, mut left_out) = (EntrySum::default(), EntrySum::default());
        let mut ticker = Ticker::new(job, Phase::Write);
        while merge.advance()? {
            ticker.tick()?;
            if losers.contains(merge.place()) {
                left_out.add(merge.key(), merge.value());
            } else {
                sum.add(merge.key(), merge.value());
                writer.add(merge.key(), merge.value())?;
            }
        }
        if sum.plus(left_out) != encoded[target] {
            return Err(differs(job, target, "what was sorted is not what was read"));
        }
        Ok(WrittenTarget { written: writer.finish()?, sum })
    })
}

/// Reads all files back and compares; `rows` is the number of rows that must be there.
///
/// # Errors
/// `Verification` if the second or third sum does not agree, or a file is damaged; `Stopped`; those of reading.
pub fn verify<T: LoadTarget>(
    job: &Job<'_, T>,
    targets: &[WrittenTarget<T::Written>],
    rows: u64,
) -> Result<()> {
    parallel::for_each(job, targets.len(), |target| {
        let expected = &targets[target];
        let mut sum = EntrySum::default();
        let mut ticker = Ticker::new(job, Phase::Verify);
        let read = job.target.read_back(&expected.written, &mut |key, value| {
            sum.add(key, value);
            // The engine has no word for the user's wish to stop but `Cancelled`.
            ticker.tick().map_err(|_| ErrorKind::Cancelled { what: "verification" }.into())
        });
        match read {
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled { .. }) => {
                return Err(LoadError::Stopped);
            }
            Err(error) if error.is_corrupt() => return Err(differs(job, target, &error.to_string())),
            other => other?,
        }
        if sum != expected.sum {
            return Err(differs(job, target, "the files do not give back what was written"));
        }
        if sum.entries != rows {
            let detail = format!("the files hold {} entries for {rows} rows", sum.entries);
            return Err(differs(job, target, &detail));
        }
        Ok(())
    })?;
    Ok(())
}

fn differs<T>(job: &Job<'_, T>, target: usize, detail: &str) -> LoadError {
    let index = target.checked_sub(1).and_then(|number| job.plan.schema.indexes().get(number));
    let what = index.map_or("the primary index".to_owned(), |index| format!("index {}", index.name()));
    LoadError::Verification(format!("{what}: {detail}"))
}
