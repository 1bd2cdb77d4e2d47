//! Where output goes: text for people, coloured on a terminal, or JSON for scripts. Standard output gets the answer
//! only; notes and errors go to standard error.

use std::fmt;
use std::io::{self, Write};

use alluvium_base::error::describe_io;
use console::{Style, Term};
use serde::Serialize;
use serde_json::json;

use super::error::{InspectError, Result};

/// Version of everything that is written as JSON. It grows when a field changes its meaning or goes.
pub const JSON_VERSION: u32 = 1;

/// What standard output is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// True if colours are wanted.
    pub color: bool,
    /// Columns of the terminal; `None` if it is none.
    pub width: Option<usize>,
}

impl Look {
    /// Finds out. Colour only on a terminal, and not if `NO_COLOR` is set.
    #[must_use]
    pub fn of_standard_output() -> Look {
        let term = Term::stdout();
        let width = term.is_term().then(|| usize::from(term.size().1));
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Look { color: term.is_term() && !refused && console::colors_enabled(), width }
    }
}

/// The output of one call.
pub struct Output<'a> {
    writer: &'a mut dyn Write,
    /// True for JSON.
    pub json: bool,
    /// How it looks.
    pub look: Look,
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("json", &self.json).field("look", &self.look).finish_non_exhaustive()
    }
}

impl<'a> Output<'a> {
    /// Output to `writer`.
    pub fn new(writer: &'a mut dyn Write, json: bool, look: Look) -> Output<'a> {
        Output { writer, json, look }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// `OutputClosed` if nobody reads any more; those of writing.
    pub fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        writeln!(self.writer, "{text}").map_err(closed_or_failed)
    }

    /// Writes a title, with an empty line before it.
    ///
    /// # Errors
    /// As [`line`](Output::line).
    pub fn title(&mut self, text: &str) -> Result<()> {
        let text = self.bold(text);
        self.line(format_args!("\n{text}"))
    }

    /// Writes a line of JSON.
    ///
    /// # Errors
    /// As [`line`](Output::line).
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut *self.writer, value).map_err(|error| closed_or_failed(error.into()))?;
        self.line("")
    }

    /// Writes what is still held back.
    ///
    /// # Errors
    /// As [`line`](Output::line).
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(closed_or_failed)
    }

    /// Says something about the answer that is not part of it, on standard error.
    pub fn note(&self, text: &str) {
        let text = if self.json {
            json!({"version": JSON_VERSION, "event": "note", "message": text}).to_string()
        } else {
            format!("note: {text}")
        };
        tell(&text);
    }

    /// Says why there is no answer, on standard error.
    pub fn error(&self, error: &InspectError) {
        let text = if self.json {
            let (code, message) = (error.exit_code(), error.to_string());
            json!({"version": JSON_VERSION, "event": "error", "exit_code": code, "message": message})
                .to_string()
        } else {
            format!("error: {error}")
        };
        tell(&text);
    }

    /// The text in bold.
    #[must_use]
    pub fn bold(&self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// The text, less visible.
    #[must_use]
    pub fn dim(&self, text: &str) -> String {
        self.paint(Style::new().dim(), text)
    }

    /// The text in the colour of good news.
    #[must_use]
    pub fn good(&self, text: &str) -> String {
        self.paint(Style::new().green(), text)
    }

    /// The text in the colour of bad news.
    #[must_use]
    pub fn bad(&self, text: &str) -> String {
        self.paint(Style::new().red().bold(), text)
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.look.color { style.force_styling(true).apply_to(text).to_string() } else { text.to_owned() }
    }
}

fn closed_or_failed(error: io::Error) -> InspectError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => InspectError::OutputClosed,
        _ => InspectError::Output(describe_io(&error)),
    }
}

fn tell(text: &str) {
    // There is no other place to say that standard error is gone.
    let _ = writeln!(io::stderr(), "{text}");
}
