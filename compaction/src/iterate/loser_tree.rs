//! A tree of losers (Knuth, TAOCP vol. 3, 5.4.1): finds the next of `k` sorted inputs with ⌈log₂ k⌉ comparisons, each
//! against a node on the path from the moved input to the root.
//!
//! Inputs are the leaves, at positions `k .. 2k` of an implicit binary tree; position `n` has the parent `n / 2`. Each
//! inner node holds the loser of the match between its two subtrees, position 0 the overall winner. Nodes carry the
//! *key head* of their input, so that a match is one integer comparison within one small array; what to do when heads
//! are equal is the caller's business.

/// An input with the head of its current key. Smaller heads win.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) head: u64,
    pub(super) child: usize,
}

#[derive(Debug, Default)]
pub(super) struct LoserTree {
    nodes: Vec<Node>,
    /// Winners of all matches, by position; only used while building.
    winners: Vec<Node>,
}

impl LoserTree {
    /// Plays all matches anew between inputs with the given heads. `wins_tie(a, b)` tells whether input `a` comes
    /// before input `b` if their heads are equal.
    pub(super) fn build(
        &mut self,
        heads: impl ExactSizeIterator<Item = u64>,
        mut wins_tie: impl FnMut(usize, usize) -> bool,
    ) {
        let inputs = heads.len();
        let none = Node { head: u64::MAX, child: 0 };
        self.winners.clear();
        self.winners.resize(inputs, none);
        self.winners.extend(heads.enumerate().map(|(child, head)| Node { head, child }));
        self.nodes.clear();
        self.nodes.resize(inputs, none);
        for position in (1..inputs).rev() {
            let (a, b) = (self.winners[2 * position], self.winners[2 * position + 1]);
            let a_wins = beats(a, b, &mut wins_tie);
            (self.winners[position], self.nodes[position]) = if a_wins { (a, b) } else { (b, a) };
        }
        if let Some(root) = self.nodes.first_mut() {
            // A single input has no match to play: its leaf is position 1.
            *root = self.winners[1];
        }
    }

    /// The input that comes first.
    pub(super) fn winner(&self) -> usize {
        self.nodes.first().map_or(0, |root| root.child)
    }

    /// Gives the winner a new head, after its input has moved, and finds the new winner.
    pub(super) fn replace_winner(&mut self, head: u64, mut wins_tie: impl FnMut(usize, usize) -> bool) {
        let Some(root) = self.nodes.first() else { return };
        let mut candidate = Node { head, child: root.child };
        let mut position = (self.nodes.len() + root.child) / 2;
        while position > 0 {
            let node = &mut self.nodes[position];
            if beats(*node, candidate, &mut wins_tie) {
                std::mem::swap(node, &mut candidate);
            }
            position /= 2;
        }
        self.nodes[0] = candidate;
    }

    /// Replaces every head without playing: the new heads must order the inputs as before, or tie them.
    pub(super) fn rehead(&mut self, mut head_of: impl FnMut(usize) -> u64) {
        for node in &mut self.nodes {
            node.head = head_of(node.child);
        }
    }
}

fn beats(a: Node, b: Node, wins_tie: &mut impl FnMut(usize, usize) -> bool) -> bool {
    if a.head == b.head { wins_tie(a.child, b.child) } else { a.head < b.head }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn yields_inputs_in_order(inputs in prop::collection::vec(prop::collection::vec(0u64..20, 0..6), 1..12)) {
            let mut inputs = inputs;
            inputs.iter_mut().for_each(|input| input.sort_unstable_by(|a, b| b.cmp(a)));
            let mut expected: Vec<u64> = inputs.concat();
            expected.sort_unstable();
            let head = |input: &Vec<u64>| input.last().copied().unwrap_or(u64::MAX);
            let mut tree = LoserTree::default();
            tree.build(inputs.iter().map(head), |a, b| a < b);
            let mut merged = Vec::new();
            while let Some(value) = inputs[tree.winner()].pop() {
                merged.push(value);
                tree.replace_winner(head(&inputs[tree.winner()]), |a, b| a < b);
            }
            prop_assert_eq!(merged, expected);
        }
    }
}
