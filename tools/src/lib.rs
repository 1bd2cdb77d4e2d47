//! The tools of Alluvium as a library, so that tests can drive them without a process.
//!
//! The binaries in `src/bin` only parse arguments and turn the outcome into an exit code. [`load`] is the bulk loader
//! behind `alluvium-load`, [`inspect`] the inspector behind `alluvium-inspect`. Tools sit on top of the engine's public interface; nothing depends on them.

pub mod inspect;
pub mod load;
