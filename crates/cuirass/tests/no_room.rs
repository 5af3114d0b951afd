//! No memory: what is created is refused before anything is made where its release could not be put off, what cannot be
//! put off is leaked and reported, and an argument that is too large to be copied is an error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, GraphCompleteOptions};
use cuirass::memory::{
    BatchedCopy, CopyOptions, DeviceMemoryResource, DeviceMemoryResourceOptions, IpcAllocationHandle,
    LegacyPinnedMemoryResource, ManagedMemoryResource, ManagedMemoryResourceOptions, PinnedMemoryResource,
    PinnedMemoryResourceOptions, SynchronousMemoryResource, VirtualMemoryResource, VirtualMemoryResourceOptions,
    copy_batch,
};
use cuirass::testing::Recording;
use cuirass::view::{StrideOrder, StridedLayout};
use cuirass::{
    CodeKind, Context, Device, ErrorKind, EventOptions, MemoryResource, ObjectCode, Program, ProgramOptions, Result,
    StreamOptions,
};
use cuirass_call::later::is_there_room;
use cuirass_call::owner::{CallbackThread, Kind, Owned};
use cuirass_fault::Failure;
use cuirass_testkit as testkit;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, which has nothing left of more than a few kilobytes where a test says so.
struct Exhausted;

/// The queue of what waits is longer than this from its beginning; nothing else that the tests do is.
const LARGEST: usize = 32 << 10;

thread_local! {
    static REFUSING: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

fn refuses(size: usize) -> bool {
    let refuses = size > LARGEST && REFUSING.get();
    REFUSED.set(REFUSED.get() + usize::from(refuses));
    refuses
}

// SAFETY: [test] every request goes to the system's allocator as it is, or is refused.
unsafe impl GlobalAlloc for Exhausted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: [test] the caller's promise.
        if refuses(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: [test] the caller's promise.
        if refuses(size) { std::ptr::null_mut() } else { unsafe { System.realloc(pointer, layout, size) } }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: [test] the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Exhausted = Exhausted;

/// With no memory for this thread; what was refused is counted.
fn exhausted<T>(code: impl FnOnce() -> T) -> (T, usize) {
    let before = REFUSED.get();
    REFUSING.set(true);
    let result = code();
    REFUSING.set(false);
    (result, REFUSED.get() - before)
}

static RELEASED: AtomicUsize = AtomicUsize::new(0);

/// Handles that are nobody's: each takes its place in the queue while it lives.
struct Token;

impl Kind for Token {
    const NAME: &'static str = "a token";
    type Raw = u64;
    type Parent = Arc<()>;

    fn release(_token: u64, _needs: Arc<()>) -> std::result::Result<(), Failure> {
        RELEASED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn tokens(needs: &Arc<()>, range: std::ops::Range<u64>) -> Vec<Owned<Token>> {
    range.map(|token| Owned::new(0xf000_0000 + token, needs.clone())).collect()
}

/// As many as there is room for.
fn fill(needs: &Arc<()>) -> Vec<Owned<Token>> {
    let mut all = Vec::new();
    while is_there_room() {
        all.extend(tokens(needs, 0..1));
    }
    all
}

/// What may be refused, and what it is about.
type Creation<'a> = (&'static str, Box<dyn Fn() -> Result<()> + 'a>);

#[test]
fn what_could_not_be_put_off_is_not_created() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    device.set_current().unwrap();
    let stream = device.create_stream(&StreamOptions::default()).unwrap();
    let pool = device.memory_resource().unwrap();
    let shared = DeviceMemoryResourceOptions { ipc_enabled: true, ..DeviceMemoryResourceOptions::default() };
    let shared = DeviceMemoryResource::create(device, &shared).unwrap();
    let handle = shared.allocation_handle().unwrap();
    let descriptor =
        device.create_event(&EventOptions { interprocess: true, timing: false, ..EventOptions::default() }).unwrap();
    let descriptor = descriptor.ipc_descriptor().unwrap();
    let virtually = VirtualMemoryResource::new(device, VirtualMemoryResourceOptions::default()).unwrap();
    let synchronous = SynchronousMemoryResource::new(device).unwrap();
    let builder = device.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    builder.end_building().unwrap();
    let fresh = device.create_graph_builder().unwrap();
    let code = {
        let options = ProgramOptions::for_device(device).unwrap();
        let program = Program::new("extern \"C\" __global__ void k() {}", &options).unwrap();
        program.compile_to_ptx().unwrap()
    };
    let creations: Vec<Creation<'_>> = vec![
        ("stream", Box::new(|| device.create_stream(&StreamOptions::default()).map(drop))),
        ("event", Box::new(|| device.create_event(&EventOptions::default()).map(drop))),
        ("opened event", Box::new(|| cuirass::Event::from_ipc_descriptor(&descriptor).map(drop))),
        ("context", Box::new(|| Context::create(device).map(drop))),
        ("buffer", Box::new(|| pool.allocate(64, &stream).map(drop))),
        ("buffer on a default stream", Box::new(|| pool.allocate(64, &cuirass::Stream::legacy_default()).map(drop))),
        ("synchronous memory", Box::new(|| synchronous.allocate(64, &stream).map(drop))),
        ("page-locked memory", Box::new(|| LegacyPinnedMemoryResource.allocate(64, &stream).map(drop))),
        ("virtual memory", Box::new(|| virtually.allocate(64, &stream).map(drop))),
        ("pool", Box::new(|| DeviceMemoryResource::create(device, &DeviceMemoryResourceOptions::default()).map(drop))),
        ("pinned pool", {
            let options = PinnedMemoryResourceOptions { max_size: 1 << 20, ..PinnedMemoryResourceOptions::default() };
            Box::new(move || PinnedMemoryResource::create(&options).map(drop))
        }),
        ("managed pool", {
            let options = ManagedMemoryResourceOptions::default();
            Box::new(move || ManagedMemoryResource::create(&options).map(drop))
        }),
        ("exported pool", Box::new(|| shared.allocation_handle().map(drop))),
        ("imported pool", Box::new(|| DeviceMemoryResource::from_allocation_handle(device, &handle).map(drop))),
        ("allocation handle", Box::new(|| IpcAllocationHandle::duplicate_of(handle.as_raw_fd(), None).map(drop))),
        ("program", Box::new(|| Program::new("", &ProgramOptions::default()).map(drop))),
        ("library", Box::new(|| ObjectCode::new(CodeKind::Ptx, code.bytes()).kernel("k").map(drop))),
        ("capture", Box::new(|| fresh.begin_building(CaptureMode::Relaxed))),
        ("executable graph", Box::new(|| builder.complete(&GraphCompleteOptions::default()).map(drop))),
    ];
    let needs = Arc::new(());
    let held = fill(&needs);
    for (what, create) in &creations {
        let recording = Recording::start();
        let (created, refused) = exhausted(create);
        let error = created.expect_err(what);
        if *what == "managed pool" && error.kind() == ErrorKind::Unsupported {
            continue;
        }
        assert_eq!(error.kind(), ErrorKind::Memory, "{what}: {error}");
        let text = "there is no memory for one more object: its release could not be put off";
        assert!(error.to_string().contains(text), "{what}: {error}");
        assert!(refused > 0, "{what}: no memory was asked for");
        let made = recording
            .take()
            .into_iter()
            .map(|call| call.call)
            .filter(|call| testkit::calls::facts(call).starts.is_some());
        assert_eq!(made.collect::<Vec<_>>(), Vec::<&str>::new(), "{what}");
    }
    // Once there is memory they work; but for an event of this process's own, and for what an older driver lacks.
    for (what, create) in &creations {
        match create() {
            Ok(()) => assert_ne!(*what, "opened event"),
            Err(error) if *what == "opened event" => assert_eq!(error.call(), "cuIpcOpenEventHandle"),
            Err(error) => assert!(*what == "managed pool" && testkit::driver_version() < 13000, "{what}: {error}"),
        }
    }
    drop(held);
    fresh.end_building().unwrap();
}

#[test]
fn what_cannot_be_put_off_is_leaked_and_reported() {
    let alone = testkit::alone();
    // The first creation makes room.
    Device::new(0).unwrap().create_event(&EventOptions::default()).unwrap();
    assert!(cuirass::drain() == 0 && is_there_room());
    let (needs, kept) = (Arc::new(()), Arc::new(()));
    // Those that there is room for, and, since nobody asked for more, some that there is none for.
    let mut all = fill(&needs);
    all.extend(tokens(&needs, 0..1 << 16));
    let before = RELEASED.load(Ordering::Relaxed);
    let many = all.len();
    all.truncate(0);
    assert_eq!(RELEASED.load(Ordering::Relaxed) - before, many, "outside of a callback they are released at once");

    let mut all = fill(&needs);
    all.extend(tokens(&needs, 0..256));
    let last = tokens(&kept, 256..259);
    let before = RELEASED.load(Ordering::Relaxed);
    let many = all.len();
    let (queued, refused) = exhausted(|| {
        let _callback = CallbackThread::enter();
        all.truncate(0);
        // The queue may have become longer than was asked for.
        let queued = cuirass::pending_releases();
        drop(last);
        queued
    });
    let reports = alone.reports();
    assert!(refused >= 3 && queued > 128, "{refused} refused, {queued} queued");
    assert_eq!(cuirass::pending_releases(), queued, "what was leaked waits no more");
    assert_eq!(reports.len(), many - queued + 3, "one report for each");
    for (at, report) in reports[reports.len() - 3..].iter().enumerate() {
        let expected = format!(
            "there is no memory to put the release of a token, {:#x}, off: it is leaked with what it needs (while \
             releasing a token)",
            0xf000_0100 + at
        );
        assert_eq!(*report, expected);
    }
    assert_eq!(RELEASED.load(Ordering::Relaxed), before, "none was released where no call may be made");
    assert_eq!(cuirass::drain(), 0);
    assert_eq!(RELEASED.load(Ordering::Relaxed) - before, queued, "what was queued is released");
    assert_eq!(Arc::strong_count(&kept), 4, "what was leaked keeps what it needs");
    assert_eq!(Arc::strong_count(&needs), 1 + many - queued);
}

/// Arguments that are large, each of which is copied, or has as many of something made for it.
#[test]
fn what_is_too_large_to_be_copied_is_an_error() {
    const MANY: usize = 1 << 16;
    let alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let stream = device.create_stream(&StreamOptions::default()).unwrap();
    let pool = device.memory_resource().unwrap();
    let text = || "x".repeat(MANY);
    let large = text();
    let with = |change: fn(&mut ProgramOptions, String)| {
        let mut options = ProgramOptions::default();
        change(&mut options, text());
        options
    };
    let options = [
        with(|options, text| options.name = Some(text)),
        with(|options, text| options.arch = Some(text)),
        with(|options, text| options.options = vec![text]),
        with(|options, _text| options.options = vec![String::new(); MANY]),
        with(|options, text| options.headers = vec![("header".to_owned(), text)]),
        with(|options, text| options.headers = vec![(text, String::new())]),
        with(|options, text| options.name_expressions = vec![text]),
        with(|options, _text| options.name_expressions = vec!["k".to_owned(); MANY]),
    ];
    let code = {
        let program = Program::new("extern \"C\" __global__ void k() {}", &ProgramOptions::default()).unwrap();
        program.compile_to_ptx().unwrap()
    };
    code.kernel("k").unwrap();
    let unloaded = ObjectCode::new(CodeKind::Ptx, [code.bytes(), text().as_bytes()].concat());
    let (one, other) = (pool.allocate(1, &stream).unwrap(), pool.allocate(1, &stream).unwrap());
    let copies = vec![BatchedCopy { to: &one, from: &other, options: CopyOptions::default() }; MANY];
    let options_of_program = ProgramOptions { options: vec!["-w".to_owned(); 1 << 12], ..ProgramOptions::default() };
    let builder = device.create_graph_builder().unwrap();
    builder.begin_building(CaptureMode::Relaxed).unwrap();
    let mut calls: Vec<Creation<'_>> = vec![
        ("source", Box::new(|| Program::new(&large, &ProgramOptions::default()).map(drop))),
        ("kernel's name", Box::new(|| code.kernel(&large).map(drop))),
        ("variable's name", Box::new(|| code.global(&large, device).map(drop))),
        ("code", Box::new(|| unloaded.kernel("k").map(drop))),
        ("batch of copies", Box::new(|| copy_batch(&copies, &stream))),
        ("branches", Box::new(|| builder.split(MANY).map(drop))),
        ("more branches than bytes", Box::new(|| builder.split(1 << 60).map(drop))),
    ];
    for options in &options {
        calls.push(("options", Box::new(move || Program::new("", options).map(drop))));
    }
    for (what, call) in &calls {
        let (answer, refused) = exhausted(call);
        let error = answer.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Memory, "{what}: {error}");
        assert!(refused == 1 && error.to_string().contains("there is no memory for "), "{what}: {error}, {refused}");
    }
    drop(calls);
    builder.end_building().unwrap();

    // Nothing is made of a shape that no layout has.
    let numbers = vec![1; MANY];
    let axes = StrideOrder::Axes(&numbers);
    let layouts: [(&str, &dyn Fn() -> Result<()>); 5] = [
        ("shape", &|| StridedLayout::new(&numbers, None, 4).map(drop)),
        ("strides", &|| StridedLayout::new(&[1], Some(&numbers), 4).map(drop)),
        ("strides in bytes", &|| StridedLayout::from_byte_strides(&numbers, Some(&numbers), 4).map(drop)),
        ("stride order", &|| StridedLayout::dense(&numbers, 4, axes).map(drop)),
        ("dense", &|| StridedLayout::dense(&numbers, 4, StrideOrder::F).map(drop)),
    ];
    for (what, make) in layouts {
        let (answer, refused) = exhausted(make);
        assert_eq!((answer.expect_err(what).kind(), refused), (ErrorKind::Value, 0), "{what}");
    }

    // What the driver says of a long text tells its beginning.
    let error = code.kernel(&large).unwrap_err();
    assert!(error.to_string().len() < 1000 && error.to_string().contains("(65536 bytes)"), "{error}");
    let many = Program::new("syntax error", &options_of_program).unwrap();
    let error = many.compile_to_ptx().unwrap_err();
    assert!(error.facts().subject.len() < 1000, "{}", error.facts().subject.len());
    assert_eq!(alone.reports(), Vec::<String>::new());
}
