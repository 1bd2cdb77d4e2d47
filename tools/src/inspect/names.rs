//! Whose a key is: from the bytes of files and logs to rows and index entries, with the help of the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium::inspect::Catalog;
use alluvium::row::{RowDecoder, Schema};
use alluvium::{Value, ValueRef};
use alluvium_base::key::{KeyspaceId, user_key};
use serde_json::{Map, json};

use super::database::Description;
use super::text::{hex, show, show_bytes, show_bytes_cut, show_tuple, to_json, to_json_list};

/// What a keyspace is used for.
#[derive(Clone, Debug)]
enum Owner {
    /// The rows of a table.
    Rows(RowDecoder),
    /// An index of a table, by its number.
    Index(RowDecoder, usize),
    /// Opened by its name.
    Plain(String),
    /// Dropped; its data will go. What it was, if the manifest still says.
    Dropped(Option<String>),
}

/// The names of keyspaces. Without a catalog it knows none, and shows bytes.
#[derive(Clone, Debug, Default)]
pub struct Names {
    owners: BTreeMap<KeyspaceId, Owner>,
}

/// A key or entry for people and for scripts.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// For people.
    pub text: String,
    /// For scripts.
    pub json: Map<String, serde_json::Value>,
}

impl Names {
    /// The names in a catalog.
    #[must_use]
    pub fn new(catalog: &Catalog, dropped: &BTreeSet<KeyspaceId>) -> Names {
        let mut owners = BTreeMap::new();
        for table in &catalog.tables {
            let decoder = RowDecoder::new(Arc::clone(table.schema()));
            for (number, keyspace) in table.keyspaces().enumerate() {
                let owner = match number.checked_sub(1) {
                    None => Owner::Rows(decoder.clone()),
                    Some(index) => Owner::Index(decoder.clone(), index),
                };
                owners.insert(keyspace, owner);
            }
        }
        for (name, keyspace) in &catalog.keyspaces {
            owners.insert(*keyspace, Owner::Plain(name.clone()));
        }
        for keyspace in dropped {
            owners.entry(*keyspace).or_insert(Owner::Dropped(None));
        }
        Names { owners }
    }

    /// The names that a manifest has, and for what was dropped those that it had.
    #[must_use]
    pub fn of(description: &Description) -> Names {
        let mut names = Names::new(&description.catalog, &description.state.dropped_keyspaces);
        names.remember(&description.former);
        names
    }

    /// Gives what was dropped the names that it had.
    fn remember(&mut self, former: &Catalog) {
        let mut remember = |keyspace: KeyspaceId, what: String| {
            if let Some(Owner::Dropped(name)) = self.owners.get_mut(&keyspace) {
                *name = Some(what);
            }
        };
        for table in &former.tables {
            let schema = table.schema();
            for (number, keyspace) in table.keyspaces().enumerate() {
                remember(
                    keyspace,
                    match number.checked_sub(1) {
                        None => format!("table {}", schema.name()),
                        Some(index) => format!("index {}.{}", schema.name(), index_name(schema, index)),
                    },
                );
            }
        }
        for (name, keyspace) in &former.keyspaces {
            remember(*keyspace, format!("keyspace {name}"));
        }
    }

    /// What a keyspace is, in words: `flights`, `flights.by_tail`, `keyspace events`.
    #[must_use]
    pub fn label(&self, keyspace: KeyspaceId) -> String {
        match self.owners.get(&keyspace) {
            Some(Owner::Rows(decoder)) => decoder.schema().name().to_owned(),
            Some(Owner::Index(decoder, index)) => {
                format!("{}.{}", decoder.schema().name(), index_name(decoder.schema(), *index))
            }
            Some(Owner::Plain(name)) => format!("keyspace {name}"),
            Some(Owner::Dropped(Some(what))) => format!("dropped {what}"),
            // Of a table, an index or a keyspace that was dropped before the manifest was last rewritten.
            Some(Owner::Dropped(None)) => {
                format!("dropped keyspace {} (its name is no longer known)", keyspace.0)
            }
            None => format!("keyspace number {}", keyspace.0),
        }
    }

    /// True if the keyspace holds the rows of a table.
    #[must_use]
    pub fn holds_rows(&self, keyspace: KeyspaceId) -> bool {
        matches!(self.owners.get(&keyspace), Some(Owner::Rows(_)))
    }

    /// True if the keyspace is an index of a table.
    #[must_use]
    pub fn is_index(&self, keyspace: KeyspaceId) -> bool {
        matches!(self.owners.get(&keyspace), Some(Owner::Index(..)))
    }

    /// A full key alone, as of a tombstone.
    #[must_use]
    pub fn key(&self, full_key: &[u8]) -> Shown {
        self.entry(full_key, None)
    }

    /// One end of a range of full keys. It need not be a whole key.
    #[must_use]
    pub fn bound(&self, full_key: &[u8]) -> String {
        match KeyspaceId::of(full_key) {
            None => show_bytes_cut(full_key),
            Some(keyspace) if user_key(full_key).is_empty() => {
                format!("the start of {}", self.label(keyspace))
            }
            // The end of a range is often a key with a zero byte appended: just behind that key.
            Some(keyspace) => match (self.decode(keyspace, full_key, None), full_key.split_last()) {
                (Some(shown), _) => format!("{} {}", self.label(keyspace), shown.text),
                (None, Some((0, key))) if self.decode(keyspace, key, None).is_some() => {
                    format!("just behind {} {}", self.label(keyspace), self.key(key).text)
                }
                _ => format!("{} {}", self.label(keyspace), show_bytes_cut(user_key(full_key))),
            },
        }
    }

    /// A full key with its value. What cannot be decoded is shown as bytes.
    #[must_use]
    pub fn entry(&self, full_key: &[u8], value: Option<&[u8]>) -> Shown {
        let Some(keyspace) = KeyspaceId::of(full_key) else {
            return raw(full_key, value);
        };
        let mut shown = self.decode(keyspace, full_key, value).unwrap_or_else(|| {
            let mut shown = raw(user_key(full_key), value);
            if matches!(self.owners.get(&keyspace), Some(Owner::Rows(_) | Owner::Index(..))) {
                shown.text.push_str(" (cannot be decoded)");
            }
            shown
        });
        shown.json.insert("keyspace".to_owned(), keyspace.0.into());
        let named = match self.owners.get(&keyspace) {
            Some(Owner::Rows(decoder)) => vec![("table", decoder.schema().name().to_owned())],
            Some(Owner::Index(decoder, index)) => vec![
                ("table", decoder.schema().name().to_owned()),
                ("index", index_name(decoder.schema(), *index).to_owned()),
            ],
            Some(Owner::Plain(name)) => vec![("name", name.clone())],
            Some(Owner::Dropped(_)) | None => Vec::new(),
        };
        for (field, name) in named {
            shown.json.insert(field.to_owned(), name.into());
        }
        shown
    }

    fn decode(&self, keyspace: KeyspaceId, full_key: &[u8], value: Option<&[u8]>) -> Option<Shown> {
        let key = user_key(full_key);
        match self.owners.get(&keyspace)? {
            Owner::Rows(decoder) => show_row(decoder, key, value),
            Owner::Index(decoder, index) => show_index_entry(decoder, *index, key, value),
            Owner::Plain(_) | Owner::Dropped(_) => Some(raw(key, value)),
        }
    }
}

fn index_name(schema: &Schema, index: usize) -> &str {
    schema.indexes().get(index).map_or("?", |index| index.name())
}

fn raw(key: &[u8], value: Option<&[u8]>) -> Shown {
    let mut text = show_bytes(key);
    let mut json = Map::new();
    json.insert("key".to_owned(), hex(key).into());
    if let Some(value) = value {
        text.push_str(&format!(" = {}", show_bytes_cut(value)));
        json.insert("value".to_owned(), hex(value).into());
    }
    Shown { text, json }
}

fn show_row(decoder: &RowDecoder, key: &[u8], value: Option<&[u8]>) -> Option<Shown> {
    let schema = decoder.schema();
    let primary_key = decoder.primary_key(key).ok()?;
    let mut text = show_tuple(&primary_key);
    let mut json = Map::new();
    json.insert("key".to_owned(), to_json_list(&primary_key).into());
    if let Some(value) = value {
        let values = decoder.row(key, value).ok()?;
        let is_key = |position: usize| {
            let column = schema.columns().get(position).map(|column| column.id());
            schema.primary_key().iter().any(|part| Some(part.column()) == column)
        };
        let rest: Vec<(usize, Value)> =
            values.into_iter().enumerate().filter(|(position, _)| !is_key(*position)).collect();
        text.push_str(&format!(" = {}", show_fields(schema, &rest)));
        json.insert("value".to_owned(), fields_to_json(schema, &rest));
    }
    Some(Shown { text, json })
}

fn show_index_entry(decoder: &RowDecoder, index: usize, key: &[u8], value: Option<&[u8]>) -> Option<Shown> {
    let schema = decoder.schema();
    let entry = decoder.index_entry(index, key, value).ok()?;
    let mut text = show_tuple(&entry.parts);
    let mut json = Map::new();
    json.insert("key".to_owned(), to_json_list(&entry.parts).into());
    if let Some(primary_key) = &entry.primary_key {
        text.push_str(&format!(" → {}", show_tuple(primary_key)));
        json.insert("primary_key".to_owned(), to_json_list(primary_key).into());
    }
    if !entry.included.is_empty() {
        text.push_str(&format!(" with {}", show_fields(schema, &entry.included)));
        json.insert("included".to_owned(), fields_to_json(schema, &entry.included));
    }
    Some(Shown { text, json })
}

fn column_name(schema: &Schema, position: usize) -> &str {
    schema.columns().get(position).map_or("?", |column| column.name())
}

fn show_fields(schema: &Schema, fields: &[(usize, Value)]) -> String {
    let field = |(position, value): &(usize, Value)| {
        format!("{}: {}", column_name(schema, *position), show(value.as_ref()))
    };
    format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
}

fn fields_to_json(schema: &Schema, fields: &[(usize, Value)]) -> serde_json::Value {
    let field = |(position, value): &(usize, Value)| {
        (column_name(schema, *position).to_owned(), to_json(ValueRef::from(value)))
    };
    json!(fields.iter().map(field).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use alluvium::row::{MapStore, RowEncoder, TableDefinition};
    use alluvium::{Index, Type};

    use super::*;

    fn names() -> (Names, RowEncoder) {
        let schema = Schema::table("t")
            .column("id", Type::U16)
            .nullable("name", Type::Text)
            .column("size", Type::I32)
            .primary_key(["id"])
            .index(Index::on("by_name").asc("name").include(["size"]));
        let table = TableDefinition::allocate(&MapStore::new(), schema.build().unwrap()).unwrap();
        let encoder = RowEncoder::new(Arc::clone(table.schema()));
        let catalog = Catalog { tables: vec![table], keyspaces: vec![("events".to_owned(), KeyspaceId(8))] };
        (Names::new(&catalog, &BTreeSet::from([KeyspaceId(9)])), encoder)
    }

    #[test]
    fn keys_are_shown_as_what_they_are() {
        let (names, encoder) = names();
        let row = [ValueRef::UInt(7), ValueRef::Null, ValueRef::Int(-3)];
        let (mut key, mut value) = (KeyspaceId(1).full_key(b""), Vec::new());
        encoder.encode_row(&row, &mut key, &mut value).unwrap();
        let shown = names.entry(&key, Some(&value));
        assert_eq!(shown.text, "(7) = {name: NULL, size: -3}");
        let expected = json!({"keyspace": 1, "table": "t", "key": [7], "value": {"name": null, "size": -3}});
        assert_eq!(serde_json::Value::Object(shown.json), expected);
        assert_eq!(names.label(KeyspaceId(1)), "t");

        let (mut entry, mut included) = (KeyspaceId(2).full_key(b""), Vec::new());
        encoder.encode_index_entry(0, &row, &key[4..], &mut entry, &mut included).unwrap();
        assert_eq!(names.entry(&entry, Some(&included)).text, "(NULL) → (7) with {size: -3}");
        assert_eq!(names.key(&entry).text, "(NULL) → (7)");
        assert_eq!(names.label(KeyspaceId(2)), "t.by_name");
    }

    #[test]
    fn what_is_not_known_is_shown_as_bytes() {
        let (names, _) = names();
        let shown = |keyspace: u32| names.entry(&KeyspaceId(keyspace).full_key(b"a\xff"), Some(b"1"));
        assert_eq!(
            (names.label(KeyspaceId(8)), shown(8).text),
            ("keyspace events".into(), r#""a\xff" = "1""#.into())
        );
        assert_eq!(names.label(KeyspaceId(9)), "dropped keyspace 9 (its name is no longer known)");
        assert_eq!(names.label(KeyspaceId(10)), "keyspace number 10");
        assert_eq!(shown(10).json["key"], "0x61ff");
        assert_eq!(names.entry(&KeyspaceId(1).full_key(b"abc"), None).text, r#""abc" (cannot be decoded)"#);
        assert_eq!(names.entry(b"ab", None).text, r#""ab""#);
    }

    #[test]
    fn a_dropped_table_was_shown_as_a_number() {
        let schema = Schema::table("old").column("id", Type::U16).primary_key(["id"]);
        let schema = schema.index(Index::on("by_id").desc("id")).build().unwrap();
        let table = TableDefinition::allocate(&MapStore::new(), schema).unwrap();
        let former = Catalog { tables: vec![table], keyspaces: vec![("events".to_owned(), KeyspaceId(8))] };
        let dropped = BTreeSet::from([1, 2, 8, 9].map(KeyspaceId));
        let mut names = Names::new(&Catalog::default(), &dropped);
        names.remember(&former);
        let labels = [1, 2, 8].map(|id| names.label(KeyspaceId(id)));
        assert_eq!(labels, ["dropped table old", "dropped index old.by_id", "dropped keyspace events"]);
        assert!(names.label(KeyspaceId(9)).contains("no longer known"));
    }

    #[test]
    fn bounds_need_not_be_whole_keys() {
        let (names, _) = names();
        assert_eq!(names.bound(&[0, 0, 0, 2]), "the start of t.by_name");
        assert_eq!(names.bound(&[0, 0, 0, 1, 0, 7]), "t (7)");
        assert_eq!(names.bound(&[0, 0, 0, 1, 0, 7, 0]), "just behind t (7)");
        assert_eq!(names.bound(&[0, 0, 0, 8, b'a']), "keyspace events \"a\"");
        assert_eq!(names.bound(&[]), "\"\"");
    }
}
