//! Memory imported from other processes: each piece is mapped once, however often it is imported, and unmapped once.
//!
//! One lock is held across the look-up, the import and the registration, and across the last share's end and the
//! release: nobody is given memory that is about to be unmapped. No report is made and nothing is dropped under it.

use crate::context::{capture, scope};
use crate::deferred;
use crate::event::Passing;
use crate::graph::boundary;
use crate::memory::buffer::{self, Range};
use crate::memory::ipc::descriptor::IpcBufferDescriptor;
use crate::memory::ipc::pools::{self, Importing};
use crate::memory::pointer;
use crate::memory::pool::MemoryPool;
use crate::stream::Stream;
use crate::{Outcome, driver};
use cuirass_call::event;
use cuirass_call::later::Attempt;
use cuirass_call::memory::ipc as call;
use cuirass_call::stream as stream_call;
use cuirass_fault::lock::{Global, Guard};
use cuirass_fault::{Failure, Misuse};
use std::cell::Cell;
use std::collections::BTreeMap;

/// What is imported: the driver's data.
type Key = [u8; 64];

/// One mapping.
struct Mapping {
    /// Two at one address are told apart by this.
    number: u64,
    /// What it was imported through; a share may be of another that is the same pool.
    _pool: MemoryPool,
    /// How many there are from its address on, where the driver tells.
    bytes: Option<u64>,
    shares: usize,
    /// The streams of the shares that were given up.
    streams: Vec<Stream>,
}

#[derive(Default)]
struct Imports {
    addresses: BTreeMap<Key, u64>,
    mappings: BTreeMap<u64, Mapping>,
    numbers: u64,
}

static IMPORTS: Global<Imports> = Global::new(Imports::new(), Imports::new());

impl Imports {
    const fn new() -> Imports {
        Imports { addresses: BTreeMap::new(), mappings: BTreeMap::new(), numbers: 0 }
    }

    /// One share more, of what has so many bytes where that is known.
    fn share(&mut self, address: u64, bytes: Option<u64>) -> bool {
        let mapping = self.mappings.get_mut(&address);
        mapping.map(|mapping| (mapping.shares, mapping.bytes) = (mapping.shares + 1, bytes)).is_some()
    }

    /// A mapping that was just made, and its number.
    fn add(&mut self, address: u64, pool: MemoryPool, bytes: Option<u64>, shares: usize) -> u64 {
        self.numbers += 1;
        let mapping = Mapping { number: self.numbers, _pool: pool, bytes, shares, streams: Vec::new() };
        self.mappings.insert(address, mapping);
        self.numbers
    }

    fn forget(&mut self, address: u64) -> Option<Mapping> {
        self.addresses.retain(|_, known| *known != address);
        self.mappings.remove(&address)
    }
}

/// The address of another process's memory, with one share more. What an import maps that then fails is unmapped in the
/// order of the stream.
pub(super) fn import(pool: &MemoryPool, descriptor: &IpcBufferDescriptor, stream: &Stream) -> Outcome<u64> {
    // In a forked child the lock may be held for ever.
    driver::initialized()?;
    deferred::before_creating()?;
    let data = descriptor.data();
    let mut imports = IMPORTS.lock();
    if let Some(address) = imports.addresses.get(&data.reserved).copied()
        && let Some(mapping) = imports.mappings.get_mut(&address)
    {
        check_size(descriptor, mapping.bytes)?;
        mapping.shares += 1;
        return Ok(address);
    }
    let importing = Importing::begin();
    let made = Cell::new(None);
    let mapped = || {
        let address = call::pool_import_pointer(pool.as_raw(), &data)?;
        made.set(Some(address));
        Ok((address, is_as_described(address, pool, descriptor)?))
    };
    // What is undone is so below, with the locks given up.
    let (address, bytes) = match scope::create(pool.context().raw(), mapped, |_made| Ok(())) {
        Ok(created) => created,
        Err(failure) => {
            // A driver that gives an address again has made no second mapping.
            let Some(address) = made.get().filter(|address| !imports.mappings.contains_key(address)) else {
                return Err(failure);
            };
            let number = imports.add(address, pool.clone(), None, 0);
            importing.done(pool.as_raw());
            return Err(super::undone(
                failure,
                unmap(imports, Range::at(address), number, pool.clone(), stream.clone()),
            ));
        }
    };
    imports.addresses.insert(data.reserved, address);
    if !imports.share(address, bytes) {
        imports.add(address, pool.clone(), bytes, 1);
        importing.done(pool.as_raw());
    }
    Ok(address)
}

/// A file descriptor does not say what it is of: who takes it for another kind of memory, or for another device's, would
/// be led to touch what is not there; and so would who believes a size that is too large. Returns how many bytes there
/// are, where the driver tells.
fn is_as_described(address: u64, pool: &MemoryPool, descriptor: &IpcBufferDescriptor) -> Outcome<Option<u64>> {
    let (found, around) = pointer::read_with_range(address)?;
    let wanted = pool.device_inner();
    if !found.is_device_accessible || found.device == wanted.map(|device| device.ordinal()) {
        let bytes = around.map(|around| around.bytes - (address - around.start));
        check_size(descriptor, bytes)?;
        return Ok(bytes);
    }
    let place = |device: Option<i32>| match device {
        Some(ordinal) => format!("device {ordinal}"),
        None => "the host".to_owned(),
    };
    let text = format!(
        "this is memory of {}, and its memory resource was imported as one of {}",
        place(found.device),
        place(wanted.map(|device| device.ordinal()))
    );
    Err(Failure::misuse(Misuse::Value, text))
}

fn check_size(descriptor: &IpcBufferDescriptor, bytes: Option<u64>) -> Outcome<()> {
    match bytes {
        Some(bytes) if bytes < descriptor.size() as u64 => Err(Failure::misuse(
            Misuse::Value,
            format!("the descriptor says that the memory has {} bytes, and it has {bytes}", descriptor.size()),
        )),
        _ => Ok(()),
    }
}

/// Gives up a share. With the last one the memory is unmapped, in the order of its stream, behind what is on the streams
/// of the others.
pub(crate) fn release(range: Range, pool: MemoryPool, stream: Stream) -> Outcome<()> {
    deferred::drain_if_any();
    let mut imports = IMPORTS.lock();
    let Some(mapping) = imports.mappings.get_mut(&range.address()) else {
        drop(imports);
        return Err(Failure::internal(format_args!("memory {:#x} is not imported", range.address())));
    };
    mapping.shares -= 1;
    let number = mapping.number;
    if mapping.streams.iter().all(|known| !is_same(known, &stream, &pool)) {
        mapping.streams.push(stream.clone());
    }
    unmap(imports, range, number, pool, stream)
}

/// Unmaps memory that has no share any more, now or later.
fn unmap(imports: Guard<'_, Imports>, range: Range, number: u64, pool: MemoryPool, stream: Stream) -> Outcome<()> {
    match unmap_if_unused(imports, range, number, &pool, &stream)? {
        Attempt::Done => Ok(()),
        Attempt::Wait => {
            deferred::defer("a buffer", range, move || unmap_if_unused(IMPORTS.lock(), range, number, &pool, &stream));
            Ok(())
        }
    }
}

/// Unmaps memory that has no share any more; somebody may have imported it again since.
fn unmap_if_unused(
    mut imports: Guard<'_, Imports>,
    range: Range,
    number: u64,
    pool: &MemoryPool,
    stream: &Stream,
) -> Outcome<Attempt> {
    let unused = |mapping: &&Mapping| mapping.number == number && mapping.shares == 0;
    let Some(mapping) = imports.mappings.get(&range.address()).filter(unused) else { return Ok(Attempt::Done) };
    let attempt = match order(range, &mapping.streams, pool, stream) {
        Ok(Attempt::Done) => {
            buffer::try_release_to_pool(range, pool, stream).map_err(|failure| kept(range.address(), pool, failure))
        }
        other => other,
    };
    let forgotten = match attempt {
        Ok(Attempt::Wait) => None,
        Ok(Attempt::Done) | Err(_) => imports.forget(range.address()),
    };
    drop(imports);
    drop(forgotten);
    match attempt {
        Ok(Attempt::Done) => keep_until_unmapped(pool.clone(), stream).map(|()| Attempt::Done),
        other => other,
    }
}

/// Keeps a pool, with each import of it, until what was unmapped is so for the device too, and that was waited for: a
/// driver loses one that is destroyed before that, with its descriptor (measured).
fn keep_until_unmapped(pool: MemoryPool, stream: &Stream) -> Outcome<()> {
    let stream = match stream.bound_context() {
        None if stream.is_default() => stream.bound_to(pool.context().clone()),
        _ => stream.clone(),
    };
    let mut kept = Some((Passing::Unmarked(stream), pool));
    match try_end(&mut kept)? {
        Attempt::Done => Ok(()),
        Attempt::Wait => {
            let handle = kept.as_ref().map_or(std::ptr::null_mut(), |(_, pool)| pool.as_raw());
            deferred::defer("an imported memory pool", handle, move || try_end(&mut kept));
            Ok(())
        }
    }
}

/// Lets go of a pool once its memory is unmapped.
fn try_end(kept: &mut Option<(Passing, MemoryPool)>) -> Outcome<Attempt> {
    let Some((mut passing, pool)) = kept.take() else { return Ok(Attempt::Done) };
    match passing.step_and_wait() {
        Ok(Attempt::Done) => match (pools::unmapped(pool.as_raw()), passing.close()) {
            (Ok(()), closed) => closed.map(|()| Attempt::Done),
            (Err(failure), closed) => Err(destroyed_after(failure, closed)),
        },
        Ok(Attempt::Wait) => {
            *kept = Some((passing, pool));
            Ok(Attempt::Wait)
        }
        Err(failure) => Err(still_used(passing, &pool, failure)),
    }
}

#[cold]
fn still_used(passing: Passing, pool: &MemoryPool, failure: Failure) -> Failure {
    let what = format_args!(
        "imported pool {:p}, of which the driver may not be done with memory that was freed,",
        pool.as_raw()
    );
    destroyed_after(scope::keep_if_leaked(pool.clone(), failure.leaking(what)), passing.close())
}

/// Memory that was not unmapped: its pool is kept, since the driver destroys none that memory is imported from.
#[cold]
fn kept(address: u64, pool: &MemoryPool, failure: Failure) -> Failure {
    let is_said = failure.facts().is_some_and(|facts| facts.leaked);
    let what = format_args!("imported memory {address:#x} (pool {:p})", pool.as_raw());
    let failure = match is_said {
        true => failure.note(format!("so is the imported pool {:p}", pool.as_raw())),
        false => failure.leaking(what),
    };
    scope::keep_if_leaked(pool.clone(), failure)
}

/// Whether two streams are one queue: a default stream is its context's.
fn is_same(one: &Stream, other: &Stream, pool: &MemoryPool) -> bool {
    let context = |stream: &Stream| stream.bound_context().unwrap_or_else(|| pool.context()).raw();
    one == other && (!one.is_default() || context(one) == context(other))
}

/// Has the last share's stream wait for the others.
fn order(range: Range, others: &[Stream], pool: &MemoryPool, last: &Stream) -> Outcome<Attempt> {
    let (stream, of) = (last.raw(), pool.as_raw());
    let what = format_args!("memory {:#x} (stream {stream:p}, pool {of:p})", range.address());
    for other in others.iter().filter(|other| !is_same(other, last, pool)) {
        match order_behind(other, last, pool) {
            Ok(Attempt::Done) => {}
            Ok(Attempt::Wait) => return Ok(Attempt::Wait),
            // It is not certain that the device is done with it.
            Err(failure) => {
                scope::ended((pool.clone(), last.clone()), Err(failure.leaking(what)))?;
            }
        }
    }
    Ok(Attempt::Done)
}

fn order_behind(other: &Stream, last: &Stream, pool: &MemoryPool) -> Outcome<Attempt> {
    const DISABLE_TIMING: u32 = 2;
    let context = |stream: &Stream| match stream.is_default() {
        true => Ok(stream.bound_context().unwrap_or_else(|| pool.context()).clone()),
        false => stream.context_inner(),
    };
    let (from, to) = (context(other)?, context(last)?);
    let (Some(_from), Some(_to)) = (boundary::releasing(other.raw()), boundary::releasing(last.raw())) else {
        return Ok(Attempt::Wait);
    };
    if scope::read(from.raw(), || other.is_in_a_capture())? || scope::read(to.raw(), || last.is_in_a_capture())? {
        return Ok(Attempt::Wait);
    }
    capture::relaxed(|| {
        let recorded = || {
            let marker = event::create(DISABLE_TIMING)?;
            match event::record(marker, other.raw()) {
                Ok(()) => Ok(marker),
                Err(failure) => Err(destroyed_after(failure, event::destroy(marker))),
            }
        };
        let marker = scope::create(from.raw(), recorded, event::destroy)?;
        match scope::read(from.raw(), || other.is_in_a_capture()) {
            Ok(false) => {}
            // A capture of the stream has begun meanwhile: who waits for the event may join that.
            Ok(true) => return event::destroy(marker).map(|()| Attempt::Wait),
            Err(failure) => return Err(destroyed_after(failure, event::destroy(marker))),
        }
        let wait = || stream_call::wait_event(last.raw(), marker, 0);
        match (scope::submit(to.raw(), "the wait", wait), event::destroy(marker)) {
            (Ok(()), destroyed) => destroyed.map(|()| Attempt::Done),
            (Err(failure), destroyed) => Err(destroyed_after(failure, destroyed)),
        }
    })
}

fn destroyed_after(failure: Failure, destroyed: Outcome<()>) -> Failure {
    match destroyed {
        Ok(()) => failure,
        Err(destroying) => destroying.attach_to(failure, "the event that was made for it was not undone"),
    }
}
