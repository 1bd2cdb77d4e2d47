//! `alluvium-load`: loads text files into a new table with all of its indexes, in one step.

use std::process::ExitCode;

use alluvium_tools::load::cli::Args;
use alluvium_tools::load::engine_target::EngineTarget;
use alluvium_tools::load::error::exit;
use alluvium_tools::load::job::Stop;
use alluvium_tools::load::run;
use clap::Parser;

fn main() -> ExitCode {
    let args = Args::parse();
    let stop = match Stop::on_signals(exit::STOPPED) {
        Ok(stop) => stop,
        Err(error) => {
            eprintln!("error: cannot listen to signals: {error}");
            return ExitCode::from(exit::IO);
        }
    };
    let open =
        |plan: &alluvium_tools::load::plan::Plan| Ok(EngineTarget::open(&args.db, plan.schema.clone())?);
    ExitCode::from(run::run(&args, &stop, &mut std::io::stdout().lock(), open))
}
