//! Append, sync, close, recover: without any crash model.

use crate::support::*;
use std::path::Path;

use alluvium_base::ErrorKind;
use alluvium_base::fs::Fs;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_wal::{RecoveryMode, RecoveryOptions, RecoverySource};
use proptest::prelude::*;

#[test]
fn everything_appended_is_recovered_in_order() {
    let fs = MemoryFs::new();
    let log = create(&fs, 1, 0);
    let mut expected = Vec::new();
    for seqno in 1..=5000 {
        let payload = payload(seqno, (seqno * 37 % 400) as usize);
        let appended = log.append(&payload, || seqno).unwrap();
        assert_eq!(appended.seqno, seqno);
        expected.push((seqno, payload));
    }
    log.sync(log.end_address()).unwrap();
    assert_eq!(log.durable_address(), log.end_address());
    let (records, report) = recover_all(&fs, 1, &[]).unwrap();
    assert_eq!(records, expected);
    assert_eq!(report.end, log.end_address());
    assert!(!report.closed_cleanly);
    assert_eq!(report.source, RecoverySource::Ring);
    assert!(report.next_start_address >= report.end);
}

#[test]
fn closed_log_is_known_to_be_whole() {
    let fs = MemoryFs::new();
    let log = create(&fs, 1, 0);
    for seqno in 1..=10 {
        log.append(&payload(seqno, 10), || seqno).unwrap();
    }
    log.close().unwrap();
    log.close().unwrap();
    assert!(log.append(b"late", || unreachable!()).is_err());
    fs.power_loss(1);
    let (records, report) = recover_all(&fs, 1, &[]).unwrap();
    assert_eq!(records.len(), 10);
    assert!(report.closed_cleanly);
    assert_eq!(report.source, RecoverySource::Segments);
}

#[test]
fn incarnations_follow_each_other() {
    let fs = MemoryFs::new();
    let mut ends = Vec::new();
    let mut start = 0;
    let mut expected = Vec::new();
    for incarnation in 1..=4 {
        let log = create(&fs, incarnation, start);
        for i in 0..300 {
            let seqno = incarnation * 1000 + i;
            log.append(&payload(seqno, 500), || seqno).unwrap();
            expected.push((seqno, payload(seqno, 500)));
        }
        if incarnation % 2 == 0 {
            log.close().unwrap();
        }
        drop(log);
        fs.process_kill();
        let (records, report) = recover_all(&fs, incarnation, &ends).unwrap();
        assert_eq!(records, expected);
        ends.push((incarnation, report.end));
        start = report.next_start_address;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_payloads_round_trip_through_ring_and_segments(
        lens in prop::collection::vec(prop_oneof![0usize..300, 0usize..5000, 60_000usize..120_000], 1..40),
        close: bool,
    ) {
        let fs = MemoryFs::new();
        let log = create(&fs, 1, 0);
        let mut expected = Vec::new();
        for (seqno, &len) in (1..).zip(&lens) {
            let bytes = payload(seqno, len);
            log.append(&bytes, || seqno).unwrap();
            expected.push((seqno, bytes));
        }
        if close {
            log.close().unwrap();
            fs.power_loss(lens.len() as u64);
        }
        let (records, report) = recover_all(&fs, 1, &[]).unwrap();
        prop_assert_eq!(records, expected);
        prop_assert_eq!(report.closed_cleanly, close);
        prop_assert_eq!(report.end, log.end_address());
    }
}

#[test]
fn a_record_that_is_too_long_is_refused_before_anything_happens() {
    let fs = MemoryFs::new();
    let log = create(&fs, 1, 0);
    let longest = log.payload_bytes_max();
    let error = log.append(&vec![0; longest + 1], || unreachable!()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    assert_eq!(log.end_address(), 0);
    for seqno in 1..=5 {
        log.append(&vec![7; longest], || seqno).unwrap();
    }
    assert_eq!(recover_all(&fs, 1, &[]).unwrap().0.len(), 5);
}

#[test]
fn strict_takes_a_whole_end_but_no_torn_one() {
    let (mut torn, mut whole) = (0, 0);
    for seed in 0..60 {
        let fs = MemoryFs::new();
        let log = create(&fs, 1, 0);
        let first = log.append(&payload(1, 3000), || 1).unwrap();
        log.sync(first.end).unwrap();
        (2..8).for_each(|seqno| drop(log.append(&payload(seqno, 3000), || seqno)));
        log.drain().unwrap();
        fs.power_loss(seed);
        let strict = RecoveryOptions { mode: RecoveryMode::Strict, ..recovery_options(1, &[]) };
        match recover_with(&fs.fork(), &strict) {
            Ok((_, report)) => {
                assert!(report.dropped.is_empty());
                whole += 1;
            }
            Err(error) => {
                assert!(error.is_corrupt(), "{error}");
                let (_, report) = recover_all(&fs, 1, &[]).unwrap();
                assert_eq!(report.dropped.len(), 1, "what strict refuses, the default mode reports");
                torn += 1;
            }
        }
    }
    assert!(torn > 5 && whole > 5, "{torn} torn, {whole} whole");
}

#[test]
fn a_newer_format_is_refused_by_name() {
    use alluvium_base::checksum::{checksum, seed};
    let fs = MemoryFs::new();
    drop(create(&fs, 1, 0));
    let path = Path::new("/0000000000000000.log");
    let mut header = fs.contents(path).unwrap()[..64].to_vec();
    header[8] = 2;
    let check = checksum(seed(0, 64), &header);
    header.extend_from_slice(&check.to_le_bytes());
    fs.patch(path, 0, &header).unwrap();
    for mode in [RecoveryMode::TornTailOk, RecoveryMode::Salvage] {
        let options = RecoveryOptions { mode, ..recovery_options(1, &[]) };
        let error = recover_with(&fs, &options).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { found: 2, .. }), "{error}");
    }
    assert!(fs.exists(path).unwrap());
}
