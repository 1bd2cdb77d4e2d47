//! Reads the workspace's own source code, for tests of its structure.
#![expect(clippy::panic, reason = "helpers of tests: an unreadable source file fails the test")]

use std::path::{Path, PathBuf};

/// The root folder of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Every Rust file below `folder` of the repository, as its path from the root and its text without comments and
/// without what follows `#[cfg(test)]` (tests may do what the code may not).
///
/// # Panics
/// If a file cannot be read.
#[must_use]
pub fn production_code(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&root().join(folder), &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            // Tests, examples and a folder of helper code for tests are no production code.
            if !["tests", "examples", "target", "testdata", "testing", "fuzz"].contains(&name.as_str()) {
                collect(&path, found);
            }
        } else if name.ends_with(".rs") && !["tests.rs", "testing.rs"].contains(&name.as_str()) {
            let text =
                std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let relative = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy().into_owned();
            found.push((relative, strip(&text)));
        }
    }
}

/// Removes line comments and everything from the first `#[cfg(test)]` module on.
fn strip(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = code.split("#[cfg(test)]\n#[cfg(not(loom))]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().map(|line| match line.find("//") {
        // A `//` inside a string literal (an address, say) stays.
        Some(at) if line.get(..at).is_some_and(|before| before.matches('"').count() % 2 == 0) => {
            line.get(..at).unwrap_or_default()
        }
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}
