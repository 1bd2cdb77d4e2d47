//! A table: its handle, and reading single rows.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use alluvium_base::{Error, Result};

use super::as_value::KeyValues;
use super::catalog::{TableDefinition, create_table, find_table};
use super::key_decoder::DecodedKey;
use super::record::{Binding, DynamicRow, Row, TypedRow};
use super::row_codec::{GivenValues, TableCodec, check_key_len};
use super::schema::Schema;
use super::store::Store;
use super::value::ValueRef;
use super::view::RowView;

/// What all handles of one table share.
pub(super) struct TableCore<S: Store> {
    pub(super) store: S,
    pub(super) definition: TableDefinition,
    pub(super) codec: TableCodec,
}

impl<S: Store> TableCore<S> {
    /// The primary key of `key`, encoded.
    pub(super) fn encode_key(&self, key: &impl KeyValues, out: &mut Vec<u8>) -> Result<()> {
        let codec = &self.codec;
        let (start, mut given) = (out.len(), 0);
        key.for_each_value(&mut |value| {
            let part = codec.primary.get(given);
            given += 1;
            let Some((part, column)) =
                part.and_then(|part| Some((part, codec.schema.columns.get(part.position)?)))
            else {
                return Ok(());
            };
            codec.encode_part(part, value.coerce_for(&column.name, column.ty)?, out)
        })?;
        if given != codec.primary.len() {
            let columns = codec.schema.show_parts(codec.schema.primary_key());
            let table = codec.schema.name();
            return Err(Error::invalid(format!(
                "{given} values given for the primary key ({columns}) of {table}"
            )));
        }
        check_key_len(out.len() - start, || format!("the primary key of {}", codec.schema.name()))
    }

    /// Encodes a row: appends its primary key to `key` and the rest to `row`.
    pub(super) fn encode<R: Row>(
        &self,
        binding: &Binding,
        from: &R,
        key: &mut Vec<u8>,
        row: &mut Vec<u8>,
    ) -> Result<()> {
        let mut values = vec![ValueRef::Null; self.codec.schema.columns.len()];
        from.write(&self.codec.schema, binding, &mut values)?;
        let source = GivenValues { schema: &self.codec.schema, values: &values };
        self.codec.encode_primary_key(&source, key)?;
        self.codec.encode_row(&source, row)
    }
}

/// A handle of a table in the store `S`, whose rows are read and written as `R`. Cheap to clone, usable from any
/// thread.
///
/// It keeps the schema that it was opened with. Rows are written with a [`Batch`](super::Batch) and read with
/// [`get`](Table::get), [`get_ref`](Table::get_ref) and [`scan`](Table::scan).
///
/// ```
/// use alluvium::row::{Batch, DynamicRow, Index, MapStore, Schema, Table, Type};
/// let store = MapStore::new();
/// let schema = Schema::table("places")
///     .column("id", Type::U64)
///     .column("name", Type::Text)
///     .primary_key(["id"])
///     .index(Index::on("by_name").asc("name"))
///     .build()?;
/// let places: Table<MapStore> = Table::create(&store, schema)?;
/// let mut batch = Batch::new(&store);
/// batch.insert(&places, &places.new_row().with("id", 7)?.with("name", "delta")?)?;
/// batch.commit(())?;
/// let mut scan = places.scan().index("by_name").eq("delta").run()?;
/// while let Some(row) = scan.next()? {
///     assert_eq!(row.get("id")?.to_string(), "7");
/// }
/// # Ok::<(), alluvium_base::Error>(())
/// ```
pub struct Table<S: Store, R: Row = DynamicRow> {
    pub(super) core: Arc<TableCore<S>>,
    pub(super) binding: Arc<Binding>,
    row: PhantomData<fn() -> R>,
}

impl<S: Store, R: Row> Clone for Table<S, R> {
    fn clone(&self) -> Table<S, R> {
        Table { core: Arc::clone(&self.core), binding: Arc::clone(&self.binding), row: PhantomData }
    }
}

impl<S: Store, R: Row> fmt::Debug for Table<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.name()).field("definition", self.definition()).finish()
    }
}

impl<S: Store, R: Row> Table<S, R> {
    /// A handle of the table that `definition` describes.
    ///
    /// # Errors
    /// `SchemaMismatch` if its rows are not of type `R`.
    pub fn of(store: &S, definition: TableDefinition) -> Result<Table<S, R>> {
        let binding = Arc::new(R::bind(definition.schema())?);
        let codec = TableCodec::new(Arc::clone(definition.schema()));
        Ok(Table {
            core: Arc::new(TableCore { store: store.clone(), definition, codec }),
            binding,
            row: PhantomData,
        })
    }

    /// Creates a table; its entry in the catalog is durable when this returns.
    ///
    /// # Errors
    /// `AlreadyExists`; `SchemaMismatch` if rows of `schema` are not of type `R`.
    pub fn create(store: &S, schema: Schema) -> Result<Table<S, R>> {
        R::bind(&schema)?;
        Table::of(store, create_table(store, schema)?)
    }

    /// Opens a table.
    ///
    /// # Errors
    /// `NotFound`; `SchemaMismatch` if its rows are not of type `R`.
    pub fn open(store: &S, name: &str) -> Result<Table<S, R>> {
        let definition = find_table(store, name)?;
        Table::of(store, definition.ok_or_else(|| Error::not_found(format!("table {name}")))?)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.codec.schema.name()
    }

    /// The schema that this handle knows.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.core.codec.schema
    }

    /// Schema and keyspaces, as the catalog has them.
    #[must_use]
    pub fn definition(&self) -> &TableDefinition {
        &self.core.definition
    }

    /// The row with this primary key, if there is one.
    ///
    /// # Errors
    /// `InvalidArgument` or `TypeMismatch` if `key` is no primary key of this table; those of the store; `Corrupt`.
    pub fn get(&self, key: impl KeyValues) -> Result<Option<R>> {
        self.read(None, &key)
    }

    /// As [`get`](Table::get), at a snapshot.
    ///
    /// # Errors
    /// As [`get`](Table::get).
    pub fn get_at(&self, snapshot: &S::Snapshot, key: impl KeyValues) -> Result<Option<R>> {
        self.read(Some(snapshot), &key)
    }

    /// The row with this primary key, pinned where it lies: columns are decoded when asked for.
    ///
    /// # Errors
    /// As [`get`](Table::get).
    pub fn get_ref(&self, key: impl KeyValues) -> Result<Option<RowRef<S, R>>> {
        self.pin(None, &key)
    }

    /// As [`get_ref`](Table::get_ref), at a snapshot.
    ///
    /// # Errors
    /// As [`get`](Table::get).
    pub fn get_ref_at(&self, snapshot: &S::Snapshot, key: impl KeyValues) -> Result<Option<RowRef<S, R>>> {
        self.pin(Some(snapshot), &key)
    }

    /// Primary key and stored bytes of a row.
    fn find(&self, at: Option<&S::Snapshot>, key: &impl KeyValues) -> Result<Option<(DecodedKey, S::Value)>> {
        let mut bytes = Vec::new();
        self.core.encode_key(key, &mut bytes)?;
        let Some(value) = self.core.store.get(at, self.core.definition.primary_keyspace(), &bytes)? else {
            return Ok(None);
        };
        let mut key = DecodedKey::default();
        self.core.codec.decode_primary_key(&bytes, &mut key)?;
        Ok(Some((key, value)))
    }

    fn read(&self, at: Option<&S::Snapshot>, key: &impl KeyValues) -> Result<Option<R>> {
        let Some((key, value)) = self.find(at, key)? else { return Ok(None) };
        R::read(&self.core.codec.view(&key, &value)?, &self.binding).map(Some)
    }

    fn pin(&self, at: Option<&S::Snapshot>, key: &impl KeyValues) -> Result<Option<RowRef<S, R>>> {
        Ok(self.find(at, key)?.map(|(key, value)| RowRef { table: self.clone(), key, value }))
    }
}

impl<S: Store> Table<S, DynamicRow> {
    /// A row for this table with every column at its default; NULL where there is none.
    #[must_use]
    pub fn new_row(&self) -> DynamicRow {
        DynamicRow::new(Arc::clone(self.schema()))
    }

    /// A row of these values, in the order of the schema's columns.
    ///
    /// # Errors
    /// As [`DynamicRow::of`].
    pub fn row_of(&self, values: impl IntoIterator<Item = super::Value>) -> Result<DynamicRow> {
        DynamicRow::of(Arc::clone(self.schema()), values)
    }
}

impl<S: Store, R: TypedRow> Table<S, R> {
    /// Opens the table of the type's rows, or creates it.
    ///
    /// # Errors
    /// `SchemaMismatch` with every difference if the stored table has another schema than the type.
    pub fn open_or_create(store: &S) -> Result<Table<S, R>> {
        let schema = R::schema()?;
        let name = schema.name().to_owned();
        match find_table(store, &name)? {
            Some(definition) => Table::of(store, definition),
            None => match Table::create(store, schema) {
                // Somebody else was faster.
                Err(error) if matches!(error.kind(), alluvium_base::ErrorKind::AlreadyExists { .. }) => {
                    Table::open(store, &name)
                }
                created => created,
            },
        }
    }
}

/// A stored row, pinned: it stays readable while this is held, and nothing is decoded before it is asked for.
pub struct RowRef<S: Store, R: Row = DynamicRow> {
    table: Table<S, R>,
    key: DecodedKey,
    value: S::Value,
}

impl<S: Store, R: Row> fmt::Debug for RowRef<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} of {}", self.key.show(), self.table.name())
    }
}

impl<S: Store, R: Row> RowRef<S, R> {
    /// The row, to ask several columns of it.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn view(&self) -> Result<RowView<'_>> {
        self.table.core.codec.view(&self.key, &self.value)
    }

    /// The value of one column.
    ///
    /// # Errors
    /// `NotFound` if there is no such column; `Corrupt`.
    pub fn get(&self, column: &str) -> Result<ValueRef<'_>> {
        self.view()?.get(column)
    }

    /// The whole row.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn decode(&self) -> Result<R> {
        R::read(&self.view()?, &self.table.binding)
    }

    /// The value of the field with this number of the type `R`: what the accessors of a derived row call.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn field<T: super::ColumnType>(&self, field: usize) -> Result<T> {
        self.table.binding.get(&self.view()?, field)
    }
}
