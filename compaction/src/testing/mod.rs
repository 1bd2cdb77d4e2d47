//! What the tests of this crate share.

mod files;
mod iterators;
mod store;

pub(crate) use files::*;
pub(crate) use iterators::*;
pub(crate) use store::*;
