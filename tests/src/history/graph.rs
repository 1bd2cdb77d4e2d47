//! The order of transactions, and circles in it.
//!
//! Each transaction has two moments: `in`, when it took its snapshot, and `out`, when it committed. What a history shows
//! puts moments in order:
//!
//! | seen | order | why |
//! |---|---|---|
//! | wr: b read what a wrote | a.out → b.in | its snapshot has it |
//! | ww: b appended right after a | a.out → b.in | the first committer wins: b's snapshot has what it replaced |
//! | rw: b did not see what c wrote | b.in → c.out | its snapshot does not have it |
//! | rw, if b writes and is serialisable | b.out → c.out | what it read still held when it committed |
//! | time: a was over before b began | a.out → b.in | what is acknowledged is seen |
//! | always | a.in → a.out | |
//!
//! A database that keeps its promises has a real clock on which all of these hold, so there is no circle. The other way
//! round, a circle is an anomaly in Adya's sense, named by its dependencies (ww only: G0; ww and wr: G1c; one rw:
//! G-single, read skew; more: G2, write skew; with time: the same, or a stale read). For histories of snapshot isolation
//! alone this is the criterion of Cerone and Gotsman (JACM 2018): (SO ∪ WR ∪ WW) ; RW? is acyclic.
//!
//! A batch of updates has no snapshot: its two moments are one. Order in time goes through a chain of helpers, so that
//! the graph stays as small as the history.

use std::collections::HashMap;
use std::fmt;

use super::{History, Operation, Promise, Value, View};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// The second replaced what the first wrote.
    WriteWrite,
    /// The second saw what the first wrote.
    WriteRead,
    /// The first did not see what the second wrote.
    ReadWrite,
    /// The first was over before the second began.
    Time,
}

/// One step of a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The earlier transaction.
    pub from: usize,
    /// The later one.
    pub to: usize,
    /// Why.
    pub kind: EdgeKind,
}

/// A circle of dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Its steps; the last leads to where the first began.
    pub edges: Vec<Edge>,
}

impl Cycle {
    /// Its name in Adya's terms.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let count = |kind| self.edges.iter().filter(|edge| edge.kind == kind).count();
        match (count(EdgeKind::ReadWrite), count(EdgeKind::WriteRead), count(EdgeKind::Time)) {
            (0, _, 1..) => "contradiction with time",
            (0, 0, 0) => "G0, dirty write",
            (0, 1.., 0) => "G1c, circular information flow",
            (1, _, 0) => "G-single, read skew",
            (1, _, 1..) => "stale read",
            (2.., _, _) => "G2, write skew",
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name())?;
        for Edge { from, to, kind } in &self.edges {
            write!(f, " T{from} -{kind:?}-> T{to};")?;
        }
        Ok(())
    }
}

/// Moments and their order. Moment 2t is the `in` of transaction t, 2t + 1 its `out`, the rest is the chain of time.
struct Graph {
    after: Vec<Vec<(usize, Option<EdgeKind>)>>,
    records: usize,
}

impl Graph {
    fn new(records: usize) -> Graph {
        Graph { after: vec![Vec::new(); 2 * records], records }
    }

    fn add(&mut self, from: usize, to: usize, kind: Option<EdgeKind>) {
        self.after[from].push((to, kind));
    }

    fn add_moment(&mut self) -> usize {
        self.after.push(Vec::new());
        self.after.len() - 1
    }
}

fn out_of(record: usize) -> usize {
    2 * record + 1
}

/// Finds a circle in the order of the committed transactions.
pub(super) fn find_cycle(
    history: &History,
    writers: &HashMap<Value, usize>,
    views: &[View],
) -> Option<Cycle> {
    let records = &history.records;
    let into = |record: usize| match records[record].promise {
        Promise::Latest => out_of(record),
        Promise::Snapshot | Promise::Serializable => 2 * record,
    };
    let writes =
        |record: usize| records[record].operations.iter().any(|op| matches!(op, Operation::Append(..)));
    let mut graph = Graph::new(records.len());
    for record in 0..records.len() {
        graph.add(2 * record, out_of(record), None);
    }
    for list in history.last.values() {
        for pair in list.windows(2) {
            let (first, second) = (writers[&pair[0]], writers[&pair[1]]);
            if first != second {
                graph.add(out_of(first), into(second), Some(EdgeKind::WriteWrite));
            }
        }
    }
    for view in views {
        let list = history.last.get(&view.key).map_or(&[][..], Vec::as_slice);
        let reader = view.reader;
        if let Some(writer) = view.seen.checked_sub(1).map(|at| writers[&list[at]]) {
            graph.add(out_of(writer), into(reader), Some(EdgeKind::WriteRead));
        }
        if let Some(writer) = list.get(view.seen).map(|value| writers[value])
            && writer != reader
        {
            let lasting = records[reader].promise == Promise::Serializable && writes(reader);
            let from = if lasting { out_of(reader) } else { into(reader) };
            graph.add(from, out_of(writer), Some(EdgeKind::ReadWrite));
        }
    }
    add_time(&mut graph, history, into);
    let moments = cycle_of(&graph)?;
    Some(simplify(&graph, &moments))
}

/// A chain of moments, one per ending, from each ending to every later beginning.
fn add_time(graph: &mut Graph, history: &History, into: impl Fn(usize) -> usize) {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (number, record) in history.records.iter().enumerate().filter(|(_, record)| record.committed) {
        events.push((record.began, false, number));
        events.push((record.ended, true, number));
    }
    events.sort_unstable();
    let mut last = None;
    for (_, is_end, number) in events {
        if is_end {
            let moment = graph.add_moment();
            graph.add(out_of(number), moment, Some(EdgeKind::Time));
            if let Some(last) = last {
                graph.add(last, moment, Some(EdgeKind::Time));
            }
            last = Some(moment);
        } else if let Some(last) = last {
            graph.add(last, into(number), Some(EdgeKind::Time));
        }
    }
}

/// The moments of a shortest circle through some moment of one, or `None`.
fn cycle_of(graph: &Graph) -> Option<Vec<usize>> {
    // Depth-first, without recursion: 0 = new, 1 = on the path, 2 = done.
    let mut state = vec![0u8; graph.after.len()];
    for root in 0..graph.after.len() {
        let mut path = vec![(root, 0)];
        if state[root] != 0 {
            continue;
        }
        state[root] = 1;
        while let Some((moment, next)) = path.last_mut() {
            let Some(&(to, _)) = graph.after[*moment].get(*next) else {
                state[*moment] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    path.push((to, 0));
                }
                1 => return Some(shortest_circle(graph, to)),
                _ => {}
            }
        }
    }
    None
}

/// A shortest circle through `start`, which lies on one.
fn shortest_circle(graph: &Graph, start: usize) -> Vec<usize> {
    let mut from = HashMap::new();
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(moment) = queue.pop_front() {
        for &(to, _) in &graph.after[moment] {
            if to == start {
                let mut circle = vec![moment];
                while let Some(&before) = circle.last().filter(|&&at| at != start).and_then(|at| from.get(at))
                {
                    circle.push(before);
                }
                circle.reverse();
                return circle;
            }
            if let std::collections::hash_map::Entry::Vacant(entry) = from.entry(to) {
                entry.insert(moment);
                queue.push_back(to);
            }
        }
    }
    vec![start]
}

/// The circle in terms of transactions: steps within one are left out, and so is the chain of time.
fn simplify(graph: &Graph, moments: &[usize]) -> Cycle {
    let is_transaction = |moment: usize| moment < 2 * graph.records;
    let offset = moments.iter().position(|&moment| is_transaction(moment)).unwrap_or(0);
    let circle: Vec<usize> = moments[offset..]
        .iter()
        .chain(&moments[..offset])
        .chain(&moments[offset..=offset])
        .copied()
        .collect();
    let (mut edges, mut from) = (Vec::new(), circle[0] / 2);
    for pair in circle.windows(2) {
        let kind = graph.after[pair[0]].iter().find(|(to, _)| *to == pair[1]).and_then(|(_, kind)| *kind);
        let Some(kind) = kind else { continue };
        if is_transaction(pair[1]) {
            edges.push(Edge { from, to: pair[1] / 2, kind });
            from = pair[1] / 2;
        }
    }
    Cycle { edges }
}
