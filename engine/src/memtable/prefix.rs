//! Which bytes a leaf's key heads leave out.
//!
//! A head is the eight bytes that follow a prefix shared by all keys of the leaf. There are two candidates:
//!
//! - the prefix shared by the leaf's *bounds*: every key that can ever land in the leaf has it, so neither a search
//!   nor an insert has to check it;
//! - the prefix shared by the leaf's present *content*: never shorter, but a search has to compare it first, and an
//!   insert may have to shorten it.
//!
//! The bounds' prefix is taken while it leaves at least half of a head to tell keys apart. It does not for the first
//! and last leaf, which lack a bound (every head would begin with the keyspace id), for leaves across the edge of
//! two keyspaces, and where a group of long common keys is being filled.

use alluvium_base::key::common_prefix_len;

/// Bytes of a head that may be the same for the whole leaf before the content's prefix is preferred.
const HEAD_BYTES_SHARED_MAX: usize = 4;

/// Length of the prefix that the heads of a leaf leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Length in bytes.
    pub(super) bytes: usize,
    /// True if a key that lands in the leaf may lack the prefix.
    pub(super) checked: bool,
}

/// The prefix for a leaf with these bounds (if it has both) and these first and last keys.
pub(super) fn choose(bounds: Option<(&[u8], &[u8])>, first: &[u8], last: &[u8]) -> Prefix {
    let of_bounds = bounds.map_or(0, |(low, high)| common_prefix_len(low, high));
    let of_content = common_prefix_len(first, last);
    if of_content > of_bounds + HEAD_BYTES_SHARED_MAX {
        Prefix { bytes: of_content, checked: true }
    } else {
        Prefix { bytes: of_bounds, checked: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_give_the_prefix_where_they_tell_keys_apart() {
        let bounds = Some((b"ks__0012".as_slice(), b"ks__0034".as_slice()));
        assert_eq!(choose(bounds, b"ks__0013", b"ks__0029"), Prefix { bytes: 6, checked: false });
        assert_eq!(choose(None, b"\0\0\0\x01a", b"\0\0\0\x01b"), Prefix { bytes: 0, checked: false });
    }

    #[test]
    fn content_gives_the_prefix_where_bounds_are_far_apart() {
        let bounds = Some((b"ks_1".as_slice(), b"ks_2".as_slice()));
        assert_eq!(choose(bounds, b"ks_1/users/17", b"ks_1/users/18"), Prefix { bytes: 12, checked: true });
        assert_eq!(choose(None, b"ks__00000", b"ks__00001"), Prefix { bytes: 8, checked: true });
        assert_eq!(choose(None, b"ks__00000", b"ks__00000"), Prefix { bytes: 9, checked: true });
    }
}
