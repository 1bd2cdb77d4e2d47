//! Where a scan stopped, so that another one can go on: later, in another process, after a restart.
//!
//! ```text
//! token = format 1 (1 byte) ‖ keyspace id (varint) ‖ fingerprint of the plan (8 bytes) ‖ 0 | 1 ‖ last key
//! ```

use std::fmt;
use std::str::FromStr;

use alluvium_base::coding::{Reader, put_varint};
use alluvium_base::key::KeyspaceId;
use alluvium_base::limits::KEY_BYTES_MAX;
use alluvium_base::{Error, Result};

const FORMAT: u8 = 1;

/// The position of a scan behind the last row that it returned. Bound to the table, the index, the bounds and the
/// direction of the scan; columns and limit may differ. Shown and parsed as hexadecimal text.
///
/// The scan that goes on sees the table as it is then: rows that were written meanwhile behind the position are seen,
/// those before it are not. Deleting the row at the position does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    pub(super) keyspace: KeyspaceId,
    pub(super) fingerprint: u64,
    /// `None` before the first row.
    pub(super) last_key: Option<Vec<u8>>,
}

impl Continuation {
    /// The token as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, u64::from(self.keyspace.0));
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        out.push(u8::from(self.last_key.is_some()));
        out.extend_from_slice(self.last_key.as_deref().unwrap_or_default());
        out
    }

    /// Reads what [`to_bytes`](Continuation::to_bytes) wrote.
    ///
    /// # Errors
    /// `InvalidArgument` if the bytes are no token.
    pub fn from_bytes(bytes: &[u8]) -> Result<Continuation> {
        decode(bytes).ok_or_else(|| Error::invalid("this is not a continuation token"))
    }
}

fn decode(bytes: &[u8]) -> Option<Continuation> {
    let mut reader = Reader::new(bytes);
    (reader.u8()? == FORMAT).then_some(())?;
    let keyspace = KeyspaceId(u32::try_from(reader.varint()?).ok()?);
    let fingerprint = reader.u64()?;
    let started = reader.u8().filter(|&flag| flag <= 1)? == 1;
    let key = reader.rest();
    let fits = if started { key.len() <= KEY_BYTES_MAX } else { key.is_empty() };
    fits.then(|| Continuation { keyspace, fingerprint, last_key: started.then(|| key.to_vec()) })
}

impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Continuation {
    type Err = Error;

    /// Reads what `Display` shows.
    ///
    /// # Errors
    /// `InvalidArgument` if the text is no token.
    fn from_str(text: &str) -> Result<Continuation> {
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let pair = |pair: &[u8]| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        bytes.as_deref().and_then(decode).ok_or_else(|| Error::invalid("this is not a continuation token"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tokens_round_trip(keyspace: u32, fingerprint: u64, last_key: Option<Vec<u8>>) {
            let token = Continuation { keyspace: KeyspaceId(keyspace), fingerprint, last_key };
            prop_assert_eq!(&Continuation::from_bytes(&token.to_bytes()).unwrap(), &token);
            prop_assert_eq!(&token.to_string().parse::<Continuation>().unwrap(), &token);
        }

        #[test]
        fn anything_else_is_refused_without_a_panic(mut bytes: Vec<u8>, text: String) {
            let _ = Continuation::from_bytes(&bytes);
            bytes.insert(0, FORMAT);
            let _ = Continuation::from_bytes(&bytes);
            let _ = text.parse::<Continuation>();
        }
    }
}
