//! Pools, memory and events shared between processes. One process imports what it has itself exported, which the driver
//! takes for pools and memory; of an event it takes its own only to refuse it.

use crate::objects::{Plain, Works, device, operation, stream, taken};
use cuirass::memory::{
    DeviceMemoryResource, DeviceMemoryResourceOptions, IpcAllocationHandle, IpcBufferDescriptor, IpcEventDescriptor,
    MemoryPool, PinnedMemoryResource, PinnedMemoryResourceOptions,
};
use cuirass::{Buffer, Event, EventOptions, Result, Stream};
use cuirass_testkit::operation::{Caller, Operation};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];

/// What another process would have: memory, which it keeps.
struct Exported {
    stream: Stream,
    pool: DeviceMemoryResource,
    memory: Buffer,
    handle: IpcAllocationHandle,
}

/// It is there for the process: as another process's it must not go while anything imports it, be it by mistake.
fn exported() -> Result<&'static Exported> {
    static EXPORTED: OnceLock<Exported> = OnceLock::new();
    if let Some(exported) = EXPORTED.get() {
        return Ok(exported);
    }
    let (stream, pool) = (stream()?, own_pool()?);
    let memory = pool.allocate(64, &stream)?;
    stream.synchronize()?;
    let handle = pool.allocation_handle()?;
    Ok(EXPORTED.get_or_init(|| Exported { stream, pool, memory, handle }))
}

static AT_REST: AtomicBool = AtomicBool::new(false);

/// From now on the process exports something whenever it is at rest.
pub fn export_at_rest() {
    AT_REST.store(true, Ordering::Relaxed);
}

pub fn rest() -> Result<()> {
    if AT_REST.load(Ordering::Relaxed) { exported().map(|_exported| ()) } else { Ok(()) }
}

/// The pool as this process has it, and what is imported of it.
struct Shared {
    imported: Option<Buffer>,
    descriptor: IpcBufferDescriptor,
    mapped: DeviceMemoryResource,
    stream: Stream,
    other: Option<Stream>,
    exported: &'static Exported,
}

impl Works for Shared {
    fn works(&self) -> Result<()> {
        self.exported.stream.synchronize()?;
        self.exported.memory.works()?;
        self.imported.works()?;
        let again = Buffer::from_ipc_descriptor(&self.mapped, &self.descriptor, &self.stream)?;
        again.works()?;
        again.close()?;
        self.stream.synchronize()?;
        self.exported.pool.works()
    }
}

fn own_pool() -> Result<DeviceMemoryResource> {
    let options = DeviceMemoryResourceOptions { ipc_enabled: true, ..DeviceMemoryResourceOptions::default() };
    DeviceMemoryResource::create(device(), &options)
}

fn shared() -> Result<Shared> {
    let exported = exported()?;
    let mapped = DeviceMemoryResource::from_allocation_handle(device(), &exported.handle)?;
    let descriptor = exported.memory.ipc_descriptor()?;
    Ok(Shared { imported: None, descriptor, mapped, stream: stream()?, other: None, exported })
}

/// Memory of a pool that was not exported yet.
fn fresh() -> Result<(Buffer, Stream)> {
    let stream = stream()?;
    let memory = own_pool()?.allocate(64, &stream)?;
    stream.synchronize()?;
    Ok((memory, stream))
}

fn imported_twice() -> Result<(Option<DeviceMemoryResource>, Shared)> {
    let shared = shared()?;
    Ok((Some(DeviceMemoryResource::from_allocation_handle(device(), &shared.exported.handle)?), shared))
}

fn imported() -> Result<Shared> {
    let mut shared = shared()?;
    shared.imported = Some(Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &shared.stream)?);
    Ok(shared)
}

/// Imported, and a share of it given up on another stream.
fn given_up() -> Result<Shared> {
    let (mut shared, other) = (imported()?, stream()?);
    Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &other)?.close()?;
    shared.other = Some(other);
    Ok(shared)
}

fn event() -> Result<Event> {
    device().create_event(&EventOptions { interprocess: true, ..EventOptions::default() })
}

/// Another process's event, as bytes. That process lives as long as this one.
fn event_elsewhere() -> Result<IpcEventDescriptor> {
    static ELSEWHERE: OnceLock<(Child, Vec<u8>)> = OnceLock::new();
    let (_process, bytes) = ELSEWHERE.get_or_init(|| {
        let mut command = Command::new(std::env::current_exe().expect("this program's path"));
        let mut process =
            command.arg("--exporter").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let byte = |at| u8::from_str_radix(line.get(at..at + 2).expect("two digits"), 16).expect("hexadecimal");
        let bytes = (0..line.trim_end().len()).step_by(2).map(byte).collect();
        (process, bytes)
    });
    IpcEventDescriptor::from_bytes(bytes)
}

/// The other process: it exports an event, and keeps it until its input ends.
pub fn exporter() -> ExitCode {
    cuirass_testkit::choose();
    let stream = stream().expect("a stream");
    let event = event().expect("an event");
    stream.record(&event).expect("recorded");
    event.synchronize().expect("done");
    let bytes = event.ipc_descriptor().expect("a descriptor").to_bytes();
    println!("{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    ended.map_or(ExitCode::FAILURE, |_bytes| ExitCode::SUCCESS)
}

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![
        operation!("MemoryPool::allocation_handle", own_pool, |pool| pool.allocation_handle()).called_with(&ALL),
        operation!("DeviceMemoryResource::from_allocation_handle", shared, |shared| {
            DeviceMemoryResource::from_allocation_handle(device(), &shared.exported.handle)
        })
        .called_with(&ALL),
        operation!("DeviceMemoryResource::from_allocation_handle", || exported().map(Plain), |exported| {
            DeviceMemoryResource::from_allocation_handle(device(), &exported.0.handle)
        })
        .case("the first")
        .called_with(&ALL),
        operation!("DeviceMemoryResource::close", imported_twice, |(one, _other)| taken(one).close())
            .case("one of two of another process's pool"),
        operation!("Buffer::ipc_descriptor", shared, |shared| shared.exported.memory.ipc_descriptor())
            .called_with(&ALL),
        operation!("Buffer::ipc_descriptor", fresh, |(memory, _stream)| memory.ipc_descriptor())
            .case("the first of its pool")
            .called_with(&ALL),
        operation!("Buffer::from_ipc_descriptor", shared, |shared| {
            Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &shared.stream)
        })
        .called_with(&ALL),
        operation!("Buffer::from_ipc_descriptor", shared, |shared| {
            Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &Stream::legacy_default())
        })
        .case("on the legacy default stream")
        .called_with(&ALL),
        operation!("Buffer::close", imported, |shared| taken(&mut shared.imported).close()).case("an imported one"),
        operation!("Buffer::close", given_up, |shared| taken(&mut shared.imported).close())
            .case("the last share of an imported one, behind another stream"),
        operation!("Buffer (dropped)", given_up, |shared| {
            drop(taken(&mut shared.imported));
            Ok(())
        })
        .case("the last share of an imported one")
        .reports(),
        operation!("PinnedMemoryResource::from_allocation_handle", pinned, |pinned| {
            PinnedMemoryResource::from_allocation_handle(&pinned.0.0)
        })
        .called_with(&ALL),
        operation!("Event::ipc_descriptor", event, |event| event.ipc_descriptor()).called_with(&ALL),
        operation!("Event::from_ipc_descriptor", || event_elsewhere().map(Plain), |descriptor| {
            Event::from_ipc_descriptor(&descriptor.0)
        })
        .called_with(&ALL),
        operation!("Event::close", opened, |event| taken(event).close()).case("another process's"),
        operation!("Event::synchronize", opened, |event| event.as_ref().map(Event::synchronize).transpose())
            .case("another process's"),
    ];
    operations.extend(without_calls());
    operations
}

fn opened() -> Result<Option<Event>> {
    Event::from_ipc_descriptor(&event_elsewhere()?).map(Some)
}

/// The pool is not asked whether it still works: a real driver does not let a process use its own pool of the host's
/// memory after having imported it.
fn pinned() -> Result<Plain<(IpcAllocationHandle, PinnedMemoryResource)>> {
    let options = PinnedMemoryResourceOptions { ipc_enabled: true, ..PinnedMemoryResourceOptions::default() };
    let pool = PinnedMemoryResource::create(&options)?;
    Ok(Plain((pool.allocation_handle()?, pool)))
}

fn without_calls() -> Vec<Operation> {
    let handle = || own_pool()?.allocation_handle().map(|handle| Plain(Some(handle)));
    let own = || own_pool().map(Plain);
    let raw = || Ok(Plain(IpcEventDescriptor::from_raw([7; 64], true)));
    vec![
        operation!("MemoryPool::is_ipc_enabled", own, |pool| Ok(pool.0.is_ipc_enabled())).makes_no_call(),
        operation!("MemoryPool::is_mapped", own, |pool| Ok(pool.0.is_mapped())).makes_no_call(),
        operation!("MemoryPool::uuid", own, |pool| Ok(pool.0.uuid())).makes_no_call(),
        operation!("MemoryPool::identify", own, |pool| {
            let pool: &MemoryPool = &pool.0;
            pool.identify(pool.uuid().unwrap_or_default())
        })
        .makes_no_call(),
        operation!("Buffer::is_mapped", shared, |shared| Ok(shared.exported.memory.is_mapped())).makes_no_call(),
        operation!("Buffer::ipc_descriptor", imported, |shared| {
            shared.imported.as_ref().map(Buffer::ipc_descriptor).transpose()
        })
        .case("of an imported one")
        .makes_no_call(),
        operation!("Buffer::close", imported, |shared| {
            let again = Buffer::from_ipc_descriptor(&shared.mapped, &shared.descriptor, &shared.stream)?;
            again.close()
        })
        .case("a share of an imported one")
        .makes_no_call(),
        operation!("IpcAllocationHandle::close", handle, |handle| taken(&mut handle.0).close()).makes_no_call(),
        operation!("IpcAllocationHandle::uuid", handle, |handle| Ok(handle.0.as_ref().and_then(|it| it.uuid())))
            .makes_no_call(),
        operation!("IpcAllocationHandle::duplicate_of", handle, |handle| {
            let handle = taken(&mut handle.0);
            IpcAllocationHandle::duplicate_of(handle.as_raw_fd(), handle.uuid())
        })
        .makes_no_call(),
        operation!("IpcAllocationHandle::from_file", handle, |handle| {
            let handle = taken(&mut handle.0);
            let copy = std::mem::ManuallyDrop::new(IpcAllocationHandle::duplicate_of(handle.as_raw_fd(), None)?);
            // SAFETY: [test] its owner, which is not dropped, gives it up here.
            let file = unsafe { OwnedFd::from_raw_fd(copy.as_raw_fd()) };
            Ok(IpcAllocationHandle::from_file(file, handle.uuid()))
        })
        .makes_no_call(),
        operation!("IpcBufferDescriptor::from_raw", || Ok(()), |()| Ok(IpcBufferDescriptor::from_raw([0; 64], 4)))
            .makes_no_call(),
        operation!("IpcBufferDescriptor::size", shared, |shared| Ok(shared.descriptor.size())).makes_no_call(),
        operation!("IpcBufferDescriptor::pool", shared, |shared| Ok(shared.descriptor.pool())).makes_no_call(),
        operation!("IpcBufferDescriptor::to_bytes", shared, |shared| Ok(shared.descriptor.to_bytes())).makes_no_call(),
        operation!("IpcBufferDescriptor::from_bytes", shared, |shared| {
            IpcBufferDescriptor::from_bytes(&shared.descriptor.to_bytes())
        })
        .makes_no_call(),
        operation!("Event::ipc_descriptor", opened, |event| event.as_ref().map(Event::ipc_descriptor).transpose())
            .case("of another process's")
            .makes_no_call(),
        operation!("IpcEventDescriptor::from_raw", raw, |descriptor| Ok(descriptor.0.clone())).makes_no_call(),
        operation!("IpcEventDescriptor::blocking_sync", raw, |descriptor| Ok(descriptor.0.blocking_sync()))
            .makes_no_call(),
        operation!("IpcEventDescriptor::to_bytes", raw, |descriptor| Ok(descriptor.0.to_bytes())).makes_no_call(),
        operation!("IpcEventDescriptor::from_bytes", raw, |descriptor| {
            IpcEventDescriptor::from_bytes(&descriptor.0.to_bytes())
        })
        .makes_no_call(),
    ]
}
