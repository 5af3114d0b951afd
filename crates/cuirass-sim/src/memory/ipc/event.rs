//! Events of several processes.
//!
//! An event that may be shared has a cell in memory that other processes can map: the number of its last recording
//! with the process that made it, and for each recording whether it has happened. Whoever asks in another process
//! reads it; whoever waits has [`super::watch`] look at it again and again. A recording whose process has died counts as
//! having happened, and is reported: what it would have told is not coming any more.

use super::{EVENT, pack, process, status, unique, unpack, watch};
use crate::c::Out;
use crate::engine::QueueKey;
use crate::event::{Event, Standing};
use crate::handle::Handle;
use crate::host::{Purpose, SharedMemory, SharedWords};
use crate::memory::arena::Ranges;
use crate::order;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_CONTEXT, INVALID_HANDLE, MAP_FAILED, OUT_OF_MEMORY};
use crate::task::{Failure, Job, NodeKind, Task};
use crate::{report, thread};
use cuirass_sys::cuda::{CUevent, CUevent_flags, CUipcEventHandle};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The words of a cell: its number, as long as the event exists; how many others have it open; the last recording with
/// its process; then for each of the last recordings when its process was started, and whether it has happened.
const NUMBER: usize = 0;
const OPENED: usize = 1;
const LAST: usize = 2;
const FIRST_SLOT: usize = 512;
/// As many recordings of one event are told apart: an older one, if it is still pending, counts as having happened with
/// the one that is so many later, which only happens first if it is in another stream.
const SLOTS: u64 = 4096;
const CELL: u64 = (FIRST_SLOT as u64 + 2 * SLOTS) * 8;
/// As much as the file of a process's events can hold.
const MOST: u64 = 1 << 44;
/// The bits of the last recording that are its process; the system gives no larger numbers.
const PROCESS_BITS: u32 = 22;
/// The bits of a slot's first word that are the time; the others are of the recording's number.
const TIME_BITS: u32 = 48;
const TIME: u64 = (1 << TIME_BITS) - 1;
const TAG: u64 = u64::MAX >> TIME_BITS;

/// A recording of a shared event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Counted from 1; 0: there is none.
    pub number: u64,
    /// The process that made it.
    pub process: u32,
}

impl Recording {
    fn of(word: u64) -> Self {
        Self { number: word >> PROCESS_BITS, process: (word & ((1 << PROCESS_BITS) - 1)) as u32 }
    }

    fn word(self) -> u64 {
        self.number << PROCESS_BITS | u64::from(self.process)
    }
}

/// The file of this process's events.
struct EventFile {
    inner: Mutex<(SharedMemory, Ranges)>,
}

static FILE: Mutex<Weak<EventFile>> = Mutex::new(Weak::new());

impl EventFile {
    /// It is there as long as there are events in it.
    fn get() -> Option<Arc<Self>> {
        let mut known = FILE.lock();
        if let Some(file) = known.upgrade() {
            return Some(file);
        }
        let memory = SharedMemory::create(0, Purpose::Events)?;
        let file = Arc::new(Self { inner: Mutex::new((memory, Ranges::new(0, MOST))) });
        *known = Arc::downgrade(&file);
        Some(file)
    }
}

/// A place in the file of this process.
struct Home {
    file: Arc<EventFile>,
    offset: u64,
}

/// What the processes share of an event.
pub struct Cell {
    words: SharedWords,
    number: u64,
    /// In the process that created the event.
    home: Option<Home>,
}

impl Cell {
    /// A new one.
    fn create() -> Option<Self> {
        let file = EventFile::get()?;
        let (offset, words) = {
            let (memory, free) = &mut *file.inner.lock();
            let offset = free.take(CELL, 4096)?;
            let long_enough = offset + CELL <= memory.len() as u64 || memory.grow(offset + CELL);
            let words = if long_enough { memory.words(offset, CELL as usize) } else { None };
            match words {
                Some(words) => (offset, words),
                None => {
                    free.give(offset, CELL);
                    return None;
                }
            }
        };
        let number = unique() | 1;
        words.all()[NUMBER].store(number, Ordering::SeqCst);
        Some(Self { words, number, home: Some(Home { file, offset }) })
    }

    /// Another process's.
    ///
    /// # Errors
    /// `MAP_FAILED` for what is no handle; `INVALID_CONTEXT` for an event of this process's; `INVALID_HANDLE` if there
    /// is no such event, or no longer; `OUT_OF_MEMORY`.
    fn open(handle: [u8; 64]) -> Answer<Self> {
        let [number, process, started, descriptor, offset, _] = unpack(handle, EVENT).or(Err(MAP_FAILED))?;
        let process = u32::try_from(process).or(Err(INVALID_HANDLE))?;
        if process == std::process::id() {
            return Err(INVALID_CONTEXT);
        }
        let descriptor = i32::try_from(descriptor).or(Err(INVALID_HANDLE))?;
        if process::started(process).map_err(|error| status(&error, INVALID_HANDLE))? != Some(started) {
            return Err(INVALID_HANDLE);
        }
        let memory = SharedMemory::of_process(process, descriptor, Purpose::Events);
        let memory = memory.map_err(|error| {
            if error.kind() == std::io::ErrorKind::PermissionDenied {
                let place = thread::place();
                report::unsupported(format!(
                    "{place}: the system does not let this process see process {process}'s files"
                ));
            }
            status(&error, INVALID_HANDLE)
        })?;
        let fits = offset.checked_add(CELL).is_some_and(|end| end <= memory.len() as u64);
        if !fits || !offset.is_multiple_of(4096) {
            return Err(INVALID_HANDLE);
        }
        let words = memory.words(offset, CELL as usize).ok_or(MAP_FAILED)?;
        words.all()[OPENED].fetch_add(1, Ordering::SeqCst);
        let cell = Self { words, number, home: None };
        // Only now: who ends the event looks for others after having changed the number.
        if cell.word(NUMBER).load(Ordering::SeqCst) == number && number != 0 { Ok(cell) } else { Err(INVALID_HANDLE) }
    }

    fn handle(&self) -> Option<[u8; 64]> {
        let home = self.home.as_ref()?;
        let process = std::process::id();
        let (started, descriptor) = (process::own_start()?, home.file.inner.lock().0.descriptor());
        Some(pack(EVENT, [self.number, process.into(), started, u64::try_from(descriptor).ok()?, home.offset, 0]))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words.all()[at]
    }

    fn slot(&self, number: u64) -> [&AtomicU64; 2] {
        let at = FIRST_SLOT + (number % SLOTS) as usize * 2;
        [self.word(at), self.word(at + 1)]
    }

    /// The last recording.
    pub fn last(&self) -> Recording {
        Recording::of(self.word(LAST).load(Ordering::SeqCst))
    }

    /// Whether a recording has happened.
    pub fn has_happened(&self, number: u64) -> bool {
        self.slot(number)[1].load(Ordering::SeqCst) >= number
    }

    /// A recording has happened.
    pub fn happened(&self, number: u64) {
        self.slot(number)[1].fetch_max(number, Ordering::SeqCst);
    }

    /// Whether the process of a recording has ended.
    pub fn is_orphan(&self, recording: Recording) -> bool {
        let word = self.slot(recording.number)[0].load(Ordering::SeqCst);
        match process::started(recording.process) {
            Ok(None) => true,
            // Another process may have its number by now; the time is written right after the number.
            Ok(Some(started)) => word >> TIME_BITS == recording.number & TAG && word & TIME != started & TIME,
            Err(_not_known) => false,
        }
    }

    /// Makes the next recording.
    fn record(self: &Arc<Self>) -> Signal {
        let (process, last) = (std::process::id(), self.word(LAST));
        let next = |word| Recording { number: Recording::of(word).number + 1, process };
        let before = last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| Some(next(word).word()));
        let (Ok(before) | Err(before)) = before;
        let number = next(before).number;
        // If it is not known the word stays another recording's.
        if let Some(started) = process::own_start() {
            self.slot(number)[0].store((number & TAG) << TIME_BITS | started & TIME, Ordering::SeqCst);
        }
        Signal { cell: self.clone(), number }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let Some(home) = &self.home else {
            self.word(OPENED).fetch_sub(1, Ordering::SeqCst);
            return;
        };
        self.word(NUMBER).store(0, Ordering::SeqCst);
        // What others still have open is not used for another event.
        if self.word(OPENED).load(Ordering::SeqCst) == 0 {
            let (memory, free) = &mut *home.file.inner.lock();
            if memory.discard(home.offset, CELL) {
                free.give(home.offset, CELL);
            }
        }
    }
}

/// Tells the other processes that a recording has happened; also when its work is given up.
pub struct Signal {
    cell: Arc<Cell>,
    /// Which recording.
    pub number: u64,
}

impl Task for Signal {
    fn run(&self, _job: &Job) -> Result<(), Failure> {
        self.cell.happened(self.number);
        Ok(())
    }

    fn node(&self) -> NodeKind {
        NodeKind::RecordEvent
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.cell.happened(self.number);
    }
}

/// What an event shares, as this process last saw it.
pub struct Shared {
    cell: Arc<Cell>,
    /// The recording that the event's standing is about.
    seen: u64,
    /// The place that stands for another process's recording.
    gate: Option<QueueKey>,
}

impl Shared {
    /// For a new event.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`
    pub fn create() -> Answer<Self> {
        let cell = Cell::create().ok_or(OUT_OF_MEMORY)?;
        Ok(Self { cell: Arc::new(cell), seen: 0, gate: None })
    }

    /// This process records the event.
    pub fn record(&mut self) -> Signal {
        let signal = self.cell.record();
        (self.seen, self.gate) = (signal.number, None);
        signal
    }

    /// This process records the event in a capture, which the others do not see.
    pub fn captured(&mut self) {
        (self.seen, self.gate) = (self.cell.last().number, None);
    }
}

impl State {
    /// Brings what an event stands for up to date with what other processes did to it.
    ///
    /// # Errors
    /// `INVALID_HANDLE`
    pub fn refresh_event(&mut self, handle: Handle) -> Answer {
        let event = self.events.get_mut(handle, INVALID_HANDLE)?;
        let Some(shared) = &mut event.shared else { return Ok(()) };
        let last = shared.cell.last();
        if last.number == shared.seen {
            if shared.gate.is_some() && shared.cell.has_happened(last.number) {
                let gate = shared.gate.take();
                gate.into_iter().for_each(|gate| self.pass(gate));
            }
            return Ok(());
        }
        let (context, cell) = (event.context, shared.cell.clone());
        let device = self.contexts.peek(context).map_or(0, |context| context.device);
        let dep = self.gate(context, device);
        if order::on() {
            order::gate(self, dep);
        }
        let gate = if cell.has_happened(last.number) {
            self.pass(dep.queue);
            None
        } else {
            watch::watch(self, cell, last, dep.queue);
            Some(dep.queue)
        };
        let event = self.events.get_mut(handle, INVALID_HANDLE)?;
        event.standing = Standing::Recorded(dep);
        if let Some(shared) = &mut event.shared {
            (shared.seen, shared.gate) = (last.number, gate);
        }
        Ok(())
    }
}

pub fn cuIpcGetEventHandle(handle: Out<CUipcEventHandle>, event: CUevent) -> Answer {
    handle.check()?;
    let state = state::lock()?;
    let event = state.events.get(Handle::of(event), INVALID_HANDLE)?;
    state.not_lost(event.context)?;
    // An event that was opened is its maker's to share.
    let cell = event.shared.as_ref().map(|shared| &shared.cell).filter(|cell| cell.home.is_some());
    let bytes = cell.ok_or(INVALID_HANDLE)?.handle().ok_or(OUT_OF_MEMORY)?;
    handle.write(CUipcEventHandle { reserved: bytes.map(|byte| byte as _) })
}

pub fn cuIpcOpenEventHandle(out: Out<CUevent>, handle: CUipcEventHandle) -> Answer {
    out.check()?;
    let mut state = state::lock()?;
    let context = state.here()?;
    let cell = Cell::open(handle.reserved.map(|byte| byte as u8))?;
    let shared = Shared { cell: Arc::new(cell), seen: 0, gate: None };
    let event = Event::new(context, CUevent_flags::CU_EVENT_DISABLE_TIMING.0, Some(shared));
    let handle = state.events.insert(event)?;
    out.write(handle.raw())
}
