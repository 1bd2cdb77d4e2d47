//! The real `alluvium-inspect` on small databases made through the library.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod catalog;
mod copies;
mod damage;
mod files;
mod living;
mod repair;
mod rows;
mod support;
