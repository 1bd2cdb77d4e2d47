//! What the figures of an overview mean, in words. A pure function, so that each sentence has a test.

use super::text::{Percent, count};
use super::usage::Garbage;
use crate::load::cli::size::Size;

/// What the sentences are made from.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Bytes in table files.
    pub bytes: u64,
    /// Table files.
    pub files: u64,
    /// Entries in them.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// The keyspace with the greatest share of tombstones: its name, its tombstones, its entries.
    pub densest: Option<(String, u64, u64)>,
    /// Sublevels of level 0.
    pub level0_sublevels: usize,
    /// Sublevels at which level 0 is compacted.
    pub level0_trigger: usize,
    /// The fullest level below 0, and how full it is.
    pub fullest: Option<(u8, f64)>,
    /// Estimate of the bytes that compaction has to move.
    pub pending_bytes: u64,
    /// Dead bytes.
    pub garbage: Garbage,
    /// Bytes of dropped keyspaces.
    pub dropped_bytes: u64,
    /// Bytes of table files that no version names.
    pub left_over_bytes: u64,
    /// Operations in the log that are not in table files.
    pub log_operations: u64,
    /// Bytes of them.
    pub log_bytes: u64,
    /// Why the log cannot be read.
    pub log_problem: Option<String>,
    /// Who has the database open.
    pub open_in: Option<String>,
    /// True if the database was closed in order.
    pub closed_in_order: bool,
}

/// From this share of tombstones on, in per cent, scans notice them.
const TOMBSTONES_NOTABLE: f64 = 5.0;
/// Files smaller than this, in bytes and on average, are small.
const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Fewer files than this are not many.
const MANY_FILES: u64 = 100;
/// Garbage from this share on, in per cent, is worth a sentence.
const GARBAGE_NOTABLE: f64 = 20.0;

/// The sentences, most important first.
#[must_use]
pub fn verdicts(facts: &Facts) -> Vec<String> {
    let sentences = [
        log_problem(facts),
        unclean(facts),
        level0(facts),
        levels(facts),
        tombstones(facts),
        garbage(facts),
        dropped(facts),
        left_over(facts),
        small_files(facts),
        log(facts),
    ];
    let mut sentences: Vec<String> = sentences.into_iter().flatten().collect();
    if facts.entries == 0 && facts.log_operations == 0 && facts.log_problem.is_none() {
        sentences.insert(0, "the database is empty".to_owned());
    }
    sentences
}

fn log_problem(facts: &Facts) -> Option<String> {
    let problem = facts.log_problem.as_ref()?;
    Some(match &facts.open_in {
        Some(_) => format!("the log cannot be read at this moment, while it is being written: {problem}"),
        None => format!("the log cannot be read, so the database cannot be opened: {problem}; run verify"),
    })
}

fn unclean(facts: &Facts) -> Option<String> {
    let unclean = !facts.closed_in_order && facts.open_in.is_none() && facts.log_problem.is_none();
    unclean.then(|| {
        "the last process did not close the database (it was killed, or the machine went down); the next one to open it \
         for writing recovers what is in the log"
            .to_owned()
    })
}

fn level0(facts: &Facts) -> Option<String> {
    let (sublevels, trigger) = (facts.level0_sublevels as u64, facts.level0_trigger as u64);
    Some(match facts.level0_sublevels {
        0 if facts.entries == 0 => return None,
        0 => "level 0 is empty: a read looks into one file per level at most".to_owned(),
        _ if sublevels < trigger => {
            let sublevels = count(sublevels, "sublevel");
            format!("level 0 is shallow: {sublevels}; it is compacted from {trigger} on")
        }
        _ if sublevels < trigger * 3 => {
            format!("level 0 has {sublevels} sublevels and is due for compaction (from {trigger} on)")
        }
        _ => format!(
            "level 0 is deep: {sublevels} sublevels, each of which every read looks into; compaction is behind \
             (it starts at {trigger})"
        ),
    })
}

fn levels(facts: &Facts) -> Option<String> {
    let (level, score) = facts.fullest.filter(|(_, score)| *score >= 1.0)?;
    let pending = match facts.pending_bytes {
        0 => String::new(),
        bytes => format!("; about {} are to be moved in all", Size(bytes)),
    };
    Some(format!("level {level} is over its target ({score:.1} times) and due for compaction{pending}"))
}

fn tombstones(facts: &Facts) -> Option<String> {
    let Percent(share) = Percent::of(facts.tombstones, facts.entries);
    if let Some((name, tombstones, entries)) = &facts.densest
        && Percent::of(*tombstones, *entries).0 >= TOMBSTONES_NOTABLE.max(share * 2.0)
    {
        return Some(format!(
            "{} of the entries of {name} are tombstones: scans step over them until compaction drops them",
            Percent::of(*tombstones, *entries)
        ));
    }
    match facts.tombstones {
        0 if facts.entries == 0 => None,
        0 => Some("there are no tombstones".to_owned()),
        _ if share >= TOMBSTONES_NOTABLE => Some(format!(
            "{} of the entries are tombstones: scans step over them until compaction drops them",
            Percent(share)
        )),
        _ => Some(format!("few of the entries are tombstones ({})", Percent(share))),
    }
}

fn garbage(facts: &Facts) -> Option<String> {
    if facts.bytes == 0 {
        return None;
    }
    let Garbage { certain_bytes, possible_bytes } = facts.garbage;
    let (certain, possible) =
        (Percent::of(certain_bytes, facts.bytes), Percent::of(possible_bytes, facts.bytes));
    Some(match (certain.0 >= GARBAGE_NOTABLE, possible.0 >= GARBAGE_NOTABLE) {
        (true, _) => format!("{certain} of the table files are garbage; a compaction would free that"),
        (false, true) => format!("garbage: between {certain} and {possible}; compacting tells, and frees it"),
        (false, false) if possible_bytes == 0 => "there is no garbage".to_owned(),
        (false, false) => format!("there is little garbage (at most {possible})"),
    })
}

fn dropped(facts: &Facts) -> Option<String> {
    (facts.dropped_bytes > 0).then(|| {
        format!(
            "{} belong to dropped tables, indexes or keyspaces and go as compaction comes by",
            Size(facts.dropped_bytes)
        )
    })
}

fn left_over(facts: &Facts) -> Option<String> {
    (facts.left_over_bytes > 0 && facts.open_in.is_none()).then(|| {
        let bytes = Size(facts.left_over_bytes);
        format!(
            "{bytes} of table files are in use no more (replaced, or left by an interrupted job); the next opening for \
             writing removes them"
        )
    })
}

fn small_files(facts: &Facts) -> Option<String> {
    let average = facts.bytes / facts.files.max(1);
    (facts.files >= MANY_FILES && average < SMALL_FILE_BYTES).then(|| {
        format!(
            "{} of {} on average: many and small; compaction merges them",
            count(facts.files, "table file"),
            Size(average)
        )
    })
}

fn log(facts: &Facts) -> Option<String> {
    (facts.log_operations > 0).then(|| {
        format!(
            "{} ({}) are in the log and not yet in table files; the figures above are without them",
            count(facts.log_operations, "operation"),
            Size(facts.log_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Facts {
        Facts {
            bytes: 100 << 20,
            files: 4,
            entries: 1_000_000,
            level0_trigger: 4,
            closed_in_order: true,
            ..Facts::default()
        }
    }

    #[test]
    fn a_sound_database_gets_good_words_only() {
        assert_eq!(
            verdicts(&sound()),
            [
                "level 0 is empty: a read looks into one file per level at most",
                "there are no tombstones",
                "there is no garbage",
            ]
        );
        let empty = Facts { closed_in_order: true, ..Facts::default() };
        assert_eq!(verdicts(&empty), ["the database is empty"]);
    }

    /// A case: what changes, and a part of the sentence that it must bring.
    type Case = (fn(&mut Facts), &'static str);

    #[test]
    fn each_condition_has_its_sentence() {
        let cases: [Case; 17] = [
            (|f| f.level0_sublevels = 1, "level 0 is shallow: 1 sublevel; it is compacted from 4 on"),
            (|f| f.level0_sublevels = 5, "level 0 has 5 sublevels and is due"),
            (|f| f.level0_sublevels = 12, "level 0 is deep: 12 sublevels"),
            (|f| f.tombstones = 120_000, "12 % of the entries are tombstones"),
            (|f| f.tombstones = 1000, "few of the entries are tombstones (0.1 %)"),
            (
                |f| (f.tombstones, f.densest) = (20_000, Some(("t.by_x".into(), 10_000, 20_000))),
                "50 % of the entries of t.by_x are tombstones",
            ),
            (|f| f.fullest = Some((4, 1.5)), "level 4 is over its target (1.5 times)"),
            (
                |f| f.garbage = Garbage { certain_bytes: 30 << 20, possible_bytes: 90 << 20 },
                "30 % of the table files are garbage",
            ),
            (
                |f| f.garbage = Garbage { certain_bytes: 5 << 20, possible_bytes: 40 << 20 },
                "garbage: between 5.0 % and 40 %",
            ),
            (
                |f| f.garbage = Garbage { certain_bytes: 1 << 20, possible_bytes: 2 << 20 },
                "little garbage (at most 2.0 %)",
            ),
            (|f| f.dropped_bytes = 1 << 20, "1 MiB belong to dropped tables,"),
            (|f| f.left_over_bytes = 1 << 20, "1 MiB of table files are in use no more"),
            (|f| f.files = 1000, "1,000 table files of 102.4 KiB on average: many and small"),
            (|f| (f.log_operations, f.log_bytes) = (3, 90), "3 operations (90 B) are in the log"),
            (|f| f.log_problem = Some("x".into()), "the database cannot be opened: x; run verify"),
            (|f| f.closed_in_order = false, "did not close the database"),
            (
                |f| (f.log_problem, f.open_in) = (Some("x".into()), Some("process 1".into())),
                "at this moment, while it is being written: x",
            ),
        ];
        for (change, expected) in cases {
            let mut facts = sound();
            change(&mut facts);
            let words = verdicts(&facts);
            assert!(words.iter().any(|sentence| sentence.contains(expected)), "{expected}: {words:#?}");
        }
    }
}
