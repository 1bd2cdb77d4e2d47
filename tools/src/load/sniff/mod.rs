//! Finding out what an input looks like from its first rows: delimiter, header, and the type of every column.
//!
//! Everything here is a guess that the plan shows and that an option overrides. A guess is made so that it never loses
//! anything: what would not come back exactly as it was stays text.

pub mod column;
pub mod dialect;
pub mod shape;
