//! Progress on standard error: a bar on a terminal, lines of JSON elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::load::cli::size::Size;
use crate::load::progress::{Phase, Progress};
use crate::load::rejects::Rejects;
use crate::load::summary::{JSON_VERSION, count, grouped};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A bar.
    Bar,
    /// A line of JSON each second.
    Json,
}

impl Mode {
    /// A bar if standard error is a terminal and `--json` is not given.
    #[must_use]
    pub fn choose(json: bool) -> Mode {
        if json || !std::io::stderr().is_terminal() { Mode::Json } else { Mode::Bar }
    }

    fn interval(self) -> Duration {
        match self {
            Mode::Bar => Duration::from_millis(100),
            Mode::Json => Duration::from_secs(1),
        }
    }
}

/// Runs `work` and shows its progress meanwhile.
pub fn show_while<R>(mode: Mode, progress: &Progress, rejects: &Rejects, work: impl FnOnce() -> R) -> R {
    // Dropped when the work is done, or has panicked: then the display ends.
    let (working, done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut display = Display::new(mode, progress, rejects);
            while done.recv_timeout(mode.interval()) == Err(RecvTimeoutError::Timeout) {
                display.show();
            }
            display.bar.finish_and_clear();
        });
        let result = work();
        drop(working);
        result
    })
}

struct Display<'a> {
    mode: Mode,
    progress: &'a Progress,
    rejects: &'a Rejects,
    bar: ProgressBar,
    last: Sample,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    nanos: u64,
    rows: u64,
    input_nanos: u64,
    worker_nanos: u64,
    spill_nanos: u64,
}

const BAR: &str = "{prefix:13} [{bar:30}] {percent:>3}%  {msg}";
const SPINNER: &str = "{prefix:13} {spinner}  {msg}";
const BAR_STEPS: u64 = 1000;

impl<'a> Display<'a> {
    fn new(mode: Mode, progress: &'a Progress, rejects: &'a Rejects) -> Display<'a> {
        let bar = match mode {
            Mode::Bar => ProgressBar::new(BAR_STEPS),
            Mode::Json => ProgressBar::hidden(),
        };
        let template = if progress.total_bytes.is_some() { BAR } else { SPINNER };
        // The templates above are known to be right.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Display { mode, progress, rejects, bar, last: Sample::default() }
    }

    fn show(&mut self) {
        let (progress, waits) = (self.progress, &self.progress.waits);
        let now = Sample {
            nanos: progress.elapsed_nanos(),
            rows: progress.rows.get(),
            input_nanos: waits.input.get(),
            worker_nanos: waits.workers.get(),
            spill_nanos: waits.spilling.get(),
        };
        let line = Line::new(progress, self.rejects, self.last, now);
        self.last = now;
        match self.mode {
            Mode::Json => {
                if let Ok(text) = serde_json::to_string(&line) {
                    // Progress that cannot be written is no reason to end a load.
                    let _ = writeln!(std::io::stderr(), "{text}");
                }
            }
            Mode::Bar => {
                self.bar.set_prefix(line.phase.describe());
                self.bar.set_message(line.describe());
                match line.fraction {
                    Some(fraction) => self.bar.set_position((fraction * BAR_STEPS as f64) as u64),
                    None => self.bar.tick(),
                }
            }
        }
    }
}

#[derive(Serialize)]
struct Line {
    version: u32,
    event: &'static str,
    phase: Phase,
    seconds: f64,
    fraction: Option<f64>,
    seconds_left: Option<f64>,
    rows: u64,
    rows_per_second: u64,
    rejected: u64,
    spilled_bytes: u64,
    bottleneck: &'static str,
}

impl Line {
    fn new(progress: &Progress, rejects: &Rejects, last: Sample, now: Sample) -> Line {
        let seconds = now.nanos as f64 / 1e9;
        let interval = now.nanos.saturating_sub(last.nanos).max(1);
        let rows = now.rows - last.rows;
        let phase = progress.phase();
        let fraction = progress.fraction();
        Line {
            version: JSON_VERSION,
            event: "progress",
            phase,
            seconds,
            fraction,
            seconds_left: fraction.and_then(|fraction| seconds_left(seconds, fraction)),
            rows: now.rows,
            rows_per_second: (rows as f64 * 1e9 / interval as f64) as u64,
            rejected: rejects.count(),
            spilled_bytes: progress.spilled_bytes.get(),
            bottleneck: bottleneck(phase, last, now),
        }
    }

    fn describe(&self) -> String {
        let mut text = count(self.rows, "row");
        if self.phase == Phase::Encode {
            text.push_str(&format!(", {}/s", grouped(self.rows_per_second)));
        }
        if self.rejected > 0 {
            text.push_str(&format!(", {} rejected", grouped(self.rejected)));
        }
        if self.spilled_bytes > 0 {
            text.push_str(&format!(", {} spilled", Size(self.spilled_bytes)));
        }
        if let Some(left) = self.seconds_left {
            text.push_str(&format!(", {} left", duration(left)));
        }
        format!("{text} ({})", self.bottleneck)
    }
}

/// Seconds that are left if the rest goes as fast as what is done; `None` while too little is done to say.
fn seconds_left(seconds: f64, fraction: f64) -> Option<f64> {
    const LEAST: f64 = 0.02;
    (fraction >= LEAST).then(|| seconds * (1.0 - fraction) / fraction)
}

/// Which part the others wait for.
fn bottleneck(phase: Phase, last: Sample, now: Sample) -> &'static str {
    const MUCH: f64 = 0.5;
    let interval = now.nanos.saturating_sub(last.nanos).max(1) as f64;
    let share = |now: u64, last: u64| now.saturating_sub(last) as f64 / interval;
    match phase {
        Phase::Encode if share(now.spill_nanos, last.spill_nanos) > MUCH => "temporary files",
        Phase::Encode if share(now.input_nanos, last.input_nanos) > MUCH => "reading and unpacking",
        Phase::Encode if share(now.worker_nanos, last.worker_nanos) > MUCH => "encoding and sorting",
        Phase::Encode => "cutting rows",
        Phase::Check | Phase::Verify => "merging and reading",
        Phase::Write => "merging and writing",
        Phase::Finish => "syncing",
    }
}

/// `1:05:09`, `5:09`, `9 s`.
fn duration(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        assert_eq!(seconds_left(1.0, 0.01), None);
        assert_eq!(seconds_left(30.0, 0.25), Some(90.0));
        assert_eq!([0.2, 61.0, 3661.0].map(duration), ["1 s", "1:01", "1:01:01"]);
    }

    #[test]
    fn the_bottleneck_is_what_the_others_wait_for() {
        let last = Sample { nanos: 1000, ..Sample::default() };
        let now = Sample { nanos: 2000, ..last };
        let of = |now| bottleneck(Phase::Encode, last, now);
        assert_eq!(of(now), "cutting rows");
        assert_eq!(of(Sample { input_nanos: 900, ..now }), "reading and unpacking");
        assert_eq!(of(Sample { worker_nanos: 900, ..now }), "encoding and sorting");
        assert_eq!(of(Sample { worker_nanos: 900, spill_nanos: 600, ..now }), "temporary files");
        assert_eq!(bottleneck(Phase::Write, last, now), "merging and writing");
    }

    #[test]
    fn the_templates_are_right() {
        assert!(ProgressStyle::with_template(BAR).is_ok() && ProgressStyle::with_template(SPINNER).is_ok());
    }
}
