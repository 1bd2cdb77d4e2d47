//! What a database should hold: the oracle, which lives outside of it.

use std::collections::BTreeMap;

/// A keyspace.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A row of the table `hot`, without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowData {
    /// Unique.
    pub owner: String,
    /// In a descending index that covers `note`.
    pub counter: i64,
    /// In an index of its first three bytes.
    pub note: Option<Vec<u8>>,
}

/// The rows of the table, by id.
pub type Rows = BTreeMap<u64, RowData>;

/// Everything that a database holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The two keyspaces that are written to.
    pub maps: [Map; 2],
    /// The rows.
    pub rows: Rows,
}

/// One change of a state.
#[derive(Clone, Debug)]
pub enum Change {
    /// A key of a keyspace gets a value or loses it.
    Key(usize, Vec<u8>, Option<Vec<u8>>),
    /// A row comes, changes or goes.
    Row(u64, Option<RowData>),
}

impl State {
    /// Makes one change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Key(map, key, Some(value)) => _ = self.maps[*map].insert(key.clone(), value.clone()),
            Change::Key(map, key, None) => _ = self.maps[*map].remove(key),
            Change::Row(id, Some(row)) => _ = self.rows.insert(*id, row.clone()),
            Change::Row(id, None) => _ = self.rows.remove(id),
        }
    }

    /// Two rows with one owner, if there are such.
    pub fn owner_twice(&self) -> bool {
        let mut owners: Vec<&str> = self.rows.values().map(|row| row.owner.as_str()).collect();
        owners.sort_unstable();
        owners.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// A commit, as far as the caller was told.
#[derive(Clone, Debug)]
pub struct Commit {
    /// What it changed.
    pub changes: Vec<Change>,
}

/// What has happened since the last time that the files were known to hold everything.
#[derive(Debug, Default)]
pub struct History {
    /// The state before the first commit.
    base: State,
    /// Commits that were visible, in order.
    commits: Vec<Commit>,
    /// The state after all of them.
    pub now: State,
    /// Number of leading commits that a power loss must leave: acknowledged as durable.
    durable: usize,
    /// Number of leading commits that the end of the process must leave: acknowledged at all.
    acknowledged: usize,
}

/// What ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process was killed: every acknowledged commit must be there.
    Kill,
    /// The machine lost power: every commit that was acknowledged as durable must be there.
    PowerLoss,
}

impl History {
    /// A commit became visible, without being acknowledged.
    pub fn push(&mut self, changes: Vec<Change>) {
        changes.iter().for_each(|change| self.now.apply(change));
        self.commits.push(Commit { changes });
    }

    /// Everything so far was acknowledged.
    pub fn is_acknowledged(&mut self) {
        self.acknowledged = self.commits.len();
    }

    /// Everything so far was acknowledged as durable.
    pub fn is_durable(&mut self) {
        self.is_acknowledged();
        self.durable = self.commits.len();
    }

    /// How many commits there were, and how many of them must be there after a kill and after a power loss.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{} commits, {} acknowledged, {} durable",
            self.commits.len(),
            self.acknowledged,
            self.durable
        )
    }

    /// Forgets how the present state came about: it is all that a crash may leave.
    pub fn settle(&mut self) {
        self.base = self.now.clone();
        self.commits.clear();
        self.durable = 0;
        self.acknowledged = 0;
    }

    /// Accepts `found` as what a crash left. It must be the state after some number of commits, at least those that the
    /// crash must leave; `unsure` is the commit that was under way, if any.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn recover(
        &mut self,
        found: &State,
        crash: Crash,
        unsure: Option<Vec<Change>>,
    ) -> Result<(), String> {
        let least = if crash == Crash::Kill { self.acknowledged } else { self.durable };
        if let Some(changes) = unsure {
            self.push(changes);
        }
        let mut state = self.base.clone();
        let mut best: Option<usize> = (state == *found).then_some(0);
        for (number, commit) in self.commits.iter().enumerate() {
            commit.changes.iter().for_each(|change| state.apply(change));
            if state == *found {
                best = Some(number + 1);
            }
        }
        match best {
            None => Err(format!("the state is that after no number of commits: {}", self.difference(found))),
            Some(kept) if kept < least => {
                Err(format!("{kept} commits are there, {least} must be after a {crash:?}"))
            }
            Some(_) => {
                self.now = found.clone();
                self.settle();
                Ok(())
            }
        }
    }

    /// The first difference to the newest state, in words.
    #[must_use]
    pub fn difference(&self, found: &State) -> String {
        for (which, (found, now)) in found.maps.iter().zip(&self.now.maps).enumerate() {
            if let Some(key) = found.keys().chain(now.keys()).find(|key| found.get(*key) != now.get(*key)) {
                let lens = (found.get(key).map(Vec::len), now.get(key).map(Vec::len));
                return format!("keyspace {which}, key {key:?}: found and expected lengths {lens:?}");
            }
        }
        let (found, now) = (&found.rows, &self.now.rows);
        let id = found.keys().chain(now.keys()).find(|id| found.get(*id) != now.get(*id));
        id.map_or_else(
            || "none".to_owned(),
            |id| format!("row {id}: found {:?}, expected {:?}", found.get(id), now.get(id)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: u8, value: u8) -> Vec<Change> {
        vec![Change::Key(0, vec![key], Some(vec![value]))]
    }

    fn history() -> History {
        let mut history = History::default();
        history.push(put(1, 1));
        history.push(put(2, 2));
        history.is_durable();
        history.push(put(3, 3));
        history.is_acknowledged();
        history
    }

    fn state(keys: &[u8]) -> State {
        let mut state = State::default();
        keys.iter().for_each(|&key| put(key, key).iter().for_each(|change| state.apply(change)));
        state
    }

    #[test]
    fn a_prefix_with_all_that_was_durable_is_accepted_and_nothing_else() {
        assert!(history().recover(&state(&[1, 2]), Crash::PowerLoss, None).is_ok());
        assert!(history().recover(&state(&[1, 2, 3]), Crash::PowerLoss, None).is_ok());
        assert!(history().recover(&state(&[1]), Crash::PowerLoss, None).is_err(), "a durable commit is lost");
        assert!(history().recover(&state(&[1, 3]), Crash::PowerLoss, None).is_err(), "a hole");
        assert!(
            history().recover(&state(&[1, 2]), Crash::Kill, None).is_err(),
            "a buffered commit is lost by a kill"
        );
    }

    #[test]
    fn the_commit_under_way_may_be_there_or_not() {
        assert!(history().recover(&state(&[1, 2, 3, 4]), Crash::Kill, Some(put(4, 4))).is_ok());
        assert!(history().recover(&state(&[1, 2, 3]), Crash::Kill, Some(put(4, 4))).is_ok());
        assert!(history().recover(&state(&[1, 2, 3, 4]), Crash::Kill, None).is_err());
    }
}
