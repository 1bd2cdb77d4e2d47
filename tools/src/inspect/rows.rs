//! `rows` and `explain`: rows of a table as a person or a script asks for them.

use std::ops::Bound;

use alluvium::row::{Column, Continuation, KeyPart, Schema};
use alluvium::{Explanation, Scan, ScanBuilder, Table, Value, ValueRef};
use alluvium_base::KeyRange;
use alluvium_base::key::KeyspaceId;
use serde::Serialize;
use serde_json::json;

use super::cli::{Limit, RowsArgs, ScanArgs};
use super::database::Database;
use super::error::{InspectError, Result};
use super::grid::Grid;
use super::output::{JSON_VERSION, Output};
use super::text::{Cell, JsonRow, align_of, count, hex};
use crate::load::cli::size::Size;
use crate::load::summary::grouped;

/// How the null value is written on the command line. Not a possible value of any other type but text, and there the
/// one that databases use.
const NULL: &str = "\\N";

/// Prints rows.
///
/// # Errors
/// `Usage` if the arguments do not fit the table; `NotFound`; those of reading.
pub fn run(database: &Database, args: &RowsArgs, output: &mut Output<'_>) -> Result<()> {
    let table = database.open_table(&args.scan.table)?;
    let scan = builder(&table, &args.scan)?;
    if args.count {
        let rows = scan.count()?;
        return match output.json {
            true => output.json_line(&json!({"version": JSON_VERSION, "table": table.name(), "rows": rows})),
            false => output.line(grouped(rows)),
        };
    }
    let limit = Limit::of(args.scan.limit);
    // One more than is shown, to know whether there is more.
    let scan = match limit {
        Some(limit) => scan.limit(limit.saturating_add(1)),
        None => scan,
    };
    let page = Page { table: &table, args, limit, columns: shown_columns(&table, &args.scan)? };
    if output.json { page.print_json(scan.run()?, output) } else { page.print_text(scan.run()?, output) }
}

/// Shows the plan of a scan.
///
/// # Errors
/// As [`run`].
pub fn explain(database: &Database, args: &ScanArgs, output: &mut Output<'_>) -> Result<()> {
    let table = database.open_table(&args.table)?;
    let scan = builder(&table, args)?;
    let scan = match args.limit {
        Some(Limit::Rows(rows)) => scan.limit(rows),
        _ => scan,
    };
    let plan = Plan::new(database, scan.explain()?)?;
    if output.json { output.json_line(&plan) } else { plan.print(output) }
}

/// The scan that the arguments ask for, but for its limit.
fn builder(table: &Table, args: &ScanArgs) -> Result<ScanBuilder> {
    let schema = table.schema();
    let key = key_of(schema, args)?;
    if args.eq.len() > key.len() {
        let (name, given) = (key_name(args), args.eq.len());
        return Err(InspectError::Usage(format!(
            "{name} has {} ({}), but --eq is given {given} times",
            count(key.len() as u64, "column"),
            schema.show_parts(key)
        )));
    }
    let mut eq = Vec::new();
    for (text, part) in args.eq.iter().zip(key) {
        eq.push(parse("--eq", text, column_of(schema, part)?)?);
    }
    let mut scan = table.scan().eq(eq);
    if let Some(index) = &args.index {
        scan = scan.index(index);
    }
    if args.from.is_some() || args.to.is_some() {
        let Some(part) = key.get(args.eq.len()) else {
            let (name, columns) = (key_name(args), schema.show_parts(key));
            return Err(InspectError::Usage(format!(
                "--eq gives a value for every column of {name} ({columns}); none is left for --from and --to"
            )));
        };
        let column = column_of(schema, part)?;
        let bound = |option, text: &Option<String>| {
            text.as_deref().map(|text| parse(option, text, column)).transpose()
        };
        let from = bound("--from", &args.from)?.map_or(Bound::Unbounded, Bound::Included);
        let to = bound("--to", &args.to)?.map_or(Bound::Unbounded, Bound::Excluded);
        scan = scan.range((from, to));
    }
    if args.reverse {
        scan = scan.reverse();
    }
    if !args.columns.is_empty() {
        scan = scan.columns(&args.columns);
    }
    if let Some(token) = &args.after {
        scan = scan.after(&token.parse::<Continuation>()?);
    }
    Ok(scan)
}

/// The key that the scan goes by.
fn key_of<'a>(schema: &'a Schema, args: &ScanArgs) -> Result<&'a [KeyPart]> {
    match &args.index {
        Some(name) => Ok(schema.require_index(name)?.parts()),
        None => Ok(schema.primary_key()),
    }
}

fn key_name(args: &ScanArgs) -> String {
    match &args.index {
        Some(index) => format!("index {index}"),
        None => format!("the primary key of {}", args.table),
    }
}

fn column_of<'a>(schema: &'a Schema, part: &KeyPart) -> Result<&'a Column> {
    let column = schema.position_of(part.column()).and_then(|position| schema.columns().get(position));
    let missing = || alluvium_base::Error::not_found(format!("column of a key of {}", schema.name()));
    Ok(column.ok_or_else(missing)?)
}

fn parse(option: &str, text: &str, column: &Column) -> Result<Value> {
    if text == NULL {
        return Ok(Value::Null);
    }
    column.ty().parse(text).map_err(|failure| {
        let (name, ty, reason) = (column.name(), column.ty(), failure.reason);
        let hint = if text == "NULL" { "; the null value is written \\N" } else { "" };
        InspectError::Usage(format!("{option} {text}: column {name} is of type {ty}: {reason}{hint}"))
    })
}

fn shown_columns<'a>(table: &'a Table, args: &ScanArgs) -> Result<Vec<&'a Column>> {
    let schema = table.schema();
    if args.columns.is_empty() {
        return Ok(schema.columns().iter().collect());
    }
    let column = |name: &String| {
        let position = schema.require_position(name)?;
        schema
            .columns()
            .get(position)
            .ok_or_else(|| alluvium_base::Error::not_found(format!("column {name}")))
    };
    Ok(args.columns.iter().map(column).collect::<alluvium::Result<_>>()?)
}

/// What is printed of a scan.
struct Page<'a> {
    table: &'a Table,
    args: &'a RowsArgs,
    limit: Option<u64>,
    columns: Vec<&'a Column>,
}

/// How a page ended.
struct End {
    rows: u64,
    /// Where to go on, if the limit has cut it.
    continuation: Option<Continuation>,
}

impl Page<'_> {
    /// Calls `each` with the values of every row of the page.
    fn for_each(&self, mut scan: Scan, mut each: impl FnMut(&[Value]) -> Result<()>) -> Result<End> {
        let mut rows = 0;
        while self.limit.is_none_or(|limit| rows < limit) {
            let Some(values) = scan.next_values()? else { return Ok(End { rows, continuation: None }) };
            each(&values)?;
            rows += 1;
        }
        let token = scan.continuation();
        let more = scan.next_values()?.is_some();
        Ok(End { rows, continuation: more.then_some(token) })
    }

    fn print_json(&self, scan: Scan, output: &mut Output<'_>) -> Result<()> {
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|column| json!({"name": column.name(), "type": column.ty().to_string()}))
            .collect();
        let (table, index) = (self.table.name(), &self.args.scan.index);
        output.json_line(&json!({
            "version": JSON_VERSION, "event": "start", "table": table, "index": index, "columns": columns,
        }))?;
        let names: Vec<&str> = self.columns.iter().map(|column| column.name()).collect();
        let end = self.for_each(scan, |values| {
            let row: Vec<(&str, ValueRef<'_>)> =
                names.iter().copied().zip(values.iter().map(Value::as_ref)).collect();
            output.json_line(&JsonLine { event: "row", values: JsonRow(&row) })
        })?;
        let continuation = end.continuation.map(|token| token.to_string());
        output.json_line(&json!({"event": "end", "rows": end.rows, "continuation": continuation}))
    }

    fn print_text(&self, scan: Scan, output: &mut Output<'_>) -> Result<()> {
        let mut grid = Grid::new(0);
        for column in &self.columns {
            grid = grid.column(column.name(), align_of(column.ty()));
        }
        let mut vertical = self.args.vertical;
        let mut number = 0;
        let end = self.for_each(scan, |values| {
            let cells = values.iter().map(|value| Cell::of(value.as_ref()));
            if vertical {
                number += 1;
                return self.print_vertical(number, cells, output);
            }
            grid.row(cells.map(Cell::cut));
            if !grid.is_full() {
                return Ok(());
            }
            vertical = number == 0 && output.look.width.is_some_and(|width| grid.width() > width);
            self.print_grid(&mut grid, vertical, &mut number, output)
        })?;
        if !vertical && end.rows > 0 {
            vertical = number == 0 && output.look.width.is_some_and(|width| grid.width() > width);
            self.print_grid(&mut grid, vertical, &mut number, output)?;
        }
        self.print_end(&end, output)
    }

    /// Writes the rows that a grid holds, and counts them.
    fn print_grid(
        &self,
        grid: &mut Grid,
        vertical: bool,
        number: &mut u64,
        output: &mut Output<'_>,
    ) -> Result<()> {
        if !vertical {
            *number += 1;
            return grid.write(output);
        }
        for row in grid.take_rows() {
            *number += 1;
            self.print_vertical(*number, row.into_iter().map(|(_, cell)| cell), output)?;
        }
        Ok(())
    }

    fn print_vertical(
        &self,
        number: u64,
        cells: impl Iterator<Item = Cell>,
        output: &mut Output<'_>,
    ) -> Result<()> {
        let width = self.columns.iter().map(|column| console::measure_text_width(column.name())).max();
        let title = output.bold(&format!("row {}", grouped(number)));
        output.line(title)?;
        for (column, cell) in self.columns.iter().zip(cells) {
            let name = column.name();
            let blanks = " ".repeat(width.unwrap_or(0) - console::measure_text_width(name));
            let text = if cell.dim { output.dim(&cell.text) } else { cell.text };
            output.line(format_args!("  {name}{blanks}  {text}"))?;
        }
        Ok(())
    }

    fn print_end(&self, end: &End, output: &mut Output<'_>) -> Result<()> {
        let rows = count(end.rows, "row");
        let Some(token) = &end.continuation else {
            output.line(output.dim(&format!("({rows})")))?;
            if end.rows == 0 && self.args.scan.eq.iter().any(|text| text == "NULL") {
                output.note("NULL was looked for as a text; the null value is written \\N");
            }
            return Ok(());
        };
        output.line(output.dim(&format!("({rows}, and there are more: --limit all, or go on with")))?;
        output.line(output.dim(&format!("--after {token})")))
    }
}

#[derive(Serialize)]
struct JsonLine<'a> {
    event: &'static str,
    values: JsonRow<'a>,
}

/// An explanation with what the manifest knows of the files that it would read.
struct Plan {
    explanation: Explanation,
    /// Files of the tree that hold keys of the range.
    files: u64,
    /// Entries that all files have of the keyspace, and the bytes that they take.
    entries: u64,
    bytes: u64,
}

impl Plan {
    fn new(database: &Database, explanation: Explanation) -> Result<Plan> {
        let keyspace = KeyspaceId(explanation.keyspace);
        let range = explanation.keys.as_ref().map(|(start, end)| {
            let end = end.as_ref().map(|end| keyspace.full_key(end));
            let end = end.or_else(|| keyspace.end().map(|end| end.to_vec())).unwrap_or_else(|| vec![0xff; 5]);
            KeyRange::new(keyspace.full_key(start), end)
        });
        let (mut files, mut entries, mut bytes) = (0, 0, 0);
        for (_, file) in database.describe()?.state.version.files() {
            let found = file.summary.keyspaces.iter().find(|found| found.keyspace == keyspace);
            let Some(found) = found else { continue };
            entries += found.entries;
            bytes += found.stored_bytes;
            files += u64::from(range.as_ref().is_some_and(|range| file.range().overlaps(range)));
        }
        Ok(Plan { explanation, files, entries, bytes })
    }

    fn print(&self, output: &mut Output<'_>) -> Result<()> {
        let plan = &self.explanation;
        let by = match &plan.index {
            Some(index) => format!("index {index} ({})", plan.order),
            None => format!("primary key ({})", plan.order),
        };
        let direction = if plan.reverse { ", backwards" } else { "" };
        let title = output.bold(&format!("scan {} by {by}{direction}", plan.table));
        output.line(title)?;
        let keys = match (&plan.keys, plan.conditions.is_empty()) {
            (None, _) => format!("none can match {}", plan.conditions.join(" and ")),
            (Some(_), true) => "all: a full scan".to_owned(),
            (Some(_), false) => format!("only those with {}", plan.conditions.join(" and ")),
        };
        let rows = match (&plan.index, plan.reads_rows) {
            (None, _) => "read in order".to_owned(),
            (Some(_), false) => "not read: the index has all columns that are asked for".to_owned(),
            (Some(_), true) => "one more read by primary key for each entry of the index".to_owned(),
        };
        let files = match self.files {
            0 => "no table file has such keys; memory may".to_owned(),
            files => format!(
                "{} may have such keys; {} has {} in {}",
                count(files, "table file"),
                if plan.index.is_some() { "the index" } else { "the table" },
                count(self.entries, "entry"),
                Size(self.bytes)
            ),
        };
        let mut lines = vec![("keys", keys), ("columns", plan.columns.join(", ")), ("rows", rows)];
        if !plan.rechecks.is_empty() {
            let again = format!("{}, since the index holds only a prefix", plan.rechecks.join(" and "));
            lines.push(("checked again", again));
        }
        lines.push(("files", files));
        if let Some(limit) = plan.limit {
            lines.push(("limit", count(limit, "row")));
        }
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, text) in lines {
            output.line(format_args!("  {name:width$}  {text}"))?;
        }
        Ok(())
    }
}

impl Serialize for Plan {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plan = &self.explanation;
        let keys = plan
            .keys
            .as_ref()
            .map(|(start, end)| json!({"from": hex(start), "to": end.as_ref().map(|end| hex(end))}));
        json!({
            "version": JSON_VERSION,
            "table": plan.table,
            "index": plan.index,
            "order": plan.order,
            "reverse": plan.reverse,
            "conditions": plan.conditions,
            "rechecks": plan.rechecks,
            "columns": plan.columns,
            "reads_rows": plan.reads_rows,
            "limit": plan.limit,
            "keyspace": plan.keyspace,
            "full_scan": plan.conditions.is_empty(),
            "keys": keys,
            "files": self.files,
            "keyspace_entries": self.entries,
            "keyspace_bytes": self.bytes,
        })
        .serialize(serializer)
    }
}
