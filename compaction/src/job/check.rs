//! Reading a sample of every output back before anyone relies on it.
//!
//! Writing is where bytes get lost: in memory, in a compressor, on the way to the device. Opening the file checks its
//! footer, properties and index; the first, the last and a few entries between check data blocks all over the file.

use alluvium_base::iter::InternalIterator;
use alluvium_base::range_tombstone::FragmentedTombstones;
use alluvium_base::{Error, Result};
use alluvium_sstable::{ReadPurpose, TableProperties};

use super::outputs::{Output, Sample};
use crate::iterate::TableOpener;
use crate::version::FileMeta;

/// Fails unless the file holds what was written into it, as far as the sample goes.
pub(super) fn read_back(output: &Output, opener: &dyn TableOpener) -> Result<()> {
    let file = &output.file;
    let wrong = |what: String| {
        Err(Error::corrupt(file.file_name(), 0, what).context("reading back a file that was just written"))
    };
    let table = opener.open(file).map_err(|error| error.context("opening a file that was just written"))?;
    if !says_the_same(table.properties(), file) {
        return wrong(format!(
            "its properties {:?} are not those written, {:?}",
            table.properties(),
            file.summary
        ));
    }
    if **table.range_tombstones() != FragmentedTombstones::new(&output.tombstones) {
        return wrong("its range tombstones are not those written".to_owned());
    }
    let mut iter = table.iter(ReadPurpose::Verify);
    for sample in &output.samples {
        iter.seek(&sample.key, sample.trailer)?;
        if !stands_on(&iter, sample) {
            return wrong(format!("it lacks {:?} of \"{}\"", sample.trailer, sample.key.escape_ascii()));
        }
    }
    iter.seek_to_first()?;
    if iter.valid() != output.last.is_some()
        || output.samples.first().is_some_and(|first| !stands_on(&iter, first))
    {
        return wrong("its first entry is not the one written".to_owned());
    }
    iter.seek_to_last()?;
    if output
        .last
        .as_ref()
        .is_some_and(|last| !iter.valid() || (iter.key(), iter.trailer()) != (&last.0, last.1))
    {
        return wrong("its last entry is not the one written".to_owned());
    }
    Ok(())
}

fn stands_on(iter: &impl InternalIterator, sample: &Sample) -> bool {
    iter.valid() && Sample::new(iter.key(), iter.trailer(), iter.value()) == *sample
}

fn says_the_same(properties: &TableProperties, file: &FileMeta) -> bool {
    let summary = &file.summary;
    properties.range == summary.range
        && properties.entries == summary.entries
        && properties.tombstones == summary.tombstones
        && properties.range_tombstones == summary.range_tombstones
        && (properties.seqno_min, properties.seqno_max) == (summary.seqno_min, summary.seqno_max)
        && properties.keyspaces == summary.keyspaces
}
