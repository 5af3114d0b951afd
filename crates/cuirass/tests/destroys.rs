//! A failed destroy of each kind: reported once where the last share is dropped, raised where it is closed, with the
//! call and the handle; and never repeated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, GraphCompleteOptions};
use cuirass::memory::{
    DeviceMemoryResource, DeviceMemoryResourceOptions, IpcAllocationHandle, LegacyPinnedMemoryResource,
    ManagedMemoryResource, ManagedMemoryResourceOptions, PinnedMemory, PinnedMemoryResource,
    PinnedMemoryResourceOptions, SynchronousMemoryResource, VirtualMemoryResource, VirtualMemoryResourceOptions,
};
use cuirass::testing::{Fault, Manner, Recording, known_calls};
use cuirass::{
    Buffer, CodeKind, Context, Device, EventOptions, MemoryResource, ObjectCode, Program, ProgramOptions, Stream,
    StreamOptions,
};
use cuirass_testkit as testkit;
use std::any::Any;
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;

/// Something that the test has, and how a report names it.
struct Thing {
    dropped: Box<dyn Any>,
    handle: String,
    /// What it needs, and what is put away after it.
    _rest: Box<dyn Any>,
}

fn thing<T: Any>(dropped: T, handle: String) -> Thing {
    Thing { dropped: Box::new(dropped), handle, _rest: Box::new(()) }
}

fn with<T: Any, R: Any>(dropped: T, handle: String, rest: R) -> Thing {
    Thing { dropped: Box::new(dropped), handle, _rest: Box::new(rest) }
}

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

fn buffer_of(resource: &dyn MemoryResource) -> Thing {
    let stream = stream();
    let buffer = resource.allocate(64, &stream).unwrap();
    let handle = format!("{:#x}", buffer.as_raw());
    with(buffer, handle, stream)
}

fn own_pool() -> DeviceMemoryResource {
    let options = DeviceMemoryResourceOptions { ipc_enabled: true, ..DeviceMemoryResourceOptions::default() };
    DeviceMemoryResource::create(device(), &options).unwrap()
}

fn imported_pool() -> (DeviceMemoryResource, DeviceMemoryResource) {
    let own = own_pool();
    (DeviceMemoryResource::from_allocation_handle(device(), &own.allocation_handle().unwrap()).unwrap(), own)
}

fn imported_buffer() -> Thing {
    let ((mapped, own), stream) = (imported_pool(), stream());
    let exported = own.allocate(64, &stream).unwrap();
    stream.synchronize().unwrap();
    let buffer = Buffer::from_ipc_descriptor(&mapped, &exported.ipc_descriptor().unwrap(), &stream).unwrap();
    let handle = format!("{:#x}", buffer.as_raw());
    with(buffer, handle, (mapped, exported, own, stream))
}

fn program() -> Program {
    Program::new("extern \"C\" __global__ void k() {}", &ProgramOptions::for_device(device()).unwrap()).unwrap()
}

/// A captured graph that nothing was made of.
fn graph() -> cuirass::graph::GraphBuilder {
    let builder = device().create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    builder.end_building().unwrap();
    builder
}

fn virtual_resource() -> VirtualMemoryResource {
    VirtualMemoryResource::new(device(), VirtualMemoryResourceOptions::default()).unwrap()
}

/// The last share of the primary context.
fn primary_context() -> Thing {
    let context = device().context().unwrap();
    let ordinal = device().ordinal();
    // The device's own share: others are left.
    device().release_primary_context().unwrap();
    thing(context, format!("device {ordinal}"))
}

struct Row {
    kind: &'static str,
    /// What a report calls it.
    what: &'static str,
    /// The call that fails; none for a file descriptor, which the system closes.
    call: &'static str,
    make: fn() -> Thing,
}

const fn row(kind: &'static str, what: &'static str, call: &'static str, make: fn() -> Thing) -> Row {
    Row { kind, what, call, make }
}

const ROWS: &[Row] = &[
    // Before the mapping, which is leaked, and a share of the context with it.
    row("primary context", "a primary context", "cuDevicePrimaryCtxRelease_v2", primary_context),
    row("stream", "a stream", "cuStreamDestroy_v2", || {
        let stream = stream();
        let handle = format!("{:p}", stream.as_raw());
        thing(stream, handle)
    }),
    row("event", "an event", "cuEventDestroy_v2", || {
        let event = device().create_event(&EventOptions::default()).unwrap();
        let handle = format!("{:p}", event.as_raw());
        thing(event, handle)
    }),
    row("memory of a device's pool", "a buffer", "cuMemFreeAsync", || buffer_of(&device().memory_resource().unwrap())),
    row("memory of an own pool", "a buffer", "cuMemFreeAsync", || buffer_of(&own_pool())),
    row("memory on the default stream", "a buffer", "cuMemFreeAsync", || {
        let buffer = device().memory_resource().unwrap().allocate(64, &Stream::legacy_default()).unwrap();
        let handle = format!("{:#x}", buffer.as_raw());
        thing(buffer, handle)
    }),
    row("memory of a pinned pool", "a buffer", "cuMemFreeAsync", || {
        buffer_of(&PinnedMemoryResource::create(&PinnedMemoryResourceOptions::default()).unwrap())
    }),
    row("memory of a managed pool", "a buffer", "cuMemFreeAsync", || {
        // Older drivers have no such pools.
        match ManagedMemoryResource::create(&ManagedMemoryResourceOptions::default()) {
            Ok(pool) => buffer_of(&pool),
            Err(error) => {
                assert!(testkit::driver_version() < 13000, "{error}");
                buffer_of(&own_pool())
            }
        }
    }),
    row("memory of another process", "a buffer", "cuMemFreeAsync", imported_buffer),
    row("memory without a pool", "a buffer", "cuMemFree_v2", || {
        buffer_of(&SynchronousMemoryResource::new(device()).unwrap())
    }),
    row("page-locked memory", "a buffer", "cuMemFreeHost", || buffer_of(&LegacyPinnedMemoryResource)),
    row("page-locked memory of the host's own", "a buffer", "cuMemFreeHost", || {
        let memory = PinnedMemory::<u8>::from_slice(&[1, 2, 3]).unwrap();
        let handle = format!("{:p}", memory.as_slice().as_ptr());
        thing(memory, handle)
    }),
    row("a mapping", "a buffer", "cuMemUnmap", || buffer_of(&virtual_resource())),
    row("reserved addresses", "a buffer", "cuMemAddressFree", || buffer_of(&virtual_resource())),
    row("pool", "a memory pool", "cuMemPoolDestroy", || {
        let pool = own_pool();
        let handle = format!("{:p}", pool.as_raw());
        thing(pool, handle)
    }),
    row("pool of another process", "a memory pool", "cuMemPoolDestroy", || {
        let (mapped, own) = imported_pool();
        let handle = format!("{:p}", mapped.as_raw());
        with(mapped, handle, own)
    }),
    row("allocation handle", "an allocation handle", "", || {
        let own = own_pool();
        let handle = own.allocation_handle().unwrap();
        let number = handle.as_raw_fd();
        with(handle, format!("file descriptor {number}"), own)
    }),
    row("context", "a context", "cuCtxDestroy_v2", || {
        let context = Context::create(device()).unwrap();
        let handle = format!("{:p}", context.as_raw());
        thing(context, handle)
    }),
    row("library", "loaded code", "cuLibraryUnload", || {
        let code = ObjectCode::new(CodeKind::Ptx, program().compile_to_ptx().unwrap().bytes());
        let handle = format!("{:p}", code.as_raw().unwrap());
        thing(code, handle)
    }),
    row("captured graph", "a graph", "cuGraphDestroy", || {
        let builder = graph();
        let handle = format!("{:p}", builder.definition().unwrap().as_raw());
        thing(builder, handle)
    }),
    row("executable graph", "an executable graph", "cuGraphExecDestroy", || {
        let builder = graph();
        let graph = builder.complete(&GraphCompleteOptions::default()).unwrap();
        let handle = format!("{:p}", graph.as_raw());
        with(graph, handle, builder)
    }),
    row("program", "a program", "nvrtcDestroyProgram", || {
        let program = program();
        let handle = format!("{:p}", program.as_raw());
        thing(program, handle)
    }),
];

/// Given back while something is made, so that the failure is raised.
const RAISED: &[&str] = &["cuMemRelease"];

fn fault(call: &str) -> cuirass::testing::Injected {
    let status = if call.starts_with("nvrtc") { 2 } else { 999 };
    Fault::in_call(call).status(status).manner(Manner::Done).on_this_thread().inject().unwrap()
}

#[test]
fn a_failed_destroy_of_each_kind_is_reported_with_its_handle() {
    for Row { kind, what, call, make } in ROWS {
        let alone = testkit::alone();
        device().set_current().unwrap();
        let Thing { dropped, handle, _rest } = make();
        let recording = Recording::start();
        if call.is_empty() {
            // The system refuses to close it: it is closed already.
            let number: i32 = handle.rsplit(' ').next().unwrap().parse().unwrap();
            cuirass_call::memory::ipc::close_file(number).unwrap();
            drop(dropped);
        } else {
            let fault = fault(call);
            drop(dropped);
            assert_eq!(fault.count(), 1, "{kind}: {call} was not made");
        }
        let made = recording.take().iter().filter(|made| made.call == *call).count();
        assert_eq!(made, usize::from(!call.is_empty()), "{kind}: released once");
        let reports = alone.reports();
        let [report] = reports.as_slice() else { panic!("{kind}: one report: {reports:?}") };
        assert!(report.contains(&format!("while releasing {what}")), "{kind}: {report}");
        let names_it = |text: &str| {
            text.match_indices(&handle)
                .any(|(at, _)| !text[at + handle.len()..].starts_with(|c: char| c.is_ascii_hexdigit()))
        };
        assert!(names_it(report), "{kind}: {handle} in {report}");
        if !call.is_empty() {
            let (name, rest) = report.split_once('(').unwrap();
            let status = if call.starts_with("nvrtc") { "NVRTC_ERROR_" } else { "CUDA_ERROR_UNKNOWN" };
            assert!(name == *call && rest.contains(" failed while ") && report.contains(status), "{kind}: {report}");
        }
        // What the driver has done, though it said otherwise, is not done again; nor is what it needs.
        drop(_rest);
        assert_eq!(alone.reports(), Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn physical_memory_that_cannot_be_let_go_of_is_an_error_with_its_handle() {
    let _alone = testkit::alone();
    let (resource, stream, recording) = (virtual_resource(), stream(), Recording::start());
    let fault = fault("cuMemRelease");
    let error = resource.allocate(64, &stream).unwrap_err();
    assert_eq!((error.call(), fault.count()), ("cuMemRelease", 1));
    drop(fault);
    let released = recording.take().into_iter().find(|made| made.call == "cuMemRelease").unwrap();
    assert!(error.to_string().contains(&format!("{:#x}", released.arguments[0])), "{error}");
}

/// Calls that end something, by the lists of the families, and by their names.
#[test]
fn every_destroy_that_is_called_is_in_the_table() {
    const ENDS: [&str; 7] = ["Destroy", "Free", "Release", "Unload", "Unmap", "Close", "Unregister"];
    let by_name = |call: &str| ENDS.iter().any(|end| call.contains(end));
    let destroys: BTreeSet<&str> =
        known_calls().filter(|call| testkit::calls::facts(call).ends.is_some() || by_name(call)).collect();
    let tested: BTreeSet<&str> =
        ROWS.iter().map(|row| row.call).chain(RAISED.iter().copied()).filter(|call| !call.is_empty()).collect();
    assert_eq!(destroys, tested);
    // A handle's kind, as the reports call it.
    let kinds: BTreeSet<&str> = ROWS.iter().map(|row| row.what).collect();
    // The source is not where only the tests were carried.
    let source = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    if !source.exists() {
        return;
    }
    for kind in kinds_in(source) {
        let is_capture = ["a graph builder that is building", "a forked graph builder"].contains(&kind.as_str());
        assert!(is_capture || kinds.contains(kind.as_str()), "{kind} has no row");
    }
}

/// The names of all kinds of handle: `const NAME` of each `impl Kind`.
fn kinds_in(source: &std::path::Path) -> Vec<String> {
    fn read(folder: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let names = text.lines().filter_map(|line| line.trim().strip_prefix("const NAME: &'static str = \""));
                found.extend(names.map(|name| name.trim_end_matches("\";").to_owned()));
            }
        }
    }
    let mut found = Vec::new();
    read(source, &mut found);
    assert!(found.len() >= 12, "{found:?}");
    found
}

#[test]
fn a_copied_file_descriptor_is_one_more_handle() {
    let alone = testkit::alone();
    let own = own_pool();
    let handle = own.allocation_handle().unwrap();
    let copy = IpcAllocationHandle::duplicate_of(handle.as_raw_fd(), None).unwrap();
    let number = copy.as_raw_fd();
    cuirass_call::memory::ipc::close_file(number).unwrap();
    let error = copy.close().unwrap_err();
    assert!(error.to_string().contains(&format!("file descriptor {number} could not be closed")), "{error}");
    assert_eq!(alone.reports(), Vec::<String>::new());
}
