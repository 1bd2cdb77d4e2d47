//! The command line of `alluvium-inspect`: each command and option with its help.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, Subcommand};

/// Shows what is in an Alluvium database and why it looks as it does, and checks all of it.
///
/// Everything but checkpoint, backup, restore and repair --apply only reads. It works on a closed database; beside a
/// process that has it open it shows what is in the files at this moment.
#[derive(Clone, Debug, Parser)]
#[command(name = "alluvium-inspect", version, after_long_help = EXAMPLES)]
pub struct Args {
    /// Directory of the database
    #[arg(long, global = true, value_name = "DIR", help_heading = "Options of every command")]
    pub db: Option<PathBuf>,

    /// Write JSON for scripts: one document, or one object per line where there may be many rows or records
    #[arg(long, global = true, help_heading = "Options of every command")]
    pub json: bool,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Levels, tables, sizes, garbage, log, and what it all means in words
    Overview,
    /// Columns, keys and indexes of tables, with the size of each index
    Tables {
        /// Only these tables
        #[arg(value_name = "TABLE")]
        tables: Vec<String>,
    },
    /// Print rows, by primary key or by an index
    #[command(after_long_help = ROWS_EXAMPLES)]
    Rows(RowsArgs),
    /// Show how `rows` with the same arguments would find its rows, without doing it
    #[command(after_long_help = EXPLAIN_EXAMPLES)]
    Explain(ScanArgs),
    /// Look into one table file
    #[command(subcommand, after_long_help = SST_EXAMPLES)]
    Sst(SstCommand),
    /// Look into the log
    #[command(subcommand)]
    Wal(WalCommand),
    /// Look into the manifest: the history of the tree
    #[command(subcommand)]
    Manifest(ManifestCommand),
    /// Check manifest, table files and log; exit code 1 if something is wrong
    ///
    /// Without --deep: the manifest and the log are read and checked, and every table file must be there with its size,
    /// its identity and a valid footer. With --deep every block of every table is read and checked, too. Goes on after
    /// a problem and lists them all.
    Verify {
        /// Read and check every block of every table file
        #[arg(long)]
        deep: bool,
    },
    /// Check that indexes and rows agree; exit code 1 if they do not
    ///
    /// Reads the tables and their indexes once, in little memory: every row must have its entry in each index and every
    /// entry its row.
    IndexCheck {
        /// Only this table
        #[arg(value_name = "TABLE")]
        table: Option<String>,
    },
    /// Make a consistent copy of the database that opens as a database of its own, by hard links where possible
    ///
    /// Flushes the log into table files first, so no other process may have the database open. The copy shares the bytes of
    /// its table files with the database, and their damage: it is no backup.
    Checkpoint {
        /// The new directory; it must not exist, or be empty
        #[arg(value_name = "DIR")]
        target: PathBuf,
    },
    /// Make, list, check and delete backups
    #[command(subcommand, after_long_help = BACKUP_EXAMPLES)]
    Backup(BackupCommand),
    /// Make a database from a backup; every table file is compared with its checksum
    Restore {
        /// The directory of backups
        #[arg(value_name = "BACKUPS")]
        backups: PathBuf,
        /// The new database's directory; it must not exist, or be empty
        #[arg(value_name = "DIR")]
        target: PathBuf,
        /// This backup [default: the newest]
        #[arg(long, value_name = "N")]
        number: Option<u64>,
    },
    /// Find out what is lost in a damaged database; with --apply, make it one that works with what is left
    ///
    /// Reads everything. A lost or damaged CURRENT is made anew; table files that are missing or damaged are given up;
    /// the log is read past its damage; indexes are made to agree with the rows. What was damaged is kept in a directory
    /// damaged-N. Exit code 1 if something is to be repaired, and after --apply if something was lost. A database whose
    /// manifest is damaged cannot be repaired: restore it from a backup.
    Repair {
        /// Do it; without this nothing is changed
        #[arg(long)]
        apply: bool,
    },
    /// Print a script that lets a shell complete commands and options
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Which rows, and which of their columns.
#[derive(Clone, Debug, clap::Args)]
pub struct ScanArgs {
    /// The table
    #[arg(value_name = "TABLE")]
    pub table: String,

    /// Go by this index instead of the primary key
    #[arg(long, value_name = "INDEX")]
    pub index: Option<String>,

    /// Only rows whose first key column is V; again for the second key column, and so on
    ///
    /// Values are written as `rows` prints them: 2013-01-31, 05:00:00, 2013-01-31T05:00:00Z, true, 0x00ff. \N is NULL.
    /// A value that begins with a hyphen and is no number needs the form --eq=V. The whole value of the column is compared,
    /// also where the index keeps only a prefix of it: --eq never finds rows by the start of a text.
    #[arg(long, value_name = "V", allow_negative_numbers = true)]
    pub eq: Vec<String>,

    /// Only rows whose next key column, after those given by --eq, is V or greater
    #[arg(long, value_name = "V", allow_negative_numbers = true)]
    pub from: Option<String>,

    /// Only rows whose next key column, after those given by --eq, is less than V
    #[arg(long, value_name = "V", allow_negative_numbers = true)]
    pub to: Option<String>,

    /// Go backwards
    #[arg(long)]
    pub reverse: bool,

    /// Only these columns; if the index holds them all, no row is read
    #[arg(long, value_name = "COL[,COL…]", value_delimiter = ',', value_parser = column_name)]
    pub columns: Vec<String>,

    /// At most so many rows, or `all` [default: 100]
    #[arg(long, value_name = "N|all")]
    pub limit: Option<Limit>,

    /// Go on behind an earlier call, which has printed the token; index, bounds and direction must be the same
    #[arg(long, value_name = "TOKEN")]
    pub after: Option<String>,
}

/// Arguments of `rows`.
#[derive(Clone, Debug, clap::Args)]
pub struct RowsArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "its text would become the help of the whole command")]
    pub scan: ScanArgs,

    /// Only count the rows
    #[arg(long, conflicts_with_all = ["limit", "columns", "vertical"])]
    pub count: bool,

    /// One column per line, as is done by itself where a row is too wide for the terminal
    #[arg(long)]
    pub vertical: bool,
}

/// Commands for one table file.
#[derive(Clone, Debug, Subcommand)]
pub enum SstCommand {
    /// What the file says about itself: entries, keys, sequence numbers, keyspaces
    Props(SstFile),
    /// Print its entries: every version of every key, tombstones included
    Scan {
        #[command(flatten)]
        #[expect(missing_docs, reason = "its text would become the help of the whole command")]
        file: SstFile,
        /// At most so many entries, or `all` [default: 100]
        #[arg(long, value_name = "N|all")]
        limit: Option<Limit>,
        /// Go backwards
        #[arg(long)]
        reverse: bool,
    },
    /// Read and check all of it; exit code 1 if something is wrong
    Verify(SstFile),
    /// Its blocks, in the order of the file
    Layout(SstFile),
}

/// A table file.
#[derive(Clone, Debug, clap::Args)]
pub struct SstFile {
    /// The file's path; with --db its number will do
    ///
    /// If the file lies in a database's directory, or --db is given, keys are shown as rows and index entries.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Commands for the log.
#[derive(Clone, Debug, Subcommand)]
pub enum WalCommand {
    /// Ring, segments and what is wrong with them
    Dump {
        /// The records in them, too, with their operations
        #[arg(long)]
        records: bool,
        /// At most so many records, or `all` [default: 100]
        #[arg(long, value_name = "N|all", requires = "records")]
        limit: Option<Limit>,
    },
}

/// Commands for the manifest.
#[derive(Clone, Debug, Subcommand)]
pub enum ManifestCommand {
    /// Every edit, in order
    Dump,
}

/// Commands for backups.
#[derive(Clone, Debug, Subcommand)]
pub enum BackupCommand {
    /// Back up the database, which no other process may have open; only table files that no earlier backup has are copied
    Create {
        /// The directory of backups; it is made if it does not exist
        #[arg(value_name = "BACKUPS")]
        backups: PathBuf,
        /// Copy every table file anew, so that nothing is shared with earlier backups
        #[arg(long)]
        full: bool,
    },
    /// The backups that there are; exit code 1 if one cannot be read
    List {
        /// The directory of backups
        #[arg(value_name = "BACKUPS")]
        backups: PathBuf,
    },
    /// Read backups in full and compare them with their checksums; exit code 1 if something is wrong
    Verify {
        /// The directory of backups
        #[arg(value_name = "BACKUPS")]
        backups: PathBuf,
        /// Only this one
        #[arg(value_name = "N")]
        number: Option<u64>,
    },
    /// Delete a backup and the table files that no other one needs
    Delete {
        /// The directory of backups
        #[arg(value_name = "BACKUPS")]
        backups: PathBuf,
        /// Its number
        #[arg(value_name = "N")]
        number: u64,
    },
}

fn column_name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("expected a name on both sides of a comma".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// How many rows at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many.
    Rows(u64),
    /// All that there are.
    All,
}

impl Limit {
    /// What applies if nothing is given.
    const DEFAULT: u64 = 100;

    /// The number that an option stands for; `None` for all.
    #[must_use]
    pub fn of(option: Option<Limit>) -> Option<u64> {
        match option {
            None => Some(Limit::DEFAULT),
            Some(Limit::Rows(rows)) => Some(rows),
            Some(Limit::All) => None,
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        if text == "all" {
            return Ok(Limit::All);
        }
        let number = text.parse::<u64>().ok().filter(|&number| number > 0);
        number.map(Limit::Rows).ok_or_else(|| "expected a number from 1 on, or `all`".to_owned())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Rows(rows) => write!(f, "{rows}"),
            Limit::All => f.write_str("all"),
        }
    }
}

const ROWS_EXAMPLES: &str = "\
Examples, for a table with primary key (time_hour, carrier, flight, origin) and an index by_tail (tailnum, time_hour desc):
  One hour's flights of one carrier:
    alluvium-inspect --db data rows flights --eq 2013-07-04T12:00:00Z --eq UA

  One aircraft in July, newest first, since the index is descending:
    alluvium-inspect --db data rows flights --index by_tail --eq N725MQ --from 2013-07-01 --to 2013-08-01

  How many rows have no tail number:
    alluvium-inspect --db data rows flights --index by_tail --eq '\\N' --count

  The last row, with all of its columns one below the other:
    alluvium-inspect --db data rows flights --reverse --limit 1 --vertical";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  An index that has all columns that are asked for: no row is read
    alluvium-inspect --db data explain flights --index by_route --eq JFK --eq SEA --columns carrier,arr_delay

  The same with all columns: one row is read for each entry of the index
    alluvium-inspect --db data explain flights --index by_route --eq JFK --eq SEA

  No condition: a full scan
    alluvium-inspect --db data explain flights";

const SST_EXAMPLES: &str = "\
Examples:
  By number, in a database; keys are shown as rows and index entries:
    alluvium-inspect --db data sst props 7
    alluvium-inspect --db data sst scan 7 --reverse --limit 20

  By path; the catalog of the database around the file is used if there is one:
    alluvium-inspect sst verify data/00000007.sst
    alluvium-inspect sst layout data/00000007.sst";

const BACKUP_EXAMPLES: &str = "\
Examples:
  Every night: what is new is copied, everything else is shared with earlier backups
    alluvium-inspect --db data backup create /safe/backups

  Can the newest ones be relied on? Then the oldest may go:
    alluvium-inspect backup verify /safe/backups
    alluvium-inspect backup list /safe/backups
    alluvium-inspect backup delete /safe/backups 1

  Back to a database:
    alluvium-inspect restore /safe/backups data-again --number 7";

const EXAMPLES: &str = "\
Examples:
  What is in the database, and is it in good shape?
    alluvium-inspect --db data overview

  The columns, keys and indexes of one table:
    alluvium-inspect --db data tables flights

  The newest five flights of an aircraft, by an index:
    alluvium-inspect --db data rows flights --index by_tail --eq N725MQ --limit 5

  Flights of one night by primary key, newest first; and how many there are:
    alluvium-inspect --db data rows flights --from 2013-01-01T22:00:00Z --to 2013-01-02T05:00:00Z --reverse
    alluvium-inspect --db data rows flights --from 2013-01-01T22:00:00Z --to 2013-01-02T05:00:00Z --count

  Rows without a value; and the next page of a long answer:
    alluvium-inspect --db data rows flights --index by_tail --eq '\\N' --limit 10
    alluvium-inspect --db data rows flights --index by_tail --eq '\\N' --limit 10 --after TOKEN

  Does this query read rows, or is the index enough?
    alluvium-inspect --db data explain flights --index by_route --eq JFK --eq SEA --columns carrier,arr_delay

  Is everything intact?
    alluvium-inspect --db data verify --deep
    alluvium-inspect --db data index-check

  A copy to look at or to test with; a backup:
    alluvium-inspect --db data checkpoint data-copy
    alluvium-inspect --db data backup create /safe/backups

  What would a repair have to give up?
    alluvium-inspect --db data repair

  What is in one table file, in the log, in the manifest?
    alluvium-inspect --db data sst scan 7 --limit 20
    alluvium-inspect sst props data/00000007.sst
    alluvium-inspect --db data wal dump --records
    alluvium-inspect --db data manifest dump

  For a script: the rows as lines of JSON
    alluvium-inspect --db data rows flights --limit all --json | jq -c 'select(.event==\"row\").values'

How values are shown:
  NULL is no value; a text that could be taken for something else (NULL, the empty text, one with blanks at its ends,
  quotes or control characters) stands in double quotes. Long values are cut in tables (…), not with --vertical or
  --json.

Exit codes:
  0  fine
  1  verify, sst verify, index-check, repair, backup list or backup verify found problems
  2  the command line does not make sense
  4  there is no such database, table, index, column or file
  5  something that had to be read is damaged, was written by a newer version, or is no table file
  8  reading failed
  9  another process has the database open and has changed what was being read: try again";

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
        let all = [EXAMPLES, ROWS_EXAMPLES, EXPLAIN_EXAMPLES, SST_EXAMPLES, BACKUP_EXAMPLES].join("\n");
        let examples: Vec<&str> =
            all.lines().filter(|line| line.starts_with("    alluvium-inspect")).collect();
        assert_eq!(examples.len(), 18 + 4 + 3 + 4 + 5);
        for example in examples {
            let command = example.split(" | ").next().unwrap();
            let words = command.split_whitespace().map(|word| word.trim_matches('\''));
            Args::try_parse_from(words).unwrap_or_else(|error| panic!("{example}\n{error}"));
        }
    }

    #[test]
    fn an_empty_column_was_said_not_to_exist() {
        for columns in [",", "a,", ""] {
            let told =
                Args::try_parse_from(["alluvium-inspect", "rows", "t", "--columns", columns]).unwrap_err();
            assert!(told.to_string().contains("expected a name on both sides of a comma"), "{told}");
        }
    }

    #[test]
    fn negative_numbers_are_values_and_options_are_not() {
        let parse = |words: &[&str]| {
            let all = ["alluvium-inspect", "rows", "t"].iter().chain(words);
            Args::try_parse_from(all)
        };
        assert!(parse(&["--eq", "-5", "--from", "-1.5"]).is_ok());
        assert!(parse(&["--eq=-inf"]).is_ok());
        assert!(parse(&["--eq", "--limit", "3"]).is_err());
        assert!(parse(&["--limit", "0"]).unwrap_err().to_string().contains("expected a number from 1 on"));
        assert!(parse(&["--limit", "all"]).is_ok());
    }
}
