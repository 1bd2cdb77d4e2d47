//! `overview`: the whole database on one page.
//!
//! The figures come from the manifest, which knows the size and content of every table file, and from reading the log
//! as opening would. No table file is opened, so the page is there at once whatever the size.

use std::collections::BTreeMap;
use std::fs;

use alluvium::Options;
use alluvium::inspect::{ManifestState, check_log, level_scores};
use alluvium_base::key::KeyspaceId;
use serde::Serialize;

use super::database::{Database, Description};
use super::error::Result;
use super::grid::Grid;
use super::names::Names;
use super::output::{JSON_VERSION, Output};
use super::text::{Percent, count};
use super::usage::{Garbage, KeyspaceUse, by_keyspace, garbage};
use super::verdicts::{Facts, verdicts};
use crate::load::cli::size::Size;
use crate::load::summary::grouped;

/// Tables that are shown one by one; more are summed up.
const TABLES_SHOWN_MAX: usize = 30;

/// The page.
#[derive(Debug, Serialize)]
pub struct Overview {
    version: u32,
    directory: String,
    database_id: String,
    times_opened: u64,
    open_in: Option<String>,
    closed_in_order: bool,
    levels: Vec<Level>,
    level0_sublevels: usize,
    pending_compaction_bytes: u64,
    tables: Vec<TableUse>,
    keyspaces: Vec<NamedUse>,
    dropped_keyspaces: u64,
    garbage: Garbage,
    files: Files,
    log: Log,
    verdicts: Vec<String>,
}

/// A level of the tree.
#[derive(Debug, Serialize)]
struct Level {
    level: u8,
    files: u64,
    bytes: u64,
    entries: u64,
    tombstones: u64,
    range_tombstones: u64,
    /// How full it is: 1 is where it wants to be compacted; by the targets of the default options. The bottom level
    /// has none.
    score: Option<f64>,
}

/// What a table takes with its indexes.
#[derive(Debug, Serialize)]
struct TableUse {
    name: String,
    rows: KeyspaceUse,
    indexes: Vec<NamedUse>,
    total_bytes: u64,
}

/// What a keyspace takes.
#[derive(Debug, Serialize)]
struct NamedUse {
    name: String,
    keyspace: u32,
    #[serde(flatten)]
    used: KeyspaceUse,
}

/// Files in the directory, by kind.
#[derive(Debug, Default, Serialize)]
struct Files {
    table_files: u64,
    table_bytes: u64,
    /// Bytes of the blocks with entries in them; the rest are block indexes and filters.
    data_block_bytes: u64,
    /// Table files that the manifest does not name: left by a crash, or waiting to be removed.
    left_over_files: u64,
    left_over_bytes: u64,
    /// Segments (filled ahead of need), spare ones, and the ring.
    log_files: u64,
    log_bytes: u64,
    manifest_bytes: u64,
    manifest_edits: u64,
}

/// What the log holds that is not in tables yet.
#[derive(Debug, Default, Serialize)]
struct Log {
    records: u64,
    operations: u64,
    bytes: u64,
    /// Why it cannot be read.
    problem: Option<String>,
}

/// Prints the page.
///
/// # Errors
/// Those of reading the manifest.
pub fn run(database: &Database, output: &mut Output<'_>) -> Result<()> {
    let description = database.describe()?;
    let overview = Overview::new(database, &description);
    if output.json { output.json_line(&overview) } else { overview.print(output) }
}

impl Overview {
    fn new(database: &Database, description: &Description) -> Overview {
        let Description { manifest, state, catalog, .. } = description;
        let names = Names::of(description);
        let uses = by_keyspace(state);
        let used = |keyspace: KeyspaceId| uses.get(&keyspace).copied().unwrap_or_default();
        let named = |name: &str, keyspace: KeyspaceId| NamedUse {
            name: name.to_owned(),
            keyspace: keyspace.0,
            used: used(keyspace),
        };
        let mut tables: Vec<TableUse> = Vec::new();
        for table in &catalog.tables {
            let indexes = table.schema().indexes().iter().enumerate();
            let indexes: Vec<NamedUse> = indexes
                .filter_map(|(number, index)| Some(named(index.name(), table.index_keyspace(number)?)))
                .collect();
            let rows = used(table.primary_keyspace());
            let total_bytes =
                rows.stored_bytes + indexes.iter().map(|index| index.used.stored_bytes).sum::<u64>();
            tables.push(TableUse { name: table.schema().name().to_owned(), rows, indexes, total_bytes });
        }
        tables.sort_by(|a, b| b.total_bytes.cmp(&a.total_bytes).then_with(|| a.name.cmp(&b.name)));
        let keyspaces = catalog.keyspaces.iter().map(|(name, id)| named(name, *id)).collect();
        let open_in = database.writer();
        let (log, closed_in_order) = read_log(database, state);
        let options = Options::default();
        let scores = level_scores(state, &options);
        let mut overview = Overview {
            version: JSON_VERSION,
            directory: database.directory.display().to_string(),
            database_id: format!("{:032x}", manifest.database_id),
            times_opened: state.incarnation,
            closed_in_order: closed_in_order && open_in.is_none(),
            open_in,
            levels: levels(state, &scores.scores),
            level0_sublevels: state.version.sublevels().len(),
            pending_compaction_bytes: scores.pending_bytes,
            tables,
            keyspaces,
            dropped_keyspaces: state.dropped_keyspaces.len() as u64,
            garbage: garbage(state),
            files: Files {
                data_block_bytes: uses.values().map(|used| used.stored_bytes).sum(),
                ..files(database, description)
            },
            log,
            verdicts: Vec::new(),
        };
        overview.verdicts = verdicts(&overview.facts(&uses, &names, state, &options));
        overview
    }

    fn facts(
        &self,
        uses: &BTreeMap<KeyspaceId, KeyspaceUse>,
        names: &Names,
        state: &ManifestState,
        options: &Options,
    ) -> Facts {
        let sum = |value: fn(&Level) -> u64| self.levels.iter().map(value).sum::<u64>();
        // Of a handful of entries a large share says nothing.
        const ENTRIES_MIN: u64 = 1000;
        let densest = uses
            .iter()
            .filter(|(_, used)| used.entries >= ENTRIES_MIN)
            .max_by(|(_, a), (_, b)| {
                let share = |used: &KeyspaceUse| used.tombstones as f64 / used.entries as f64;
                share(a).total_cmp(&share(b))
            })
            .map(|(keyspace, used)| (names.label(*keyspace), used.tombstones, used.entries));
        let dropped = uses.iter().filter(|(keyspace, _)| state.dropped_keyspaces.contains(keyspace));
        Facts {
            bytes: self.files.table_bytes,
            files: self.files.table_files,
            entries: sum(|level| level.entries),
            tombstones: sum(|level| level.tombstones),
            densest,
            level0_sublevels: self.level0_sublevels,
            level0_trigger: options.level0_compaction_trigger,
            fullest: self
                .levels
                .iter()
                .filter(|level| level.level > 0)
                .filter_map(|level| Some((level.level, level.score?)))
                .max_by(|a, b| a.1.total_cmp(&b.1)),
            pending_bytes: self.pending_compaction_bytes,
            garbage: self.garbage,
            dropped_bytes: dropped.map(|(_, used)| used.stored_bytes).sum(),
            left_over_bytes: self.files.left_over_bytes,
            log_operations: self.log.operations,
            log_bytes: self.log.bytes,
            log_problem: self.log.problem.clone(),
            open_in: self.open_in.clone(),
            closed_in_order: self.closed_in_order,
        }
    }

    fn print(&self, output: &mut Output<'_>) -> Result<()> {
        let title = output.bold(&format!("database {}", self.directory));
        output.line(title)?;
        let state = match (&self.open_in, self.closed_in_order) {
            (Some(holder), _) => format!("open for writing in {holder}"),
            (None, true) => "closed in order".to_owned(),
            (None, false) => "not closed in order".to_owned(),
        };
        output.line(format_args!(
            "  id {}, opened for writing {}, {state}",
            self.database_id,
            count(self.times_opened, "time")
        ))?;
        self.print_levels(output)?;
        self.print_tables(output)?;
        self.print_space(output)?;
        output.title("In words")?;
        for verdict in &self.verdicts {
            output.line(format_args!("  - {verdict}"))?;
        }
        Ok(())
    }

    fn print_levels(&self, output: &mut Output<'_>) -> Result<()> {
        output.title("Levels")?;
        let mut grid = Grid::new(2).text("level").number("files").number("size").number("entries");
        grid = grid.number("tombstones").number("range tombstones").number("score");
        for level in self.levels.iter().filter(|level| level.level == 0 || level.files > 0) {
            let name = match (level.level, self.level0_sublevels) {
                (0, sublevels) if sublevels > 0 => format!("0 ({})", count(sublevels as u64, "sublevel")),
                (number, _) => number.to_string(),
            };
            grid.row([
                name,
                grouped(level.files),
                Size(level.bytes).to_string(),
                grouped(level.entries),
                grouped(level.tombstones),
                grouped(level.range_tombstones),
                level.score.map_or_else(|| "bottom".to_owned(), |score| format!("{score:.2}")),
            ]);
        }
        grid.write(output)
    }

    fn print_tables(&self, output: &mut Output<'_>) -> Result<()> {
        let mut grid = Grid::new(2).text("name").number("entries").number("tombstones");
        grid = grid.number("size").number("packed to").number("share");
        let total: u64 = self.levels.iter().map(|level| level.bytes).sum();
        let row = |name: String, used: &KeyspaceUse| {
            [
                name,
                grouped(used.entries),
                grouped(used.tombstones),
                Size(used.stored_bytes).to_string(),
                Percent::of(used.stored_bytes, used.raw_bytes).to_string(),
                Percent::of(used.stored_bytes, total).to_string(),
            ]
        };
        for table in self.tables.iter().take(TABLES_SHOWN_MAX) {
            grid.row(row(table.name.clone(), &table.rows));
            for index in &table.indexes {
                grid.row(row(format!("  index {}", index.name), &index.used));
            }
        }
        let rest = self.tables.iter().skip(TABLES_SHOWN_MAX);
        let hidden = rest.clone().count();
        if hidden > 0 {
            let sum = rest.fold(KeyspaceUse::default(), |sum, table| {
                table.indexes.iter().fold(sum.plus(table.rows), |sum, index| sum.plus(index.used))
            });
            grid.row(row(format!("{} more, with indexes", count(hidden as u64, "table")), &sum));
        }
        for keyspace in &self.keyspaces {
            grid.row(row(format!("keyspace {}", keyspace.name), &keyspace.used));
        }
        if self.tables.is_empty() && self.keyspaces.is_empty() {
            return Ok(());
        }
        let blocks: u64 = self.files.data_block_bytes;
        if let Some(rest @ 1..) = total.checked_sub(blocks) {
            let (size, share) = (Size(rest).to_string(), Percent::of(rest, total).to_string());
            grid.row(["(block indexes, filters)", "", "", &size, "", &share]);
        }
        output.title(if self.tables.is_empty() { "Keyspaces" } else { "Tables" })?;
        grid.write(output)
    }

    fn print_space(&self, output: &mut Output<'_>) -> Result<()> {
        let files = &self.files;
        output.title("Space")?;
        let mut grid = Grid::new(2).text("what").number("size").text("");
        grid.row(["table files", &Size(files.table_bytes).to_string(), &count(files.table_files, "file")]);
        if files.left_over_files > 0 {
            let what = format!("{} in use no more", count(files.left_over_files, "file"));
            grid.row(["left over", &Size(files.left_over_bytes).to_string(), &what]);
        }
        let waiting = match (&self.log.problem, self.log.operations) {
            (Some(_), _) => "; it cannot be read".to_owned(),
            (None, 0) => "; what was written is in table files already".to_owned(),
            (None, operations) => {
                format!("; {} in it that are not in table files yet", count(operations, "operation"))
            }
        };
        let log = format!("{} filled ahead of need{waiting}", count(files.log_files, "file"));
        grid.row(["log", &Size(files.log_bytes).to_string(), &log]);
        let edits = count(files.manifest_edits, "edit");
        grid.row(["manifest", &Size(files.manifest_bytes).to_string(), &edits]);
        let Garbage { certain_bytes, possible_bytes } = self.garbage;
        let amplification =
            |dead: u64| files.table_bytes as f64 / files.table_bytes.saturating_sub(dead).max(1) as f64;
        if files.table_bytes > 0 {
            let (least, most) = (amplification(certain_bytes), amplification(possible_bytes));
            let garbage = match certain_bytes == possible_bytes {
                true => format!(
                    "{} of the table files; space amplification {least:.2}",
                    Percent::of(certain_bytes, files.table_bytes)
                ),
                false => format!(
                    "or more, up to {}; space amplification {least:.2} to {most:.2}",
                    Size(possible_bytes)
                ),
            };
            grid.row(["garbage", &Size(certain_bytes).to_string(), &garbage]);
        }
        grid.write(output)
    }
}

fn levels(state: &ManifestState, scores: &[f64]) -> Vec<Level> {
    let bottom = scores.len().saturating_sub(1);
    let level = |(number, score): (usize, &f64)| {
        let number = number as u8;
        let mut level = Level {
            level: number,
            files: 0,
            bytes: 0,
            entries: 0,
            tombstones: 0,
            range_tombstones: 0,
            score: (usize::from(number) < bottom).then_some(*score),
        };
        for file in state.version.files_of(number) {
            level.files += 1;
            level.bytes += file.bytes();
            level.entries += file.summary.entries;
            level.tombstones += file.summary.tombstones;
            level.range_tombstones += file.summary.range_tombstones;
        }
        level
    };
    scores.iter().enumerate().map(level).collect()
}

/// What the log holds, and whether it ends in order.
fn read_log(database: &Database, state: &ManifestState) -> (Log, bool) {
    match check_log(&database.environment, &database.directory, state) {
        Ok(found) => {
            let (records, bytes) = (found.report.records, found.report.bytes);
            let log = Log { records, operations: found.operations, bytes, problem: None };
            (log, found.report.closed_cleanly)
        }
        Err(error) => (Log { problem: Some(error.to_string()), ..Log::default() }, false),
    }
}

fn files(database: &Database, description: &Description) -> Files {
    let version = &description.state.version;
    let mut files = Files {
        table_files: version.file_count() as u64,
        table_bytes: version.bytes(),
        manifest_bytes: description.manifest.durable_bytes,
        manifest_edits: description.manifest.records.len() as u64,
        ..Files::default()
    };
    let known: std::collections::BTreeSet<String> =
        version.files().map(|(_, file)| file.file_name()).collect();
    // What cannot be listed is not counted: verify says more.
    for entry in fs::read_dir(&database.directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        if name.ends_with(".sst") && !known.contains(&name) {
            files.left_over_files += 1;
            files.left_over_bytes += bytes;
        } else if name.ends_with(".log") || name.ends_with(".spare") || name == "ring" {
            files.log_files += 1;
            files.log_bytes += bytes;
        }
    }
    files
}
