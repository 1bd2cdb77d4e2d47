//! `#[derive(Row)]`: a struct as the row of a table.
//!
//! A thin map onto the dynamic schema, and nothing more: the macro writes down, in terms of the public API of
//! `alluvium::row`, what one would write by hand. Fields become columns of the same name; the field's type gives the
//! column's (`alluvium::row::ColumnType`), `Option` makes it nullable. `attributes.rs` reads the attributes, `expand.rs`
//! writes the code. Everything that only a schema can tell (a key over a JSON column, a prefix of a number) is left to
//! the schema's own validation, when the table is opened.

mod attributes;
mod expand;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct the row of a table.
///
/// ```ignore
/// #[derive(Row)]
/// #[row(table = "orders", key(tenant, id))]
/// #[index(name = "by_email", on(tenant, email), unique)]
/// #[index(name = "recent", on(tenant, desc(placed)), include(total))]
/// #[index(name = "by_note", on(prefix(note, 16)))]
/// struct Order {
///     tenant: u32,
///     id: u64,
///     email: String,
///     placed: Timestamp,
///     #[column(decimal(12, 2))]
///     total: Decimal,
///     #[column(rename = "remark", default = None::<Vec<u8>>)]
///     note: Option<Vec<u8>>,
/// }
/// ```
///
/// Fields are named by their Rust names everywhere, also when renamed. A `Decimal` without `decimal(precision, scale)`
/// opens a table with any decimal, and makes one with 28 digits of which 6 are behind the point. The derive also makes
/// a trait `OrderColumns` with a method per field, by which a pinned row (`RowRef`) gives single columns.
#[proc_macro_derive(Row, attributes(row, index, column))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    attributes::parse(&input)
        .map_or_else(syn::Error::into_compile_error, |table| expand::expand(&table))
        .into()
}
