//! The inspector: what is in a database, why it looks as it does, and whether it is intact.
//!
//! Everything but [`copies`] and [`repair`] only reads. Each command is one module: it gathers a report, a plain value,
//! and prints it as text or as JSON. What a command needs of the engine is [`alluvium::inspect`] (files, manifest, log,
//! without opening the database) and the public row interface (rows, plans, the index check). Shared by all:
//! [`database`] finds and reads the directory, [`names`] shows bytes as rows, [`usage`] sums up sizes, [`text`],
//! [`grid`] and [`output`] print.
//!
//! The commands `overview`, `tables`, `verify`, `manifest dump`, `wal dump` and `sst` do not open the database, so that
//! they work on a damaged one; `rows`, `explain` and `index-check` open it for reading.

pub mod cli;
pub mod copies;
pub mod database;
pub mod error;
pub mod grid;
pub mod index_check;
pub mod manifest;
pub mod names;
pub mod output;
pub mod overview;
pub mod repair;
pub mod rows;
pub mod sst;
pub mod tables;
pub mod text;
pub mod usage;
pub mod verdicts;
pub mod verify;
pub mod wal;

use std::io::Write;

use clap::CommandFactory;

use cli::{Args, Command, ManifestCommand, WalCommand};
use database::Database;
use error::{InspectError, Result, exit};
use output::{Look, Output};

/// Does what the command line says. Returns the exit code.
pub fn run(args: &Args, look: Look, writer: &mut dyn Write) -> u8 {
    let mut output = Output::new(writer, args.json, look);
    let result = dispatch(args, &mut output).and_then(|code| output.flush().map(|()| code));
    match result {
        Ok(code) => code,
        Err(error) => {
            // What was found before the error is worth seeing.
            let _ = output.flush();
            if !matches!(error, InspectError::OutputClosed) {
                output.error(&error);
            }
            error.exit_code()
        }
    }
}

fn dispatch(args: &Args, output: &mut Output<'_>) -> Result<u8> {
    let db = args.db.as_deref();
    match &args.command {
        Command::Sst(command) => return sst::run(db, command, output),
        Command::Backup(command) => return copies::backup(db, command, output),
        Command::Restore { backups, target, number } => {
            copies::restore(backups, target, *number, output)?;
            return Ok(exit::FINE);
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            let mut command = Args::command();
            clap_complete::generate(*shell, &mut command, "alluvium-inspect", &mut script);
            output.line(String::from_utf8_lossy(&script).trim_end())?;
            return Ok(exit::FINE);
        }
        _ => {}
    }
    let database = Database::new(db)?;
    on_database(args, &database, output).map_err(|error| database.explain(error))
}

fn on_database(args: &Args, database: &Database, output: &mut Output<'_>) -> Result<u8> {
    match &args.command {
        Command::Overview => overview::run(database, output)?,
        Command::Tables { tables } => tables::run(database, tables, output)?,
        Command::Rows(args) => rows::run(database, args, output)?,
        Command::Explain(args) => rows::explain(database, args, output)?,
        Command::Wal(WalCommand::Dump { records, limit }) => wal::run(database, *records, *limit, output)?,
        Command::Manifest(ManifestCommand::Dump) => manifest::run(database, output)?,
        Command::Verify { deep } => return verify::run(database, *deep, output),
        Command::IndexCheck { table } => return index_check::run(database, table.as_deref(), output),
        Command::Repair { apply } => return repair::run(database, *apply, output),
        Command::Checkpoint { target } => copies::checkpoint(database, target, output)?,
        // Handled by `dispatch`: they need no database, or not always.
        Command::Sst(_) | Command::Backup(_) | Command::Restore { .. } | Command::Completions { .. } => {}
    }
    Ok(exit::FINE)
}
