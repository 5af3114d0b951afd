//! What operations need, and how to see that it still works.

use cuirass::memory::{
    Buffer, DeviceMemoryResource, DeviceMemoryResourceOptions, ManagedMemoryResource, MemoryPool, PinnedMemory,
    PinnedMemoryResource, Transfer,
};
use cuirass::{
    Context, Device, Error, Event, EventOptions, Kernel, ObjectCode, Program, ProgramOptions, Result, Stream,
    StreamOptions,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Device 0.
pub fn device() -> Device {
    Device::new(0).expect("device 0")
}

/// A stream of the primary context.
pub fn stream() -> Result<Stream> {
    device().create_stream(&StreamOptions::default())
}

/// An event of the primary context.
pub fn event() -> Result<Event> {
    device().create_event(&EventOptions::default())
}

/// The device's default pool.
pub fn pool() -> Result<DeviceMemoryResource> {
    device().memory_resource()
}

/// A pool of its own.
pub fn own_pool() -> Result<DeviceMemoryResource> {
    DeviceMemoryResource::create(device(), &DeviceMemoryResourceOptions::default())
}

/// Memory of the default pool.
pub fn buffer(stream: &Stream) -> Result<Buffer> {
    pool()?.allocate(64, stream)
}

/// A context that is not the primary one.
pub fn other_context() -> Result<Context> {
    Context::create(device())
}

/// Tries what waits until it is done, which takes long where other processes keep the device busy; what waits for a
/// capture that was given up does so for good, and is waited for once.
fn drain_all() {
    static FOR_GOOD: Mutex<Vec<(&str, u64)>> = Mutex::new(Vec::new());
    let mut for_good = FOR_GOOD.lock().unwrap_or_else(PoisonError::into_inner);
    let begin = Instant::now();
    while cuirass::drain() > 0 {
        let waiting = cuirass::testing::waiting_releases();
        if waiting.iter().all(|one| for_good.contains(one)) {
            break;
        }
        if begin.elapsed() > Duration::from_secs(5) {
            eprintln!("gauntlet: for 5 seconds these have waited: {waiting:x?}");
            *for_good = waiting;
            break;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Puts what is kept for the process into the same state: what waited for a capture to end released, the primary
/// context retained, the default pool known, what other processes would export there, all work done.
pub fn rest() -> Result<()> {
    drain_all();
    device().memory_resource()?;
    crate::memory_ipc::rest()?;
    device().synchronize()
}

/// Two kernels and a variable.
pub const SOURCE: &str = "extern \"C\" __global__ void add(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += n; }\n\
                          extern \"C\" __global__ void nothing() {}\n\
                          __device__ int counter = 41;\n";

/// The source compiled, once for the process.
pub fn ptx() -> Result<&'static [u8]> {
    static PTX: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(ptx) = PTX.get() {
        return Ok(ptx);
    }
    let program = Program::new(SOURCE, &ProgramOptions::for_device(device())?)?;
    let ptx = program.compile_to_ptx()?.bytes().to_vec();
    Ok(PTX.get_or_init(|| ptx))
}

/// Object code that is not loaded yet.
pub fn code() -> Result<ObjectCode> {
    Ok(ObjectCode::new(cuirass::CodeKind::Ptx, ptx()?))
}

/// Object code that is loaded.
pub fn loaded_code() -> Result<ObjectCode> {
    let code = code()?;
    code.as_raw()?;
    Ok(code)
}

/// A kernel that writes where there is no memory.
const FAULT: &str = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry fault() {\n.reg .b64 %rd1;\n\
                     .reg .b32 %r1;\nmov.u64 %rd1, 16;\nmov.u32 %r1, 1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

/// Loses the primary context for good, and returns what the driver says of it.
pub fn lose_the_context() -> Result<()> {
    let stream = stream()?;
    let kernel = ObjectCode::new(cuirass::CodeKind::Ptx, FAULT).kernel("fault")?;
    // SAFETY: [test] the kernel faults, which is what it is for.
    unsafe { cuirass::launch(&stream, &cuirass::LaunchConfig::linear(1, 1), &kernel, &[])? };
    stream.synchronize()
}

/// A kernel, with its code.
pub fn kernel() -> Result<Kernel> {
    code()?.kernel("add")
}

/// An object that can be asked whether it still works.
pub trait Works {
    /// A follow-up operation, which has to succeed.
    fn works(&self) -> Result<()>;
}

/// Something that has no follow-up.
pub struct Plain<T>(pub T);

impl<T> Works for Plain<T> {
    fn works(&self) -> Result<()> {
        Ok(())
    }
}

impl Works for () {
    fn works(&self) -> Result<()> {
        Ok(())
    }
}

impl Works for Context {
    fn works(&self) -> Result<()> {
        self.stream_priority_range().map(|_range| ())
    }
}

impl Works for Stream {
    fn works(&self) -> Result<()> {
        if !self.is_default() {
            // A default stream is the current context's, of which there may be none.
            let event = self.record_new(&EventOptions::default())?;
            self.wait(&event)?;
            self.synchronize()?;
            event.close()?;
        }
        Ok(())
    }
}

impl Works for Event {
    fn works(&self) -> Result<()> {
        self.synchronize()?;
        self.is_done().map(|_done| ())
    }
}

impl Works for MemoryPool {
    fn works(&self) -> Result<()> {
        let stream = stream()?;
        let buffer = self.allocate(64, &stream)?;
        buffer.fill(1, &stream)?;
        buffer.close()?;
        stream.synchronize()?;
        stream.close()
    }
}

impl Works for DeviceMemoryResource {
    fn works(&self) -> Result<()> {
        MemoryPool::works(self)
    }
}

impl Works for ManagedMemoryResource {
    fn works(&self) -> Result<()> {
        MemoryPool::works(self)
    }
}

impl Works for PinnedMemoryResource {
    fn works(&self) -> Result<()> {
        MemoryPool::works(self)
    }
}

impl Works for Buffer {
    fn works(&self) -> Result<()> {
        if self.is_empty() || !self.is_device_accessible() {
            return Ok(());
        }
        // Another stream's work is waited for by the device as a whole.
        device().synchronize()?;
        let stream = stream()?;
        let mut bytes = vec![0_u8; self.len()];
        self.copy_to_slice(&mut bytes, &stream)?;
        // Some thousand of them, the last one too: virtual memory has millions.
        let step = 1 + self.len() / 4096;
        for byte in bytes.iter_mut().rev().step_by(step) {
            *byte = byte.wrapping_add(1);
        }
        self.copy_from_slice(&bytes, &stream)?;
        let mut again = vec![0_u8; self.len()];
        self.copy_to_slice(&mut again, &stream)?;
        stream.close()?;
        expect(bytes == again, "a buffer holds what was written to it")
    }
}

impl Works for PinnedMemory<u32> {
    fn works(&self) -> Result<()> {
        let stream = stream()?;
        let buffer = pool()?.allocate(size_of_val(self.as_slice()), &stream)?;
        buffer.copy_from_slice(self.as_slice(), &stream)?;
        buffer.close()?;
        stream.synchronize()?;
        stream.close()
    }
}

impl<M> Works for Transfer<M> {
    fn works(&self) -> Result<()> {
        self.is_done().map(|_done| ())
    }
}

impl Works for Program {
    fn works(&self) -> Result<()> {
        self.compile_to_ptx().map(|_code| ())
    }
}

impl Works for ObjectCode {
    fn works(&self) -> Result<()> {
        self.kernel("nothing").map(|_kernel| ())
    }
}

impl Works for Kernel {
    fn works(&self) -> Result<()> {
        use cuirass::{LaunchConfig, launch};
        let stream = stream()?;
        let buffer = pool()?.allocate(128, &stream)?;
        buffer.fill(0, &stream)?;
        // SAFETY: [test] the kernel writes 32 ints.
        unsafe { launch(&stream, &LaunchConfig::linear(1, 32), self, &[(&buffer).into(), (&32_i32).into()])? };
        let mut result = [0_i32; 32];
        buffer.copy_to_slice(&mut result, &stream)?;
        buffer.close()?;
        stream.synchronize()?;
        stream.close()?;
        expect(result == [32; 32], "a kernel writes what it should")
    }
}

impl<T: Works> Works for Option<T> {
    fn works(&self) -> Result<()> {
        self.as_ref().map_or(Ok(()), Works::works)
    }
}

impl<T: Works> Works for Arc<T> {
    fn works(&self) -> Result<()> {
        (**self).works()
    }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),*);)*) => {$(
        impl<$($name: Works),*> Works for ($($name,)*) {
            fn works(&self) -> Result<()> {
                $(self.$at.works()?;)*
                Ok(())
            }
        }
    )*};
}

tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
}

fn expect(holds: bool, what: &str) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::from(cuirass_fault::Failure::internal(what)))
}

/// What an operation consumes.
pub fn taken<T>(object: &mut Option<T>) -> T {
    object.take().expect("an operation runs once")
}

/// An operation whose earlier objects are asked whether they still work.
macro_rules! operation {
    ($name:expr, $set_up:expr, $operate:expr) => {
        cuirass_testkit::operation::Operation::new($name, $set_up, $operate, $crate::objects::Works::works)
    };
}

pub(crate) use operation;
