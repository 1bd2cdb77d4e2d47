//! `#[derive(Row)]`.
