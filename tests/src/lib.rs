//! Whole-system tests of Alluvium live in this crate's `tests/` folder; what they share lives here.
//!
//! See `tests/README.md` for the short and long forms and their commands.

pub mod flights;
pub mod fuzz;
pub mod golden;
pub mod history;
pub mod sources;
