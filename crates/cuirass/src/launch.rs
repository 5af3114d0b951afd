//! Launches: the shape of a grid, the arguments, and the call.
#![allow(unsafe_code)]

use crate::graph::recording;
use crate::memory::Buffer;
use crate::module::Kernel;
use crate::stream::Stream;
use crate::{Outcome, Result};
use cuirass_call::launch as call;
use cuirass_call::status::code;
use cuirass_call::sys::cuda::{CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig};
use cuirass_fault::{Failure, Misuse, room};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// The shape of a launch. A small plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Blocks in each dimension; clusters, where `cluster` is set.
    pub grid: [u32; 3],
    /// Blocks of a cluster in each dimension (compute capability 9.0 and newer).
    pub cluster: Option<[u32; 3]>,
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks are resident at once, so that they may wait for each other.
    pub cooperative: bool,
    /// Whether the kernel may start before the one ahead of it on the stream has ended.
    pub programmatic_stream_serialization: bool,
}

impl LaunchConfig {
    /// A grid of `blocks` blocks of `threads` threads, one-dimensional.
    pub fn linear(blocks: u32, threads: u32) -> LaunchConfig {
        LaunchConfig::new([blocks, 1, 1], [threads, 1, 1])
    }

    /// A grid of blocks.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> LaunchConfig {
        LaunchConfig {
            grid,
            cluster: None,
            block,
            shared_bytes: 0,
            cooperative: false,
            programmatic_stream_serialization: false,
        }
    }

    /// The same with this much dynamic shared memory a block, in bytes.
    #[must_use]
    pub fn with_shared_bytes(mut self, bytes: u32) -> LaunchConfig {
        self.shared_bytes = bytes;
        self
    }

    /// What the driver is given: this many blocks, and attributes that live until the call has returned.
    #[inline]
    fn driver(&self, blocks: [u32; 3], stream: &Stream, attributes: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
        CUlaunchConfig {
            gridDimX: blocks[0],
            gridDimY: blocks[1],
            gridDimZ: blocks[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared_bytes,
            hStream: stream.raw(),
            attrs: if attributes.is_empty() { std::ptr::null_mut() } else { attributes.as_mut_ptr() },
            // At most three.
            numAttrs: attributes.len() as u32,
        }
    }

    /// Whether it needs no attributes.
    #[inline]
    fn is_plain(&self) -> bool {
        self.cluster.is_none() && !self.cooperative && !self.programmatic_stream_serialization
    }

    /// Whether a launch is made by the kernel's function.
    #[inline]
    pub(crate) fn is_by_function(&self) -> bool {
        self.is_plain() && self.shared_bytes <= ALWAYS_ALLOWED_SHARED_BYTES
    }

    /// The grid in blocks, as the driver wants it. With a cluster size, `grid` counts clusters.
    fn blocks(&self) -> Outcome<[u32; 3]> {
        let Some(cluster) = self.cluster else { return Ok(self.grid) };
        let mut blocks = [0; 3];
        for ((blocks, grid), cluster) in blocks.iter_mut().zip(self.grid).zip(cluster) {
            *blocks = grid.checked_mul(cluster).ok_or_else(|| {
                Failure::misuse(Misuse::Value, format!("a grid of {grid} clusters of {cluster} blocks is too large"))
            })?;
        }
        Ok(blocks)
    }
}

/// A type that can be a kernel's parameter, bit for bit.
///
/// # Safety
/// Any value of the type may be read as its bytes, and these mean the same to the kernel.
pub unsafe trait KernelParameter: Copy {}

macro_rules! parameters {
    ($($name:ty),*) => {$(
        // SAFETY: [plain-parameter] a number of fixed size without padding.
        unsafe impl KernelParameter for $name {}
    )*};
}

parameters!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64, bool, half::f16, half::bf16, u128, i128);

/// One argument of a launch: where its bytes are and how many. It borrows them until the launch.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    address: *const c_void,
    bytes: usize,
    /// The buffer whose address it is: a graph that captures the launch holds its memory.
    buffer: Option<&'a Buffer>,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Argument<'a> {
    /// The bytes of a value, as they are.
    pub fn bytes(bytes: &'a [u8]) -> Argument<'a> {
        Argument { address: bytes.as_ptr().cast(), bytes: bytes.len(), buffer: None, borrowed: PhantomData }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl<'a, T: KernelParameter> From<&'a T> for Argument<'a> {
    #[inline]
    fn from(value: &'a T) -> Argument<'a> {
        Argument {
            address: std::ptr::from_ref(value).cast(),
            bytes: size_of::<T>(),
            buffer: None,
            borrowed: PhantomData,
        }
    }
}

impl<'a> From<&'a Buffer> for Argument<'a> {
    #[inline]
    fn from(buffer: &'a Buffer) -> Argument<'a> {
        let address = std::ptr::from_ref(buffer.address_ref()).cast();
        Argument { address, bytes: size_of::<u64>(), buffer: Some(buffer), borrowed: PhantomData }
    }
}

/// `cuLaunchKernelEx`: runs a kernel on a stream. The number and the sizes of the arguments are held against the
/// kernel's own, where the driver can tell them (CUDA 12.4 and newer).
///
/// # Errors
/// [`ErrorKind::Value`](crate::ErrorKind::Value) for a wrong number or size of arguments; what the driver answers,
/// an earlier kernel's fault among it.
///
/// # Safety
/// The arguments are what the kernel takes, and it may touch what they point to in this grid: memory that it uses is
/// alive until the stream has passed it, and nothing unordered with it touches the same.
#[inline]
pub unsafe fn launch(
    stream: &Stream,
    config: &LaunchConfig,
    kernel: &Kernel,
    arguments: &[Argument<'_>],
) -> Result<()> {
    // SAFETY: [launch-arguments] the caller's promise.
    Ok(unsafe { launch_inner(stream, config, kernel, arguments) }?)
}

#[inline]
unsafe fn launch_inner(
    stream: &Stream,
    config: &LaunchConfig,
    kernel: &Kernel,
    arguments: &[Argument<'_>],
) -> Outcome<()> {
    if let Some(parameters) = kernel.parameters_for(stream)? {
        let fits = parameters.len() == arguments.len()
            && parameters.iter().zip(arguments).all(|(parameter, argument)| parameter.size == argument.bytes);
        if !fits {
            return Err(mismatch(kernel, arguments));
        }
    }
    let mut few = [const { MaybeUninit::uninit() }; FEW];
    let mut many: Vec<MaybeUninit<*mut c_void>>;
    let addresses: &mut [MaybeUninit<*mut c_void>] = match few.get_mut(..arguments.len()) {
        Some(few) => few,
        None => {
            many = room::list(std::iter::repeat_n(MaybeUninit::uninit(), arguments.len()), "for the arguments")?;
            &mut many
        }
    };
    for (address, argument) in addresses.iter_mut().zip(arguments) {
        address.write(argument.address.cast_mut());
    }
    let addresses = if addresses.is_empty() { std::ptr::null_mut() } else { addresses.as_mut_ptr().cast() };
    let is_plain = config.is_plain();
    let function = if config.is_by_function() { kernel.function_for(stream)? } else { kernel.as_raw().cast() };
    // SAFETY: [launch-arguments] the caller's promise; the addresses live until the call returns.
    let launched = unsafe {
        if is_plain {
            call::kernel_ex(&config.driver(config.grid, stream, &mut []), function, kernel.as_raw(), addresses)
        } else {
            with_attributes(stream, config, kernel, addresses)
        }
    };
    // Whatever the answer: the node may be there even where the call returns an error.
    // A graph that captured it holds the kernel, and the memory whose addresses it was given.
    recording::attach_work(stream, Some(kernel), arguments.iter().filter_map(|argument| argument.buffer));
    match launched {
        Ok(()) => Ok(()),
        Err(failure) => Err(explained(failure, config)),
    }
}

/// What the driver leaves unsaid where it refuses the shape: the first limit, of those that all devices have, that it is
/// over.
#[cold]
#[inline(never)]
fn explained(failure: Failure, config: &LaunchConfig) -> Failure {
    if failure.status() != Some(code::INVALID_VALUE) {
        return failure;
    }
    let LaunchConfig { grid, block, shared_bytes, .. } = config;
    let threads: u64 = block.iter().map(|&threads| u64::from(threads)).fold(1, u64::saturating_mul);
    if grid.iter().chain(block).any(|&size| size == 0) {
        failure.note("a grid has at least one block in each dimension, and a block at least one thread")
    } else if threads > MOST_THREADS {
        failure.note(format!("a block has at most {MOST_THREADS} threads, this one would have {threads}"))
    } else if block[2] > MOST_THREADS_Z {
        failure.note(format!("a block has at most {MOST_THREADS_Z} threads in z, this one would have {}", block[2]))
    } else if let Some(blocks) = grid.iter().skip(1).find(|&&blocks| blocks > MOST_BLOCKS_YZ) {
        failure.note(format!("a grid has at most {MOST_BLOCKS_YZ} blocks in y and in z, this one would have {blocks}"))
    } else if *shared_bytes > ALWAYS_ALLOWED_SHARED_BYTES {
        failure.note(format!(
            "more than {ALWAYS_ALLOWED_SHARED_BYTES} bytes of dynamic shared memory have to be allowed of the kernel first: \
             kernel.attributes.max_dynamic_shared_size_bytes = {shared_bytes} in Python, in Rust Kernel::set_attribute with \
             CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        ))
    } else {
        failure
    }
}

/// How many arguments a launch may have before it allocates.
const FEW: usize = 16;

/// A kernel may have more dynamic shared memory than this where `cuKernelSetAttribute` said so; it said so of the
/// kernel, and a function has settings of its own, which go before the kernel's.
const ALWAYS_ALLOWED_SHARED_BYTES: u32 = 48 << 10;

/// Of a block, on every device that CUDA has.
const MOST_THREADS: u64 = 1024;
const MOST_THREADS_Z: u32 = 64;
/// Of a grid.
const MOST_BLOCKS_YZ: u32 = 65535;

/// A launch that needs attributes.
///
/// # Safety
/// As [`launch`], with the addresses of the arguments.
#[cold]
#[inline(never)]
unsafe fn with_attributes(
    stream: &Stream,
    config: &LaunchConfig,
    kernel: &Kernel,
    addresses: *mut *mut c_void,
) -> Outcome<()> {
    let mut attributes = [CUlaunchAttribute::default(); 3];
    let count = write_attributes(config, &mut attributes);
    let driver = config.driver(config.blocks()?, stream, attributes.get_mut(..count).unwrap_or_default());
    // SAFETY: [launch-arguments] the caller's promise; the attributes live until the call returns.
    unsafe { call::kernel_ex(&driver, kernel.as_raw().cast(), kernel.as_raw(), addresses) }
}

fn write_attributes(config: &LaunchConfig, attributes: &mut [CUlaunchAttribute; 3]) -> usize {
    let mut list = attributes.iter_mut();
    let mut count = 0;
    if let (Some([x, y, z]), Some(attribute)) = (config.cluster, list.next()) {
        attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim.x = x;
        attribute.value.clusterDim.y = y;
        attribute.value.clusterDim.z = z;
        count += 1;
    }
    if config.cooperative
        && let Some(attribute) = list.next()
    {
        attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attribute.value.cooperative = 1;
        count += 1;
    }
    if config.programmatic_stream_serialization
        && let Some(attribute) = list.next()
    {
        attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        count += 1;
    }
    count
}

#[cold]
fn mismatch(kernel: &Kernel, arguments: &[Argument<'_>]) -> Failure {
    let parameters = kernel.known_parameters().unwrap_or_default();
    let name = kernel.name_or_handle();
    let message = if parameters.len() == arguments.len() {
        let wrong = parameters.iter().zip(arguments).enumerate().find(|(_, (known, given))| known.size != given.bytes);
        match wrong {
            Some((index, (known, given))) => {
                format!("kernel {name}: parameter {index} has {} bytes, the argument has {}", known.size, given.bytes)
            }
            None => format!("kernel {name}: the arguments fit"),
        }
    } else {
        format!("kernel {name} takes {} arguments, {} were given", parameters.len(), arguments.len())
    };
    Failure::misuse(Misuse::Value, message)
}
