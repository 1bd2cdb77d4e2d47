//! Tables of rows in a database: the row layer over [`Db`].

use alluvium_base::Result;

use crate::db::Db;
use crate::row::{self, DynamicRow, Schema, TypedRow};

/// A table of rows in a database.
pub type Table<R = DynamicRow> = row::Table<Db, R>;
/// Row operations that are committed together.
pub type Batch = row::Batch<Db>;
/// A running scan.
pub type Scan<R = DynamicRow> = row::Scan<Db, R>;
/// A scan that is being described.
pub type ScanBuilder<R = DynamicRow> = row::ScanBuilder<Db, R>;

impl Db {
    /// Creates a table.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// use alluvium::{Db, Durability, Index, Options, Schema, Type, Value};
    /// let db = Db::open(directory.path(), Options::default())?;
    /// let people = db.create_table(
    ///     Schema::table("people")
    ///         .column("id", Type::U64)
    ///         .column("name", Type::Text)
    ///         .primary_key(["id"])
    ///         .index(Index::on("by_name").asc("name"))
    ///         .build()?,
    /// )?;
    /// let mut batch = db.batch()?;
    /// batch.insert(&people, &people.row_of([Value::from(1u64), Value::from("Ada")])?)?;
    /// batch.commit(Durability::Sync)?;
    /// let mut scan = people.scan().index("by_name").eq("Ada").run()?;
    /// assert_eq!(scan.next()?.unwrap().get("id")?.to_value(), Value::from(1u64));
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`; `ReadOnly`, `Closed`; those of writing the manifest.
    pub fn create_table(&self, schema: Schema) -> Result<Table> {
        self.tree()?.log("create a table")?;
        row::Table::create(self, schema)
    }

    /// Opens a table by its name; its columns are those of the catalog.
    ///
    /// # Errors
    /// `NotFound`; `Closed`.
    pub fn table(&self, name: &str) -> Result<Table> {
        row::Table::open(self, name)
    }

    /// Opens the table of a row type, creating it if there is none.
    ///
    /// # Errors
    /// `SchemaMismatch` if the stored schema is another one, saying what differs; those of
    /// [`create_table`](Db::create_table).
    pub fn open_or_create<R: TypedRow>(&self) -> Result<Table<R>> {
        row::Table::open_or_create(self)
    }

    /// Names of all tables, sorted.
    ///
    /// # Errors
    /// `Corrupt` if the catalog is not understood; `Closed`.
    pub fn tables(&self) -> Result<Vec<String>> {
        let tables = row::list_tables(self)?;
        Ok(tables.iter().map(|table| table.schema().name().to_owned()).collect())
    }

    /// Drops a table with its indexes: gone at once, and its space comes back in the background.
    ///
    /// # Errors
    /// `NotFound`; `ReadOnly`, `Closed`; those of writing the manifest.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let tree = self.tree()?;
        tree.log("drop a table")?;
        row::drop_table(self, name)?;
        tree.executor.wake();
        Ok(())
    }

    /// An empty batch of row operations.
    ///
    /// # Errors
    /// `Closed`.
    pub fn batch(&self) -> Result<Batch> {
        self.tree()?;
        Ok(row::Batch::new(self))
    }
}
