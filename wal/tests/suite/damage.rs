//! Damage anywhere in any file of a log: what is read is right and reaches as far as can be known, or an error says
//! which file is damaged and where.

use std::ops::Range;
use std::path::{Path, PathBuf};

use alluvium_base::fs::Fs;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::{Error, ErrorKind};
use alluvium_wal::{DumpItem, LogOptions, RecoveryMode, RecoveryOptions, dump};

use crate::support::{RING_BYTES, create_on, options, payload, recover_with, recovery_options};

const SEGMENT_BYTES: u64 = 16 << 10;

/// A record of the undamaged log.
#[derive(Clone, Debug)]
struct Intact {
    address: u64,
    end: u64,
    durable: u64,
    content: (u64, Vec<u8>),
}

/// A log of two incarnations, before it is damaged.
struct Specimen {
    fs: MemoryFs,
    options: RecoveryOptions,
    records: Vec<Intact>,
    same_boot: bool,
}

fn small(incarnation: u64, start: u64) -> LogOptions {
    LogOptions { segment_bytes: SEGMENT_BYTES, ..options(incarnation, start) }
}

impl Specimen {
    /// Two incarnations of some segments each; the second has recycled ones, synced now and then, and a tail that was
    /// not. `lose_power` drops the ring and keeps any part of that tail.
    fn new(lose_power: Option<u64>) -> Specimen {
        let fs = MemoryFs::new();
        let log = create_on(fs.shared(), small(1, 0)).unwrap();
        let mut seqno = 0;
        let mut append = |log: &alluvium_wal::Log, len: usize| {
            seqno += 1;
            log.append(&payload(seqno, len), || seqno).unwrap()
        };
        let released = (0..12).map(|_| append(&log, 3000)).last().unwrap();
        log.sync(released.end).unwrap();
        log.release_before(released.address).unwrap();
        for _ in 0..10 {
            append(&log, 700);
        }
        drop(log);
        fs.process_kill();
        let mut options = recovery_options(1, &[]);
        options.replay_start = released.address;
        let (_, report) = recover_with(&fs, &options).unwrap();
        let log = create_on(fs.shared(), small(2, report.next_start_address)).unwrap();
        for number in 0..60 {
            let appended = append(&log, 100 + number * 23);
            if number % 7 == 0 {
                log.sync(appended.end).unwrap();
            }
        }
        log.prepare_segment().unwrap();
        for _ in 0..5 {
            append(&log, 2000);
        }
        log.drain().unwrap();
        drop(log);
        options.last_incarnation = 2;
        options.accepted_ends.push((1, report.end));
        match lose_power {
            Some(seed) => fs.power_loss(seed),
            None => fs.process_kill(),
        }
        let mut specimen = Specimen { fs, options, records: Vec::new(), same_boot: lose_power.is_none() };
        specimen.take_records();
        specimen
    }

    /// What an undamaged recovery gives, with what the dump knows of each record.
    fn take_records(&mut self) {
        let (records, _) = recover_with(&self.fs.fork(), &self.options).unwrap();
        let mut infos = Vec::new();
        dump(&self.fs.shared(), Path::new("/"), None, &mut |item| {
            if let DumpItem::Record(info) = item {
                infos.push(Intact {
                    address: info.address,
                    end: info.end,
                    durable: info.durable_address,
                    content: (info.seqno, info.payload.to_vec()),
                });
            }
            Ok(())
        })
        .unwrap();
        infos.retain(|info| records.contains(&info.content));
        assert_eq!(infos.len(), records.len());
        self.records = infos;
    }

    /// Addresses that lie in `range` of a file; none for the ring's header and the headers of segments.
    fn addresses(&self, file: &Path, range: &Range<u64>) -> Range<u64> {
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        match u64::from_str_radix(&stem, 16) {
            Ok(base) => base + range.start.saturating_sub(4096)..base + range.end.saturating_sub(4096),
            Err(_) => 0..0,
        }
    }

    /// Where the log must be readable up to, however the file is damaged in `range`.
    fn known_end(&self, file: &Path, range: &Range<u64>) -> u64 {
        let damaged = self.addresses(file, range);
        let survives = |record: &&Intact| record.end <= damaged.start || record.address >= damaged.end;
        let named = self.records.iter().filter(survives).map(|record| record.durable).max().unwrap_or(0);
        let accepted = self.options.accepted_ends.iter().map(|&(_, end)| end).max().unwrap_or(0);
        let ring = match self.same_boot && file != Path::new("/ring") {
            true => self.records.last().unwrap().end,
            false => 0,
        };
        named.max(accepted).max(ring)
    }

    /// Checks one damaged copy.
    fn check(&self, fs: &MemoryFs, file: &Path, range: &Range<u64>) {
        let outcome = recover_with(&fs.fork(), &self.options);
        match &outcome {
            Ok((records, _)) => {
                let expected = self.records.iter().map(|record| &record.content);
                assert!(records.iter().eq(expected.take(records.len())), "{file:?} {range:?}: not a prefix");
                let known = self.known_end(file, range);
                let promised = self.records.iter().filter(|record| record.end <= known).count();
                assert!(records.len() >= promised, "{file:?} {range:?}: {} of {promised}", records.len());
            }
            Err(error) => self.check_error(error, file, range),
        }
        let strict = RecoveryOptions { mode: RecoveryMode::Strict, ..self.options.clone() };
        if let Err(error) = recover_with(&fs.fork(), &strict) {
            assert!(error.is_corrupt(), "{error}");
        } else {
            assert!(outcome.is_ok(), "{file:?} {range:?}: strict is milder");
        }
        self.check_salvage(fs, file, range);
        dump(&fs.shared(), Path::new("/"), None, &mut |_| Ok(())).unwrap();
    }

    /// The error names the damaged file, or the place where a record begins that reaches into the damage.
    fn check_error(&self, error: &Error, file: &Path, range: &Range<u64>) {
        let ErrorKind::Corrupt { file: named, offset, .. } = error.kind() else {
            panic!("{file:?} {range:?}: {error}")
        };
        // The words of the ring say how far the log goes: it is then missed where they are wrong.
        let words = file == Path::new("/ring") && range.start < 4096;
        if named == file && (*offset <= range.end || words) {
            return;
        }
        let damaged = self.addresses(file, range);
        let reaches = |record: &&Intact| match file == Path::new("/ring") {
            true => (record.address..record.end).any(|address| range.contains(&in_ring(address))),
            false => record.address < damaged.end && damaged.start < record.end,
        };
        let begins = |record: &Intact| match named == Path::new("/ring") {
            true => in_ring(record.address) == *offset,
            false => self.addresses(named, &(*offset..*offset)).start == record.address,
        };
        assert!(self.records.iter().filter(reaches).any(begins), "{file:?} {range:?}: {error}");
    }

    /// Salvage gives what can be had, in order and unchanged, and says what is missing.
    fn check_salvage(&self, fs: &MemoryFs, file: &Path, range: &Range<u64>) {
        let salvage = RecoveryOptions { mode: RecoveryMode::Salvage, ..self.options.clone() };
        let (records, report) = recover_with(&fs.fork(), &salvage).unwrap();
        let mut intact = self.records.iter();
        for record in &records {
            assert!(intact.any(|intact| intact.content == *record), "{file:?} {range:?}: a wrong record");
        }
        let silent = report.dropped.is_empty() && report.problems.is_empty();
        let tail_only =
            records.iter().eq(self.records.iter().map(|intact| &intact.content).take(records.len()));
        assert!(!silent || tail_only, "{file:?} {range:?}: salvage says nothing of what it lost");
    }

    fn files(&self) -> Vec<(PathBuf, u64)> {
        let files = self.fs.files().into_iter();
        files.map(|file| (file.clone(), self.fs.file_size(&file).unwrap())).collect()
    }

    /// Damages every 64th byte of every file.
    fn sweep(&self, damage: impl Fn(&MemoryFs, &Path, u64, u64) -> Range<u64>) {
        for (file, len) in self.files() {
            for at in (0..len).step_by(64) {
                let fs = self.fs.fork();
                let range = damage(&fs, &file, at, len);
                self.check(&fs, &file, &range);
            }
        }
    }
}

fn in_ring(address: u64) -> u64 {
    4096 + address % RING_BYTES as u64
}

fn specimens() -> [Specimen; 3] {
    [Specimen::new(None), Specimen::new(Some(1)), Specimen::new(Some(2))]
}

#[test]
fn a_flipped_bit_is_found_or_harmless() {
    for specimen in specimens() {
        specimen.sweep(|fs, file, at, _| {
            let byte = fs.contents(file).unwrap()[at as usize];
            fs.patch(file, at, &[byte ^ 1 << (at / 64 % 8)]).unwrap();
            at..at + 1
        });
    }
}

#[test]
fn zeroed_bytes_are_found_or_harmless() {
    for specimen in specimens() {
        specimen.sweep(|fs, file, at, _| {
            fs.patch(file, at, &[0; 64]).unwrap();
            at..at + 64
        });
    }
}

#[test]
fn a_truncated_file_is_found_or_harmless() {
    for specimen in specimens() {
        specimen.sweep(|fs, file, at, len| {
            fs.patch_len(file, at).unwrap();
            at..len
        });
    }
}

#[test]
fn a_missing_file_is_found_or_harmless() {
    for specimen in specimens() {
        for (file, len) in specimen.files() {
            let fs = specimen.fs.fork();
            fs.remove_file(&file).unwrap();
            fs.sync_directory(Path::new("/")).unwrap();
            let outcome = recover_with(&fs, &specimen.options);
            let known = specimen.known_end(&file, &(0..len));
            match outcome {
                Ok((records, _)) => {
                    let promised = specimen.records.iter().filter(|record| record.end <= known).count();
                    assert!(records.len() >= promised, "{file:?}");
                }
                Err(error) => assert!(error.is_corrupt(), "{error}"),
            }
        }
    }
}

#[test]
fn a_missing_ring_is_damage_unless_the_log_was_closed() {
    let fs = MemoryFs::new();
    let options = recovery_options(1, &[]);
    let log = create_on(fs.shared(), small(1, 0)).unwrap();
    for seqno in 1..20 {
        log.append(b"only in the ring", || seqno).unwrap();
    }
    let ring = Path::new("/ring");
    let without_ring = |fs: &MemoryFs| {
        let fs = fs.fork();
        fs.remove_file(ring).unwrap();
        fs
    };
    let error = recover_with(&without_ring(&fs), &options).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("ring"), "{error}");
    let salvage = RecoveryOptions { mode: RecoveryMode::Salvage, ..options.clone() };
    let (_, report) = recover_with(&without_ring(&fs), &salvage).unwrap();
    assert_eq!(report.problems.len(), 1);
    log.close().unwrap();
    let (records, _) = recover_with(&without_ring(&fs), &options).unwrap();
    assert_eq!(records.len(), 19);
}

#[test]
fn a_page_copied_to_another_place_is_found_or_harmless() {
    for specimen in specimens() {
        for (file, len) in specimen.files() {
            for at in (0..len).step_by(4096) {
                for (source, source_len) in specimen.files() {
                    let from = ((at * 7 + 4096) % source_len) & !4095;
                    let fs = specimen.fs.fork();
                    let page = fs.contents(&source).unwrap()[from as usize..][..4096].to_vec();
                    fs.patch(&file, at, &page).unwrap();
                    specimen.check(&fs, &file, &(at..at + 4096));
                }
            }
        }
    }
}

#[test]
fn exchanged_segments_are_found() {
    for specimen in specimens() {
        let segments =
            specimen.files().into_iter().filter(|(file, _)| file.extension().is_some_and(|e| e == "log"));
        let segments: Vec<PathBuf> = segments.map(|(file, _)| file).collect();
        for pair in segments.windows(2) {
            let fs = specimen.fs.fork();
            let [first, second] = [&pair[0], &pair[1]].map(|file| fs.contents(file).unwrap());
            fs.patch(&pair[0], 0, &second).unwrap();
            fs.patch(&pair[1], 0, &first).unwrap();
            let error = recover_with(&fs, &specimen.options).unwrap_err();
            assert!(error.is_corrupt(), "{error}");
        }
    }
}

#[test]
fn a_read_error_is_not_the_end_of_the_log() {
    use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
    let specimen = Specimen::new(None);
    let count = FaultFs::over_memory(&specimen.fs.fork());
    alluvium_wal::recover(&count.shared(), &specimen.options, &mut |_| Ok(())).unwrap();
    for call in 0..count.calls().fallible() {
        let faulty = FaultFs::over_memory(&specimen.fs.fork());
        faulty.add(Rule::new(Action::Fail(Failure::Io)).from_call(call).times(1));
        let error = alluvium_wal::recover(&faulty.shared(), &specimen.options, &mut |_| Ok(())).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    }
}

#[test]
fn files_of_another_database_or_a_later_incarnation_are_refused() {
    let specimen = Specimen::new(None);
    let foreign = RecoveryOptions { database_id: 1, ..specimen.options.clone() };
    let error = recover_with(&specimen.fs.fork(), &foreign).unwrap_err();
    assert!(error.to_string().contains("another database"), "{error}");
    let forgotten = RecoveryOptions { last_incarnation: 1, ..specimen.options.clone() };
    let error = recover_with(&specimen.fs.fork(), &forgotten).unwrap_err();
    assert!(error.to_string().contains("incarnation 2"), "{error}");
}
