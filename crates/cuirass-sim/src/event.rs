//! Events: markers in streams, for order and for time.

use crate::c::Out;
use crate::engine::{self, Dep};
use crate::graph::NodeSet;
use crate::handle::Handle;
use crate::memory::ipc::Shared;
use crate::order;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use crate::stream::At;
use crate::task::Work;
use cuirass_sys::cuda::{CUevent, CUevent_flags, CUevent_record_flags, CUstream};
use std::ffi::c_uint;
use std::sync::Arc;

/// What an event stands for.
pub enum Standing {
    /// Nothing was recorded.
    Unrecorded,
    /// A place in a stream.
    Recorded(Dep),
    /// A place in a capture, which may have ended since.
    Captured(Handle, NodeSet),
}

/// One event.
pub struct Event {
    /// Its context.
    pub context: Handle,
    /// Its flags.
    pub flags: u32,
    /// What it stands for.
    pub standing: Standing,
    /// What other processes may see of it.
    pub shared: Option<Shared>,
    serial: u64,
    time: Option<u64>,
}

impl Event {
    /// One that was not recorded.
    pub fn new(context: Handle, flags: u32, shared: Option<Shared>) -> Self {
        Self { context, flags, standing: Standing::Unrecorded, shared, serial: 0, time: None }
    }

    /// A recording was reached at that time.
    pub fn happened(&mut self, serial: u64, now: u64) {
        if serial == self.serial {
            self.time = Some(now);
        }
    }

    fn timed(&self) -> bool {
        self.flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 == 0
    }
}

impl State {
    /// Records an event in a stream, after `also` as well as after the stream's own work.
    ///
    /// # Errors
    /// `INVALID_HANDLE` if the event is of another context; a fault that sticks; what capture refuses.
    pub fn record(&mut self, at: &At, handle: Handle, also: &[Dep]) -> Answer {
        let event = self.events.get(handle, INVALID_HANDLE)?;
        let (context, serial) = (event.context, event.serial + 1);
        self.not_lost(context)?;
        if context != at.context {
            return Err(INVALID_HANDLE);
        }
        self.not_lost(at.context)?;
        if let Some(nodes) = self.capture_record(at)? {
            let event = self.events.get_mut(handle, INVALID_HANDLE)?;
            event.standing = Standing::Captured(nodes.0, nodes.1);
            event.shared.iter_mut().for_each(Shared::captured);
            event.time = None;
            event.serial = serial;
            return Ok(());
        }
        let mut after = self.before(at);
        after.extend_from_slice(also);
        let event = self.events.get_mut(handle, INVALID_HANDLE)?;
        let signal = event.shared.as_mut().map(Shared::record);
        (event.serial, event.time) = (serial, None);
        let mut dep = self.push(at.queue, &after, Work::Record { event: handle, serial })?;
        if let Some(signal) = signal {
            // Reached by this process only once the others can see it.
            dep = self.push(at.queue, &[], Work::Task(Arc::new(signal)))?;
            if order::on() {
                order::shown(dep);
            }
        }
        self.events.get_mut(handle, INVALID_HANDLE)?.standing = Standing::Recorded(dep);
        Ok(())
    }

    /// The place that an event stands for; `None` if nothing was recorded.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; for an event in a capture what capture refuses.
    pub fn event_place(&mut self, handle: Handle) -> Answer<Option<Dep>> {
        self.refresh_event(handle)?;
        let event = self.events.get(handle, INVALID_HANDLE)?;
        match &event.standing {
            Standing::Unrecorded => Ok(None),
            Standing::Recorded(dep) => Ok(Some(*dep)),
            Standing::Captured(capture, _) => {
                let capture = *capture;
                Err(self.event_in_capture(capture))
            }
        }
    }
}

pub fn cuEventCreate(out: Out<CUevent>, flags: c_uint) -> Answer {
    out.check()?;
    let known = CUevent_flags::CU_EVENT_BLOCKING_SYNC.0
        | CUevent_flags::CU_EVENT_DISABLE_TIMING.0
        | CUevent_flags::CU_EVENT_INTERPROCESS.0;
    let shared = flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 != 0;
    let untimed = flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 != 0;
    if flags & !known != 0 || shared && !untimed {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let context = state.here()?;
    let shared = if shared { Some(Shared::create()?) } else { None };
    let handle = state.events.insert(Event::new(context, flags, shared))?;
    out.write(handle.raw())
}

fn destroy(event: CUevent) -> Answer {
    let mut state = state::lock()?;
    let context = state.events.remove(Handle::of(event), INVALID_HANDLE, INVALID_HANDLE)?.context;
    state.not_lost(context)
}

pub fn cuEventDestroy(event: CUevent) -> Answer {
    destroy(event)
}

pub fn cuEventDestroy_v2(event: CUevent) -> Answer {
    destroy(event)
}

pub fn cuEventRecord(event: CUevent, stream: CUstream) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    state.record(&at, Handle::of(event), &[])
}

pub fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    let external = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0;
    if flags & !external != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    if flags & external != 0 && state.is_captured(&at) {
        return state.capture_external_record(&at, Handle::of(event));
    }
    state.record(&at, Handle::of(event), &[])
}

pub fn cuEventQuery(event: CUevent) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(event);
    let context = state.events.get(handle, INVALID_HANDLE)?.context;
    state.not_lost(context)?;
    let place = state.event_place(handle)?;
    state.potentially_unsafe()?;
    let done = place.is_none_or(|dep| engine::ask(&mut state, &[dep]));
    state.not_lost(context)?;
    if done { Ok(()) } else { Err(NOT_READY) }
}

pub fn cuEventSynchronize(event: CUevent) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(event);
    let context = state.events.get(handle, INVALID_HANDLE)?.context;
    state.not_lost(context)?;
    let place = state.event_place(handle)?;
    state.potentially_unsafe()?;
    if let Some(dep) = place {
        engine::wait(&mut state, &[dep]);
    }
    state.synchronised();
    state.not_lost(context)
}

fn elapsed(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Answer {
    milliseconds.check()?;
    let mut state = state::lock()?;
    let mut places = Vec::new();
    let mut devices = Vec::new();
    for handle in [Handle::of(start), Handle::of(end)] {
        let event = state.events.get(handle, INVALID_HANDLE)?;
        let (context, timed) = (event.context, event.timed());
        state.not_lost(context)?;
        if !timed {
            return Err(INVALID_HANDLE);
        }
        devices.push(state.context(context)?.device);
        places.push(state.event_place(handle)?.ok_or(INVALID_HANDLE)?);
    }
    // The programming guide: it fails for events of different devices.
    if devices.first() != devices.last() {
        return Err(INVALID_HANDLE);
    }
    if !engine::ask(&mut state, &places) {
        return Err(NOT_READY);
    }
    let time = |event| state.events.get(Handle::of(event), INVALID_HANDLE).map(|event| event.time.unwrap_or(0));
    let (start, end) = (time(start)?, time(end)?);
    milliseconds.write(((end as f64 - start as f64) / 1e6) as f32)
}

pub fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Answer {
    elapsed(milliseconds, start, end)
}

pub fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Answer {
    elapsed(milliseconds, start, end)
}
