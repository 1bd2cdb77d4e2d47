use alluvium_base::key::KeyspaceId;
use alluvium_base::random::Random;
use proptest::prelude::*;

use super::*;

type Entry = (Vec<u8>, Trailer, Vec<u8>);

fn put(seqno: u64) -> Trailer {
    Trailer::new(seqno, Kind::Put)
}

fn raw(entries: &[Entry]) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    for (key, trailer, value) in entries {
        builder.add(key, *trailer, value);
    }
    let expected = builder.raw_len();
    let mut out = Vec::new();
    builder.finish(&mut out);
    assert_eq!(out.len(), expected, "the builder knows the length of its block");
    assert!(builder.is_empty());
    out
}

fn parse(raw: &[u8], contents: Contents) -> Result<EntryBlock, &'static str> {
    EntryBlock::parse(Buffer::copy_of(raw), contents)
}

fn build(entries: &[Entry]) -> EntryBlock {
    parse(&raw(entries), Contents::Points).unwrap()
}

/// What the block says, checked against the entries that went in, by number and by search.
fn check(entries: &[Entry], probes: &[(Vec<u8>, Trailer)]) {
    let block = build(entries);
    assert_eq!(block.count(), entries.len());
    assert!(block.is_strictly_ordered());
    let mut assembled = Vec::new();
    for (at, (full_key, trailer, value)) in entries.iter().enumerate() {
        block.read_key(at, &mut assembled);
        assert_eq!(&assembled, full_key);
        assert_eq!((block.trailer(at), block.value(at)), (*trailer, value.as_slice()));
        assert_eq!(block.bytes().get(block.value_range(at)), Some(value.as_slice()));
        assert_eq!(block.lower_bound(full_key, *trailer), at);
        assert_eq!(block.find(full_key, *trailer), Some(at));
    }
    for (probe, trailer) in probes {
        let expected =
            entries.partition_point(|(key, other, _)| key::compare(key, *other, probe, *trailer).is_lt());
        assert_eq!(block.lower_bound(probe, *trailer), expected, "{probe:?} {trailer:?}");
        let found = entries.get(expected).filter(|(key, _, _)| key == probe).map(|_| expected);
        assert_eq!(block.find(probe, *trailer), found);
    }
}

fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|a, b| key::compare(&a.0, a.1, &b.0, b.1));
    entries.dedup_by(|b, a| a.0 == b.0 && a.1 == b.1);
    entries
}

#[test]
fn equal_heads_are_told_apart_by_bytes() {
    let keys: [&[u8]; 9] = [
        b"p",
        b"p\0",
        b"p\0\0",
        b"p\0\0\0\0\0\0\0\0",
        b"p\0\0\0\0\0\0\0\0\0",
        b"p12345678",
        b"p12345678a",
        b"p12345678b",
        b"p123456789",
    ];
    let entries = sorted(keys.iter().map(|key| (key.to_vec(), put(3), key.to_vec())).collect());
    let mut probes: Vec<(Vec<u8>, Trailer)> = Vec::new();
    for key in keys {
        for end in [&b""[..], b"\0", b"a", b"\xff"] {
            for trailer in [Trailer::NEWEST, put(4), put(3), put(2), Trailer::OLDEST] {
                probes.push(([key, end].concat(), trailer));
            }
        }
    }
    check(&entries, &probes);
}

#[test]
fn heads_are_counted_in_blocks_of_any_length() {
    let mut random = Random::new(13);
    for len in (0..200).chain([1000, 4096]) {
        let mut heads: Vec<u64> = (0..len).map(|_| random.below(300)).collect();
        heads.sort_unstable();
        for head in 0..302 {
            assert_eq!(heads_below(&heads, head), heads.partition_point(|&other| other < head));
        }
    }
}

#[test]
fn many_versions_of_one_key_are_found_by_trailer() {
    let entries = sorted((0..500).map(|seqno| (b"key".to_vec(), put(seqno * 2), b"v".to_vec())).collect());
    let probes: Vec<(Vec<u8>, Trailer)> = (0..1001)
        .flat_map(|seqno| [b"kex", b"key", b"kez"].map(|key| (key.to_vec(), Trailer::at_snapshot(seqno))))
        .collect();
    check(&entries, &probes);
}

#[test]
fn extreme_keys_and_one_entry_blocks() {
    let longest = vec![0xab; FULL_KEY_BYTES_MAX];
    let cases: [Vec<Vec<u8>>; 6] = [
        vec![b"".to_vec()],
        vec![KeyspaceId(1).full_key(b"")],
        vec![longest.clone()],
        vec![KeyspaceId(1).full_key(b""), KeyspaceId(1).full_key(b"\0")],
        vec![longest[..100].to_vec(), longest.clone()],
        vec![b"\0\0\0\0".to_vec(), b"\0\0\0\0\0".to_vec(), longest.clone()],
    ];
    for keys in cases {
        let entries: Vec<Entry> = keys.iter().map(|key| (key.clone(), put(0), Vec::new())).collect();
        let mut probes: Vec<(Vec<u8>, Trailer)> =
            vec![(Vec::new(), Trailer::NEWEST), (b"\xff".to_vec(), Trailer::NEWEST)];
        for key in &keys {
            probes.push((key.clone(), Trailer::NEWEST));
            probes.push((key.clone(), Trailer::OLDEST));
            probes.push(([key.as_slice(), b"\0"].concat(), put(0)));
            probes.push((key[..key.len() / 2].to_vec(), put(0)));
        }
        check(&entries, &probes);
    }
}

#[test]
fn equal_trailers_and_equal_lengths_take_no_room() {
    let entries = |seqno: fn(u64) -> u64, len: fn(u64) -> usize| -> usize {
        let entries: Vec<Entry> =
            (0..100u64).map(|n| (n.to_be_bytes().to_vec(), put(seqno(n)), vec![7; len(n)])).collect();
        raw(&entries).len()
    };
    let plain = entries(|_| 0, |_| 10);
    assert_eq!(plain, 1 + 1 + 1 + 1 + 2 + 1 + 7 + 100 * (1 + 10));
    assert_eq!(entries(|_| 1 << 40, |_| 10), plain + 6, "only the base is longer");
    assert_eq!(entries(|n| n + 5, |_| 10), plain + 1 + 200, "two bytes for each difference");
    assert_eq!(entries(|n| n * 1000, |_| 10), plain + 400, "four");
    assert_eq!(entries(|n| n << 30, |_| 10), plain + 800, "eight");
    assert_eq!(entries(|_| 0, |n| if n == 0 { 9 } else { 10 }), plain - 1 + 200);
}

#[test]
fn a_single_entry_is_written_like_a_block_of_one() {
    for (key, value) in [(&b"key"[..], &b"value"[..]), (b"", b""), (&[7; 300], &[8; 70_000])] {
        let mut single = Vec::new();
        write_single(key, put(9), value, &mut single);
        assert_eq!(single, raw(&[(key.to_vec(), put(9), value.to_vec())]));
    }
}

#[test]
fn estimated_length_is_close() {
    let mut builder = BlockBuilder::new();
    let mut random = Random::new(5);
    let mut keys: Vec<Vec<u8>> =
        (0..200).map(|_| KeyspaceId(3).full_key(&random.next_u64().to_be_bytes())).collect();
    keys.sort();
    for key in keys {
        let value = vec![0; random.index(50)];
        let estimate = builder.raw_len_with(&key, value.len());
        builder.add(&key, put(random.below(9)), &value);
        let (actual, slack) = (builder.raw_len(), 8 * builder.count() + 16);
        assert!(estimate.abs_diff(actual) <= slack, "{estimate} {actual}");
    }
}

#[test]
fn trailers_of_the_wrong_kind_are_refused() {
    let entries: Vec<Entry> = vec![(b"a".to_vec(), Trailer::new(5, Kind::RangeDelete), b"b".to_vec())];
    assert!(parse(&raw(&entries), Contents::Points).is_err());
    assert!(parse(&raw(&entries), Contents::RangeTombstones).is_ok());
    assert!(parse(&raw(&entries), Contents::Index).is_ok());
    let unknown: Vec<Entry> = vec![(b"a".to_vec(), Trailer(9), Vec::new())];
    assert!(parse(&raw(&unknown), Contents::Points).is_err());
    assert!(parse(&raw(&[(b"a".to_vec(), put(1), Vec::new())]), Contents::RangeTombstones).is_err());
}

/// Share of neighbouring entries whose heads differ, over blocks of about 4 KiB of sorted keys.
fn share_of_different_heads(mut keys: Vec<Vec<u8>>) -> f64 {
    keys.sort();
    keys.dedup();
    let (mut pairs, mut different) = (0u64, 0u64);
    for chunk in keys.chunks(36) {
        let entries: Vec<Entry> = chunk.iter().map(|key| (key.clone(), put(0), Vec::new())).collect();
        let block = build(&entries);
        let heads = block.heads();
        pairs += heads.len().saturating_sub(1) as u64;
        different += heads.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    }
    different as f64 / pairs as f64
}

#[test]
fn neighbouring_heads_differ() {
    let mut random = Random::new(11);
    let count = 100_000;
    let binary = (0..count).map(|_| {
        let mut key = KeyspaceId(1).full_key(&[0; 16]);
        random.fill(&mut key[4..]);
        key
    });
    let binary = share_of_different_heads(binary.collect());
    let full_key = |n: u64| KeyspaceId(1).full_key(format!("{n:016}").as_bytes());
    let dense = share_of_different_heads((0..count).map(full_key).collect());
    let sparse = share_of_different_heads(
        (0..count).map(|_| full_key(random.below(10_000_000_000_000_000))).collect(),
    );
    println!("heads differ: random {binary:.5}, decimal dense {dense:.5}, decimal sparse {sparse:.5}");
    for share in [binary, dense, sparse] {
        assert!(share >= 0.99, "{share}");
    }
}

#[test]
fn truncated_and_flipped_blocks_never_panic() {
    let entries = sorted(
        (0..40u64).map(|n| ((n / 3).to_be_bytes().to_vec(), put(n), vec![1; (n % 5) as usize])).collect(),
    );
    let good = raw(&entries);
    for len in 0..good.len() {
        assert!(parse(&good[..len], Contents::Points).is_err(), "cut to {len}");
    }
    let mut random = Random::new(3);
    for _ in 0..20_000 {
        let mut damaged = good.clone();
        for _ in 0..=random.index(3) {
            let at = if random.one_in(2) { random.index(good.len()) } else { random.index(12) };
            damaged[at] = random.next_u64() as u8;
        }
        let Ok(block) = parse(&damaged, Contents::Points) else { continue };
        let mut key = Vec::new();
        for at in 0..block.count() {
            block.read_key(at, &mut key);
            let _ = (block.trailer(at), block.value(at), block.lower_bound(&key, Trailer::NEWEST));
        }
    }
}

fn key_strategy() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0u8, 1, b'a', b'b', 0xff]);
    (0usize..3, prop::collection::vec(byte, 0..14))
        .prop_map(|(shared, rest)| [vec![b'k'; shared], rest].concat())
}

fn trailer_strategy() -> impl Strategy<Value = Trailer> {
    let kind = prop::sample::select(vec![Kind::Put, Kind::Delete, Kind::Merge, Kind::DeleteOnce]);
    (prop_oneof![0u64..4, 0u64..70_000, 0..=limits::SEQNO_MAX], kind)
        .prop_map(|(seqno, kind)| Trailer::new(seqno, kind))
}

proptest! {
    #[test]
    fn block_answers_like_a_sorted_list(
        entries in prop::collection::vec(
            (key_strategy(), trailer_strategy(), prop::collection::vec(any::<u8>(), 0..20)),
            1..80,
        ),
        probes in prop::collection::vec((key_strategy(), trailer_strategy()), 0..40),
    ) {
        check(&sorted(entries), &probes);
    }

    #[test]
    fn parser_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, Contents::Index);
    }
}
