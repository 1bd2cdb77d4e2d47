//! The checker finds each anomaly in a history that has it, and nothing in one that has none.

use super::*;

use Operation::{Append, Read};
use Promise::{Latest, Serializable, Snapshot};

/// A committed transaction that is concurrent with all others.
fn at_once(promise: Promise, operations: Vec<Operation>) -> Record {
    during(promise, 0, 100, operations)
}

fn during(promise: Promise, began: u64, ended: u64, operations: Vec<Operation>) -> Record {
    Record { promise, began, ended, committed: true, operations }
}

fn aborted(operations: Vec<Operation>) -> Record {
    Record { committed: false, ..at_once(Snapshot, operations) }
}

fn history(records: Vec<Record>, last: &[(Key, &[Value])]) -> History {
    History { records, last: last.iter().map(|(key, list)| (*key, list.to_vec())).collect() }
}

/// The name of the circle that is found, "" if nothing is.
fn circle(history: &History) -> &'static str {
    let found = check(history);
    match found.as_slice() {
        [] => "",
        [Anomaly::Cycle(cycle)] => {
            for (edge, next) in cycle.edges.iter().zip(cycle.edges.iter().cycle().skip(1)) {
                assert_eq!(edge.to, next.from, "{cycle}");
            }
            cycle.name()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_serial_history_is_clean() {
    let records = vec![
        during(Serializable, 0, 1, vec![Read(1, vec![]), Append(1, 10), Read(1, vec![10])]),
        during(Snapshot, 2, 3, vec![Read(1, vec![10]), Append(1, 11), Append(2, 20)]),
        during(Latest, 4, 5, vec![Append(1, 12)]),
        during(Serializable, 6, 7, vec![Read(1, vec![10, 11, 12]), Read(2, vec![20]), Read(3, vec![])]),
    ];
    assert_eq!(check(&history(records, &[(1, &[10, 11, 12]), (2, &[20])])), []);
}

#[test]
fn an_aborted_read_is_found() {
    let records = vec![aborted(vec![Append(1, 10)]), at_once(Snapshot, vec![Read(1, vec![10])])];
    let expected = Anomaly::AbortedRead { reader: 1, key: 1, value: 10 };
    assert_eq!(check(&history(records, &[(1, &[])])), [expected]);
}

#[test]
fn a_value_that_nobody_wrote_is_an_aborted_read() {
    let records = vec![at_once(Snapshot, vec![Read(1, vec![99])])];
    let expected = Anomaly::AbortedRead { reader: 0, key: 1, value: 99 };
    assert_eq!(check(&history(records, &[(1, &[99])])), [expected]);
}

#[test]
fn an_intermediate_read_is_found() {
    let records = vec![
        at_once(Snapshot, vec![Append(1, 10), Append(1, 11)]),
        at_once(Snapshot, vec![Read(1, vec![10])]),
    ];
    let expected = Anomaly::IntermediateRead { reader: 1, key: 1, value: 10 };
    assert_eq!(check(&history(records, &[(1, &[10, 11])])), [expected]);
}

#[test]
fn a_lost_update_is_found() {
    let records = vec![at_once(Snapshot, vec![Append(1, 10)]), at_once(Snapshot, vec![Append(1, 11)])];
    let expected = Anomaly::LostUpdate { writer: 0, key: 1, value: 10 };
    assert_eq!(check(&history(records, &[(1, &[11])])), [expected]);
}

#[test]
fn reads_that_do_not_repeat_are_found() {
    let writer = at_once(Snapshot, vec![Append(1, 10)]);
    let read = |operations| history(vec![writer.clone(), at_once(Snapshot, operations)], &[(1, &[10, 20])]);
    let expected = [Anomaly::UnrepeatableRead { reader: 1, key: 1 }];
    assert_eq!(check(&read(vec![Read(1, vec![]), Read(1, vec![10]), Append(1, 20)])), expected);
    let not_its_own = read(vec![Append(1, 20), Read(1, vec![10])]);
    assert_eq!(check(&not_its_own), expected, "its own write is not seen");
}

#[test]
fn another_order_than_the_final_one_is_found() {
    let records = vec![
        at_once(Snapshot, vec![Append(1, 10)]),
        at_once(Snapshot, vec![Append(1, 11)]),
        at_once(Snapshot, vec![Read(1, vec![11])]),
    ];
    let expected = Anomaly::IncompatibleRead { reader: 2, key: 1 };
    assert_eq!(check(&history(records, &[(1, &[10, 11])])), [expected]);
}

#[test]
fn dirty_writes_and_circular_information_are_found() {
    let writers = |promise| {
        vec![
            at_once(promise, vec![Append(1, 10), Append(2, 20)]),
            at_once(promise, vec![Append(1, 11), Append(2, 21)]),
        ]
    };
    for promise in [Snapshot, Serializable, Latest] {
        assert_eq!(circle(&history(writers(promise), &[(1, &[10, 11]), (2, &[21, 20])])), "G0, dirty write");
        assert_eq!(circle(&history(writers(promise), &[(1, &[10, 11]), (2, &[20, 21])])), "");
    }
    let readers = vec![
        at_once(Snapshot, vec![Append(1, 10), Read(2, vec![20])]),
        at_once(Snapshot, vec![Append(2, 20), Read(1, vec![10])]),
    ];
    let last: &[(Key, &[Value])] = &[(1, &[10]), (2, &[20])];
    assert_eq!(circle(&history(readers, last)), "G1c, circular information flow");
}

#[test]
fn read_skew_is_found_under_both_promises() {
    for promise in [Snapshot, Serializable] {
        let records = vec![
            at_once(promise, vec![Append(1, 10), Append(2, 20)]),
            at_once(promise, vec![Read(1, vec![]), Read(2, vec![20])]),
        ];
        assert_eq!(circle(&history(records, &[(1, &[10]), (2, &[20])])), "G-single, read skew");
    }
}

#[test]
fn an_update_of_a_stale_read_is_found() {
    // Both values are there at the end, but the second writer had not seen the first one's.
    let records =
        vec![at_once(Snapshot, vec![Append(1, 10)]), at_once(Snapshot, vec![Read(1, vec![]), Append(1, 11)])];
    assert_eq!(circle(&history(records, &[(1, &[10, 11])])), "G-single, read skew");
}

#[test]
fn write_skew_is_an_anomaly_only_where_serialisable_is_promised() {
    let skew = |one, two| {
        let records = vec![
            at_once(one, vec![Read(1, vec![]), Read(2, vec![]), Append(1, 10)]),
            at_once(two, vec![Read(1, vec![]), Read(2, vec![]), Append(2, 20)]),
        ];
        circle(&history(records, &[(1, &[10]), (2, &[20])]))
    };
    assert_eq!(skew(Serializable, Serializable), "G2, write skew");
    assert_eq!(skew(Snapshot, Snapshot), "");
    assert_eq!(skew(Snapshot, Serializable), "", "one of them may come first");
}

#[test]
fn a_phantom_is_found() {
    // Each scans both lists, finds none, and makes one: absent keys are read as empty lists.
    let scan = || vec![Read(1, vec![]), Read(2, vec![])];
    let and = |append| [scan(), vec![append]].concat();
    let records = vec![at_once(Serializable, and(Append(1, 10))), at_once(Serializable, and(Append(2, 20)))];
    assert_eq!(circle(&history(records, &[(1, &[10]), (2, &[20])])), "G2, write skew");
}

#[test]
fn the_anomaly_of_a_reader_alone_is_found() {
    // Fekete, O'Neil, O'Neil 2004: two serialisable writers are fine until somebody sees one without the other.
    let writers = || {
        vec![
            at_once(Serializable, vec![Read(1, vec![]), Read(2, vec![]), Append(1, 10)]),
            at_once(Serializable, vec![Read(2, vec![]), Append(2, 20)]),
        ]
    };
    let last: &[(Key, &[Value])] = &[(1, &[10]), (2, &[20])];
    assert_eq!(circle(&history(writers(), last)), "");
    let mut records = writers();
    records.push(at_once(Serializable, vec![Read(1, vec![]), Read(2, vec![20])]));
    assert_eq!(circle(&history(records, last)), "G2, write skew");
    let mut records = writers();
    records.push(at_once(Serializable, vec![Read(1, vec![10]), Read(2, vec![])]));
    assert_eq!(circle(&history(records, last)), "");
}

#[test]
fn a_stale_snapshot_is_found() {
    for promise in [Snapshot, Serializable] {
        let records =
            vec![during(promise, 0, 1, vec![Append(1, 10)]), during(promise, 2, 3, vec![Read(1, vec![])])];
        assert_eq!(circle(&history(records, &[(1, &[10])])), "stale read");
    }
    let records = vec![during(Latest, 0, 1, vec![Append(1, 10)]), during(Latest, 2, 3, vec![Append(1, 11)])];
    assert_eq!(circle(&history(records, &[(1, &[11, 10])])), "contradiction with time");
}

#[test]
fn a_long_circle_is_found_and_shown_whole() {
    let count: u64 = 1000;
    let mut records: Vec<Record> = (0..count)
        .map(|n| {
            let seen = if n == 0 { vec![] } else { vec![n - 1] };
            at_once(Snapshot, vec![Read(n, seen), Append(n + 1, n)])
        })
        .collect();
    let last = (0..count).map(|n| (n + 1, vec![n])).collect();
    assert_eq!(check(&History { records: records.clone(), last }), []);
    records[0].operations = vec![Read(count, vec![count - 1]), Append(1, 0)];
    let last = (0..count).map(|n| (n + 1, vec![n])).collect();
    let found = check(&History { records, last });
    let [Anomaly::Cycle(cycle)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((cycle.edges.len(), cycle.name()), (1000, "G1c, circular information flow"));
}
