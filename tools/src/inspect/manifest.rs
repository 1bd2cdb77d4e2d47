//! `manifest dump`: the history of the tree, edit by edit.

use alluvium::inspect::{CatalogChange, FileMeta, ManifestRecord, VersionEdit};
use alluvium::row::TableDefinition;
use serde_json::json;

use super::database::Database;
use super::error::Result;
use super::names::Names;
use super::output::{JSON_VERSION, Output};
use super::text::{count, hex, show_bytes_cut, show_moment};
use crate::load::cli::size::Size;
use crate::load::summary::grouped;

/// Prints every edit.
///
/// # Errors
/// Those of reading the manifest.
pub fn run(database: &Database, output: &mut Output<'_>) -> Result<()> {
    let description = database.describe()?;
    let manifest = &description.manifest;
    let names = Names::of(&description);
    let id = format!("{:032x}", manifest.database_id);
    if output.json {
        output.json_line(&json!({
            "version": JSON_VERSION, "event": "start", "database_id": id, "number": manifest.number,
            "durable_bytes": manifest.durable_bytes,
        }))?;
        for record in &manifest.records {
            output.json_line(&edit_json(record))?;
        }
        return output.json_line(&json!({"event": "end", "edits": manifest.records.len()}));
    }
    let title = output.bold(&format!("manifest {} of database {id}", manifest.number));
    let (edits, bytes) = (count(manifest.records.len() as u64, "edit"), Size(manifest.durable_bytes));
    output.line(format_args!("{title}: {edits}, {bytes}"))?;
    for (number, record) in manifest.records.iter().enumerate() {
        let title = output.bold(&format!("edit {}", number + 1));
        output.line(format_args!("{title} at byte {}, {}", record.offset, Size(record.bytes)))?;
        for line in describe(&record.edit, &names) {
            output.line(format_args!("  {line}"))?;
        }
    }
    Ok(())
}

/// An edit, one change per line.
fn describe(edit: &VersionEdit, names: &Names) -> Vec<String> {
    let mut lines = Vec::new();
    match (edit.database_id, edit.incarnation) {
        (Some(_), Some(0)) => lines.push("a new database".to_owned()),
        (Some(_), _) => lines.push("everything so far, since a new manifest begins here".to_owned()),
        (None, Some(incarnation)) => lines.push(format!("opened for writing: incarnation {incarnation}")),
        (None, None) => {}
    }
    for end in &edit.accepted_ends {
        lines.push(format!("log of incarnation {} ends at {}", end.incarnation, grouped(end.end)));
    }
    for (level, id) in &edit.removed {
        lines.push(format!("- level {level}  file {id}"));
    }
    for (level, file) in &edit.added {
        lines.push(format!("+ level {level}  file {}", describe_file(file, names)));
    }
    for change in &edit.catalog {
        lines.push(describe_catalog(change));
    }
    for keyspace in &edit.dropped_keyspaces {
        lines.push(format!("drop keyspace {}", keyspace.0));
    }
    for keyspace in &edit.purged_keyspaces {
        lines.push(format!("nothing is left of dropped keyspace {}", keyspace.0));
    }
    let counters = [
        ("log replay from", edit.log_replay_start),
        ("last sequence number", edit.last_seqno),
        ("next file", edit.next_file_id),
        ("next keyspace", edit.next_keyspace_id.map(u64::from)),
    ];
    let counters: Vec<String> = counters
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", grouped(value?))))
        .collect();
    if !counters.is_empty() {
        lines.push(counters.join(", "));
    }
    if edit.clean_close == Some(true) {
        lines.push("closed in order".to_owned());
    }
    lines
}

fn describe_file(file: &FileMeta, names: &Names) -> String {
    const NAMES_SHOWN_MAX: usize = 6;
    let summary = &file.summary;
    let mut holds: Vec<String> =
        summary.keyspaces.iter().take(NAMES_SHOWN_MAX).map(|found| names.label(found.keyspace)).collect();
    if let Some(hidden @ 1..) = summary.keyspaces.len().checked_sub(NAMES_SHOWN_MAX) {
        holds.push(format!("{hidden} more"));
    }
    format!(
        "{}: {}, {}, sequence numbers {} to {}, written {}, holds {}",
        file.id,
        Size(summary.bytes),
        count(summary.entries, "entry"),
        summary.seqno_min,
        summary.seqno_max,
        show_moment(file.created_micros),
        holds.join(", ")
    )
}

fn describe_catalog(change: &CatalogChange) -> String {
    let (kind, name) = match change.key.split_first() {
        Some((b't', name)) => ("table", String::from_utf8_lossy(name).into_owned()),
        Some((b'k', name)) => ("keyspace", String::from_utf8_lossy(name).into_owned()),
        _ => ("entry", show_bytes_cut(&change.key)),
    };
    let Some(value) = &change.value else { return format!("catalog: remove {kind} {name}") };
    match (kind, TableDefinition::decode(value, "the catalog")) {
        ("table", Ok(table)) => {
            let keyspaces: Vec<String> = table.keyspaces().map(|keyspace| keyspace.0.to_string()).collect();
            let (version, keyspaces) = (table.schema().version(), keyspaces.join(", "));
            format!("catalog: table {name}, schema version {version}, in keyspace {keyspaces}")
        }
        ("table", Err(error)) => format!("catalog: table {name}, which cannot be read: {error}"),
        _ => format!("catalog: {kind} {name}"),
    }
}

fn edit_json(record: &ManifestRecord) -> serde_json::Value {
    let edit = &record.edit;
    let files: Vec<_> = edit.added.iter().map(|(level, file)| file_json(*level, file)).collect();
    let removed: Vec<_> =
        edit.removed.iter().map(|(level, id)| json!({"level": level, "file": id})).collect();
    let catalog: Vec<_> = edit
        .catalog
        .iter()
        .map(|change| {
            json!({
                "key": hex(&change.key), "value": change.value.as_ref().map(|value| hex(value)),
                "text": describe_catalog(change),
            })
        })
        .collect();
    let ends: Vec<_> = edit
        .accepted_ends
        .iter()
        .map(|end| json!({"incarnation": end.incarnation, "end": end.end}))
        .collect();
    let ids = |keyspaces: &[alluvium_base::key::KeyspaceId]| {
        keyspaces.iter().map(|keyspace| keyspace.0).collect::<Vec<_>>()
    };
    json!({
        "event": "edit",
        "offset": record.offset,
        "bytes": record.bytes,
        "database_id": edit.database_id.map(|id| format!("{id:032x}")),
        "incarnation": edit.incarnation,
        "accepted_ends": ends,
        "added": files,
        "removed": removed,
        "catalog": catalog,
        "dropped_keyspaces": ids(&edit.dropped_keyspaces),
        "purged_keyspaces": ids(&edit.purged_keyspaces),
        "log_replay_start": edit.log_replay_start,
        "last_seqno": edit.last_seqno,
        "next_file_id": edit.next_file_id,
        "next_keyspace_id": edit.next_keyspace_id,
        "clean_close": edit.clean_close,
    })
}

fn file_json(level: u8, file: &FileMeta) -> serde_json::Value {
    let summary = &file.summary;
    let keyspaces: Vec<_> = summary
        .keyspaces
        .iter()
        .map(|found| {
            json!({
                "keyspace": found.keyspace.0, "entries": found.entries, "tombstones": found.tombstones,
                "raw_bytes": found.raw_bytes, "stored_bytes": found.stored_bytes,
            })
        })
        .collect();
    json!({
        "level": level,
        "file": file.id,
        "bytes": summary.bytes,
        "checksum": format!("{:016x}", summary.checksum),
        "entries": summary.entries,
        "tombstones": summary.tombstones,
        "range_tombstones": summary.range_tombstones,
        "old_versions": file.old_versions,
        "seqno_min": summary.seqno_min,
        "seqno_max": summary.seqno_max,
        "first_key": hex(&summary.range.start),
        "end_key": hex(&summary.range.end),
        "created_micros": file.created_micros,
        "keyspaces": keyspaces,
    })
}
