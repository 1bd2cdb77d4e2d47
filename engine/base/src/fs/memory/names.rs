//! The directories: names now, durable names, and the changes between the two.
//!
//! Every create, remove, rename and link is one [`Change`]. Syncing a directory makes the changes that touch it
//! durable. A power loss keeps any subset of the others, in whatever combination, with one restriction: *a rename is
//! atomic*, so no combination may lose a file that was only renamed. Therefore, going from the last change to the first,
//! a change that is kept keeps with it
//! - every earlier rename *away* from a name that it touches (else `rename a b; create a` could put the new `a` over
//!   the old one while `b` is not there yet), and
//! - if it is a rename, every earlier rename *onto* its old name (else `rename a b; rename b c` could leave `a` and `c`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use super::crash::Leaning;
use crate::random::Random;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File(u64),
    Directory(u64),
}

pub(super) const ROOT: u64 = 0;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) directory: u64,
    pub(super) name: Arc<str>,
}

/// One atomic change: the first name loses its node (if `from` is given), the other gets one or loses it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The old name of a rename.
    pub(super) from: Option<Name>,
    pub(super) name: Name,
    pub(super) node: Option<Node>,
}

impl Change {
    fn touches(&self) -> impl Iterator<Item = &Name> {
        self.from.iter().chain([&self.name])
    }
}

type Directory = BTreeMap<Arc<str>, Node>;

/// Directories by number.
#[derive(Clone, Default)]
pub(super) struct Tree {
    directories: BTreeMap<u64, Arc<Directory>>,
}

/// The parts of a path below the root; relative paths start there too.
fn parts(path: &Path) -> Vec<String> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    parts
}

impl Tree {
    pub(super) fn get(&self, directory: u64, name: &str) -> Option<Node> {
        self.directories.get(&directory)?.get(name).copied()
    }

    /// The entries of a directory, by name.
    pub(super) fn entries(&self, directory: u64) -> impl Iterator<Item = (&Arc<str>, Node)> {
        self.directories
            .get(&directory)
            .into_iter()
            .flat_map(|entries| entries.iter().map(|(name, &node)| (name, node)))
    }

    fn walk(&self, parts: &[String]) -> Result<Node, io::ErrorKind> {
        let mut node = Node::Directory(ROOT);
        for part in parts {
            let Node::Directory(directory) = node else { return Err(io::ErrorKind::NotADirectory) };
            node = self.get(directory, part).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    pub(super) fn find(&self, path: &Path) -> Result<Node, io::ErrorKind> {
        self.walk(&parts(path))
    }

    pub(super) fn find_file(&self, path: &Path) -> Result<u64, io::ErrorKind> {
        match self.find(path)? {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(io::ErrorKind::IsADirectory),
        }
    }

    pub(super) fn find_directory(&self, path: &Path) -> Result<u64, io::ErrorKind> {
        match self.find(path)? {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(io::ErrorKind::NotADirectory),
        }
    }

    /// The place of a name, taken or not, and what it stands for.
    pub(super) fn place(&self, path: &Path) -> Result<(Name, Option<Node>), io::ErrorKind> {
        let mut parts = parts(path);
        let name = parts.pop().ok_or(io::ErrorKind::IsADirectory)?;
        match self.walk(&parts)? {
            Node::Directory(directory) => {
                let node = self.get(directory, &name);
                Ok((Name { directory, name: name.into() }, node))
            }
            Node::File(_) => Err(io::ErrorKind::NotADirectory),
        }
    }

    /// The place of the first directory of a path that does not exist, if any.
    pub(super) fn first_missing_directory(&self, path: &Path) -> Result<Option<Name>, io::ErrorKind> {
        let mut directory = ROOT;
        for part in parts(path) {
            match self.get(directory, &part) {
                Some(Node::Directory(child)) => directory = child,
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory),
                None => return Ok(Some(Name { directory, name: part.into() })),
            }
        }
        Ok(None)
    }

    fn apply(&mut self, change: &Change) {
        if let Some(from) = &change.from {
            self.put(from, None);
        }
        self.put(&change.name, change.node);
    }

    fn put(&mut self, name: &Name, node: Option<Node>) {
        let entries = Arc::make_mut(self.directories.entry(name.directory).or_default());
        match node {
            Some(node) => entries.insert(Arc::clone(&name.name), node),
            None => entries.remove(&name.name),
        };
    }

    /// Numbers of all files that have a name, and of all directories, that can be reached from the root.
    fn reachable(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let (mut files, mut directories) = (BTreeSet::new(), BTreeSet::new());
        let mut left = vec![ROOT];
        while let Some(directory) = left.pop() {
            if !directories.insert(directory) {
                continue;
            }
            for (_, node) in self.entries(directory) {
                match node {
                    Node::File(file) => {
                        files.insert(file);
                    }
                    Node::Directory(child) => left.push(child),
                }
            }
        }
        (files, directories)
    }

    pub(super) fn reachable_files(&self) -> BTreeSet<u64> {
        self.reachable().0
    }

    fn all_files(&self) -> impl Iterator<Item = u64> {
        self.directories.values().flat_map(|entries| entries.values()).filter_map(|node| match node {
            Node::File(file) => Some(*file),
            Node::Directory(_) => None,
        })
    }
}

/// Names now and after a crash.
#[derive(Clone, Default)]
pub(super) struct Names {
    current: Tree,
    durable: Tree,
    /// Changes that are not durable, in the order in which they were made.
    unsynced: Vec<Arc<Change>>,
}

impl Names {
    pub(super) fn tree(&self) -> &Tree {
        &self.current
    }

    pub(super) fn change(&mut self, change: Change) {
        self.current.apply(&change);
        self.unsynced.push(Arc::new(change));
    }

    /// Makes the changes that touch a directory durable, and those that must have gone before them.
    pub(super) fn sync(&mut self, directory: u64) {
        let mut needed: BTreeSet<Name> = BTreeSet::new();
        let mut synced = vec![false; self.unsynced.len()];
        for (change, synced) in self.unsynced.iter().zip(&mut synced).rev() {
            if change.touches().any(|name| name.directory == directory || needed.contains(name)) {
                *synced = true;
                needed.extend(change.touches().cloned());
            }
        }
        let (durable, mut synced) = (&mut self.durable, synced.into_iter());
        self.unsynced.retain(|change| {
            let keep = !synced.next().unwrap_or_default();
            if !keep {
                durable.apply(change);
            }
            keep
        });
    }

    /// Every file that has a name now, or may have one after a crash.
    pub(super) fn files_ever_after(&self) -> BTreeSet<u64> {
        let changed = self.unsynced.iter().filter_map(|change| match change.node {
            Some(Node::File(file)) => Some(file),
            _ => None,
        });
        self.current.all_files().chain(self.durable.all_files()).chain(changed).collect()
    }

    /// Leaves what a power loss leaves.
    pub(super) fn power_loss(&mut self, random: &mut Random, leaning: Leaning) {
        let kept = self.choose_kept(random, leaning);
        let mut tree = std::mem::take(&mut self.durable);
        for change in kept.iter().zip(&self.unsynced).filter_map(|(&kept, change)| kept.then_some(change)) {
            tree.apply(change);
        }
        let (_, directories) = tree.reachable();
        tree.directories.retain(|directory, _| directories.contains(directory));
        *self = Names { current: tree.clone(), durable: tree, unsynced: Vec::new() };
    }

    fn choose_kept(&self, random: &mut Random, leaning: Leaning) -> Vec<bool> {
        let count = self.unsynced.len();
        let mut kept: Vec<bool> = match leaning {
            Leaning::Nothing => vec![false; count],
            Leaning::Everything => vec![true; count],
            // A journal keeps a beginning of the changes; anything else may keep any of them.
            Leaning::Mixed if random.one_in(3) => {
                let first_lost = random.index(count + 1);
                (0..count).map(|index| index < first_lost).collect()
            }
            Leaning::Mixed => (0..count).map(|_| random.one_in(2)).collect(),
        };
        let mut touched: BTreeSet<&Name> = BTreeSet::new();
        let mut renamed: BTreeSet<&Name> = BTreeSet::new();
        for (change, kept) in self.unsynced.iter().zip(&mut kept).rev() {
            if let Some(from) = &change.from {
                *kept |= touched.contains(from) || renamed.contains(&change.name);
            }
            if *kept {
                touched.extend(change.touches());
                renamed.extend(&change.from);
            }
        }
        kept
    }
}
