//! `checkpoint`, `backup …`, `restore`: copies of a database, as [`Db::checkpoint`] and [`alluvium::backup`] make them.
//!
//! Making a copy opens the database for writing, since what is in the log only has to be flushed; so it needs a database
//! that no other process has open. A service makes copies of its own database while it runs, through the library.

use std::path::Path;

use alluvium::backup::{Backup, BackupDirectory, BackupKind, Restored};
use alluvium::{Checkpoint, Db, Options};
use alluvium_base::Error;
use serde_json::{Value, json};

use super::cli::BackupCommand;
use super::database::Database;
use super::error::{InspectError, Result, exit};
use super::grid::Grid;
use super::output::{JSON_VERSION, Output};
use super::text::count;
use crate::load::cli::size::Size;
use crate::load::summary::grouped;

/// `checkpoint`.
///
/// # Errors
/// `InUse`; those of [`Db::checkpoint`]; those of writing.
pub fn checkpoint(database: &Database, target: &Path, output: &mut Output<'_>) -> Result<()> {
    let made = open_for_writing(database)?.checkpoint(target)?;
    let Checkpoint { directory, last_seqno, files, bytes, copied_files, copied_bytes, .. } = made;
    if output.json {
        return output.json_line(&json!({
            "version": JSON_VERSION, "directory": directory, "last_seqno": last_seqno, "files": files,
            "bytes": bytes, "copied_files": copied_files, "copied_bytes": copied_bytes,
        }));
    }
    let how = match copied_files {
        0 => "all of them linked".to_owned(),
        copied => format!("{} of them copied ({})", grouped(copied), Size(copied_bytes)),
    };
    let done = output.good("done");
    let tables = count(files, "table file");
    output.line(format_args!("{done}: {} has {tables} ({}), {how}", directory.display(), Size(bytes)))
}

fn open_for_writing(database: &Database) -> Result<Db> {
    let options = Options { create_if_missing: false, ..Options::default() };
    Ok(Db::open(&database.directory, options)?)
}

/// `backup …`. Returns the exit code.
///
/// # Errors
/// Those of the [`BackupDirectory`]; those of writing.
pub fn backup(db: Option<&Path>, command: &BackupCommand, output: &mut Output<'_>) -> Result<u8> {
    match command {
        BackupCommand::Create { backups, full } => {
            let database = Database::new(db)?;
            let kind = if *full { BackupKind::Full } else { BackupKind::Incremental };
            create(&database, &BackupDirectory::new(backups), kind, output)
                .map_err(|error| database.explain(error))?;
        }
        BackupCommand::List { backups } => return list(&BackupDirectory::new(backups), output),
        BackupCommand::Verify { backups, number } => {
            return verify(&BackupDirectory::new(backups), *number, output);
        }
        BackupCommand::Delete { backups, number } => {
            let deleted = BackupDirectory::new(backups).delete(*number)?;
            if output.json {
                output.json_line(&json!({
                    "version": JSON_VERSION, "number": number, "files": deleted.files, "bytes": deleted.bytes,
                }))?;
            } else {
                let tables = count(deleted.files, "table file");
                output.line(format_args!(
                    "backup {number} is deleted; {tables} ({}) were needed by no other one",
                    Size(deleted.bytes)
                ))?;
            }
        }
    }
    Ok(exit::FINE)
}

fn create(
    database: &Database,
    backups: &BackupDirectory,
    kind: BackupKind,
    output: &mut Output<'_>,
) -> Result<()> {
    let backup = backups.create(&open_for_writing(database)?, kind)?;
    if output.json {
        return output.json_line(&with_version(describe(&backup)));
    }
    let done = output.good("done");
    let (files, copied) = (count(backup.files, "table file"), grouped(backup.copied_files));
    output.line(format_args!(
        "{done}: backup {} has {files} ({}), of which {copied} ({}) had to be copied",
        backup.number,
        Size(backup.bytes),
        Size(backup.copied_bytes)
    ))
}

fn describe(backup: &Backup) -> Value {
    json!({
        "number": backup.number, "created": created(backup), "database": format!("{:032x}", backup.database_id),
        "last_seqno": backup.last_seqno, "files": backup.files, "bytes": backup.bytes,
        "copied_files": backup.copied_files, "copied_bytes": backup.copied_bytes,
    })
}

fn with_version(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.insert("version".to_owned(), JSON_VERSION.into());
    }
    value
}

/// The time of a backup as rows show times.
fn created(backup: &Backup) -> String {
    let time = alluvium::row::Timestamp::from_micros(backup.created_micros);
    time.map_or_else(|| backup.created_micros.to_string(), |time| time.to_string())
}

fn list(backups: &BackupDirectory, output: &mut Output<'_>) -> Result<u8> {
    let list = backups.list()?;
    if output.json {
        let all: Vec<Value> = list.backups.iter().map(describe).collect();
        let damaged: Vec<Value> = (list.damaged.iter())
            .map(|(number, error)| json!({"number": number, "message": error.to_string()}))
            .collect();
        output.json_line(&json!({"version": JSON_VERSION, "backups": all, "damaged": damaged}))?;
    } else {
        let mut grid = Grid::new(0)
            .number("number")
            .text("created")
            .number("table files")
            .number("size")
            .number("copied");
        for backup in &list.backups {
            grid.row([
                backup.number.to_string(),
                created(backup),
                grouped(backup.files),
                Size(backup.bytes).to_string(),
                Size(backup.copied_bytes).to_string(),
            ]);
        }
        if list.backups.is_empty() {
            output.line("there is no backup")?;
        } else {
            grid.write(output)?;
        }
        for (number, error) in &list.damaged {
            let word = output.bad("problem");
            output.line(format_args!("{word}: backup {number} cannot be read: {error}"))?;
        }
    }
    Ok(if list.damaged.is_empty() { exit::FINE } else { exit::PROBLEMS })
}

fn verify(backups: &BackupDirectory, number: Option<u64>, output: &mut Output<'_>) -> Result<u8> {
    let list = backups.list()?;
    let numbers: Vec<u64> = match number {
        Some(number) => vec![number],
        None => list.backups.iter().map(|backup| backup.number).collect(),
    };
    let mut problems: Vec<(u64, Error)> = match number {
        Some(_) => Vec::new(),
        None => list.damaged,
    };
    let (mut files, mut bytes) = (0, 0);
    for &number in &numbers {
        let found = backups.verify(number)?;
        (files, bytes) = (files + found.files, bytes + found.bytes);
        problems.extend(found.problems.into_iter().map(|error| (number, error)));
    }
    let fine = problems.is_empty();
    if output.json {
        let problems: Vec<Value> = (problems.iter())
            .map(|(number, error)| json!({"number": number, "message": error.to_string()}))
            .collect();
        output.json_line(&json!({
            "version": JSON_VERSION, "fine": fine, "backups": numbers, "files": files, "bytes": bytes,
            "problems": problems,
        }))?;
    } else {
        for (number, error) in &problems {
            let word = output.bad("problem");
            output.line(format_args!("{word}: backup {number}: {error}"))?;
        }
        let read = format!("{} read in full ({})", count(files, "table file"), Size(bytes));
        let verdict = match fine {
            true => output.good("fine"),
            false => output.bad(&format!("{} found", count(problems.len() as u64, "problem"))),
        };
        output.line(format_args!("{verdict}: {}, {read}", count(numbers.len() as u64, "backup")))?;
    }
    Ok(if fine { exit::FINE } else { exit::PROBLEMS })
}

/// `restore`.
///
/// # Errors
/// Those of [`BackupDirectory::restore`]; `NotFound` if there is no backup; those of writing.
pub fn restore(backups: &Path, target: &Path, number: Option<u64>, output: &mut Output<'_>) -> Result<()> {
    let directory = BackupDirectory::new(backups);
    let newest = || -> Result<u64> {
        let list = directory.list()?;
        // A damaged newest one is no reason to restore an older one without a word.
        if let Some((damaged, error)) = list.damaged.into_iter().next_back() {
            let doing = format!("backup {damaged} cannot be read, so which is the newest? Give --number");
            return Err(error.context(doing).into());
        }
        let newest = list.backups.last().map(|backup| backup.number);
        newest.ok_or_else(|| InspectError::from(Error::not_found(format!("backup in {}", backups.display()))))
    };
    let number = number.map_or_else(newest, Ok)?;
    let Restored { directory, backup, .. } = directory.restore(number, target)?;
    if output.json {
        let mut value = with_version(describe(&backup));
        if let Some(fields) = value.as_object_mut() {
            fields.insert("directory".to_owned(), json!(directory));
        }
        return output.json_line(&value);
    }
    let done = output.good("done");
    output.line(format_args!(
        "{done}: {} is backup {} of {}: {} ({}), each compared with its checksum",
        directory.display(),
        backup.number,
        created(&backup),
        count(backup.files, "table file"),
        Size(backup.bytes)
    ))
}
