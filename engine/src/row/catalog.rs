//! Tables in the catalog.
//!
//! A table is one catalog entry: key = `t` ‖ name, value = [`TableDefinition`]: the schema and which keyspace holds the
//! rows and which each index. It says everything that is needed to read the table; no Rust type is involved.

use std::path::Path;
use std::sync::Arc;

use alluvium_base::coding::{Reader, put_bytes, put_varint};
use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, ErrorKind, Result};

use super::schema::{IndexId, Schema};
use super::store::{CatalogChange, Store};

/// First byte of the catalog keys of tables.
const TABLE: u8 = b't';
/// Version of the format of an entry.
const FORMAT: u8 = 1;

/// A table as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefinition {
    schema: Arc<Schema>,
    primary: KeyspaceId,
    /// In the order of the schema's indexes.
    indexes: Vec<KeyspaceId>,
}

impl TableDefinition {
    /// Gives a new table its keyspaces. Nothing is written: see [`creation`](TableDefinition::creation).
    ///
    /// # Errors
    /// Those of the store.
    pub fn allocate(store: &impl Store, schema: Schema) -> Result<TableDefinition> {
        let count = schema.indexes().len() as u32;
        let primary = store.allocate_keyspaces(1 + count)?;
        let indexes = (1..=count).map(|number| KeyspaceId(primary.0 + number)).collect();
        Ok(TableDefinition { schema: Arc::new(schema), primary, indexes })
    }

    /// The change of the catalog that creates this table, if there is none of this name.
    #[must_use]
    pub fn creation(&self) -> CatalogChange {
        let value = Some(self.encode());
        CatalogChange { key: catalog_key(self.schema.name()), expected: None, value, dropped: Vec::new() }
    }

    /// The table of a catalog entry; `None` if the entry is of something else.
    pub(crate) fn of_catalog_entry(key: &[u8], value: &[u8], file: &Path) -> Option<Result<TableDefinition>> {
        let (first, name) = key.split_first()?;
        let reading = || format!("reading the catalog entry of table {}", String::from_utf8_lossy(name));
        (*first == TABLE)
            .then(|| TableDefinition::decode(value, file).map_err(|error| error.context(reading())))
    }

    /// The table's schema.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The keyspace of the rows.
    #[must_use]
    pub fn primary_keyspace(&self) -> KeyspaceId {
        self.primary
    }

    /// The keyspace of the index with number `index` of [`Schema::indexes`].
    #[must_use]
    pub fn index_keyspace(&self, index: usize) -> Option<KeyspaceId> {
        self.indexes.get(index).copied()
    }

    /// All keyspaces of the table: rows first, then its indexes.
    pub fn keyspaces(&self) -> impl Iterator<Item = KeyspaceId> + '_ {
        std::iter::once(self.primary).chain(self.indexes.iter().copied())
    }

    /// The table as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, u64::from(self.primary.0));
        put_varint(&mut out, self.indexes.len() as u64);
        for (index, keyspace) in self.schema.indexes().iter().zip(&self.indexes) {
            put_varint(&mut out, u64::from(index.id().0));
            put_varint(&mut out, u64::from(keyspace.0));
        }
        let mut schema = Vec::new();
        self.schema.encode(&mut schema);
        put_bytes(&mut out, &schema);
        out
    }

    /// Reads what [`encode`](TableDefinition::encode) wrote. `file` says where the bytes come from, for errors.
    ///
    /// # Errors
    /// `UnsupportedFormat` for a newer format, `Corrupt` if the bytes make no sense.
    pub fn decode(bytes: &[u8], file: impl AsRef<Path>) -> Result<TableDefinition> {
        let place = file.as_ref();
        let mut reader = Reader::new(bytes);
        match reader.u8() {
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => {
                let (file, supported) = (place.to_owned(), u32::from(FORMAT));
                return Err(ErrorKind::UnsupportedFormat { file, found: u32::from(found), supported }.into());
            }
            _ => return Err(Error::corrupt(place, 0, "no table begins here")),
        }
        let keyspaces = decode_keyspaces(&mut reader);
        let schema = keyspaces.and_then(|keyspaces| Some((keyspaces, reader.bytes()?)));
        let Some(((primary, bound), schema)) = schema.filter(|_| reader.is_empty()) else {
            return Err(Error::corrupt(place, reader.position() as u64, "table entry is damaged"));
        };
        let schema = Schema::decode(schema, place)?;
        let keyspace =
            |id: IndexId| bound.iter().find(|(index, _)| *index == id).map(|(_, keyspace)| *keyspace);
        let indexes: Option<Vec<KeyspaceId>> =
            schema.indexes().iter().map(|index| keyspace(index.id())).collect();
        match indexes {
            Some(indexes) if indexes.len() == bound.len() => {
                Ok(TableDefinition { schema: Arc::new(schema), primary, indexes })
            }
            _ => {
                Err(Error::corrupt(place, 0, format!("table {} and its keyspaces do not fit", schema.name())))
            }
        }
    }
}

type Keyspaces = (KeyspaceId, Vec<(IndexId, KeyspaceId)>);

fn decode_keyspaces(reader: &mut Reader<'_>) -> Option<Keyspaces> {
    let number = |reader: &mut Reader<'_>| u32::try_from(reader.varint()?).ok();
    let primary = KeyspaceId(number(reader)?);
    let count = reader.length(reader.remaining())?;
    let mut indexes = Vec::new();
    for _ in 0..count {
        indexes.push((IndexId(number(reader)?), KeyspaceId(number(reader)?)));
    }
    Some((primary, indexes))
}

/// The catalog key of a table.
fn catalog_key(name: &str) -> Vec<u8> {
    let mut key = vec![TABLE];
    key.extend_from_slice(name.as_bytes());
    key
}

/// Creates a table: its entry in the catalog is durable when this returns.
///
/// # Errors
/// `AlreadyExists` if there is a table of this name.
pub fn create_table(store: &impl Store, schema: Schema) -> Result<TableDefinition> {
    let exists = || Error::from(ErrorKind::AlreadyExists { what: format!("table {}", schema.name()) });
    if store.catalog_get(&catalog_key(schema.name()))?.is_some() {
        return Err(exists());
    }
    let definition = TableDefinition::allocate(store, schema.clone())?;
    match store.catalog_change(&definition.creation()) {
        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => Err(exists()),
        other => other.map(|()| definition),
    }
}

/// The definition of a table; `None` if there is none of this name.
///
/// # Errors
/// `Corrupt` if its entry is damaged.
pub fn find_table(store: &impl Store, name: &str) -> Result<Option<TableDefinition>> {
    let decode = |bytes: Vec<u8>| TableDefinition::decode(&bytes, store.catalog_file());
    store.catalog_get(&catalog_key(name))?.map(decode).transpose()
}

/// The definitions of all tables, by name.
///
/// # Errors
/// `Corrupt` if an entry is damaged.
pub fn list_tables(store: &impl Store) -> Result<Vec<TableDefinition>> {
    let file = store.catalog_file();
    store.catalog_list(&[TABLE])?.iter().map(|(_, bytes)| TableDefinition::decode(bytes, &file)).collect()
}

/// Removes a table with its indexes. Handles of it find nothing any more.
///
/// # Errors
/// `NotFound` if there is none of this name; `Conflict` if it is being changed meanwhile.
pub fn drop_table(store: &impl Store, name: &str) -> Result<()> {
    let key = catalog_key(name);
    let expected = store.catalog_get(&key)?.ok_or_else(|| Error::not_found(format!("table {name}")))?;
    let dropped = TableDefinition::decode(&expected, store.catalog_file())?.keyspaces().collect();
    store.catalog_change(&CatalogChange { key, expected: Some(expected), value: None, dropped })
}

/// Puts another schema in place of a table's, with the same indexes: columns that were added, dropped or renamed.
/// Rows stay as they are. Handles that are open go on with the schema they know until they meet a row written under
/// the new one.
///
/// # Errors
/// `NotFound` if there is no such table; `SchemaMismatch` if `change` refuses or does not keep the indexes; `Conflict`
/// if the table is being changed meanwhile.
pub fn alter_table(
    store: &impl Store,
    name: &str,
    change: impl FnOnce(&Schema) -> Result<Schema>,
) -> Result<TableDefinition> {
    let key = catalog_key(name);
    let expected = store.catalog_get(&key)?.ok_or_else(|| Error::not_found(format!("table {name}")))?;
    let before = TableDefinition::decode(&expected, store.catalog_file())?;
    let schema = change(&before.schema)?;
    if schema.name() != name || schema.indexes() != before.schema.indexes() {
        return Err(before.schema.mismatch("a change of columns must keep the table's name and indexes"));
    }
    let after = TableDefinition { schema: Arc::new(schema), ..before };
    let value = Some(after.encode());
    store.catalog_change(&CatalogChange { key, expected: Some(expected), value, dropped: Vec::new() })?;
    Ok(after)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::{Index, MapStore, Type};

    fn schema(name: &str) -> Schema {
        Schema::table(name)
            .column("id", Type::U64)
            .nullable("note", Type::Text)
            .primary_key(["id"])
            .index(Index::on("by_note").asc("note"))
            .index(Index::on("by_prefix").prefix("note", 3))
            .build()
            .unwrap()
    }

    #[test]
    fn a_table_is_created_once_listed_and_dropped() {
        let store = MapStore::new();
        let created = create_table(&store, schema("b")).unwrap();
        assert_eq!(created.keyspaces().collect::<Vec<_>>(), [KeyspaceId(1), KeyspaceId(2), KeyspaceId(3)]);
        let error = create_table(&store, schema("b")).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::AlreadyExists { .. }));
        let other = create_table(&store, schema("a")).unwrap();
        assert_eq!(list_tables(&store).unwrap(), [other, created.clone()]);
        assert_eq!(find_table(&store, "b").unwrap(), Some(created));
        drop_table(&store, "b").unwrap();
        assert_eq!(find_table(&store, "b").unwrap(), None);
        assert!(matches!(drop_table(&store, "b").unwrap_err().kind(), ErrorKind::NotFound { .. }));
        let again = create_table(&store, schema("b")).unwrap();
        assert_eq!(again.primary_keyspace(), KeyspaceId(7), "keyspaces are never reused");
    }

    #[test]
    fn two_who_create_one_table_at_once_get_one_table() {
        let store = MapStore::new();
        let first = TableDefinition::allocate(&store, schema("t")).unwrap();
        let second = TableDefinition::allocate(&store, schema("t")).unwrap();
        store.catalog_change(&first.creation()).unwrap();
        assert!(matches!(
            store.catalog_change(&second.creation()).unwrap_err().kind(),
            ErrorKind::Conflict { .. }
        ));
    }

    #[test]
    fn columns_change_and_indexes_stay() {
        let store = MapStore::new();
        let before = create_table(&store, schema("t")).unwrap();
        let after = alter_table(&store, "t", |schema| schema.with_column("x", Type::U8, true, None)).unwrap();
        assert_eq!(after.schema().version(), 2);
        assert_eq!(after.keyspaces().collect::<Vec<_>>(), before.keyspaces().collect::<Vec<_>>());
        assert_eq!(find_table(&store, "t").unwrap(), Some(after));
        let error = alter_table(&store, "t", |schema| schema.without_index("by_note")).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::SchemaMismatch { .. }));
    }

    #[test]
    fn damage_is_an_error_and_a_newer_format_is_named() {
        let bytes = TableDefinition::allocate(&MapStore::new(), schema("t")).unwrap().encode();
        assert!(TableDefinition::decode(&bytes, "catalog").is_ok());
        for len in 0..bytes.len() {
            assert!(TableDefinition::decode(&bytes[..len], "catalog").is_err(), "cut at {len}");
        }
        let error = TableDefinition::decode(&[9], "catalog").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { found: 9, .. }));
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(mut bytes: Vec<u8>) {
            let _ = TableDefinition::decode(&bytes, "catalog");
            bytes.insert(0, FORMAT);
            let _ = TableDefinition::decode(&bytes, "catalog");
        }
    }
}
