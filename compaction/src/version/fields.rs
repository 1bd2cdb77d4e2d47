//! Tagged fields: how a record can grow without a flag day.
//!
//! A field is `tag (varint) ‖ length (varint) ‖ payload`. A reader that meets a tag that it does not know skips the
//! field if the tag is odd (optional: older readers lose nothing that they need) and refuses the record if it is even
//! (mandatory: ignoring it would misread the database).

use alluvium_base::coding::{Reader, put_varint};

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldError {
    /// The bytes are not what a writer of any version writes.
    Damaged(String),
    /// A newer version wrote a field that must not be ignored.
    UnknownField(u64),
}

impl FieldError {
    pub(super) fn damaged(detail: impl Into<String>) -> FieldError {
        FieldError::Damaged(detail.into())
    }
}

/// Appends one field whose payload `write` produces.
pub(super) fn put_field(out: &mut Vec<u8>, tag: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let mut payload = Vec::new();
    write(&mut payload);
    put_varint(out, tag);
    put_varint(out, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// Reads fields to the end of `reader`, handing tag, position of the field and payload to `read`. `read` answers
/// [`FieldError::UnknownField`] for a tag that it does not know; that is an error only if the tag is mandatory. A
/// payload that `read` does not use up is an error.
pub(super) fn read_fields(
    reader: &mut Reader<'_>,
    mut read: impl FnMut(u64, usize, &mut Reader<'_>) -> Result<(), FieldError>,
) -> Result<(), FieldError> {
    while !reader.is_empty() {
        let position = reader.position();
        let field = reader.varint().and_then(|tag| Some((tag, reader.bytes()?)));
        let Some((tag, payload)) = field else {
            return Err(FieldError::damaged(format!("the field at byte {position} is cut off")));
        };
        let mut payload = Reader::new(payload);
        match read(tag, position, &mut payload) {
            Err(FieldError::UnknownField(unknown)) if unknown == tag && tag % 2 == 1 => {}
            Ok(()) if !payload.is_empty() => {
                return Err(FieldError::damaged(format!(
                    "field {tag} has {} bytes too many",
                    payload.remaining()
                )));
            }
            other => other?,
        }
    }
    Ok(())
}
