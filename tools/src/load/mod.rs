//! The bulk loader: text files in, one new table with all of its indexes out, in one atomic step.
//!
//! 1. **plan**: [`sniff`] what the inputs look like, build the schema ([`plan`]).
//! 2. **encode**: read ([`input`]), [`convert`] and [`encode`] rows into sorted runs ([`sort`]), within one memory
//!    budget.
//! 3. **check**: find rows with the same keys ([`duplicates`]).
//! 4. **write** and **verify**: merge the runs into table files and read them back ([`mod@write`]).
//! 5. **finish**: make everything part of the database at once ([`target`]).
//!
//! Nothing in the database changes before the last step, so stopping at any moment needs no cleaning up. The loader
//! knows texts, rows and sorting; what it needs from the engine stands in [`target`] and in `alluvium::row`.

pub mod cli;
pub mod convert;
pub mod directory;
pub mod display;
pub mod duplicates;
pub mod encode;
pub mod engine_target;
pub mod error;
pub mod input;
pub mod job;
pub mod null_strings;
pub mod parallel;
pub mod place;
pub mod plan;
pub mod plan_report;
pub mod progress;
pub mod rejects;
pub mod rejects_file;
pub mod run;
pub mod sample;
pub mod sniff;
pub mod sort;
pub mod summary;
pub mod target;
pub mod write;

use error::{LoadError, Result};
use job::{Job, Settings, Stop};
use plan::Plan;
use progress::{Phase, Progress};
use rejects::Rejects;
use sort::store::Spiller;
use summary::{Summary, TargetSummary};
use target::LoadTarget;

/// Loads what `plan` describes into `target`.
///
/// # Errors
/// Whatever ends a load; the database is then as it was.
pub fn load<T: LoadTarget>(
    plan: &Plan,
    target: T,
    settings: &Settings,
    progress: &Progress,
    rejects: &Rejects,
    stop: &Stop,
) -> Result<Summary> {
    let job = Job::new(plan, &target, settings, progress, rejects, stop);
    progress.begin(Phase::Encode);
    let encoded = encode::run(&job)?;
    let take = |target| Ok(encoded.store.take(target, &mut Spiller::default())?);
    let runs = parallel::for_each(&job, job.targets(), take)?;

    progress.begin(Phase::Check);
    let losers = duplicates::find(&job, &runs, encoded.rows)?;

    progress.begin(Phase::Write);
    let written = write::write(&job, &runs, &encoded.sums, &losers)?;
    drop(runs);

    progress.begin(Phase::Verify);
    let (rejected, superseded) = (rejects.count(), losers.superseded);
    let loaded = (encoded.rows.checked_sub(rejected + superseded))
        .ok_or_else(|| LoadError::Verification("more rows were refused than read".to_owned()))?;
    write::verify(&job, &written, loaded)?;
    job.check_stop()?;

    progress.begin(Phase::Finish);
    let names = std::iter::once("primary key").chain(plan.schema.indexes().iter().map(|index| index.name()));
    let targets = names.zip(&written).map(|(name, written)| TargetSummary {
        name: name.to_owned(),
        entries: written.sum.entries,
        file_bytes: target.file_bytes(&written.written),
    });
    let targets = targets.collect();
    target.finish(written.into_iter().map(|target| target.written).collect())?;
    Ok(Summary::new(
        plan,
        progress,
        summary::Rows { read: encoded.rows, loaded, rejected, superseded },
        targets,
    ))
}
