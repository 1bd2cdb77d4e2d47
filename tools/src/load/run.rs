//! One call of `alluvium-load`: plan, load, tell.
//!
//! Standard output gets the result only: the plan of a dry run, or the summary. Everything else goes to standard
//! error: progress, notes, rejected rows, the error.

use std::io::Write;

use alluvium_base::error::describe_io;
use serde_json::json;

use crate::load::cli::Args;
use crate::load::cli::size::Size;
use crate::load::directory::check_directory;
use crate::load::display::{self, Mode};
use crate::load::error::{LoadError, Result, exit};
use crate::load::input::open::InputName;
use crate::load::job::{Settings, Stop};
use crate::load::plan::{self, Plan, PlannedColumn};
use crate::load::progress::Progress;
use crate::load::rejects::Rejects;
use crate::load::rejects_file::RejectsFile;
use crate::load::sort::budget;
use crate::load::summary::{JSON_VERSION, Summary, count};
use crate::load::target::LoadTarget;
use crate::load::{load, plan_report};

/// Does what the command line says, into the target that `open` makes for the plan. Returns the exit code.
pub fn run<T: LoadTarget>(
    args: &Args,
    stop: &Stop,
    output: &mut dyn Write,
    open: impl FnOnce(&Plan) -> Result<T>,
) -> u8 {
    match try_run(args, stop, output, open) {
        Ok(code) => code,
        Err(error) => {
            tell(&describe_error(args, &error));
            error.exit_code()
        }
    }
}

fn try_run<T: LoadTarget>(
    args: &Args,
    stop: &Stop,
    output: &mut dyn Write,
    open: impl FnOnce(&Plan) -> Result<T>,
) -> Result<u8> {
    let plan = plan::make(args)?;
    if args.dry_run {
        let report =
            if args.json { plan_report::to_json(&plan, args) } else { plan_report::to_text(&plan, args) };
        print(output, report.trim_end())?;
        return Ok(exit::CLEAN);
    }
    let targets = 1 + plan.schema.indexes().len();
    let threads = args.thread_count();
    let budget = budget::divide(args.memory.0, threads, targets).map_err(|least| {
        let (given, least) = (args.memory, Size(least));
        let (threads, indexes) = (count(threads as u64, "thread"), count(targets as u64 - 1, "index"));
        LoadError::Usage(format!(
            "--memory {given} is too little: with {threads} and {indexes} it must be {least} or more"
        ))
    })?;
    // All that can be known to fail fails before the database is touched.
    let names: Vec<InputName> = plan.inputs.iter().map(|input| input.name.clone()).collect();
    let rejects_file =
        args.rejects.as_ref().map(|path| RejectsFile::new(path, &names, &args.db)).transpose()?;
    if let Some(directory) = &args.tmp {
        check_directory("--tmp", directory)?;
    }
    tell_notes(&plan, args);
    let target = open(&plan)?;
    let spill_directory = args.tmp.clone().unwrap_or_else(|| args.db.clone());
    let settings = Settings { threads, budget, spill_directory, on_duplicate: args.on_duplicate };
    let rejects = Rejects::new(names, args.max_errors, rejects_file);
    let progress = Progress::new(plan.inputs.iter().map(|input| input.stored_bytes).sum());
    let result = display::show_while(Mode::choose(args.json), &progress, &rejects, || {
        load(&plan, target, &settings, &progress, &rejects, stop)
    });
    // However the load has ended, what was rejected until then is of use.
    let published = rejects.publish();
    let summary = result?;
    let loaded = |error: LoadError| LoadError::Output(format!("the table is loaded, but {error}"));
    published.map_err(loaded)?;
    if rejects.count() > 0 && !args.json {
        tell(&format!("warning: some rows were rejected\n{}", rejects.describe()));
    }
    print(output, &describe_summary(args, &summary)).map_err(loaded)?;
    Ok(summary.exit_code())
}

fn describe_summary(args: &Args, summary: &Summary) -> String {
    if args.json {
        // Cannot fail: the keys are strings and nothing writes.
        return serde_json::to_string(summary).unwrap_or_default();
    }
    summary.to_string().trim_end().to_owned()
}

fn describe_error(args: &Args, error: &LoadError) -> String {
    if args.json {
        let message = error.to_string();
        let code = error.exit_code();
        return serde_json::json!({"version": JSON_VERSION, "event": "error", "exit_code": code, "message": message})
            .to_string();
    }
    format!("error: {error}")
}

/// Says what the user should know about the plan, on standard error.
fn tell_notes(plan: &Plan, args: &Args) {
    let of_column =
        |column: &PlannedColumn| Some(format!("column {}: {}", column.name, column.note.as_ref()?));
    for note in plan.header_note().into_iter().chain(plan.columns.iter().filter_map(of_column)) {
        tell(&match args.json {
            true => json!({"version": JSON_VERSION, "event": "note", "message": note}).to_string(),
            false => format!("note: {note}"),
        });
    }
}

fn print(output: &mut dyn Write, text: &str) -> Result<()> {
    match writeln!(output, "{text}").and_then(|()| output.flush()) {
        // Whoever reads may stop reading.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(LoadError::Output(format!("cannot write to standard output: {}", describe_io(&error))))
        }
        _ => Ok(()),
    }
}

fn tell(text: &str) {
    // There is no other place to say that standard error is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
}
