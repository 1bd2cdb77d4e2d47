//! The code that the derive writes.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use crate::attributes::{Field, IndexAttributes, TableAttributes};

/// Writes the implementations of `Row` and `TypedRow`, and the trait of column accessors.
pub(crate) fn expand(table: &TableAttributes) -> TokenStream {
    let row = expand_row(table);
    let typed = expand_typed_row(table);
    let accessors = expand_accessors(table);
    quote! { #row #typed #accessors }
}

fn expand_row(table: &TableAttributes) -> TokenStream {
    let name = &table.name;
    let columns = table.fields.iter().map(|field| &field.column);
    let any_decimal = table.fields.iter().filter(|field| field.decimal.is_none()).map(|field| &field.column);
    let numbers = || 0..table.fields.len();
    let fields: Vec<_> = table.fields.iter().map(|field| &field.name).collect();
    let (write_numbers, read_numbers) = (numbers(), numbers());
    quote! {
        #[automatically_derived]
        impl ::alluvium::row::Row for #name {
            fn bind(
                schema: &::alluvium::row::Schema,
            ) -> ::core::result::Result<::alluvium::row::Binding, ::alluvium::Error> {
                let expected = <Self as ::alluvium::row::TypedRow>::schema()?;
                ::alluvium::row::check_same_schema(&expected, schema, &[#(#any_decimal),*])?;
                ::alluvium::row::Binding::by_name(schema, &[#(#columns),*])
            }

            fn write<'a>(
                &'a self,
                _schema: &::alluvium::row::Schema,
                binding: &::alluvium::row::Binding,
                values: &mut [::alluvium::row::ValueRef<'a>],
            ) -> ::core::result::Result<(), ::alluvium::Error> {
                #(binding.set(values, #write_numbers, ::alluvium::row::AsValue::as_value(&self.#fields));)*
                ::core::result::Result::Ok(())
            }

            fn read(
                row: &::alluvium::row::RowView<'_>,
                binding: &::alluvium::row::Binding,
            ) -> ::core::result::Result<Self, ::alluvium::Error> {
                ::core::result::Result::Ok(Self { #(#fields: binding.get(row, #read_numbers)?),* })
            }
        }
    }
}

fn expand_typed_row(table: &TableAttributes) -> TokenStream {
    let (name, table_name, key) = (&table.name, &table.table, &table.key);
    let columns = table.fields.iter().map(expand_column);
    let indexes = table.indexes.iter().map(expand_index);
    quote! {
        #[automatically_derived]
        impl ::alluvium::row::TypedRow for #name {
            fn schema() -> ::core::result::Result<::alluvium::row::Schema, ::alluvium::Error> {
                ::alluvium::row::Schema::table(#table_name)
                    #(#columns)*
                    .primary_key([#(#key),*])
                    #(.index(#indexes))*
                    .build()
            }
        }
    }
}

fn expand_column(field: &Field) -> TokenStream {
    let (column, ty) = (&field.column, &field.ty);
    let column_type = quote_spanned! { ty.span() => <#ty as ::alluvium::row::ColumnType> };
    let stored = match field.decimal {
        Some((precision, scale)) => quote_spanned! { ty.span() => {
            const {
                assert!(
                    ::core::matches!(#column_type::TYPE, ::alluvium::row::Type::Decimal { .. }),
                    "decimal(precision, scale) belongs to a Decimal",
                );
            }
            ::alluvium::row::Type::Decimal { precision: #precision, scale: #scale }
        }},
        None => quote! { #column_type::TYPE },
    };
    let default = field.default.as_ref().map(|value| quote! { .default(#value) });
    quote! { .add_column(#column, #stored, #column_type::NULLABLE) #default }
}

fn expand_index(index: &IndexAttributes) -> TokenStream {
    let (name, include) = (&index.name, &index.include);
    let parts = index.parts.iter().map(|part| {
        let (column, descending) = (&part.column, part.descending);
        let prefix = match part.prefix {
            Some(len) => quote! { ::core::option::Option::Some(#len) },
            None => quote! { ::core::option::Option::None },
        };
        quote! { .part(#column, #descending, #prefix) }
    });
    let unique = index.unique.then(|| quote! { .unique() });
    let include = (!include.is_empty()).then(|| quote! { .include([#(#include),*]) });
    quote! { ::alluvium::row::Index::on(#name) #(#parts)* #unique #include }
}

fn expand_accessors(table: &TableAttributes) -> TokenStream {
    let (name, visibility) = (&table.name, &table.visibility);
    let accessors = format_ident!("{name}Columns");
    let fields: Vec<_> = table.fields.iter().map(|field| &field.name).collect();
    let types: Vec<_> = table.fields.iter().map(|field| &field.ty).collect();
    let numbers = 0..table.fields.len();
    let doc = format!("The columns of a pinned [`{name}`], decoded one at a time.");
    let docs = table.fields.iter().map(|field| format!("The value of column `{}`.", field.column));
    quote! {
        #[doc = #doc]
        #[allow(dead_code, reason = "a program need not ask for every column")]
        #visibility trait #accessors {
            #(
                #[doc = #docs]
                ///
                /// # Errors
                /// `Corrupt` if the row is damaged.
                fn #fields(&self) -> ::core::result::Result<#types, ::alluvium::Error>;
            )*
        }

        #[automatically_derived]
        impl<S: ::alluvium::row::Store> #accessors for ::alluvium::row::RowRef<S, #name> {
            #(
                fn #fields(&self) -> ::core::result::Result<#types, ::alluvium::Error> {
                    self.field(#numbers)
                }
            )*
        }
    }
}
