//! A target in memory, and a load of files into it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use alluvium::row::RowEncoder;
use alluvium_base::{Error, Result};
use alluvium_tools::load::cli::Args;
use alluvium_tools::load::error::LoadError;
use alluvium_tools::load::input::open::InputName;
use alluvium_tools::load::job::{Settings, Stop};
use alluvium_tools::load::plan::{self, Plan};
use alluvium_tools::load::progress::Progress;
use alluvium_tools::load::rejects::Rejects;
use alluvium_tools::load::sort::budget::Budget;
use alluvium_tools::load::summary::Summary;
use alluvium_tools::load::target::{EachEntry, EntryWriter, LoadTarget};
use clap::Parser;

pub(crate) type EntryList = Vec<(Vec<u8>, Vec<u8>)>;

/// What a finished load has left: the entries of every target. `None` until then.
pub(crate) type Outcome = Arc<Mutex<Option<Vec<EntryList>>>>;

/// Keeps everything in memory.
pub(crate) struct MemoryTarget {
    encoder: RowEncoder,
    outcome: Outcome,
    pub(crate) fault: Fault,
}

/// What goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// A writer fails with "disk full" at its n-th entry.
    Full(usize),
    /// What is read back lacks the last entry of a target.
    Loses(usize),
    /// What is read back has a byte of a value changed.
    Flips(usize),
    /// The user asks to stop when a writer has got its first entry.
    Stops(StopHandle),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct StopHandle(pub(crate) Stop);

impl PartialEq for StopHandle {
    fn eq(&self, _: &StopHandle) -> bool {
        true
    }
}

impl Eq for StopHandle {}

impl MemoryTarget {
    pub(crate) fn new(plan: &Plan) -> (MemoryTarget, Outcome) {
        let outcome = Outcome::default();
        let encoder = RowEncoder::new(Arc::new(plan.schema.clone()));
        (MemoryTarget { encoder, outcome: Arc::clone(&outcome), fault: Fault::None }, outcome)
    }
}

pub(crate) struct MemoryWriter {
    target: usize,
    entries: EntryList,
    fault: Fault,
}

pub(crate) struct MemoryFile {
    target: usize,
    entries: EntryList,
}

impl EntryWriter for MemoryWriter {
    type Written = MemoryFile;

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.fault == Fault::Full(self.entries.len()) {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(Error::io("write", "000007.sst", &error));
        }
        if let Fault::Stops(stop) = &self.fault {
            stop.0.request();
        }
        if self.entries.last().is_some_and(|(last, _)| last.as_slice() >= key) {
            return Err(Error::invalid("keys are not ascending"));
        }
        self.entries.push((key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn finish(self) -> Result<MemoryFile> {
        Ok(MemoryFile { target: self.target, entries: self.entries })
    }
}

impl LoadTarget for MemoryTarget {
    type Writer<'a> = MemoryWriter;
    type Written = MemoryFile;

    fn encoder(&self) -> &RowEncoder {
        &self.encoder
    }

    fn writer(&self, target: usize) -> Result<MemoryWriter> {
        Ok(MemoryWriter { target, entries: Vec::new(), fault: self.fault.clone() })
    }

    fn read_back(&self, written: &MemoryFile, each: &mut EachEntry<'_>) -> Result<()> {
        let mut entries = written.entries.clone();
        match self.fault {
            Fault::Loses(target) if target == written.target => drop(entries.pop()),
            Fault::Flips(target) if target == written.target => entries[0].1[0] ^= 1,
            _ => {}
        }
        entries.iter().try_for_each(|(key, value)| each(key, value))
    }

    fn file_bytes(&self, written: &MemoryFile) -> u64 {
        written.entries.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    fn finish(self, written: Vec<MemoryFile>) -> Result<()> {
        *self.outcome.lock().unwrap() = Some(written.into_iter().map(|file| file.entries).collect());
        Ok(())
    }
}

/// A load as its command line says, but for the memory and the target.
pub(crate) struct Run {
    pub(crate) args: Args,
    pub(crate) directory: PathBuf,
    pub(crate) budget: Budget,
    pub(crate) fault: Fault,
    pub(crate) stop: Stop,
}

/// Everything in memory.
pub(crate) const ROOMY: Budget =
    Budget { buffer_bytes: 1 << 20, runs_bytes: 64 << 20, block_bytes: 64 << 10, fan_in: 64 };
/// A few rows per buffer, a few buffers per spill, several merge levels.
pub(crate) const TINY: Budget = Budget { buffer_bytes: 400, runs_bytes: 1200, block_bytes: 100, fan_in: 2 };

impl Run {
    /// A load of `inputs` (which lie in `directory`) with the given options, as in a shell.
    pub(crate) fn new(directory: &Path, options: &[&str], inputs: &[&str]) -> Run {
        let paths = inputs.iter().map(|input| directory.join(input).display().to_string());
        let words = ["alluvium-load", "--db", "unused"].iter().chain(options).map(|&word| word.to_owned());
        let args = Args::try_parse_from(words.chain(paths)).unwrap_or_else(|error| panic!("{error}"));
        let directory = directory.to_owned();
        Run { args, directory, budget: ROOMY, fault: Fault::None, stop: Stop::default() }
    }

    pub(crate) fn plan(&self) -> std::result::Result<Plan, LoadError> {
        plan::make(&self.args)
    }

    pub(crate) fn load(&self) -> std::result::Result<(Summary, Vec<EntryList>), LoadError> {
        let plan = self.plan()?;
        let (mut target, outcome) = MemoryTarget::new(&plan);
        target.fault = self.fault.clone();
        let settings = Settings {
            threads: self.args.thread_count(),
            budget: self.budget,
            spill_directory: self.directory.clone(),
            on_duplicate: self.args.on_duplicate,
        };
        let progress = Progress::new(None);
        let names: Vec<InputName> = plan.inputs.iter().map(|input| input.name.clone()).collect();
        let rejects = Rejects::new(names, self.args.max_errors, None);
        let result = alluvium_tools::load::load(&plan, target, &settings, &progress, &rejects, &self.stop);
        let entries = outcome.lock().unwrap().take();
        match result {
            Ok(summary) => Ok((summary, entries.expect("a load that succeeds finishes its target"))),
            Err(error) => {
                assert!(entries.is_none(), "a load that fails must leave nothing: {error}");
                Err(error)
            }
        }
    }

    /// The error of a load, with the directory taken out of it.
    pub(crate) fn error(&self) -> String {
        let error = self.load().map(|_| ()).expect_err("the load must fail");
        error.to_string().replace(&format!("{}/", self.directory.display()), "")
    }
}
