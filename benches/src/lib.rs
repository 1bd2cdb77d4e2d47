//! Workloads and a driver that measures them.
//!
//! One program runs any choice of workloads on any engine that implements [`engine::Engine`]: Alluvium here, its rivals in the
//! separately built `benches/compare`, which calls [`run`] with more factories. `benches/README.md` says how to read the
//! numbers.
//!
//! - [`engine`]: what a store must offer to be measured, and Alluvium's implementation of it.
//! - [`keys`]: the data: 16-byte keys, values of which half compresses.
//! - [`workload`]: the workloads.
//! - [`measure`]: latencies, processor time, memory, bytes written.
//! - [`report`]: tables and JSON.

pub mod engine;
pub mod keys;
pub mod measure;
pub mod report;
pub mod workload;

use std::path::PathBuf;

use clap::Parser;

use engine::{Config, Factory};
use report::Report;
use workload::{Context, Workload};

/// The result of a benchmark step; errors are for people.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Measures storage engines with the same workloads.
///
/// Example: cargo run --release -p alluvium-benches -- --keys 1000000 --workloads fillrandom,readrandom
#[derive(Clone, Debug, Parser)]
#[command(name = "alluvium-bench", version)]
pub struct Arguments {
    /// Directory for the databases; emptied before and after.
    #[arg(long, default_value = "bench-data")]
    pub directory: PathBuf,
    /// Number of keys.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Workloads to run, in this order; all if none are named.
    #[arg(long, value_delimiter = ',')]
    pub workloads: Vec<Workload>,
    /// Engines to measure, by name; all that this program knows if none are named.
    #[arg(long, value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Operations for the workloads that read or sync; the number of keys, at most 1,000,000, if not given.
    #[arg(long)]
    pub operations: Option<u64>,
    /// Memory budget in MiB. By default enough for the data to be cached: 512 MiB and 250 B a key.
    #[arg(long)]
    pub memory_mib: Option<usize>,
    /// Write-buffer size in MiB, the same for all engines.
    #[arg(long, default_value_t = 64)]
    pub write_buffer_mib: usize,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Internal: fill the database in the directory and die by `abort`; the driver starts itself with it.
    #[arg(long, hide = true)]
    pub fill_and_die: bool,
}

/// Runs the driver with the engines that `factories` make.
///
/// # Errors
/// For unknown engines, and whatever an engine fails with.
pub fn run(arguments: &Arguments, factories: &[Box<dyn Factory>]) -> Result<()> {
    let chosen: Vec<&dyn Factory> = match arguments.engines.as_slice() {
        [] => factories.iter().map(AsRef::as_ref).collect(),
        names => names.iter().map(|name| find(factories, name)).collect::<Result<_>>()?,
    };
    let memory_bytes = arguments.memory_mib.map_or_else(
        || (512 << 20) + arguments.keys as usize * (arguments.value_bytes + 150),
        |mib| mib << 20,
    );
    let config = Config { memory_bytes, write_buffer_bytes: arguments.write_buffer_mib << 20 };
    if arguments.fill_and_die {
        let factory = chosen.first().ok_or("no engine")?;
        return workload::fill_and_die(*factory, &arguments.directory, &config, arguments);
    }
    let workloads =
        if arguments.workloads.is_empty() { Workload::ALL.to_vec() } else { arguments.workloads.clone() };
    let mut report = Report::new(arguments, &config);
    for factory in chosen {
        let mut context = Context::new(factory, config, arguments)?;
        for workload in &workloads {
            eprintln!("{}: {workload} …", factory.name());
            for result in context.run(*workload)? {
                report.add(result);
            }
        }
        context.finish()?;
    }
    report.print(arguments.json)
}

fn find<'a>(factories: &'a [Box<dyn Factory>], name: &str) -> Result<&'a dyn Factory> {
    let known = || factories.iter().map(|factory| factory.name()).collect::<Vec<_>>().join(", ");
    let found = factories.iter().find(|factory| factory.name() == name);
    found.map(AsRef::as_ref).ok_or_else(|| format!("there is no engine {name}; known: {}", known()).into())
}
