//! The one narrow door between rows and the tree below.
//!
//! Rows need an ordered store of keyspaces with snapshots, atomic batches and a small catalog; nothing else of the
//! engine is visible here. Dispatch is static, so the door costs nothing; and because it is narrow, the whole row layer
//! runs over a plain sorted map in its tests ([`MapStore`](super::MapStore)).

use std::ops::Deref;
use std::path::PathBuf;

use alluvium_base::Result;
use alluvium_base::key::KeyspaceId;

use super::latches::Latches;
use super::premise::Premise;

/// An ordered store that can carry tables. A clone is another handle of the same store.
pub trait Store: Clone + Send + Sync + 'static {
    /// A value that stays readable while it is held.
    type Value: Deref<Target = [u8]> + Send + Sync + 'static;
    /// A fixed view of everything; owns what it needs.
    type Snapshot: Clone + Send + Sync + 'static;
    /// A cursor; owns the snapshot it reads from.
    type Iter: StoreIter;
    /// Operations to be applied together.
    type Batch: StoreBatch;
    /// How durable a commit is to be.
    type Durability: Copy + Send;
    /// Stands for a commit that is visible and perhaps not durable yet.
    type Ticket: Send;

    /// Takes a snapshot of everything visible now.
    ///
    /// # Errors
    /// `Closed`.
    fn snapshot(&self) -> Result<Self::Snapshot>;

    /// The value of a key at a snapshot, or the newest visible one.
    ///
    /// # Errors
    /// Those of the store.
    fn get(
        &self,
        at: Option<&Self::Snapshot>,
        keyspace: KeyspaceId,
        key: &[u8],
    ) -> Result<Option<Self::Value>>;

    /// A cursor over the keys in `[start, end)`, or from `start` on. `start` is not above `end`.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(
        &self,
        at: &Self::Snapshot,
        keyspace: KeyspaceId,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<Self::Iter>;

    /// Waits until a batch of about `bytes` bytes may be written. Called before any latch is taken, so that whoever
    /// waits here holds up nobody.
    ///
    /// # Errors
    /// `Overloaded`, `Closed`, `ReadOnly`.
    fn admit(&self, bytes: u64) -> Result<()>;

    /// Applies a batch that has been admitted: atomic, and visible to every later `get` and `snapshot` when this
    /// returns. Called with latches held, so it waits for nothing that another commit with latches might hold up.
    ///
    /// # Errors
    /// Those of the store; the batch then has not happened.
    fn apply(&self, batch: &Self::Batch, durability: Self::Durability) -> Result<Self::Ticket>;

    /// Applies a batch as [`apply`](Store::apply) does, if nothing that `premise` names has been written since its
    /// snapshot; nobody writes between the check and the application.
    ///
    /// # Errors
    /// `Conflict` if the premise does not hold; as [`apply`](Store::apply). The batch then has not happened.
    fn apply_if(
        &self,
        batch: &Self::Batch,
        premise: &Premise<Self::Snapshot>,
        durability: Self::Durability,
    ) -> Result<Self::Ticket>;

    /// Says whether `premise` holds at this moment.
    ///
    /// # Errors
    /// `Conflict` if it does not; those of the store.
    fn check(&self, premise: &Premise<Self::Snapshot>) -> Result<()>;

    /// Waits until a commit is as durable as it was asked to be. Called without latches.
    ///
    /// # Errors
    /// `DurabilityUnknown`.
    fn wait(&self, ticket: Self::Ticket) -> Result<()>;

    /// The latches of this store's rows.
    fn latches(&self) -> &Latches;

    /// The file that holds the catalog, for errors.
    fn catalog_file(&self) -> PathBuf;

    /// The catalog entry under `key`.
    ///
    /// # Errors
    /// Those of the store.
    fn catalog_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// All catalog entries whose keys begin with `prefix`, in key order.
    ///
    /// # Errors
    /// Those of the store.
    fn catalog_list(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// Changes the catalog: atomic, and durable when this returns.
    ///
    /// # Errors
    /// `Conflict` if the entry is not what the change expects; those of the store.
    fn catalog_change(&self, change: &CatalogChange) -> Result<()>;

    /// Reserves `count` keyspaces that have never been used and returns the first; the others follow it.
    ///
    /// # Errors
    /// Those of the store.
    fn allocate_keyspaces(&self, count: u32) -> Result<KeyspaceId>;
}

/// Refuses a table of another store: its keyspaces have the same numbers as those of strangers here. Handles of one
/// store share their latches, those of different stores never do.
///
/// # Errors
/// `InvalidArgument`.
pub(super) fn check_same_store<S: Store>(ours: &S, theirs: &S, table: &str) -> Result<()> {
    if std::ptr::eq(ours.latches(), theirs.latches()) {
        return Ok(());
    }
    Err(alluvium_base::Error::invalid(format!(
        "table {table} belongs to another database than the batch or transaction; open it from the same handle"
    )))
}

/// Operations on keys that are applied together. A later operation on a key wins over an earlier one.
pub trait StoreBatch: Default + Send {
    /// Sets a key.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`.
    fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key, whatever its history.
    ///
    /// # Errors
    /// `KeyTooLong`.
    fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<()>;

    /// Removes a key that exists and has been put exactly once since it was last removed.
    ///
    /// # Errors
    /// `KeyTooLong`.
    fn delete_once(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<()>;
}

/// A cursor over the keys of one keyspace between two bounds. Used in one direction only, and not after its end.
pub trait StoreIter: Send + 'static {
    /// Moves to the next key, at first to the first one; false if there is none.
    ///
    /// # Errors
    /// Those of the store; a failed cursor stays failed.
    fn next(&mut self) -> Result<bool>;

    /// Moves to the previous key, at first to the last one; false if there is none.
    ///
    /// # Errors
    /// As [`next`](StoreIter::next).
    fn prev(&mut self) -> Result<bool>;

    /// The current key, without its keyspace.
    fn key(&self) -> &[u8];

    /// The current value.
    fn value(&self) -> &[u8];
}

/// A conditional change of one catalog entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogChange {
    /// The entry.
    pub key: Vec<u8>,
    /// What the entry must hold for the change to happen; `None` if there must be none.
    pub expected: Option<Vec<u8>>,
    /// What it holds afterwards; `None` if it is removed.
    pub value: Option<Vec<u8>>,
    /// Keyspaces that are dropped, with everything in them, in the same step.
    pub dropped: Vec<KeyspaceId>,
}
