//! The command line of `alluvium-load`: each option with its help, and nothing that the loader does not read.

use std::path::PathBuf;
use std::str::FromStr;

use alluvium::row::Type;
use clap::Parser;

use crate::load::cli::size::{ErrorLimit, Size};
use crate::load::cli::spec::{ColumnList, IndexSpec};
use crate::load::sniff::dialect::{Format, Header};

pub mod size;
pub mod spec;

/// Loads text files into a new table with all of its indexes, in one step.
///
/// Rows are read, sorted once per index within a fixed amount of memory, and written straight into finished table
/// files. The table appears with all of its indexes at the very end, or not at all: stopping, a crash or an error at
/// any moment leaves the database as it was.
///
/// Column types are found out from the first 10,000 rows of each input, or from its first 4 MiB if that is less (but at
/// least from one whole row), of the first 16 inputs. A row has at most 64 MiB. Look at the types first with --dry-run.
#[derive(Clone, Debug, Parser)]
#[command(name = "alluvium-load", version, after_long_help = EXAMPLES)]
pub struct Args {
    /// Files to load, all with the same columns; `-` is standard input. gzip and zstd are unpacked on the fly
    #[arg(required = true, value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,

    /// Directory of the database; made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub db: PathBuf,

    /// Name of the new table [default: name of the first file, without extensions]
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,

    /// Columns that together are different in every row, most significant first
    #[arg(long, value_name = "COL[,COL…]", conflicts_with = "row_id")]
    pub primary_key: Option<ColumnList>,

    /// Number the rows, for a table without a key of its own: adds a column row_id that counts from 1
    #[arg(long)]
    pub row_id: bool,

    /// An index; may be given several times. COLS is `col[:desc][:N][,…][;include=col[,…]]`
    ///
    /// `:desc` sorts a column descending. `:N` keeps only its first N characters (or bytes). Columns after `;include=`
    /// are kept in the index as well, so that a query that needs only them does not look up the row.
    #[arg(long, value_name = "NAME=COLS")]
    pub index: Vec<IndexSpec>,

    /// An index in which no two rows may have the same key. A key with a NULL in it never counts as the same
    #[arg(long, value_name = "NAME=COLS")]
    pub unique_index: Vec<IndexSpec>,

    /// What separates the fields [default: by the file's name and first rows]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,

    /// Whether the first row of each file holds the names of the columns
    ///
    /// `auto` looks at the first 50 rows, and says what it takes the first row for if it could be either.
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub header: Header,

    /// Text that stands for NULL, in any column; may be given several times
    ///
    /// An empty field is NULL for every type but text, where it is the empty text. `--null ''` makes it NULL there too.
    /// With one column an empty line is an empty field; with several, empty lines are skipped and not counted.
    #[arg(long, value_name = "STR", allow_hyphen_values = true)]
    pub null: Vec<String>,

    /// Type of a column, instead of what the first rows suggest; may be given several times
    ///
    /// Types are bool, i8 to i64, u8 to u64, f32, f64, decimal(precision,scale), text, bytes, date, time, timestamp,
    /// uuid and json.
    #[arg(long, value_name = "NAME=TYPE")]
    pub column: Vec<ColumnType>,

    /// Columns that must have a value in every row. Others may be NULL, unless they are part of the primary key
    #[arg(long, value_name = "COL[,COL…]")]
    pub not_null: Vec<ColumnList>,

    /// What to do with rows that have the same primary key
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub on_duplicate: OnDuplicate,

    /// Load although so many rows (100) or so many in a hundred (0.5%) are rejected
    #[arg(long, default_value = "0", value_name = "N|N%")]
    pub max_errors: ErrorLimit,

    /// File for the rejected rows, one JSON object per line: where, what was expected, what was there
    ///
    /// It is made when a row is rejected, under a name that ends in .partial, and gets its own name when the load ends.
    /// Only an earlier file of rejected rows is replaced, and only if there are rejected rows again; any other file that
    /// exists, an input, or a file in the database's directory is refused.
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,

    /// Memory for sorting; what does not fit goes to temporary files. The open database takes up to 32 MiB besides
    #[arg(long, default_value = "512MiB", value_name = "SIZE")]
    pub memory: Size,

    /// Threads that encode, sort and write [default: number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,

    /// Directory for temporary files, which must exist [default: the database's]
    #[arg(long, value_name = "DIR")]
    pub tmp: Option<PathBuf>,

    /// Show format, columns, types, indexes and the options that fix them, and stop
    #[arg(long)]
    pub dry_run: bool,

    /// Write the plan or the summary as JSON, and notes, progress and errors as lines of JSON
    ///
    /// Progress goes to standard error. On a terminal it is a bar. With --json, or where standard error is no terminal
    /// (a file, a pipe, a job without one), it is one line of JSON each second, {"event":"progress",…}; notes, warnings
    /// and errors are still plain text there unless --json is given.
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// All indexes in the order of the schema: plain ones first, then unique ones, each with whether it is unique.
    pub fn indexes(&self) -> impl Iterator<Item = (&IndexSpec, bool)> {
        self.index.iter().map(|spec| (spec, false)).chain(self.unique_index.iter().map(|spec| (spec, true)))
    }

    /// Number of threads to use.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(processors, usize::from)
    }
}

/// What happens to rows with the same primary key, in the order of the input. Rows that share a key of a unique index
/// without sharing the primary key are never taken for the same row: the later one is rejected, or with `error` the
/// load fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnDuplicate {
    /// The load fails and lists them.
    #[default]
    Error,
    /// The first row is loaded; the others are superseded.
    First,
    /// The last row is loaded; the others are superseded.
    Last,
    /// The first row is loaded; the others are rejected, and count for --max-errors.
    Reject,
}

impl std::fmt::Display for OnDuplicate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OnDuplicate::Error => "error",
            OnDuplicate::First => "first",
            OnDuplicate::Last => "last",
            OnDuplicate::Reject => "reject",
        })
    }
}

/// `NAME=TYPE` of `--column`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// Name of the column.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

impl FromStr for ColumnType {
    type Err = String;

    fn from_str(text: &str) -> Result<ColumnType, String> {
        let (name, ty) = text.rsplit_once('=').ok_or("expected NAME=TYPE, as in price=decimal(12,2)")?;
        let ty = ty.parse().map_err(|error: alluvium_base::Error| error.to_string())?;
        Ok(ColumnType { name: name.to_owned(), ty })
    }
}

const EXAMPLES: &str = "\
Examples:
  See what would be loaded, and which options to fix:
    alluvium-load --db data --primary-key id --dry-run users.csv

  Load a gzipped file in which missing values are written NA, with three indexes:
    alluvium-load --db data --primary-key time_hour,carrier,flight,origin --null NA \\
      --index 'by_tail=tailnum,time_hour:desc' \\
      --index 'by_route=origin,dest;include=carrier,arr_delay' \\
      --unique-index 'by_key=time_hour,carrier,flight,origin,tailnum' flights.csv.gz

  Load what a program writes, and go on when up to one row in a hundred is bad:
    export-orders | alluvium-load --db data --table orders --primary-key id \\
      --max-errors 1% --rejects bad-rows.jsonl -

  Several files; of rows with the same key the last one counts:
    alluvium-load --db data --table prices --primary-key day,item --on-duplicate last 2024-*.tsv.zst

  A price that must stay exact, and an identifier that only looks like a number:
    alluvium-load --db data --primary-key sku --column 'price=decimal(12,2)' --column sku=text items.csv

Duplicates:
  --on-duplicate  same primary key                     same key of a unique index, other primary key
  error           nothing is loaded                    nothing is loaded
  first           the first row is loaded              the later row is rejected
  last            the last row is loaded               the later row is rejected
  reject          later rows are rejected              the later row is rejected
  Rows that make room for another one are counted as superseded. Rejected rows count for --max-errors.

Exit codes:
  0  all rows are loaded
  2  the command line does not make sense, or the table exists
  3  loaded, but some rows were rejected
  4  not loaded: too many rejected rows, or duplicates
  5  not loaded: what was written could not be verified
  6  not loaded: stopped with ^C (a second ^C stops at once)
  8  not loaded: reading or writing failed, or the disk is full; or loaded, as the message then says, but the summary or
     the rejected rows could not be written
  9  not loaded: the database is open in another process";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_examples_of_the_help_parse() {
        let joined = EXAMPLES.replace("\\\n", " ");
        let examples: Vec<&str> = joined.lines().filter(|line| line.contains("alluvium-load --db")).collect();
        assert_eq!(examples.len(), 5);
        for example in examples {
            let command = &example[example.find("alluvium-load").unwrap()..];
            let words = command.split_whitespace().map(|word| word.trim_matches('\''));
            Args::try_parse_from(words).unwrap_or_else(|error| panic!("{example}\n{error}"));
        }
    }

    #[test]
    fn a_column_type_is_behind_the_last_equals_sign() {
        let column: ColumnType = "a=b=decimal(12,2)".parse().unwrap();
        assert_eq!((column.name.as_str(), column.ty), ("a=b", Type::Decimal { precision: 12, scale: 2 }));
        assert!("price".parse::<ColumnType>().unwrap_err().contains("NAME=TYPE"));
        assert!("price=money".parse::<ColumnType>().unwrap_err().contains("decimal(precision,scale)"));
    }

    #[test]
    fn a_bad_index_is_shown_with_its_place() {
        let words = ["alluvium-load", "--db", "d", "--primary-key", "a", "--index", "x=a:dsc", "f.csv"];
        let shown = Args::try_parse_from(words).unwrap_err().to_string();
        let expected = "error: invalid value 'x=a:dsc' for '--index <NAME=COLS>': \
                        expected `desc`, or the length of a prefix from 1 to 65535\n  x=a:dsc\n      ^^^\n";
        assert!(shown.starts_with(expected), "{shown}");
    }
}
