//! Iterating over many tables as one: a level of disjoint files ([`LevelIterator`]), and anything merged with anything
//! ([`MergingIterator`]). Both implement [`InternalIterator`](alluvium_base::iter::InternalIterator) and show every
//! version of every key; hiding is the reader's business, dropping is [`drop_rules`](crate::drop_rules)'s.

mod level;
mod loser_tree;
mod merging;

pub use level::{ConcatIterator, LevelIterator, OpenFile, OpenTable, TableOpener};
pub use merging::MergingIterator;
