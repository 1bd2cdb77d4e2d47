//! From files to rows of fields.
//!
//! [`open`] finds out how a file is packed and unpacks it; [`blocks`] does so on a thread of its own and hands blocks
//! of bytes over; [`rows`] cuts them into rows and fields, in batches, and [`quotes`] finds rows whose quotes make no sense. Types are not known here: a field is bytes.

pub mod blocks;
pub mod open;
pub mod quotes;
pub mod rows;
