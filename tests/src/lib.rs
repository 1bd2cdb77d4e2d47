//! Whole-system tests of Alluvium live in this crate's `tests/` folder; what they share lives here.
//!
//! See `tests/README.md` for the short and long forms and their commands.

pub mod flights;
pub mod fuzz;
pub mod golden;
pub mod history;
pub mod simulation;
pub mod sources;

/// The number in the environment variable `name`, by which the long form of a test is asked for; `default` without it.
#[must_use]
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
