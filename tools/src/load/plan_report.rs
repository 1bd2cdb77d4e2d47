//! The plan, for people and for programs, and the options that would make the same plan again.

use std::fmt::Write;

use serde::Serialize;

use crate::load::cli::size::{ErrorLimit, Size};
use crate::load::cli::{Args, OnDuplicate};
use crate::load::input::open::Packing;
use crate::load::plan::Plan;
use crate::load::sniff::column::shell_word;
use crate::load::summary::{JSON_VERSION, count};

#[derive(Serialize)]
struct Json {
    version: u32,
    table: String,
    inputs: Vec<JsonInput>,
    columns: Vec<JsonColumn>,
    row_id: bool,
    primary_key: Vec<String>,
    indexes: Vec<JsonIndex>,
    sampled_rows: u64,
    estimated_rows: Option<u64>,
    estimated_bytes: Option<u64>,
    options: Vec<String>,
}

#[derive(Serialize)]
struct JsonInput {
    name: String,
    packing: &'static str,
    stored_bytes: Option<u64>,
    delimiter: &'static str,
    header: bool,
    /// False if the first row could as well be the other thing.
    header_is_certain: bool,
}

#[derive(Serialize)]
struct JsonColumn {
    name: String,
    r#type: String,
    nullable: bool,
    given: bool,
    note: Option<String>,
}

#[derive(Serialize)]
struct JsonIndex {
    name: String,
    unique: bool,
    definition: String,
}

fn packing_name(packing: Packing) -> &'static str {
    match packing {
        Packing::Plain => "plain",
        Packing::Gzip => "gzip",
        Packing::Zstd => "zstd",
    }
}

/// The plan as one JSON object.
#[must_use]
pub fn to_json(plan: &Plan, args: &Args) -> String {
    let inputs = plan.inputs.iter().map(|input| JsonInput {
        name: input.name.to_string(),
        packing: packing_name(input.packing),
        stored_bytes: input.stored_bytes,
        delimiter: input.dialect.delimiter_name(),
        header: input.dialect.has_header,
        header_is_certain: input.dialect.header_is_certain,
    });
    let columns = plan.columns.iter().map(|column| JsonColumn {
        name: column.name.clone(),
        r#type: column.ty.to_string(),
        nullable: column.nullable,
        given: column.given,
        note: column.note.clone(),
    });
    let indexes = args.indexes().map(|(spec, unique)| JsonIndex {
        name: spec.name.clone(),
        unique,
        definition: spec.to_string(),
    });
    let json = Json {
        version: JSON_VERSION,
        table: plan.schema.name().to_owned(),
        inputs: inputs.collect(),
        columns: columns.collect(),
        row_id: plan.row_id,
        primary_key: args.primary_key.clone().unwrap_or_default().0,
        indexes: indexes.collect(),
        sampled_rows: plan.sampled_rows,
        estimated_rows: plan.estimated_rows,
        estimated_bytes: plan.estimated_bytes,
        options: options(plan, args).into_iter().flatten().collect(),
    };
    // Cannot fail: the keys are strings and nothing writes.
    serde_json::to_string(&json).unwrap_or_default()
}

/// The plan as text.
#[must_use]
pub fn to_text(plan: &Plan, args: &Args) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut out, plan, args);
    out
}

fn write_text(out: &mut String, plan: &Plan, args: &Args) -> std::fmt::Result {
    writeln!(out, "Table {}\n\nInputs", plan.schema.name())?;
    for input in &plan.inputs {
        let stored = input.stored_bytes.map_or("size unknown".to_owned(), |bytes| Size(bytes).to_string());
        let header = if input.dialect.has_header { "first row has the names" } else { "no row of names" };
        let (name, packing) = (&input.name, packing_name(input.packing));
        writeln!(
            out,
            "  {name}  {packing}, {stored}; separated by {}, {header}",
            input.dialect.delimiter_name()
        )?;
    }
    if let Some(note) = plan.header_note() {
        writeln!(out, "  note: {note}")?;
    }
    if let (Some(rows), Some(bytes)) = (plan.estimated_rows, plan.estimated_bytes) {
        writeln!(out, "  about {}, {} unpacked", count(round(rows), "row"), Size(bytes))?;
    }
    writeln!(out, "\nColumns, from the first {}", count(plan.sampled_rows, "row"))?;
    let width = plan.columns.iter().map(|column| column.name.chars().count()).max().unwrap_or(0);
    let types: Vec<String> = plan.columns.iter().map(|column| column.ty.to_string()).collect();
    let type_width = types.iter().map(String::len).max().unwrap_or(0);
    for (column, ty) in plan.columns.iter().zip(types) {
        let null = if column.nullable { "null" } else { "not null" };
        let note = match &column.note {
            Some(note) => note.as_str(),
            None if column.given => "as given",
            None => "",
        };
        let line = format!("  {:width$}  {ty:type_width$}  {null:8}  {note}", column.name);
        writeln!(out, "{}", line.trim_end())?;
    }
    let key =
        args.primary_key.as_ref().map_or("row_id, the number of the row".to_owned(), |key| key.0.join(", "));
    writeln!(out, "\nPrimary key  {key}")?;
    for (spec, unique) in args.indexes() {
        writeln!(out, "{}  {spec}", if unique { "Unique index" } else { "Index       " })?;
    }
    writeln!(out, "\nTo load exactly like this, whatever the first rows look like:\n\n  alluvium-load \\")?;
    let lines = options(plan, args);
    for (at, words) in lines.iter().enumerate() {
        let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
        let more = if at + 1 < lines.len() { " \\" } else { "" };
        writeln!(out, "    {}{more}", words.join(" "))?;
    }
    Ok(())
}

/// An estimate does not have more than three digits worth telling.
fn round(number: u64) -> u64 {
    let unit = 10u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(2));
    (number + unit / 2) / unit * unit
}

/// The words of the command line that makes the same plan without looking, a few to a line.
fn options(plan: &Plan, args: &Args) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    let mut option =
        |words: &[&dyn ToString]| lines.push(words.iter().map(|word| word.to_string()).collect());
    option(&[&"--db", &args.db.display(), &"--table", &plan.schema.name()]);
    if let Some(first) = plan.inputs.first() {
        let format = if first.dialect.delimiter == b'\t' { "tsv" } else { "csv" };
        let header = if first.dialect.has_header { "yes" } else { "no" };
        option(&[&"--format", &format, &"--header", &header]);
    }
    args.null.iter().for_each(|text| option(&[&"--null", text]));
    for column in &plan.columns {
        option(&[&"--column", &format!("{}={}", column.name, column.ty)]);
    }
    args.not_null.iter().for_each(|columns| option(&[&"--not-null", columns]));
    match &args.primary_key {
        Some(key) => option(&[&"--primary-key", key]),
        None => option(&[&"--row-id"]),
    }
    args.index.iter().for_each(|spec| option(&[&"--index", spec]));
    args.unique_index.iter().for_each(|spec| option(&[&"--unique-index", spec]));
    if args.on_duplicate != OnDuplicate::Error {
        option(&[&"--on-duplicate", &args.on_duplicate]);
    }
    if args.max_errors != ErrorLimit::Rows(0) {
        option(&[&"--max-errors", &args.max_errors]);
    }
    lines.push(args.inputs.iter().map(|input| input.display().to_string()).collect());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_rounded_to_three_digits() {
        assert_eq!([0, 7, 999, 336_776].map(round), [0, 7, 999, 337_000]);
    }
}
