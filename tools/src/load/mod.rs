//! The bulk loader: text files in, one new table with all of its indexes out, in one atomic step.
//!
//! A row goes this way:
//!
//! 1. [`input`] opens files, unpacks them on a thread of their own and cuts the bytes into rows.
//! 2. [`sort`] keeps entries in sorted runs, one set of runs per index, within one memory budget; what does not fit
//!    goes to disk.
//!
//! Nothing in the database changes before the last step, so stopping at any moment needs no cleaning up.

pub mod cli;
pub mod convert;
pub mod encode;
pub mod error;
pub mod input;
pub mod job;
pub mod null_strings;
pub mod parallel;
pub mod place;
pub mod plan;
pub mod progress;
pub mod rejects;
pub mod sniff;
pub mod sort;
pub mod target;
