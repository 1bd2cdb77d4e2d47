//! Whatever the memory, the threads and the duplicates: a load leaves what encoding the rows one by one and sorting
//! them leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium::row::{RowEncoder, Value, ValueRef};
use alluvium_tools::load::cli::OnDuplicate;
use alluvium_tools::load::error::LoadError;
use alluvium_tools::load::summary::Rows;
use proptest::prelude::*;

use crate::support::{EntryList, ROOMY, Run, TINY};

#[derive(Clone, Debug)]
struct Row {
    id: u8,
    email: Option<u8>,
    phone: Option<u8>,
    note: String,
}

fn any_row() -> impl Strategy<Value = Row> {
    (0..30u8, prop::option::of(0..40u8), prop::option::of(0..40u8), "[a-c\"\n]{0,3}")
        .prop_map(|(id, email, phone, note)| Row { id, email, phone, note })
}

impl Row {
    fn to_csv(&self) -> String {
        let number = |number: Option<u8>| number.map_or(String::new(), |number| number.to_string());
        let note = self.note.replace('"', "\"\"");
        format!("{},{},{},\"{note}\"\n", self.id, number(self.email), number(self.phone))
    }

    fn values(&self) -> [Value; 4] {
        let number = |number: Option<u8>| Value::from(number.map(i64::from));
        [Value::Int(self.id.into()), number(self.email), number(self.phone), Value::from(self.note.as_str())]
    }
}

const OPTIONS: [&str; 16] = [
    "--column",
    "id=i64",
    "--column",
    "email=i64",
    "--column",
    "phone=i64",
    "--column",
    "note=text",
    "--index",
    "by_note=note:2,id:desc;include=phone",
    "--unique-index",
    "by_email=email:desc",
    "--unique-index",
    "by_phone=phone",
    "--primary-key",
    "id",
];

/// Which rows are loaded, by the rules as documented: one row per primary key, then the unique indexes in the order
/// of the input.
fn survivors(rows: &[Row], mode: OnDuplicate) -> (Vec<usize>, Rows) {
    let mut by_key: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
    rows.iter().enumerate().for_each(|(at, row)| by_key.entry(row.id).or_default().push(at));
    let pick = |same: &Vec<usize>| if mode == OnDuplicate::Last { same[same.len() - 1] } else { same[0] };
    let mut chosen: Vec<usize> = by_key.values().map(pick).collect();
    chosen.sort_unstable();
    let gone = (rows.len() - chosen.len()) as u64;
    let (mut emails, mut phones, mut loaded) = (vec![false; 40], vec![false; 40], Vec::new());
    for at in chosen {
        let taken = |held: &[bool], key: Option<u8>| key.is_some_and(|key| held[usize::from(key)]);
        if taken(&emails, rows[at].email) || taken(&phones, rows[at].phone) {
            continue;
        }
        rows[at].email.into_iter().for_each(|key| emails[usize::from(key)] = true);
        rows[at].phone.into_iter().for_each(|key| phones[usize::from(key)] = true);
        loaded.push(at);
    }
    let superseded = if matches!(mode, OnDuplicate::First | OnDuplicate::Last) { gone } else { 0 };
    let (read, loaded_count) = (rows.len() as u64, loaded.len() as u64);
    let rejected = read - superseded - loaded_count;
    (loaded, Rows { read, loaded: loaded_count, rejected, superseded })
}

fn sorted_entries<'a>(run: &Run, rows: impl Iterator<Item = &'a Row>) -> Vec<EntryList> {
    let encoder = RowEncoder::new(Arc::new(run.plan().unwrap().schema));
    let mut targets = vec![EntryList::new(); 4];
    for row in rows {
        let values = row.values();
        let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        encoder.encode_row(&values, &mut key, &mut value).unwrap();
        for index in 0..3 {
            let (mut entry_key, mut entry_value) = (Vec::new(), Vec::new());
            encoder.encode_index_entry(index, &values, &key, &mut entry_key, &mut entry_value).unwrap();
            targets[index + 1].push((entry_key, entry_value));
        }
        targets[0].push((key, value));
    }
    targets.iter_mut().for_each(|entries| entries.sort());
    targets
}

/// The rows in two files, so that places in different inputs meet.
fn written(rows: &[Row], cut: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, part) in [("a.csv", &rows[..cut]), ("b.csv", &rows[cut..])] {
        let body: String = part.iter().map(Row::to_csv).collect();
        std::fs::write(directory.path().join(name), format!("id,email,phone,note\n{body}")).unwrap();
    }
    directory
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_mode_in_little_and_much_memory(
        rows in prop::collection::vec(any_row(), 1..120),
        cut in any::<prop::sample::Index>(),
        threads in 1..4u8,
        tiny: bool,
    ) {
        let directory = written(&rows, cut.index(rows.len() + 1));
        let threads = threads.to_string();
        for (name, mode) in [("first", OnDuplicate::First), ("last", OnDuplicate::Last), ("reject", OnDuplicate::Reject)] {
            let more = ["--on-duplicate", name, "--max-errors", "100%", "--threads", &threads];
            let mut run = Run::new(directory.path(), &[&OPTIONS[..], &more].concat(), &["a.csv", "b.csv"]);
            run.budget = if tiny { TINY } else { ROOMY };
            let (summary, entries) = run.load().unwrap();
            let (loaded, expected) = survivors(&rows, mode);
            prop_assert_eq!(summary.rows, expected);
            let expected = sorted_entries(&run, loaded.iter().map(|&at| &rows[at]));
            prop_assert_eq!(&entries, &expected, "{}", name);
        }
    }

    #[test]
    fn with_error_all_rows_are_loaded_or_none(
        rows in prop::collection::vec(any_row(), 1..12),
        tiny: bool,
    ) {
        let directory = written(&rows, rows.len() / 2);
        let mut run = Run::new(directory.path(), &OPTIONS, &["a.csv", "b.csv"]);
        run.budget = if tiny { TINY } else { ROOMY };
        let (loaded, _) = survivors(&rows, OnDuplicate::Error);
        match run.load() {
            Ok((summary, entries)) => {
                prop_assert_eq!(loaded.len(), rows.len());
                prop_assert_eq!(summary.exit_code(), 0);
                prop_assert_eq!(entries, sorted_entries(&run, rows.iter()));
            }
            Err(error) => {
                prop_assert!(loaded.len() < rows.len(), "{}", error);
                prop_assert!(matches!(error, LoadError::TooManyErrors(_)), "{}", error);
            }
        }
    }
}
