//! `sst`: one table file. Works on a file alone; with the catalog of its database, keys are shown as rows and index
//! entries.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium::Environment;
use alluvium::inspect::{
    BlockInfo, BlockKind, FileMeta, ReadPurpose, TableFile, ends_like_a_table, open_table_file,
};
use alluvium_base::Error;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{KeyspaceId, Kind, Trailer};
use serde::Serialize;
use serde_json::json;

use super::cli::{Limit, SstCommand, SstFile};
use super::database::Database;
use super::error::{InspectError, Result, exit};
use super::grid::Grid;
use super::names::Names;
use super::output::{JSON_VERSION, Output};
use super::text::{Percent, count, hex, show_moment};
use super::verify::Problem;
use crate::load::cli::size::Size;
use crate::load::summary::grouped;

/// A table file, and what is known of it.
struct Found {
    path: PathBuf,
    table: Arc<TableFile>,
    names: Names,
    /// What the manifest says of it, and its level.
    placed: Option<(u8, Arc<FileMeta>)>,
}

/// Does one of the commands. Returns the exit code.
///
/// # Errors
/// `NotFound`; `Corrupt` if the file is no table, or damaged where it is read.
pub fn run(db: Option<&Path>, command: &SstCommand, output: &mut Output<'_>) -> Result<u8> {
    match command {
        SstCommand::Props(file) => props(&find(db, file, output)?, output)?,
        SstCommand::Scan { file, limit, reverse } => {
            scan(&find(db, file, output)?, Limit::of(*limit), *reverse, output)?;
        }
        SstCommand::Layout(file) => return layout(&find(db, file, output)?, output),
        SstCommand::Verify(file) => return verify(db, file, output),
    }
    Ok(exit::FINE)
}

/// The file's path, and the database that it belongs to.
fn locate(db: Option<&Path>, file: &SstFile) -> Result<(PathBuf, Option<Database>)> {
    let given = db.map(|directory| Database::new(Some(directory))).transpose()?;
    if file.file.exists() {
        let database = given.or_else(|| Database::around(&file.file));
        return Ok((file.file.clone(), database));
    }
    let Some(database) = given else {
        let hint = "give its path, or its number together with --db";
        return Err(Error::not_found(format!("file {}; {hint}", file.file.display())).into());
    };
    let text = file.file.to_string_lossy();
    let number = text.strip_suffix(".sst").unwrap_or(&text).parse::<u64>();
    let name = number.map_or_else(|_| text.clone().into_owned(), |number| format!("{number:08}.sst"));
    let path = database.directory.join(&name);
    if path.exists() {
        return Ok((path, Some(database)));
    }
    Err(Error::not_found(format!("table file {name} in {}", database.directory.display())).into())
}

fn find(db: Option<&Path>, file: &SstFile, output: &Output<'_>) -> Result<Found> {
    let (path, database) = locate(db, file)?;
    let table = match open_table_file(&Environment::system(), &path) {
        Err(error) if error.is_corrupt() && is_other_file(&path) => {
            return Err(InspectError::NotATable(path));
        }
        other => other?,
    };
    let mut found = Found { path, table, names: Names::default(), placed: None };
    // The file is looked at all the same if its database cannot be read.
    match database.map(|database| database.describe()) {
        Some(Ok(description)) => {
            found.names = Names::of(&description);
            let mut files = description.state.version.files();
            let same = files.find(|(_, file)| file.summary.identity == found.table.identity());
            found.placed = same.map(|(level, file)| (level, Arc::clone(file)));
        }
        Some(Err(error)) => {
            output.note(&format!("keys are shown as bytes, since the catalog cannot be read: {error}"));
        }
        None => {}
    }
    Ok(found)
}

/// True if a file does not end as table files do: damage of the last bytes apart, it never was one.
fn is_other_file(path: &Path) -> bool {
    const TAIL_BYTES: u64 = 16;
    let tail = || {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut tail)?;
        std::io::Result::Ok(tail)
    };
    tail().is_ok_and(|tail| !ends_like_a_table(&tail))
}

#[derive(Serialize)]
struct Props<'a> {
    version: u32,
    file: String,
    bytes: u64,
    identity: String,
    entries: u64,
    tombstones: u64,
    range_tombstones: u64,
    data_blocks: u64,
    seqno_min: u64,
    seqno_max: u64,
    first_key: String,
    /// The range of its keys ends before this one.
    end_key: String,
    level: Option<u8>,
    created_micros: Option<i64>,
    old_versions: Option<u64>,
    keyspaces: Vec<KeyspaceProps<'a>>,
}

#[derive(Serialize)]
struct KeyspaceProps<'a> {
    keyspace: u32,
    name: &'a str,
    entries: u64,
    tombstones: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

fn props(found: &Found, output: &mut Output<'_>) -> Result<()> {
    let properties = found.table.properties();
    let labels: Vec<String> =
        properties.keyspaces.iter().map(|props| found.names.label(props.keyspace)).collect();
    let meta = found.placed.as_ref().map(|(_, meta)| meta);
    let keyspaces = properties.keyspaces.iter().zip(&labels).map(|(props, name)| KeyspaceProps {
        keyspace: props.keyspace.0,
        name,
        entries: props.entries,
        tombstones: props.tombstones,
        raw_bytes: props.raw_bytes,
        stored_bytes: props.stored_bytes,
    });
    let props = Props {
        version: JSON_VERSION,
        file: found.path.display().to_string(),
        bytes: found.table.bytes(),
        identity: format!("{:032x}", found.table.identity()),
        entries: properties.entries,
        tombstones: properties.tombstones,
        range_tombstones: properties.range_tombstones,
        data_blocks: properties.data_blocks,
        seqno_min: properties.seqno_min,
        seqno_max: properties.seqno_max,
        first_key: hex(&properties.range.start),
        end_key: hex(&properties.range.end),
        level: found.placed.as_ref().map(|(level, _)| *level),
        created_micros: meta.map(|meta| meta.created_micros),
        old_versions: meta.map(|meta| meta.old_versions),
        keyspaces: keyspaces.collect(),
    };
    if output.json {
        return output.json_line(&props);
    }
    let title = output.bold(&format!("table file {}", props.file));
    output.line(title)?;
    let mut lines = vec![
        ("size", format!("{} in {}", Size(props.bytes), count(props.data_blocks, "data block"))),
        ("identity", props.identity.clone()),
        ("entries", format!("{}, of which {} tombstones", grouped(props.entries), grouped(props.tombstones))),
        ("range tombstones", grouped(props.range_tombstones)),
        ("sequence numbers", format!("{} to {}", props.seqno_min, props.seqno_max)),
        ("from", found.names.bound(&properties.range.start)),
        ("to", found.names.bound(&properties.range.end)),
    ];
    match &found.placed {
        Some((level, meta)) => {
            lines.push(("level", level.to_string()));
            lines.push(("written", show_moment(meta.created_micros)));
            lines.push(("old versions", grouped(meta.old_versions)));
        }
        None => lines.push(("level", "none: no manifest that names it was found".to_owned())),
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, text) in lines {
        output.line(format_args!("  {name:width$}  {text}"))?;
    }
    output.line("")?;
    let mut grid = Grid::new(2).text("holds").number("keyspace").number("entries").number("tombstones");
    grid = grid.number("size").number("packed to");
    for keyspace in &props.keyspaces {
        grid.row([
            keyspace.name.to_owned(),
            keyspace.keyspace.to_string(),
            grouped(keyspace.entries),
            grouped(keyspace.tombstones),
            Size(keyspace.stored_bytes).to_string(),
            Percent::of(keyspace.stored_bytes, keyspace.raw_bytes).to_string(),
        ]);
    }
    grid.write(output)
}

/// What an entry does, in one word.
fn kind_name(trailer: Trailer) -> String {
    trailer.kind().map_or_else(|| format!("kind {}", trailer.kind_byte()), |kind| kind_word(kind).to_owned())
}

/// What an operation does, in one word.
#[must_use]
pub(super) fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Put => "put",
        Kind::Delete => "delete",
        Kind::DeleteOnce => "delete-once",
        Kind::Merge => "merge",
        Kind::RangeDelete => "range-delete",
    }
}

fn scan(found: &Found, limit: Option<u64>, reverse: bool, output: &mut Output<'_>) -> Result<()> {
    if output.json {
        let file = found.path.display().to_string();
        output.json_line(&json!({"version": JSON_VERSION, "event": "start", "file": file}))?;
    }
    print_range_tombstones(found, output)?;
    let mut iter = found.table.iter(ReadPurpose::Verify);
    if reverse {
        iter.seek_to_last()?
    } else {
        iter.seek_to_first()?
    }
    let mut grid = Grid::new(0).text("kind").number("seqno").text("of").text("entry");
    let mut entries = 0;
    while iter.valid() && limit.is_none_or(|limit| entries < limit) {
        entries += 1;
        let (trailer, has_value) = (iter.trailer(), iter.trailer().kind() == Some(Kind::Put));
        let mut shown = found.names.entry(iter.key(), has_value.then(|| iter.value()));
        if output.json {
            shown.json.insert("event".to_owned(), "entry".into());
            shown.json.insert("kind".to_owned(), kind_name(trailer).into());
            shown.json.insert("seqno".to_owned(), trailer.seqno().into());
            output.json_line(&shown.json)?;
        } else {
            let of = KeyspaceId::of(iter.key()).map_or_else(String::new, |id| found.names.label(id));
            grid.row([kind_name(trailer), trailer.seqno().to_string(), of, shown.text]);
            if grid.is_full() {
                grid.write(output)?;
            }
        }
        if reverse { iter.prev()? } else { iter.next()? }
    }
    let more = iter.valid();
    if output.json {
        return output.json_line(&json!({"event": "end", "entries": entries, "more": more}));
    }
    grid.write(output)?;
    let more = if more { "; there are more: --limit all" } else { "" };
    output.line(output.dim(&format!("({}{more})", count(entries, "entry"))))
}

fn print_range_tombstones(found: &Found, output: &mut Output<'_>) -> Result<()> {
    for fragment in found.table.range_tombstones().fragments() {
        if output.json {
            let (start, end, seqnos) = (hex(&fragment.start), hex(&fragment.end), &fragment.seqnos);
            output.json_line(
                &json!({"event": "range_tombstone", "start": start, "end": end, "seqnos": seqnos}),
            )?;
        } else {
            let (start, end) = (found.names.bound(&fragment.start), found.names.bound(&fragment.end));
            let seqnos: Vec<String> = fragment.seqnos.iter().map(u64::to_string).collect();
            output.line(format_args!(
                "range tombstone from {start} to {end}, sequence numbers {}",
                seqnos.join(", ")
            ))?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Verified {
    version: u32,
    file: String,
    fine: bool,
    bytes: u64,
    entries: u64,
    data_blocks: u64,
    checksum: Option<String>,
    problems: Vec<Problem>,
}

fn verify(db: Option<&Path>, file: &SstFile, output: &mut Output<'_>) -> Result<u8> {
    let advice = "restore the database from a backup, or the file from a copy of the same database";
    let mut verified = Verified {
        version: JSON_VERSION,
        file: locate(db, file)?.0.display().to_string(),
        fine: false,
        bytes: 0,
        entries: 0,
        data_blocks: 0,
        checksum: None,
        problems: Vec::new(),
    };
    let checked = find(db, file, output).and_then(|found| {
        let result = found.table.verify()?;
        Ok((found, result))
    });
    match checked {
        Ok((found, result)) => {
            verified.bytes = result.bytes;
            verified.entries = result.entries;
            verified.data_blocks = result.data_blocks;
            verified.checksum = Some(format!("{:016x}", result.checksum));
            let expected = found.placed.as_ref().map(|(_, meta)| meta.summary.checksum);
            if expected.is_some_and(|expected| expected != result.checksum) {
                let error = Error::corrupt(&found.path, 0, "its checksum is not the one in the manifest");
                verified.problems.push(Problem::new("table file", &error, Vec::new(), advice));
            }
        }
        Err(InspectError::Engine(error)) if error.is_corrupt() => {
            verified.problems.push(Problem::new("table file", &error, Vec::new(), advice));
        }
        Err(InspectError::NotATable(path)) => {
            let error = Error::invalid(InspectError::NotATable(path).to_string());
            verified.problems.push(Problem::new("table file", &error, Vec::new(), advice));
        }
        Err(error) => return Err(error),
    }
    verified.fine = verified.problems.is_empty();
    if output.json {
        output.json_line(&verified)?;
    } else if verified.fine {
        let fine = output.good("fine");
        let (entries, blocks) = (count(verified.entries, "entry"), count(verified.data_blocks, "data block"));
        output.line(format_args!("{fine}: {} in {blocks}, {}", entries, Size(verified.bytes)))?;
    } else {
        for problem in &verified.problems {
            problem.print(output)?;
        }
    }
    Ok(if verified.fine { exit::FINE } else { exit::PROBLEMS })
}

fn block_name(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Data => "data",
        BlockKind::Index => "index",
        BlockKind::TopIndex => "top index",
        BlockKind::PointFilter => "point filter",
        BlockKind::PrefixFilter => "prefix filter",
        BlockKind::RangeTombstones => "range tombstones",
        BlockKind::Properties => "properties",
    }
}

fn layout(found: &Found, output: &mut Output<'_>) -> Result<u8> {
    if output.json {
        let file = found.path.display().to_string();
        output.json_line(&json!({"version": JSON_VERSION, "event": "start", "file": file}))?;
    }
    let mut grid = Grid::new(0).number("offset").text("block").number("size").number("raw");
    grid = grid.text("packed").number("entries").text("first key");
    let mut problems = 0;
    for block in found.table.blocks() {
        let block = match block {
            Ok(block) => block,
            Err(error) if error.is_corrupt() => {
                problems += 1;
                grid.row(["", "damaged", "", "", "", "", &error.to_string()]);
                if output.json {
                    output.json_line(&json!({"event": "problem", "message": error.to_string()}))?;
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if output.json {
            output.json_line(&block_json(&block))?;
            continue;
        }
        let first = block.first_key.as_ref().filter(|_| block.kind == BlockKind::Data);
        grid.row([
            block.offset.to_string(),
            block_name(block.kind).to_owned(),
            block.stored_bytes.to_string(),
            block.raw_bytes.to_string(),
            format!("{:?}", block.compression).to_lowercase(),
            if block.entries > 0 { block.entries.to_string() } else { String::new() },
            first.map_or_else(String::new, |key| found.names.bound(key)),
        ]);
        if grid.is_full() {
            grid.write(output)?;
        }
    }
    if !output.json {
        grid.write(output)?;
    }
    Ok(if problems == 0 { exit::FINE } else { exit::PROBLEMS })
}

fn block_json(block: &BlockInfo) -> serde_json::Value {
    json!({
        "event": "block",
        "kind": block_name(block.kind),
        "offset": block.offset,
        "stored_bytes": block.stored_bytes,
        "raw_bytes": block.raw_bytes,
        "compression": format!("{:?}", block.compression).to_lowercase(),
        "entries": block.entries,
        "first_key": block.first_key.as_ref().map(|key| hex(key)),
    })
}
