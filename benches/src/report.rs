//! Results as a Markdown table or as JSON.

use crate::engine::Config;
use crate::measure::Outcome;
use crate::{Arguments, Result};

/// Everything that one run of the driver found.
#[derive(Debug, serde::Serialize)]
pub struct Report {
    /// Version of this format.
    version: u32,
    keys: u64,
    value_bytes: usize,
    memory_bytes: usize,
    write_buffer_bytes: usize,
    outcomes: Vec<Outcome>,
}

impl Report {
    /// A report without results.
    #[must_use]
    pub fn new(arguments: &Arguments, config: &Config) -> Report {
        Report {
            version: 1,
            keys: arguments.keys,
            value_bytes: arguments.value_bytes,
            memory_bytes: config.memory_bytes,
            write_buffer_bytes: config.write_buffer_bytes,
            outcomes: Vec::new(),
        }
    }

    /// Adds a result.
    pub fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Prints the report to standard output.
    ///
    /// # Errors
    /// If it can't be encoded.
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        println!(
            "{} keys of 16 B, values of {} B; memory {} MiB, write buffer {} MiB\n",
            self.keys,
            self.value_bytes,
            self.memory_bytes >> 20,
            self.write_buffer_bytes >> 20
        );
        println!(
            "| engine | workload | ops/s | p50 µs | p99 µs | p99.9 µs | max µs | CPU s | wall s | peak MiB | written MiB | write amp | disk MiB | space amp |"
        );
        println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
        for o in &self.outcomes {
            let ratio = |ratio: f64| if ratio == 0.0 { "–".to_owned() } else { format!("{ratio:.2}") };
            println!(
                "| {} | {} | {:.0} | {:.1} | {:.1} | {:.1} | {:.0} | {:.1} | {:.1} | {} | {} | {} | {} | {} |",
                o.engine,
                o.workload,
                o.operations_per_second,
                o.p50_micros,
                o.p99_micros,
                o.p999_micros,
                o.max_micros,
                o.cpu_seconds,
                o.seconds,
                o.peak_memory_bytes >> 20,
                o.written_bytes >> 20,
                ratio(o.write_amplification),
                o.disk_bytes >> 20,
                ratio(o.space_amplification)
            );
        }
        Ok(())
    }
}
