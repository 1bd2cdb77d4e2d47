use alluvium_base::ErrorKind;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::sync::enter_simulation;

use super::*;
use crate::row::{Index, Schema, Type, Value};

const LIVE: &str = "/live";

fn options() -> Options {
    Options { log_segment_bytes: 64 << 10, log_ring_bytes: 128 << 10, ..Options::default() }
}

/// Two tables with 50 rows each, and 10 more rows in the log, as a power loss leaves them.
fn damaged(damage: impl FnOnce(&MemoryFs)) -> MemoryFs {
    let fs = MemoryFs::new();
    within(&fs, |environment| {
        let db = Db::open_in(environment, LIVE, options()).unwrap();
        let schema = Schema::table("t").column("id", Type::U32).column("a", Type::U32).primary_key(["id"]);
        let table = db.create_table(schema.index(Index::on("by_a").asc("a")).build().unwrap()).unwrap();
        for id in 0..110u32 {
            let mut batch = db.batch().unwrap();
            batch.put(&table, &table.row_of([Value::from(id), Value::from(id * 7)]).unwrap()).unwrap();
            batch.commit(Durability::Sync).unwrap();
            if id == 49 || id == 99 {
                db.flush().unwrap();
            }
        }
        fs.power_loss(1);
    });
    damage(&fs);
    fs
}

fn within<T>(fs: &MemoryFs, act: impl FnOnce(Environment) -> T) -> T {
    let (environment, executor, _) = Environment::simulated(fs.process().shared(), 5);
    let _simulation = enter_simulation(executor);
    act(environment)
}

fn repaired(fs: &MemoryFs, apply: bool) -> Result<RepairReport> {
    within(fs, |environment| repair(environment, LIVE, &options(), apply))
}

/// Repairs; checks that the dry run said the same and changed nothing. Returns the report and the ids that are there.
fn repair_and_read(fs: &MemoryFs) -> (RepairReport, Vec<u32>) {
    let contents = |fs: &MemoryFs| -> Vec<_> {
        fs.files().into_iter().map(|path| (fs.contents(&path).unwrap(), path)).collect()
    };
    let before = contents(fs);
    let dry = repaired(fs, false).unwrap();
    assert!(contents(fs) == before, "a dry run changes nothing");
    let report = repaired(fs, true).unwrap();
    assert_eq!(format!("{:?}", dry.lost_tables), format!("{:?}", report.lost_tables));
    assert_eq!(dry.lost_log, report.lost_log);
    let ids = within(fs, |environment| {
        let db = Db::open_in(environment, LIVE, options()).unwrap();
        assert!(db.verify(true).unwrap().problems.is_empty());
        let table = db.table("t").unwrap();
        assert!(table.check_indexes().unwrap().is_clean());
        let mut scan = table.scan().run().unwrap();
        let mut ids = Vec::new();
        while let Some(row) = scan.next().unwrap() {
            ids.push(row.get("id").unwrap().to_string().parse().unwrap());
        }
        ids
    });
    assert!(!repaired(fs, false).unwrap().is_needed(), "nothing is left to repair");
    (report, ids)
}

fn find(fs: &MemoryFs, ending: &str) -> PathBuf {
    let found = fs.files().into_iter().find(|path| path.to_str().unwrap().ends_with(ending));
    found.unwrap_or_else(|| panic!("no {ending} in {:?}", fs.files()))
}

fn remove(fs: &MemoryFs, path: &Path) {
    fs.remove_file(path).unwrap();
    fs.sync_directory(Path::new(LIVE)).unwrap();
}

#[test]
fn a_sound_database_needs_no_repair_and_is_not_touched() {
    let fs = damaged(|_| {});
    let report = repaired(&fs, true).unwrap();
    assert!(!report.is_needed() && report.applied.is_none(), "{report:?}");
    assert_eq!((report.sound_tables, report.log_records), (2, 10));
}

#[test]
fn without_current_nothing_is_lost() {
    let cut = |fs: &MemoryFs| fs.patch_len(Path::new("/live/CURRENT"), 100).unwrap();
    let flipped = |fs: &MemoryFs| fs.patch(Path::new("/live/CURRENT"), 40, &[9]).unwrap();
    let removed = |fs: &MemoryFs| remove(fs, Path::new("/live/CURRENT"));
    for damage in [&cut as &dyn Fn(&MemoryFs), &flipped, &removed] {
        let (report, ids) = repair_and_read(&damaged(damage));
        assert!(report.current_problem.is_some() && !report.is_loss(), "{report:?}");
        assert_eq!(ids, (0..110).collect::<Vec<_>>());
    }
}

#[test]
fn a_damaged_or_missing_table_is_lost_with_what_it_held_and_nothing_else() {
    for missing in [true, false] {
        let mut path = PathBuf::new();
        let mut bytes = Vec::new();
        let fs = damaged(|fs| {
            path = find(fs, ".sst");
            if missing {
                remove(fs, &path);
            } else {
                fs.patch(&path, 50, &[0xee, 0xee]).unwrap();
                bytes = fs.contents(&path).unwrap();
            }
        });
        let (report, ids) = repair_and_read(&fs);
        assert_eq!(ids, (50..110).collect::<Vec<_>>());
        assert!(report.lost_log.is_empty() && report.current_problem.is_none());
        let [lost] = report.lost_tables.as_slice() else { panic!("{report:?}") };
        assert_eq!((&lost.file, lost.entries), (&path, 100));
        let held = [("rows of t".to_owned(), 50), ("index by_a of t".to_owned(), 50)];
        assert_eq!(lost.holds, held);
        let applied = report.applied.unwrap();
        if !missing {
            let kept = applied.kept_in.join(path.file_name().unwrap());
            assert_eq!(fs.contents(&kept).unwrap(), bytes, "the damaged file is kept as it was");
        }
    }
}

#[test]
fn where_only_a_log_record_is_damaged_that_one_is_lost_and_reported() {
    let fs = damaged(|fs| {
        let (mut segment, mut records) = (None, Vec::new());
        within(fs, |environment| {
            crate::inspect::dump_log(&environment, Path::new(LIVE), &mut |item| {
                match item {
                    alluvium_wal::DumpItem::Segment(found) => segment = Some((found.path, found.base)),
                    alluvium_wal::DumpItem::Record(record) => {
                        records.push((segment.clone().unwrap(), record.address));
                    }
                    _ => {}
                }
                Ok(())
            })
            .unwrap();
        });
        // The last but two, which holds row 107: the later ones name it as durable.
        let ((path, base), address) = records[records.len() - 3].clone();
        fs.patch(&path, 4096 + (address - base) + 40, &[0xee; 4]).unwrap();
    });
    assert!(within(&fs, |environment| Db::open_in(environment, LIVE, options())).unwrap_err().is_corrupt());
    let (report, ids) = repair_and_read(&fs);
    assert_eq!(report.lost_log.len(), 1, "{report:?}");
    assert_eq!(ids, (0..110).filter(|id| *id != 107).collect::<Vec<_>>());
    assert!(report.applied.unwrap().kept.iter().any(|name| name.ends_with(".log")));
}

#[test]
fn a_damaged_or_missing_manifest_is_refused_and_nothing_is_changed() {
    let flipped = |fs: &MemoryFs| fs.patch(&find(fs, "MANIFEST-000001"), 70, &[0xee, 0xee]).unwrap();
    let removed = |fs: &MemoryFs| remove(fs, &find(fs, "MANIFEST-000001"));
    let both = |fs: &MemoryFs| {
        remove(fs, &find(fs, "MANIFEST-000001"));
        remove(fs, &find(fs, "CURRENT"));
    };
    for damage in [&flipped as &dyn Fn(&MemoryFs), &removed, &both] {
        let fs = damaged(damage);
        let before = fs.files();
        let error = repaired(&fs, true).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("from a backup"), "{error}");
        let mut after = fs.files();
        after.retain(|path| !path.ends_with("LOCK"));
        assert!(after.iter().all(|path| before.contains(path)), "{after:?}");
    }
    let error = repaired(&MemoryFs::new(), false).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound { .. }), "{error}");
}
