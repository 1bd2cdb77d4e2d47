//! `tables`: the catalog, with what each index takes.

use alluvium::row::{Column, Schema, TableDefinition};
use alluvium_base::key::KeyspaceId;
use serde::Serialize;

use super::database::{Database, Description};
use super::error::Result;
use super::grid::Grid;
use super::output::{JSON_VERSION, Output};
use super::text::{count, show, to_json};
use super::usage::{KeyspaceUse, by_keyspace};
use crate::load::cli::size::Size;
use crate::load::summary::grouped;

/// The catalog.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    tables: Vec<TableReport>,
    keyspaces: Vec<KeyspaceReport>,
}

#[derive(Debug, Serialize)]
struct TableReport {
    name: String,
    schema_version: u32,
    columns: Vec<ColumnReport>,
    primary_key: IndexReport,
    indexes: Vec<IndexReport>,
}

#[derive(Debug, Serialize)]
struct ColumnReport {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    nullable: bool,
    /// What a row gets that does not name the column.
    default: Option<serde_json::Value>,
    #[serde(skip)]
    default_text: Option<String>,
    added_in: u32,
}

#[derive(Debug, Serialize)]
struct IndexReport {
    name: String,
    unique: bool,
    parts: Vec<PartReport>,
    include: Vec<String>,
    keyspace: u32,
    #[serde(flatten)]
    used: KeyspaceUse,
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct PartReport {
    column: String,
    descending: bool,
    prefix: Option<u32>,
}

#[derive(Debug, Serialize)]
struct KeyspaceReport {
    name: String,
    keyspace: u32,
    #[serde(flatten)]
    used: KeyspaceUse,
}

/// Prints the catalog, or the part of it that `wanted` names.
///
/// # Errors
/// `NotFound` for a table that there is not; those of reading the manifest.
pub fn run(database: &Database, wanted: &[String], output: &mut Output<'_>) -> Result<()> {
    let description = database.describe()?;
    let report = Report::new(&description, wanted)?;
    if output.json { output.json_line(&report) } else { report.print(output) }
}

impl Report {
    fn new(description: &Description, wanted: &[String]) -> Result<Report> {
        let uses = by_keyspace(&description.state);
        let used = |keyspace: KeyspaceId| uses.get(&keyspace).copied().unwrap_or_default();
        let tables: Vec<&TableDefinition> = match wanted {
            [] => description.catalog.tables.iter().collect(),
            names => names.iter().map(|name| description.table(name)).collect::<Result<_>>()?,
        };
        let keyspaces = if wanted.is_empty() { description.catalog.keyspaces.as_slice() } else { &[] };
        Ok(Report {
            version: JSON_VERSION,
            tables: tables.into_iter().map(|table| TableReport::new(table, &used)).collect(),
            keyspaces: keyspaces
                .iter()
                .map(|(name, id)| KeyspaceReport { name: name.clone(), keyspace: id.0, used: used(*id) })
                .collect(),
        })
    }

    fn print(&self, output: &mut Output<'_>) -> Result<()> {
        for (number, table) in self.tables.iter().enumerate() {
            if number > 0 {
                output.line("")?;
            }
            table.print(output)?;
        }
        if !self.keyspaces.is_empty() {
            if !self.tables.is_empty() {
                output.line("")?;
            }
            let title = output.bold("keyspaces that are not part of a table");
            output.line(title)?;
            let mut grid = Grid::new(2).text("name").number("keyspace").number("entries").number("size");
            for keyspace in &self.keyspaces {
                grid.row([
                    keyspace.name.clone(),
                    keyspace.keyspace.to_string(),
                    grouped(keyspace.used.entries),
                    Size(keyspace.used.stored_bytes).to_string(),
                ]);
            }
            grid.write(output)?;
        }
        if self.tables.is_empty() && self.keyspaces.is_empty() {
            output.line("(no tables, no keyspaces)")?;
        }
        Ok(())
    }
}

impl TableReport {
    fn new(table: &TableDefinition, used: &dyn Fn(KeyspaceId) -> KeyspaceUse) -> TableReport {
        let schema = table.schema();
        let primary = table.primary_keyspace();
        let indexes = schema.indexes().iter().enumerate().filter_map(|(number, index)| {
            let keyspace = table.index_keyspace(number)?;
            let name_of = |id| {
                let position = schema.position_of(id)?;
                schema.columns().get(position).map(|column| column.name().to_owned())
            };
            Some(IndexReport {
                name: index.name().to_owned(),
                unique: index.is_unique(),
                parts: parts(schema, index.parts()),
                include: index.include().iter().filter_map(|&id| name_of(id)).collect(),
                keyspace: keyspace.0,
                used: used(keyspace),
                text: schema.show_index(index),
            })
        });
        TableReport {
            name: schema.name().to_owned(),
            schema_version: schema.version(),
            columns: schema.columns().iter().map(ColumnReport::new).collect(),
            primary_key: IndexReport {
                name: "primary key".to_owned(),
                unique: true,
                parts: parts(schema, schema.primary_key()),
                include: Vec::new(),
                keyspace: primary.0,
                used: used(primary),
                text: format!("primary key ({})", schema.show_parts(schema.primary_key())),
            },
            indexes: indexes.collect(),
        }
    }

    fn print(&self, output: &mut Output<'_>) -> Result<()> {
        let title = output.bold(&format!("table {}", self.name));
        let used = self.indexes.iter().fold(self.primary_key.used, |sum, index| sum.plus(index.used));
        let (columns, indexes) = (self.columns.len() as u64, self.indexes.len() as u64);
        output.line(format_args!(
            "{title}: {}, {}, schema version {}, {}",
            count(columns, "column"),
            count(indexes, "index"),
            self.schema_version,
            Size(used.stored_bytes)
        ))?;
        let mut grid = Grid::new(2).text("column").text("type").text("null").text("default");
        for column in &self.columns {
            let default = column.default_text.clone().unwrap_or_default();
            let null = if column.nullable { "yes" } else { "no" };
            grid.row([column.name.as_str(), column.ty.as_str(), null, default.as_str()]);
        }
        grid.write(output)?;
        output.line("")?;
        let mut grid = Grid::new(2).text("key or index").number("keyspace").number("entries");
        grid = grid.number("tombstones").number("size").number("per entry");
        for index in std::iter::once(&self.primary_key).chain(&self.indexes) {
            let used = &index.used;
            let per_entry = match used.entries {
                0 => String::new(),
                entries => format!("{:.1} B", used.stored_bytes as f64 / entries as f64),
            };
            grid.row([
                index.text.clone(),
                index.keyspace.to_string(),
                grouped(used.entries),
                grouped(used.tombstones),
                Size(used.stored_bytes).to_string(),
                per_entry,
            ]);
        }
        grid.write(output)
    }
}

impl ColumnReport {
    fn new(column: &Column) -> ColumnReport {
        // A nullable column without a default has NULL; that need not be said.
        let default = column.default_value().filter(|value| !value.is_null());
        ColumnReport {
            name: column.name().to_owned(),
            ty: column.ty().to_string(),
            nullable: column.is_nullable(),
            default: default.as_ref().map(|value| to_json(value.as_ref())),
            default_text: default.as_ref().map(|value| show(value.as_ref())),
            added_in: column.added_in(),
        }
    }
}

fn parts(schema: &Schema, parts: &[alluvium::row::KeyPart]) -> Vec<PartReport> {
    let part = |part: &alluvium::row::KeyPart| {
        let column = schema.columns().get(schema.position_of(part.column())?)?;
        Some(PartReport {
            column: column.name().to_owned(),
            descending: part.is_descending(),
            prefix: part.prefix_len(),
        })
    };
    parts.iter().filter_map(part).collect()
}
