//! Keyspaces that are bulk-loaded and dropped as a whole.

use std::collections::BTreeMap;

use alluvium::base::random::Random;
use alluvium::{Db, Error, ErrorKind};

/// What is known about a loaded keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Present,
    Absent,
    /// A crash or a fault came while it was loaded or dropped.
    Either,
}

/// The loaded keyspaces by number: each holds as many entries as its number says, or does not exist.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    known: BTreeMap<u64, Known>,
    next: u64,
}

fn name(number: u64) -> String {
    format!("loaded {number}")
}

fn entries(number: u64) -> u64 {
    number * 37 % 300
}

impl Loaded {
    /// Loads another keyspace.
    pub(super) fn load(&mut self, db: &Db) -> Result<(), Error> {
        let number = self.next;
        self.next += 1;
        let mut numbers = 0..entries(number);
        let result = db.bulk_load_keyspace(&name(number), &mut |key, value| {
            let Some(entry) = numbers.next() else { return false };
            *key = entry.to_be_bytes().to_vec();
            *value = vec![entry as u8; (number % 200) as usize];
            true
        });
        let known = if result.is_ok() { Known::Present } else { Known::Either };
        self.known.insert(number, known);
        result.map(|_| ())
    }

    /// Drops one of the loaded keyspaces.
    pub(super) fn drop_one(&mut self, db: &Db, random: &mut Random) -> Result<(), Error> {
        let present: Vec<u64> =
            self.known.iter().filter(|(_, known)| **known == Known::Present).map(|(n, _)| *n).collect();
        if present.is_empty() {
            return Ok(());
        }
        let number = present[random.index(present.len())];
        let result = db.drop_keyspace(&name(number));
        self.known.insert(number, if result.is_ok() { Known::Absent } else { Known::Either });
        result
    }

    /// The process died during the last load or drop: what was believed to be done may not be.
    pub(super) fn doubt_last(&mut self, before: &Loaded) {
        for (number, known) in &mut self.known {
            if before.known.get(number) != Some(known) {
                *known = Known::Either;
            }
        }
    }

    /// A copy, to compare with later.
    pub(super) fn copy(&self) -> Loaded {
        Loaded { known: self.known.clone(), next: self.next }
    }

    /// Each keyspace is there as a whole or not at all, as far as known; from now on it is known.
    pub(super) fn check(&mut self, db: &Db) -> Result<(), Error> {
        let names = db.keyspaces()?;
        for (&number, known) in &mut self.known {
            let is_there = names.contains(&name(number));
            match known {
                Known::Present => assert!(is_there, "loaded keyspace {number} is gone"),
                Known::Absent => assert!(!is_there, "dropped keyspace {number} is back"),
                Known::Either => *known = if is_there { Known::Present } else { Known::Absent },
            }
            if is_there {
                check_entries(db, number)?;
            }
        }
        Ok(())
    }
}

fn check_entries(db: &Db, number: u64) -> Result<(), Error> {
    let keyspace = match db.keyspace(&name(number)) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => return Ok(()),
        other => other?,
    };
    let mut iter = keyspace.iter()?;
    let mut count = 0_u64;
    while iter.next()? {
        assert_eq!(iter.key(), count.to_be_bytes(), "keyspace {number}");
        assert_eq!(iter.value(), vec![count as u8; (number % 200) as usize], "keyspace {number}");
        count += 1;
    }
    assert_eq!(count, entries(number), "keyspace {number} is there in part");
    Ok(())
}
