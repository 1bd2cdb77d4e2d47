//! The file that `--rejects` names: made when the first row is rejected, and never at the cost of another file.
//!
//! 1. Before anything is done, the path is checked: it is no input, it does not lie in the database, and what is there
//!    already is an earlier rejects file. Anything else is refused, and nothing is touched.
//! 2. With the first reject a file is made beside it, under a name that ends in `.partial`.
//! 3. At the end of the load, however it ends, that file takes the name. An earlier rejects file is replaced then; a
//!    load without rejects leaves it alone.
//!
//! Pipes and devices (`/dev/stderr`) have no name to take over: they are written to as they are.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use alluvium_base::Error;
use tempfile::TempPath;

use crate::load::directory::check_directory;
use crate::load::error::{LoadError, Result};
use crate::load::input::open::InputName;

/// Where rejects are written to.
pub struct RejectsFile {
    /// As the user knows it.
    path: PathBuf,
    /// The same without links.
    resolved: PathBuf,
    is_plain: bool,
    writer: Option<BufWriter<File>>,
    /// The name until the end.
    partial: Option<TempPath>,
}

impl RejectsFile {
    /// A file at `path`, which is not made yet.
    ///
    /// # Errors
    /// `Usage` if the path is that of an input, lies in `database`, or has a file that holds no rejects; those of the
    /// file system if no file can be made there.
    pub fn new(path: &Path, inputs: &[InputName], database: &Path) -> Result<RejectsFile> {
        let resolved = resolve(path);
        let refuse = |why: &str| {
            Err(LoadError::Usage(format!("--rejects {}: {why}; name another file", path.display())))
        };
        if let Some(input) = inputs.iter().find(|input| is_same_file(&resolved, input)) {
            return refuse(&format!("it is the input {input}, which would be lost"));
        }
        if resolved.starts_with(resolve(database)) {
            return refuse("it lies in the database's directory, which holds the database's own files only");
        }
        let metadata = fs::metadata(path).ok();
        if metadata.as_ref().is_some_and(fs::Metadata::is_dir) {
            return refuse("it is a directory");
        }
        let is_plain = metadata.as_ref().is_none_or(fs::Metadata::is_file) && !is_handle(path);
        let file = RejectsFile { path: path.to_owned(), resolved, is_plain, writer: None, partial: None };
        if is_plain {
            file.check_replaceable()?;
            check_directory("--rejects", file.directory())?;
        }
        Ok(file)
    }

    fn directory(&self) -> &Path {
        self.resolved.parent().unwrap_or(Path::new("/"))
    }

    /// An error if something stands at the path that is no earlier rejects file.
    fn check_replaceable(&self) -> Result<()> {
        match File::open(&self.resolved) {
            Ok(file) if holds_rejects(&file) => Ok(()),
            Ok(_) => Err(LoadError::Usage(format!(
                "--rejects {}: the file exists and is not one of rejected rows, so it is not replaced; name another \
                 file, or remove it",
                self.path.display()
            ))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failed("read", &error)),
        }
    }

    fn failed(&self, operation: &'static str, error: &std::io::Error) -> LoadError {
        Error::io(operation, &self.path, error).into()
    }

    /// Appends a line.
    ///
    /// # Errors
    /// Those of making and writing the file.
    pub fn add(&mut self, line: &str) -> Result<()> {
        if self.writer.is_none() {
            let file = self.create().map_err(|error| self.failed("create", &error))?;
            self.writer = Some(BufWriter::new(file));
        }
        let written = self.writer.as_mut().map(|writer| writeln!(writer, "{line}"));
        written.unwrap_or(Ok(())).map_err(|error| self.failed("write", &error))
    }

    fn create(&mut self) -> std::io::Result<File> {
        if !self.is_plain {
            return OpenOptions::new().append(true).open(&self.path);
        }
        let mut prefix = self.resolved.file_name().unwrap_or_default().to_owned();
        prefix.push(".");
        // As every other new file: what the user's umask leaves of it.
        let permissions = fs::Permissions::from_mode(0o666);
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(&prefix).suffix(".partial").permissions(permissions);
        let (file, partial) = builder.tempfile_in(self.directory())?.into_parts();
        self.partial = Some(partial);
        Ok(file)
    }

    /// Makes sure that the file holds all rejects so far and has its name. Does nothing if there are none.
    ///
    /// # Errors
    /// Those of writing and renaming; `Usage` if another file has come to stand there meanwhile. The rejects are then
    /// kept under the name that the error gives.
    pub fn publish(&mut self) -> Result<()> {
        let flushed = self.writer.as_mut().map_or(Ok(()), BufWriter::flush);
        flushed.map_err(|error| self.failed("write", &error))?;
        let Some(partial) = self.partial.take() else { return Ok(()) };
        let kept = |partial: TempPath, error: LoadError| {
            let place = partial.display().to_string();
            // If it cannot be kept there is nothing left to tell.
            let _ = partial.keep();
            LoadError::Usage(format!("{error}\nthe rejected rows are in {place}"))
        };
        if let Err(error) = self.check_replaceable() {
            return Err(kept(partial, error));
        }
        partial
            .persist(&self.resolved)
            .map_err(|failed| kept(failed.path, Error::io("rename", &self.path, &failed.error).into()))
    }
}

/// True for names of something that is open already, whatever that is: a file under such a name is appended to.
fn is_handle(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}

fn is_same_file(path: &Path, input: &InputName) -> bool {
    if input.is_standard_input() {
        return false;
    }
    let identity = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let same_file = identity(path).is_some_and(|file| identity(input.path()) == Some(file));
    same_file || resolve(input.path()) == path
}

/// The path without links and dots, as far as it exists; what does not exist is taken as it is written.
fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut resolved = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => drop(resolved.pop()),
            other => resolved.push(other),
        }
        if let Ok(real) = resolved.canonicalize() {
            resolved = real;
        }
    }
    resolved
}

/// True if a file is empty, or begins with a line that a load has written about a rejected row.
fn holds_rejects(file: &File) -> bool {
    const LINE_BYTES_MAX: u64 = 16 << 20;
    let mut line = Vec::new();
    if BufReader::new(file).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_err() {
        return false;
    }
    let is_reject = |line: &[u8]| {
        let object: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_slice(line).ok();
        object.is_some_and(|object| {
            ["file", "line", "byte", "column", "expected", "text", "reason"]
                .iter()
                .all(|&key| object.contains_key(key))
        })
    };
    line.is_empty() || is_reject(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        r#"{"file":"a","line":1,"byte":0,"column":null,"expected":null,"text":null,"reason":"x"}"#;

    fn refusal(path: &Path, inputs: &[InputName], database: &Path) -> String {
        RejectsFile::new(path, inputs, database).err().expect("the path must be refused").to_string()
    }

    #[test]
    fn rejects_emptied_an_input() {
        let directory = tempfile::tempdir().unwrap();
        let (input, link) = (directory.path().join("a.csv"), directory.path().join("link"));
        let (hard, database) = (directory.path().join("hard"), directory.path().join("db"));
        fs::write(&input, "id\n1\n").unwrap();
        std::os::unix::fs::symlink(&input, &link).unwrap();
        fs::hard_link(&input, &hard).unwrap();
        let dotted = directory.path().join("none/../a.csv");
        for path in [&input, &link, &hard, &dotted] {
            let told = refusal(path, &[InputName::new(&input)], &database);
            assert!(told.contains("it is the input"), "{told}");
        }
        assert_eq!(fs::read_to_string(&input).unwrap(), "id\n1\n");
    }

    #[test]
    fn rejects_emptied_files_of_the_database() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("db");
        let inside = database.join("new/../CURRENT");
        assert!(refusal(&inside, &[], &database).contains("database's directory"), "not made yet");
        fs::create_dir(&database).unwrap();
        fs::write(database.join("CURRENT"), "x").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&database, &link).unwrap();
        for path in [database.join("CURRENT"), link.join("CURRENT"), link.join("none")] {
            assert!(refusal(&path, &[], &database).contains("database's directory"), "{}", path.display());
        }
        assert_eq!(fs::read_to_string(database.join("CURRENT")).unwrap(), "x");
    }

    #[test]
    fn rejects_emptied_any_file_before_there_was_a_reject() {
        let directory = tempfile::tempdir().unwrap();
        let (path, database) = (directory.path().join("bad.jsonl"), directory.path().join("db"));
        for precious in ["precious", "{\"file\":\"a\"}\n"] {
            fs::write(&path, precious).unwrap();
            assert!(refusal(&path, &[], &database).contains("is not replaced"));
            assert_eq!(fs::read_to_string(&path).unwrap(), precious);
        }
        // An earlier rejects file is kept until there is a later one.
        fs::write(&path, format!("{LINE}\n")).unwrap();
        let mut file = RejectsFile::new(&path, &[], &database).unwrap();
        file.publish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{LINE}\n"));
        file.add("later").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{LINE}\n"));
        file.publish().unwrap();
        file.add("more").unwrap();
        file.publish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "later\nmore\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bad.jsonl");
        let mut file = RejectsFile::new(&path, &[], Path::new("db")).unwrap();
        file.add(LINE).unwrap();
        fs::write(&path, "precious").unwrap();
        let told = file.publish().unwrap_err().to_string();
        let kept = told.rsplit_once("rows are in ").unwrap().1;
        assert_eq!(fs::read_to_string(kept).unwrap(), format!("{LINE}\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn devices_are_written_to_as_they_are() {
        let mut file = RejectsFile::new(Path::new("/dev/null"), &[], Path::new("db")).unwrap();
        file.add(LINE).unwrap();
        file.publish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_missing_directory_is_told_at_the_start() {
        let path = Path::new("/nonexistent/bad.jsonl");
        let told = refusal(path, &[], Path::new("db"));
        assert_eq!(told, "--rejects: /nonexistent does not exist; make it first, or name another directory");
    }
}
