//! Append, sync, close, recover: without any crash model.

use crate::support::*;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_wal::RecoverySource;

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
