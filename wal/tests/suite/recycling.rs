//! Segments that are used again: fast, bounded, and without a trace of what was in them.

use std::path::{Path, PathBuf};

use alluvium_base::fs::memory::MemoryFs;
use alluvium_wal::{DumpItem, LogOptions, SegmentState, dump};

use crate::support::{create, create_on, options, payload, recover_with, recovery_options};

/// Appends one-segment portions and releases all but the last; returns the address of the first record kept.
fn churn(log: &alluvium_wal::Log, seqno: &mut u64, portions: usize) -> u64 {
    let mut kept = log.end_address();
    for _ in 0..portions {
        let first = log.end_address();
        while log.end_address() - first < 64 << 10 {
            *seqno += 1;
            log.append(&payload(*seqno, 900), || *seqno).unwrap();
        }
        log.sync(log.end_address()).unwrap();
        log.release_before(kept).unwrap();
        kept = first;
        log.prepare_segment().unwrap();
    }
    kept
}

#[test]
fn released_segments_are_used_again_and_not_hoarded() {
    let fs = MemoryFs::new();
    let log = create(&fs, 1, 0);
    log.prepare_segment().unwrap();
    churn(&log, &mut 0, 20);
    let statistics = log.statistics();
    assert!(statistics.segments_recycled >= 14, "only {}", statistics.segments_recycled);
    assert_eq!(statistics.segments_late, 0);
    let segments = fs.files().iter().filter(|file| file.extension().is_some()).count();
    assert!(segments <= 7, "{:?}", fs.files());
}

#[test]
fn old_records_of_a_recycled_segment_are_never_seen() {
    for seed in 0..50 {
        let fs = MemoryFs::new();
        let log = create(&fs, 1, 0);
        let mut seqno = 0;
        let kept = churn(&log, &mut seqno, 8);
        let first_kept = seqno;
        for _ in 0..seed {
            seqno += 1;
            log.append(&payload(seqno, 900), || seqno).unwrap();
        }
        log.drain().unwrap();
        drop(log);
        fs.power_loss(seed);
        let mut recovery = recovery_options(1, &[]);
        recovery.replay_start = kept;
        let (records, _) = recover_with(&fs, &recovery).unwrap();
        assert!(records.last().unwrap().0 >= first_kept);
        for pair in records.windows(2) {
            assert_eq!(pair[0].0 + 1, pair[1].0, "a stale record or a hole");
        }
    }
}

#[test]
fn spares_of_another_size_are_replaced() {
    let fs = MemoryFs::new();
    let log = create(&fs, 1, 0);
    let kept = churn(&log, &mut 0, 6);
    log.close().unwrap();
    drop(log);
    let mut recovery = recovery_options(1, &[]);
    recovery.replay_start = kept;
    let (_, report) = recover_with(&fs, &recovery).unwrap();
    let larger = LogOptions { segment_bytes: 128 << 10, ..options(2, report.next_start_address) };
    let log = create_on(fs.shared(), larger).unwrap();
    assert_eq!(log.statistics().segments_filled, 1);
    log.append(b"larger", || 1_000_000).unwrap();
    assert!(!fs.files().iter().any(|file| file.extension().is_some_and(|extension| extension == "spare")));
    log.release_before(report.next_start_address).unwrap();
    let left: Vec<PathBuf> = fs.files();
    assert_eq!(left.len(), 2, "one segment and the ring: {left:?}");
}

#[test]
fn the_dump_shows_every_segment_and_record() {
    let fs = MemoryFs::new();
    let log = create(&fs, 1, 0);
    let mut seqno = 0;
    let kept = churn(&log, &mut seqno, 4);
    log.release_before(kept).unwrap();
    log.close().unwrap();
    let (mut states, mut seqnos, mut spares, mut rings, mut problems) = (vec![], vec![], 0, vec![], 0);
    dump(&fs.shared(), Path::new("/"), None, &mut |item| {
        match item {
            DumpItem::Segment(info) => states.push(info.state),
            DumpItem::Record(info) => {
                assert_eq!(info.incarnation, 1);
                seqnos.push(info.seqno);
            }
            DumpItem::Spare(_) => spares += 1,
            DumpItem::Ring(info) => rings.push(info),
            DumpItem::Problem(_) => problems += 1,
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(states.last(), Some(&SegmentState::Unused));
    assert!(states.contains(&SegmentState::Full) && states.contains(&SegmentState::Last), "{states:?}");
    assert_eq!(seqnos.last(), Some(&seqno), "the close record repeats the last number");
    assert_eq!((spares, rings.len(), problems), (1, 1, 0));
    assert!(rings[0].same_boot && rings[0].end_address == log.end_address());

    // Without the power loss the ring would make up for the damage.
    fs.power_loss(1);
    let first = fs.files().into_iter().find(|file| file.extension().is_some_and(|e| e == "log")).unwrap();
    fs.patch(&first, 8192 + 100, &[0xff; 3000]).unwrap();
    let last = fs.files().into_iter().rfind(|file| file.extension().is_some_and(|e| e == "log")).unwrap();
    fs.patch(&last, 17, &[0xff; 9]).unwrap();
    let (mut states, mut problems) = (vec![], vec![]);
    dump(&fs.shared(), Path::new("/"), None, &mut |item| {
        match item {
            DumpItem::Segment(info) => states.push(info.state),
            DumpItem::Problem(error) => problems.push(error.to_string()),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert!(states.contains(&SegmentState::Unreadable), "{states:?}");
    assert!(problems.len() >= 2, "{problems:?}");
}
