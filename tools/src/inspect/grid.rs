//! Aligned columns of text.
//!
//! Rows are collected up to a number, their widths measured, then written; a longer answer goes on in the same columns,
//! made wider where needed. So an answer of any length needs little memory.

use console::measure_text_width;

use super::error::Result;
use super::output::Output;
use super::text::Cell;

/// Rows that are measured together.
const ROWS_HELD: usize = 500;
/// What stands between two columns.
const GAP: &str = "  ";

/// To which side a column's cells go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Text.
    #[default]
    Left,
    /// Numbers.
    Right,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    align: Align,
    width: usize,
}

/// Columns with a line of names above them.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    indent: usize,
    header_written: bool,
}

impl Grid {
    /// A grid without columns, indented by so many blanks.
    #[must_use]
    pub fn new(indent: usize) -> Grid {
        Grid { indent, ..Grid::default() }
    }

    /// Adds a column of text.
    #[must_use]
    pub fn text(self, name: &str) -> Grid {
        self.column(name, Align::Left)
    }

    /// Adds a column of numbers.
    #[must_use]
    pub fn number(self, name: &str) -> Grid {
        self.column(name, Align::Right)
    }

    /// Adds a column.
    #[must_use]
    pub fn column(mut self, name: &str, align: Align) -> Grid {
        let width = measure_text_width(name);
        self.columns.push(Column { name: name.to_owned(), align, width });
        self
    }

    /// Adds a row, which has as many cells as there are columns.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        if let Some(row) = self.rows.last() {
            for (column, cell) in self.columns.iter_mut().zip(row) {
                column.width = column.width.max(measure_text_width(&cell.text));
            }
        }
    }

    /// Width of a line so far.
    #[must_use]
    pub fn width(&self) -> usize {
        let gaps = GAP.len() * self.columns.len().saturating_sub(1);
        self.indent + gaps + self.columns.iter().map(|column| column.width).sum::<usize>()
    }

    /// True if enough rows have come to write them.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_HELD
    }

    /// The rows that are not written yet, taken out, with the names of their columns.
    pub fn take_rows(&mut self) -> Vec<Vec<(String, Cell)>> {
        let names: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        let rows = std::mem::take(&mut self.rows);
        rows.into_iter().map(|row| names.iter().cloned().zip(row).collect()).collect()
    }

    /// Writes the rows that have come since the last time, and before the first ones the names of the columns.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&mut self, output: &mut Output<'_>) -> Result<()> {
        if !self.header_written {
            self.header_written = true;
            let names: Vec<Cell> = self.columns.iter().map(|column| column.name.as_str().into()).collect();
            let line = self.line(&names, &|_, text| output.bold(text));
            output.line(line)?;
        }
        for row in std::mem::take(&mut self.rows) {
            let line =
                self.line(&row, &|cell, text| if cell.dim { output.dim(text) } else { text.to_owned() });
            output.line(line)?;
        }
        Ok(())
    }

    fn line(&self, cells: &[Cell], paint: &dyn Fn(&Cell, &str) -> String) -> String {
        let mut line = " ".repeat(self.indent);
        let paint = |cell: &Cell| if cell.text.is_empty() { String::new() } else { paint(cell, &cell.text) };
        let last = self.columns.len().saturating_sub(1);
        for (number, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            let blanks = " ".repeat(column.width.saturating_sub(measure_text_width(&cell.text)));
            let text = paint(cell);
            match column.align {
                Align::Right => line.extend([blanks.as_str(), text.as_str()]),
                Align::Left if number == last => line.push_str(&text),
                Align::Left => line.extend([text.as_str(), blanks.as_str()]),
            }
            if number != last {
                line.push_str(GAP);
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::output::Look;

    fn written(grid: &mut Grid, look: Look) -> String {
        let mut bytes = Vec::new();
        grid.write(&mut Output::new(&mut bytes, false, look)).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut grid = Grid::new(2).text("name").number("size").text("where");
        grid.row(["a", "1", "here"]);
        grid.row(["日本", "1,000", ""]);
        assert_eq!(grid.width(), 2 + 4 + 2 + 5 + 2 + 5);
        let expected = "  name   size  where\n  a         1  here\n  日本  1,000\n";
        assert_eq!(written(&mut grid, Look::default()), expected);
    }

    #[test]
    fn a_last_column_without_a_name_left_blanks_behind_the_others() {
        for color in [false, true] {
            let mut grid = Grid::new(0).text("a").text("");
            grid.row(["1", ""]);
            let text = written(&mut grid, Look { color, width: None });
            assert!(text.lines().all(|line| !line.ends_with(' ')), "{text:?}");
        }
    }

    #[test]
    fn a_long_answer_goes_on_in_the_same_columns_and_names_them_once() {
        let mut grid = Grid::new(0).number("n").text("x");
        grid.row(["1000", "a"]);
        written(&mut grid, Look::default());
        grid.row(["1", "b"]);
        assert_eq!(written(&mut grid, Look::default()), "   1  b\n");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let mut grid = Grid::new(0).text("a").text("b");
        grid.row([Cell::null(), "x".into()]);
        let plain = written(&mut grid.clone(), Look::default());
        let colored = written(&mut grid, Look { color: true, width: None });
        assert!(colored.contains("\u{1b}["), "{colored}");
        assert_eq!(console::strip_ansi_codes(&colored), plain);
    }
}
