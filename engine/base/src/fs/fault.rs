//! Breaks chosen calls of another file system.
