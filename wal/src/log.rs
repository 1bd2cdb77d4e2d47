//! The log as its writers see it: create, append, where it stands, close.
//!
//! An append costs one hash of the payload outside of the lock; under the lock, a few words of arithmetic and a
//! memcpy. Everything that may take long (draining a full ring, syncing, making a segment) happens outside of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use alluvium_base::clock::Clock;
use alluvium_base::fs::Fs;
use alluvium_base::key::Seqno;
use alluvium_base::limits::LOG_RECORD_BYTES_MAX;
use alluvium_base::sync::{Mutex, WaitPoint, WaitReason, WaitStatistics};
use alluvium_base::{Error, ErrorKind, Result};

use crate::failure::LogFailure;
use crate::files::{Listing, Segment, SegmentMaker, WRITE_BYTES_MAX};
use crate::format::{
    ADDRESS_MAX, PAGE_BYTES, RecordHeader, RecordKind, RingHeader, payload_hash, record_bytes, seqno_fits,
    stream_identity,
};
use crate::group::Groups;
use crate::ring::Ring;
use crate::statistics::{LogStatistics, Statistics};
use crate::supply::Retired;

/// Smallest ring, in bytes: two writes of the largest size.
const RING_BYTES_MIN: usize = 2 * WRITE_BYTES_MAX;

/// How a log is laid out and where it goes on.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// An existing directory. Other files in it are left alone.
    pub directory: PathBuf,
    /// The database; seeds every checksum.
    pub database_id: u128,
    /// Greater than every incarnation before, and durable in the manifest already.
    pub incarnation: u64,
    /// Where the log begins: [`RecoveryReport::next_start_address`](crate::RecoveryReport::next_start_address).
    pub start_address: u64,
    /// Addresses per segment, in bytes: a multiple of 4 KiB. It may differ from one incarnation to the next.
    pub segment_bytes: u64,
    /// Size of the ring in bytes: a multiple of 4 KiB, at least 128 KiB. It bounds what one record can hold, see
    /// [`Log::payload_bytes_max`].
    pub ring_bytes: usize,
    /// Most released segments that are kept to be used again.
    pub segments_recycled_max: usize,
}

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where the record begins.
    pub address: u64,
    /// Where it ends; pass it to [`Log::sync`].
    pub end: u64,
    /// What `sequence` returned.
    pub seqno: Seqno,
}

/// A write-ahead log, open for writing. Shared by reference between all threads.
///
/// ```
/// use alluvium_base::{clock::SystemClock, fs::memory::MemoryFs, sync::WaitStatistics};
/// use alluvium_wal::{Log, LogOptions, RecoveryMode, RecoveryOptions, recover};
///
/// let fs = MemoryFs::new();
/// let options = LogOptions {
///     directory: "/".into(), database_id: 7, incarnation: 1, start_address: 0,
///     segment_bytes: 1 << 20, ring_bytes: 1 << 18, segments_recycled_max: 2,
/// };
/// let log = Log::create(fs.shared(), SystemClock::shared(), WaitStatistics::default().into(), options)?;
/// let appended = log.append(b"a batch", || 1)?;
/// log.sync(appended.end)?; // survives a crash of the machine from here on
/// log.close()?;
///
/// let mut options = RecoveryOptions::new("/", 7);
/// options.last_incarnation = 1;
/// let report = recover(&fs.shared(), &options, &mut |record| {
///     assert_eq!((record.payload, record.seqno), (b"a batch".as_slice(), 1));
///     Ok(())
/// })?;
/// assert!(report.closed_cleanly);
/// # Ok::<(), alluvium_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Log {
    pub(crate) options: LogOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) maker: SegmentMaker,
    pub(crate) ring: Ring,
    identity: u128,
    /// The append lock.
    tail: Mutex<Tail>,
    /// Behind the last complete record; moved under the append lock.
    pub(crate) end: AtomicU64,
    /// Below it the ring is free; a page boundary. Moved by whoever has the drain turn.
    pub(crate) drained: AtomicU64,
    /// Below it everything was written to segments; between `drained` and the page after it. Moved by the drain turn.
    pub(crate) written: AtomicU64,
    /// Below it everything is durable. Moved by the leader of a group sync.
    pub(crate) durable: AtomicU64,
    /// Everything but appending; never held during I/O.
    pub(crate) flow: Mutex<Flow>,
    /// For the drain turn only: the bytes of one write.
    pub(crate) write_buffer: Mutex<Vec<u8>>,
    /// Appends wait here for room.
    pub(crate) room: WaitPoint,
    /// Syncs wait here for the drain turn.
    pub(crate) drain_turn: WaitPoint,
    /// The leader of the next group waits here for its turn.
    pub(crate) sync_turn: WaitPoint,
    /// The members of a group wait here, the even and the odd groups apart, so that nobody is woken for another group.
    pub(crate) groups: [WaitPoint; 2],
    /// Whoever needs the next segment waits here for the one who makes it.
    pub(crate) preparation: WaitPoint,
    pub(crate) segment_wanted: AtomicBool,
    pub(crate) statistics: Statistics,
}

/// What the append lock protects.
#[derive(Debug)]
struct Tail {
    end: u64,
    seqno: Seqno,
    records: u64,
    bytes: u64,
    state: TailState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailState {
    Open,
    /// Appends are refused; the close record has not been synced.
    Closing,
    Closed,
}

/// The state of draining, syncing and segments.
#[derive(Debug)]
pub(crate) struct Flow {
    /// The segment that is drained into.
    pub(crate) active: Arc<Segment>,
    /// The segment behind it, if it was made ahead of need.
    pub(crate) next: Option<Arc<Segment>>,
    /// Segments before the active one, ascending.
    pub(crate) older: Vec<Retired>,
    /// Files that can become segments without being filled.
    pub(crate) spares: Vec<PathBuf>,
    /// Segments written to since they were last synced.
    pub(crate) unsynced: Vec<Arc<Segment>>,
    /// Somebody has the drain turn.
    pub(crate) draining: bool,
    /// Somebody makes or releases segments.
    pub(crate) preparing: bool,
    pub(crate) groups: Groups,
    pub(crate) failure: Option<LogFailure>,
}

impl Log {
    /// Starts the log of a new incarnation at a fresh segment. What older incarnations left in the directory stays
    /// until [`release_before`](Log::release_before).
    ///
    /// [`recover`](crate::recover) must have been called before, unless the database is new: it brings what only the
    /// ring had into the older segments.
    ///
    /// # Errors
    /// `InvalidArgument` for options that cannot be; those of the file system.
    pub fn create(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        waits: Arc<WaitStatistics>,
        options: LogOptions,
    ) -> Result<Log> {
        check_options(&options)?;
        let start = options.start_address;
        let header = RingHeader {
            database_id: options.database_id,
            incarnation: options.incarnation,
            boot_id: fs.boot_id(),
            ring_bytes: options.ring_bytes as u64,
            segment_bytes: options.segment_bytes,
        };
        let ring = Ring::prepare(fs.as_ref(), &options.directory, &header)?;
        // After that: what a killed process left of a ring has become this one.
        let listing = Listing::read(fs.as_ref(), &options.directory)?;
        let maker = SegmentMaker {
            fs: Arc::clone(&fs),
            directory: options.directory.clone(),
            database_id: options.database_id,
            incarnation: options.incarnation,
            incarnation_start: options.start_address,
            segment_bytes: options.segment_bytes,
            has_ring: ring.survives_the_process(),
        };
        let (older, mut spares) = crate::supply::take_stock(&maker, &listing, &options)?;
        let spare = spares.pop();
        let active = Arc::new(maker.make(start, spare.as_deref())?);
        ring.start(fs.as_ref(), &options.directory, &header, start)?;
        let statistics = Statistics::default();
        statistics.count_made(spare.is_some());
        let point = |reason| WaitPoint::new(reason, Arc::clone(&clock), Arc::clone(&waits));
        Ok(Log {
            identity: stream_identity(options.database_id, options.incarnation),
            tail: Mutex::new(Tail { end: start, seqno: 0, records: 0, bytes: 0, state: TailState::Open }),
            end: AtomicU64::new(start),
            drained: AtomicU64::new(start),
            written: AtomicU64::new(start),
            durable: AtomicU64::new(start),
            flow: Mutex::new(Flow {
                active,
                next: None,
                older,
                spares,
                unsynced: Vec::new(),
                draining: false,
                preparing: false,
                groups: Groups::default(),
                failure: None,
            }),
            write_buffer: Mutex::new(vec![0; WRITE_BYTES_MAX]),
            room: point(WaitReason::LogRing),
            drain_turn: point(WaitReason::LogSync),
            sync_turn: point(WaitReason::LogSync),
            groups: [point(WaitReason::LogSync), point(WaitReason::LogSync)],
            preparation: point(WaitReason::LogRing),
            segment_wanted: AtomicBool::new(true),
            statistics,
            clock,
            maker,
            ring,
            options,
        })
    }

    /// Appends one record. When this returns, the record survives a crash of the process (where the ring cannot be
    /// mapped: after [`secure`](Log::secure)) and is visible to [`recover`](crate::recover) as a whole or not at all.
    ///
    /// `sequence` is called once, under the append lock, after space is reserved and before the address is given; it
    /// returns the record's first sequence number. So the order of the log is the order of sequence numbers. It must
    /// not wait, nor call the log.
    ///
    /// # Errors
    /// Nothing is appended and `sequence` is not called: `InvalidArgument` if the payload is longer than
    /// [`payload_bytes_max`](Log::payload_bytes_max); `Closed`; if the ring is full, what keeps it from draining.
    pub fn append(&self, payload: &[u8], sequence: impl FnOnce() -> Seqno) -> Result<Appended> {
        if payload.len() > self.payload_bytes_max() {
            return Err(Error::invalid(format!(
                "a log record of {} bytes exceeds the limit of {}; write it as a table",
                payload.len(),
                self.payload_bytes_max()
            )));
        }
        let hash = payload_hash(payload);
        let bytes = record_bytes(payload.len());
        let mut tail = self.tail.lock();
        loop {
            if tail.state != TailState::Open {
                return Err(ErrorKind::Closed.into());
            }
            if self.has_room(tail.end, bytes) {
                break;
            }
            drop(tail);
            self.make_room(bytes)?;
            tail = self.tail.lock();
        }
        let seqno = sequence();
        let appended = self.place(&mut tail, RecordKind::Data, seqno, payload, hash);
        drop(tail);
        self.drain_some(appended.end);
        Ok(appended)
    }

    /// Copies a record to the end of the log, for which there must be room.
    fn place(&self, tail: &mut Tail, kind: RecordKind, seqno: Seqno, payload: &[u8], hash: u64) -> Appended {
        debug_assert!(seqno_fits(seqno), "sequence number {seqno} exceeds 56 bits");
        let address = tail.end;
        let header = RecordHeader {
            kind,
            seqno,
            payload_len: payload.len() as u32,
            payload_hash: hash,
            durable_address: self.durable.load(Ordering::Relaxed),
        };
        let bytes = header.record_bytes();
        let end = address + bytes;
        self.ring.write_record(address, &header.encode(self.identity, address), payload);
        self.ring.set_end(end);
        self.end.store(end, Ordering::Release);
        tail.end = end;
        tail.seqno = seqno;
        tail.records += 1;
        tail.bytes += bytes;
        Appended { address, end, seqno }
    }

    /// True if `bytes` more fit into the ring behind `end`.
    pub(crate) fn has_room(&self, end: u64, bytes: u64) -> bool {
        end + bytes <= self.drained.load(Ordering::Acquire) + self.options.ring_bytes as u64
    }

    /// Longest payload of one record, in bytes: [`LOG_RECORD_BYTES_MAX`], or less if the ring is small.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        LOG_RECORD_BYTES_MAX.min(self.options.ring_bytes - 2 * PAGE_BYTES as usize)
    }

    /// The address behind the last record.
    #[must_use]
    pub fn end_address(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Every record that ends at or below this address survives a crash of the machine.
    #[must_use]
    pub fn durable_address(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Ends the log: refuses further appends, writes what is left and a close record, syncs. After a failure it may
    /// be called again; after success it does nothing.
    ///
    /// # Errors
    /// `DurabilityUnknown` if the log has failed ([`resume`](Log::resume) it first) or fails now.
    pub fn close(&self) -> Result<()> {
        let end = {
            let mut tail = self.tail.lock();
            if tail.state == TailState::Closed {
                return Ok(());
            }
            tail.state = TailState::Closing;
            tail.end
        };
        self.sync(end)?;
        let closing = {
            let mut tail = self.tail.lock();
            let bytes = record_bytes(0);
            // A close record that an earlier call could not sync does not count; this one stands behind it.
            if !self.has_room(tail.end, bytes) {
                return Err(Error::invalid("the log's ring is full after a sync"));
            }
            let seqno = tail.seqno;
            self.place(&mut tail, RecordKind::Close, seqno, &[], payload_hash(&[]))
        };
        self.sync(closing.end)?;
        self.tail.lock().state = TailState::Closed;
        Ok(())
    }

    /// What the log has done so far.
    #[must_use]
    pub fn statistics(&self) -> LogStatistics {
        let (records_appended, bytes_appended) = {
            let tail = self.tail.lock();
            (tail.records, tail.bytes)
        };
        let counted = &self.statistics;
        LogStatistics {
            records_appended,
            bytes_appended,
            bytes_drained: counted.bytes_drained.get(),
            bytes_written: counted.bytes_written.get(),
            writes: counted.writes.get(),
            bytes_synced: counted.bytes_synced.get(),
            syncs: counted.syncs.get(),
            ring_waits: counted.ring_waits.get(),
            failures: counted.failures.get(),
            segments_filled: counted.segments_filled.get(),
            segments_recycled: counted.segments_recycled.get(),
            segments_late: counted.segments_late.get(),
            sync_group_sizes: counted.sync_group_sizes.snapshot(),
            sync_nanos: counted.sync_nanos.snapshot(),
            write_nanos: counted.write_nanos.snapshot(),
            end_address: self.end_address(),
            drained_address: self.drained.load(Ordering::Acquire),
            durable_address: self.durable_address(),
        }
    }
}

fn check_options(options: &LogOptions) -> Result<()> {
    let refuse = |what: &str| Err(Error::invalid(what.to_string()));
    if options.segment_bytes == 0 || !options.segment_bytes.is_multiple_of(PAGE_BYTES) {
        return refuse("the size of a log segment must be a multiple of 4 KiB");
    }
    if options.ring_bytes < RING_BYTES_MIN || !(options.ring_bytes as u64).is_multiple_of(PAGE_BYTES) {
        return refuse("the size of the log's ring must be a multiple of 4 KiB, at least 128 KiB");
    }
    if !options.start_address.is_multiple_of(PAGE_BYTES) || options.start_address >= ADDRESS_MAX {
        return refuse("a log starts at a multiple of 4 KiB, below address 2^63");
    }
    Ok(())
}
