//! What the attributes of a struct say.

use proc_macro2::Span;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, LitInt, LitStr, Result, Token, Type, Visibility,
};

/// A struct that is the row of a table.
pub(crate) struct TableAttributes {
    pub(crate) name: Ident,
    pub(crate) visibility: Visibility,
    pub(crate) table: String,
    pub(crate) fields: Vec<Field>,
    /// Column names.
    pub(crate) key: Vec<String>,
    pub(crate) indexes: Vec<IndexAttributes>,
}

/// A field, and the column that it is.
pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) column: String,
    pub(crate) decimal: Option<(u8, u8)>,
    pub(crate) default: Option<Expr>,
}

/// An index.
pub(crate) struct IndexAttributes {
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
    pub(crate) unique: bool,
    /// Column names.
    pub(crate) include: Vec<String>,
}

/// A column of an index.
pub(crate) struct Part {
    pub(crate) column: String,
    pub(crate) descending: bool,
    pub(crate) prefix: Option<u32>,
}

/// Reads a struct with its attributes.
pub(crate) fn parse(input: &DeriveInput) -> Result<TableAttributes> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "Row can be derived for a struct only"));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new(input.span(), "Row needs a struct with named fields"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.generics.span(), "Row cannot be derived for a generic struct"));
    }
    let fields = named.named.iter().map(parse_field).collect::<Result<Vec<_>>>()?;
    let mut table = None;
    let mut key = Vec::new();
    for attribute in attributes(&input.attrs, "row") {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("table") {
                table = Some(meta.value()?.parse::<LitStr>()?.value());
                Ok(())
            } else if meta.path.is_ident("key") {
                key = columns(&meta, &fields)?;
                Ok(())
            } else {
                Err(meta.error("expected table = \"name\" or key(field, …)"))
            }
        })?;
    }
    let missing = |what| Error::new(Span::call_site(), format!("Row needs #[row({what})]"));
    let indexes =
        attributes(&input.attrs, "index").map(|index| parse_index(index, &fields)).collect::<Result<_>>()?;
    if key.is_empty() {
        return Err(missing("key(field, …)"));
    }
    Ok(TableAttributes {
        name: input.ident.clone(),
        visibility: input.vis.clone(),
        table: table.ok_or_else(|| missing("table = \"name\""))?,
        fields,
        key,
        indexes,
    })
}

fn attributes<'a>(all: &'a [Attribute], name: &'a str) -> impl Iterator<Item = &'a Attribute> {
    all.iter().filter(move |attribute| attribute.path().is_ident(name))
}

fn parse_field(field: &syn::Field) -> Result<Field> {
    let name = field.ident.clone().ok_or_else(|| Error::new(field.span(), "a field needs a name"))?;
    let (mut column, mut decimal, mut default) = (None, None, None);
    for attribute in attributes(&field.attrs, "column") {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                column = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.path.is_ident("default") {
                default = Some(meta.value()?.parse::<Expr>()?);
            } else if meta.path.is_ident("decimal") {
                let content;
                syn::parenthesized!(content in meta.input);
                let numbers = Punctuated::<LitInt, Token![,]>::parse_terminated(&content)?;
                let mut numbers = numbers.iter().map(LitInt::base10_parse);
                decimal = match (numbers.next(), numbers.next(), numbers.next()) {
                    (Some(precision), Some(scale), None) => Some((precision?, scale?)),
                    _ => return Err(meta.error("expected decimal(precision, scale)")),
                };
            } else {
                return Err(
                    meta.error("expected rename = \"name\", default = value or decimal(precision, scale)")
                );
            }
            Ok(())
        })?;
    }
    let plain = name.to_string();
    let column = column.unwrap_or_else(|| plain.strip_prefix("r#").unwrap_or(&plain).to_owned());
    Ok(Field { name, ty: field.ty.clone(), column, decimal, default })
}

fn parse_index(attribute: &Attribute, fields: &[Field]) -> Result<IndexAttributes> {
    let mut index =
        IndexAttributes { name: String::new(), parts: Vec::new(), unique: false, include: Vec::new() };
    attribute.parse_nested_meta(|meta| {
        if meta.path.is_ident("name") {
            index.name = meta.value()?.parse::<LitStr>()?.value();
        } else if meta.path.is_ident("on") {
            meta.parse_nested_meta(|part| {
                index.parts.push(parse_part(&part, fields)?);
                Ok(())
            })?;
        } else if meta.path.is_ident("unique") {
            index.unique = true;
        } else if meta.path.is_ident("include") {
            index.include = columns(&meta, fields)?;
        } else {
            return Err(meta.error("expected name = \"name\", on(field, desc(field), prefix(field, length), …), unique or include(field, …)"));
        }
        Ok(())
    })?;
    if index.name.is_empty() || index.parts.is_empty() {
        return Err(Error::new(attribute.span(), "an index needs name = \"name\" and on(field, …)"));
    }
    Ok(index)
}

/// `field`, `desc(…)` or `prefix(field, length)`.
fn parse_part(meta: &ParseNestedMeta<'_>, fields: &[Field]) -> Result<Part> {
    if !meta.input.peek(syn::token::Paren) {
        return Ok(Part { column: column(&meta.path, fields)?, descending: false, prefix: None });
    }
    if meta.path.is_ident("desc") {
        let mut inner = None;
        meta.parse_nested_meta(|part| {
            inner = Some(parse_part(&part, fields)?);
            Ok(())
        })?;
        let inner = inner.ok_or_else(|| meta.error("expected desc(field)"))?;
        return Ok(Part { descending: true, ..inner });
    }
    if meta.path.is_ident("prefix") {
        let content;
        syn::parenthesized!(content in meta.input);
        let path: syn::Path = content.parse()?;
        content.parse::<Token![,]>()?;
        let len: LitInt = content.parse()?;
        return Ok(Part {
            column: column(&path, fields)?,
            descending: false,
            prefix: Some(len.base10_parse()?),
        });
    }
    Err(meta.error("expected a field, desc(field) or prefix(field, length)"))
}

/// The columns of `(field, …)`.
fn columns(meta: &ParseNestedMeta<'_>, fields: &[Field]) -> Result<Vec<String>> {
    let mut columns = Vec::new();
    meta.parse_nested_meta(|field| {
        columns.push(column(&field.path, fields)?);
        Ok(())
    })?;
    Ok(columns)
}

/// The column of a field.
fn column(path: &syn::Path, fields: &[Field]) -> Result<String> {
    let field = path.get_ident().and_then(|name| fields.iter().find(|field| field.name == *name));
    field.map(|field| field.column.clone()).ok_or_else(|| Error::new(path.span(), "there is no such field"))
}
