//! The plan of a load: what the inputs look like, and the schema that follows.
//!
//! 1. Open every input, look at its first bytes for delimiter and header, and check that all have the same columns.
//! 2. Sample rows and guess the types; `--column` and `--not-null` override.
//! 3. Build the schema from the columns, the key and the indexes.
//!
//! A file is closed again and reopened for loading. What cannot be opened twice (standard input, a pipe) stays open,
//! with the sampled bytes put back in front.

use std::sync::{Mutex, PoisonError};

use alluvium::row::{Index, Schema, Type};

use crate::load::cli::Args;
use crate::load::cli::spec::IndexSpec;
use crate::load::error::{LoadError, Result};
use crate::load::input::open::{InputName, OpenInput, Packing};
use crate::load::null_strings::NullStrings;
use crate::load::place::INPUTS_MAX;
use crate::load::sample::{HEAD_BYTES, Head, SAMPLE_BYTES, SAMPLED_INPUTS, Sampler};
use crate::load::sniff::column::ColumnSample;
use crate::load::sniff::dialect::Dialect;
use crate::load::summary::count;

/// Name of the column that `--row-id` adds.
pub const ROW_ID: &str = "row_id";

/// Everything that is known before the first row is encoded.
pub struct Plan {
    /// The inputs in the order of the command line.
    pub inputs: Vec<PlannedInput>,
    /// The columns of the inputs, in their order.
    pub columns: Vec<PlannedColumn>,
    /// The table to make. With `--row-id` its first column is [`ROW_ID`], before those of the inputs.
    pub schema: Schema,
    /// True if rows are numbered.
    pub row_id: bool,
    /// What stands for NULL.
    pub nulls: NullStrings,
    /// Rows that were looked at.
    pub sampled_rows: u64,
    /// About how many rows there are in all; `None` if an input's size is not known.
    pub estimated_rows: Option<u64>,
    /// About how many unpacked bytes there are in all.
    pub estimated_bytes: Option<u64>,
}

impl Plan {
    /// What the user must know about the first rows: of the first input whose first row could be names or data.
    #[must_use]
    pub fn header_note(&self) -> Option<String> {
        let doubtful = self.inputs.iter().find(|input| !input.dialect.header_is_certain)?;
        let (name, dialect) = (&doubtful.name, &doubtful.dialect);
        let taken = match dialect.has_header {
            true => format!(
                "the first row is taken as column names, {} (say --header no otherwise)",
                dialect.columns.join(", ")
            ),
            false => "the first row is taken as data (say --header yes if it holds the names of the columns)"
                .to_owned(),
        };
        Some(format!("{name}: {taken}"))
    }
}

/// One input and what it looks like.
pub struct PlannedInput {
    /// Its name.
    pub name: InputName,
    /// How it is packed.
    pub packing: Packing,
    /// Size as stored, if known.
    pub stored_bytes: Option<u64>,
    /// Delimiter and header.
    pub dialect: Dialect,
    /// The input itself, if it cannot be opened again.
    kept: Mutex<Option<OpenInput>>,
}

impl PlannedInput {
    /// The input from its start.
    ///
    /// # Errors
    /// `Input` if it cannot be opened.
    pub fn open(&self) -> Result<OpenInput> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.map_or_else(|| OpenInput::open(&self.name), Ok)
    }
}

/// One column of the inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// True if it may be NULL.
    pub nullable: bool,
    /// True if the type was given, not guessed.
    pub given: bool,
    /// What the user may want to know.
    pub note: Option<String>,
}

/// Makes the plan of a command line.
///
/// # Errors
/// `Usage` if the command line does not fit the inputs; `Input` if one cannot be read.
pub fn make(args: &Args) -> Result<Plan> {
    if args.inputs.len() > INPUTS_MAX {
        return Err(LoadError::Usage(format!(
            "{} inputs; at most {INPUTS_MAX} fit one load",
            args.inputs.len()
        )));
    }
    let nulls = NullStrings::new(&args.null);
    let mut sampler = Sampler::new(&nulls, args.primary_key.is_none() && !args.row_id);
    let mut inputs = Vec::with_capacity(args.inputs.len());
    for path in &args.inputs {
        let first: Option<&PlannedInput> = inputs.first();
        let input = look_at(&InputName::new(path), args, first, inputs.len(), &mut sampler)?;
        inputs.push(input);
    }
    let Some(first) = inputs.first() else {
        return Err(LoadError::Usage("no input".to_owned()));
    };
    let table = table_name(args, &first.name)?;
    let columns = plan_columns(args, &first.dialect.columns, &first.name, &sampler)?;
    check_key(args, &columns, &first.name, &sampler)?;
    let schema = build_schema(args, &table, &columns)?;
    let estimated_bytes = sampler.estimate_bytes(&inputs);
    Ok(Plan {
        columns,
        schema,
        row_id: args.row_id,
        sampled_rows: sampler.rows(),
        estimated_rows: estimated_bytes.and_then(|bytes| sampler.estimate_rows(bytes)),
        estimated_bytes,
        nulls: nulls.clone(),
        inputs,
    })
}

/// Opens one input, finds its dialect and samples it.
fn look_at(
    name: &InputName,
    args: &Args,
    first: Option<&PlannedInput>,
    number: usize,
    sampler: &mut Sampler<'_>,
) -> Result<PlannedInput> {
    let mut input = OpenInput::open(name)?;
    let is_sampled = number < SAMPLED_INPUTS;
    let bytes = if is_sampled { SAMPLE_BYTES } else { HEAD_BYTES };
    let head = Head::read(&mut input, bytes, args.format, args.header)?;
    if let Some(first) = first {
        check_same_columns(first, name, &head.dialect)?;
    }
    sampler.add_packing(&input, &head);
    if is_sampled {
        sampler.add(name, &head)?;
    } else {
        sampler.skip();
    }
    let Head { bytes, dialect, .. } = head;
    let (packing, stored_bytes) = (input.packing, input.stored_bytes);
    let kept = Mutex::new(stored_bytes.is_none().then(|| input.with_head(bytes)));
    Ok(PlannedInput { name: name.clone(), packing, stored_bytes, dialect, kept })
}

fn check_same_columns(first: &PlannedInput, name: &InputName, dialect: &Dialect) -> Result<()> {
    let (expected, found) = (&first.dialect.columns, &dialect.columns);
    let differs = |detail: String| {
        Err(LoadError::Usage(format!("{name} does not have the columns of {}: {detail}", first.name)))
    };
    if expected.len() != found.len() {
        return differs(format!("it has {}, not {}", count(found.len() as u64, "column"), expected.len()));
    }
    if first.dialect.has_header != dialect.has_header {
        let (with, without) = if dialect.has_header {
            ("it has", "the other has not")
        } else {
            ("it lacks", "the other has one")
        };
        return differs(format!("{with} a row of names, {without}; say --header yes or --header no"));
    }
    match expected.iter().zip(found).position(|(expected, found)| expected != found) {
        Some(at) => differs(format!("column {} is {}, not {}", at + 1, found[at], expected[at])),
        None => Ok(()),
    }
}

fn table_name(args: &Args, first: &InputName) -> Result<String> {
    args.table.clone().or_else(|| first.stem()).ok_or_else(|| {
        LoadError::Usage("standard input has no name to call the table by; say --table NAME".to_owned())
    })
}

fn plan_columns(
    args: &Args,
    names: &[String],
    input: &InputName,
    sampler: &Sampler<'_>,
) -> Result<Vec<PlannedColumn>> {
    let known = |name: &str, option: &str| {
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        let detail = format!("{option}: {input} has no column {name:?}; it has {}", names.join(", "));
        Err(LoadError::Usage(detail))
    };
    let not_null: Vec<&String> = args.not_null.iter().flat_map(|list| &list.0).collect();
    let key: Vec<&String> = args.primary_key.iter().flat_map(|list| &list.0).collect();
    args.column.iter().try_for_each(|column| known(&column.name, "--column"))?;
    not_null.iter().try_for_each(|name| known(name, "--not-null"))?;
    key.iter().try_for_each(|name| known(name, "--primary-key"))?;
    for (spec, unique) in args.indexes() {
        let option = if unique { "--unique-index" } else { "--index" };
        let used = spec.parts.iter().map(|part| &part.column).chain(&spec.include);
        for name in used.filter(|name| !(args.row_id && *name == ROW_ID)) {
            known(name, &format!("{option} {}", spec.name))?;
        }
    }
    let plan = |(name, sample): (&String, &ColumnSample)| {
        // The last --column of a name counts, as usual on a command line.
        let given = args.column.iter().rev().find(|column| column.name == *name);
        let guess = sample.guess();
        PlannedColumn {
            name: name.clone(),
            ty: given.map_or(guess.ty, |column| column.ty),
            nullable: !not_null.contains(&name) && !key.contains(&name),
            given: given.is_some(),
            note: guess.note.filter(|_| given.is_none()),
        }
    };
    Ok(names.iter().zip(sampler.columns()).map(plan).collect())
}

/// A table needs a key; without one, names the columns that could be it.
fn check_key(args: &Args, columns: &[PlannedColumn], input: &InputName, sampler: &Sampler<'_>) -> Result<()> {
    if args.primary_key.is_some() || args.row_id {
        return Ok(());
    }
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let candidates = sampler.key_candidates(&names);
    let advice = match candidates.as_slice() {
        [] => "No single column differs in every sampled row; several together may: --primary-key COL,COL,…"
            .to_owned(),
        names => {
            format!(
                "In the first {}, each of these differs in every row: {}",
                count(sampler.rows(), "row"),
                names.join(", ")
            )
        }
    };
    Err(LoadError::Usage(format!(
        "{input}: which columns tell one row from another? Say --primary-key COL[,COL…], or --row-id to number the \
         rows.\n{advice}"
    )))
}

fn build_schema(args: &Args, table: &str, columns: &[PlannedColumn]) -> Result<Schema> {
    let mut builder = Schema::table(table);
    if args.row_id {
        builder = builder.column(ROW_ID, Type::U64);
    }
    for column in columns {
        let (name, ty) = (column.name.as_str(), column.ty);
        builder = if column.nullable { builder.nullable(name, ty) } else { builder.column(name, ty) };
    }
    let row_id = vec![ROW_ID.to_owned()];
    builder = builder.primary_key(args.primary_key.as_ref().map_or(row_id, |key| key.0.clone()));
    for (spec, unique) in args.indexes() {
        builder = builder.index(index_of(spec, unique));
    }
    builder.build().map_err(|error| LoadError::Usage(error.to_string()))
}

fn index_of(spec: &IndexSpec, unique: bool) -> Index {
    let start = Index::on(&spec.name).include(&spec.include);
    let index = spec
        .parts
        .iter()
        .fold(start, |index, part| index.part(&part.column, part.descending, part.prefix.map(u32::from)));
    if unique { index.unique() } else { index }
}
