//! C's pointers as values that safe code can use.
//!
//! The exported functions turn each raw argument into one of these types ([`FromC`]); what `cuda.h` makes the
//! caller promise of a pointer (that it points to what its type says, to as many as the call's count says, for the
//! time of the call) is taken as given here and nowhere else.

#![allow(unsafe_code)]

use crate::status::{Answer, INVALID_VALUE, Status};
use cuirass_sys::cuda::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v3, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2, CUcontext, CUdevResource, CUdevSmResource, CUdeviceptr,
    CUevent, CUgraph, CUgraphNodeParams, CUgraphNodeType, CUmemLocation, CUmemLocationType, CUstream,
};
use cuirass_sys::cuda::{CUlaunchAttribute, CUoccupancyB2DSize};
use smallvec::SmallVec;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Conversion of a raw argument.
pub trait FromC<C>: Sized {
    /// Takes the argument over.
    ///
    /// # Safety
    /// The C caller keeps what `cuda.h` says of this argument.
    unsafe fn from_c(raw: C) -> Self;
}

impl<T> FromC<T> for T {
    unsafe fn from_c(raw: T) -> T {
        raw
    }
}

/// A place of the caller that a result is written to.
pub struct Out<T>(*mut T);

impl<T> FromC<*mut T> for Out<T> {
    unsafe fn from_c(raw: *mut T) -> Self {
        Out(raw)
    }
}

impl<T> Out<T> {
    /// Whether the caller gave no place.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Refuses a null pointer before anything is done.
    pub fn check(&self) -> Answer {
        if self.0.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes the result; null is `INVALID_VALUE`.
    pub fn write(&self, value: T) -> Answer {
        self.check()?;
        // SAFETY: [c-caller] not null, and the caller promises room for one T.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the result if the caller wants it.
    pub fn write_if_wanted(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: [c-caller] not null, and the caller promises room for one T.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Writes the element at an index; the caller's count must cover it.
    pub fn write_at(&self, index: usize, value: T) -> Answer {
        self.check()?;
        // SAFETY: [c-caller] not null, and the caller promises room for the count that this index is below.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }

    /// Reads the element at an index; the caller's count must cover it.
    pub fn read_at(&self, index: usize) -> Answer<T>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: [c-caller] not null, and the caller promises the count that this index is below, initialised.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// Reads what the caller put there.
    pub fn read(&self) -> Answer<T>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: [c-caller] not null, and the caller promises an initialised T.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

impl Out<c_char> {
    /// Writes text, cut to `room` bytes with the closing zero.
    pub fn write_text(&self, text: &str, room: usize) -> Answer {
        self.check()?;
        if room == 0 {
            return Err(INVALID_VALUE);
        }
        let kept = text.len().min(room - 1);
        // SAFETY: [c-caller] not null, and the caller promises `room` bytes; kept + 1 is at most that.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.0, kept);
            self.0.add(kept).write(0);
        }
        Ok(())
    }
}

/// A place of the caller that is read.
#[derive(Clone, Copy)]
pub struct In<T>(*const T);

impl<T> FromC<*const T> for In<T> {
    unsafe fn from_c(raw: *const T) -> Self {
        In(raw)
    }
}

impl<T> FromC<*mut T> for In<T> {
    unsafe fn from_c(raw: *mut T) -> Self {
        In(raw)
    }
}

impl<T: Copy> In<T> {
    /// Whether the caller gave nothing.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Reads it; null is `INVALID_VALUE`.
    pub fn read(&self) -> Answer<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: [c-caller] not null, and the caller promises an initialised T.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads the element at an index; the caller's array must reach so far.
    pub fn read_at(&self, index: usize) -> Answer<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: [c-caller] not null, and the caller promises an array that ends behind this index.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// Reads `count` of them; null is `INVALID_VALUE` unless none is wanted.
    pub fn read_many(&self, count: usize) -> Answer<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: [c-caller] not null, and the caller promises `count` initialised elements.
        Ok((0..count).map(|at| unsafe { self.0.add(at).read_unaligned() }).collect())
    }
}

/// Text of the caller, ended by a zero.
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl FromC<*const c_char> for Text {
    unsafe fn from_c(raw: *const c_char) -> Self {
        Text(raw)
    }
}

impl Text {
    /// The text; null or not UTF-8 is `INVALID_VALUE`.
    pub fn read(&self) -> Answer<String> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: [c-caller] not null, and the caller promises a closing zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).or(Err(INVALID_VALUE))
    }
}

/// A pointer to memory of the caller whose type is known only from other arguments (`void *`).
#[derive(Clone, Copy)]
pub struct Untyped(*mut c_void);

impl FromC<*mut c_void> for Untyped {
    unsafe fn from_c(raw: *mut c_void) -> Self {
        Untyped(raw)
    }
}

impl FromC<*const c_void> for Untyped {
    unsafe fn from_c(raw: *const c_void) -> Self {
        Untyped(raw.cast_mut())
    }
}

impl From<*mut c_void> for Untyped {
    /// A pointer that stood in a structure of the caller's.
    fn from(raw: *mut c_void) -> Self {
        Untyped(raw)
    }
}

impl Untyped {
    /// Whether the caller gave nothing.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The address as a number.
    pub fn address(&self) -> usize {
        self.0 as usize
    }

    /// The place so many bytes further.
    pub fn offset(&self, bytes: usize) -> Self {
        Untyped(self.0.wrapping_byte_add(bytes))
    }

    /// As a place for one T.
    pub fn out<T>(&self) -> Out<T> {
        Out(self.0.cast())
    }

    /// As a place that holds T.
    pub fn of<T>(&self) -> In<T> {
        In(self.0.cast())
    }

    /// Reads `count` bytes.
    pub fn bytes(&self, count: usize) -> Answer<Vec<u8>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: [c-caller] not null, and the caller promises `count` bytes.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), count) }.to_vec())
    }

    /// Reads bytes up to a zero, which is not included (the length of a PTX image is only known so).
    pub fn bytes_to_zero(&self) -> Answer<Vec<u8>> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: [c-caller] not null, and the caller promises text with a closing zero.
        Ok(unsafe { CStr::from_ptr(self.0.cast()) }.to_bytes().to_vec())
    }
}

impl<T> From<*mut T> for In<T> {
    /// A pointer that stood in a structure of the caller's.
    fn from(raw: *mut T) -> Self {
        In(raw)
    }
}

/// Puts a launch's parameters together: the caller's array has a pointer for each of them.
pub fn pack(
    params: In<*mut c_void>,
    layout: impl Iterator<Item = (usize, usize)>,
    bytes: usize,
) -> Answer<SmallVec<[u8; 64]>> {
    let mut block = SmallVec::from_elem(0, bytes);
    for (index, (offset, size)) in layout.enumerate() {
        let from = params.read_at(index)?;
        let to = block.get_mut(offset..offset + size).ok_or(INVALID_VALUE)?;
        if from.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: [c-caller] not null, and the caller promises a value of the parameter's size.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>().cast_const(), to.as_mut_ptr(), size) };
    }
    Ok(block)
}

/// The value of a launch attribute that is one integer.
pub fn launch_number(attribute: &CUlaunchAttribute) -> i32 {
    // SAFETY: [c-union] every bit pattern is an integer, and the caller filled the structure.
    unsafe { attribute.value.cooperative }
}

/// The value of the launch attribute that is a cluster's size.
pub fn launch_cluster(attribute: &CUlaunchAttribute) -> [u32; 3] {
    // SAFETY: [c-union] every bit pattern is three integers, and the caller filled the structure.
    let size = unsafe { attribute.value.clusterDim };
    [size.x, size.y, size.z]
}

/// The event of a launch attribute that has one.
pub fn launch_event(attribute: &CUlaunchAttribute) -> CUevent {
    // SAFETY: [c-union] both attributes with an event begin with it, and the caller filled the structure.
    unsafe { attribute.value.launchCompletionEvent.event }
}

/// A function of the caller's that says how much shared memory a block of a size needs.
#[derive(Clone, Copy)]
pub struct DynamicShared(unsafe extern "C" fn(c_int) -> usize);

impl FromC<CUoccupancyB2DSize> for Option<DynamicShared> {
    unsafe fn from_c(raw: CUoccupancyB2DSize) -> Self {
        raw.map(DynamicShared)
    }
}

impl DynamicShared {
    /// Asks it.
    pub fn of(&self, threads: c_int) -> usize {
        // SAFETY: [c-caller] who gave the function promised that it may be called during this call.
        unsafe { (self.0)(threads) }
    }
}

impl In<*mut c_void> {
    /// The pointers of an array of them, as places of unknown type; null is `INVALID_VALUE`.
    pub fn places(&self, count: usize) -> Answer<Vec<Untyped>> {
        Ok(self.read_many(count)?.into_iter().map(Untyped).collect())
    }
}

/// Which device or node a location is: all members of its union are one integer.
pub fn location_id(location: &CUmemLocation) -> i32 {
    // SAFETY: [c-union] every bit pattern is an integer, and the caller filled the structure.
    unsafe { location.__bindgen_anon_1.id }
}

/// A device as a location.
pub fn device_location(ordinal: usize) -> CUmemLocation {
    let mut location =
        CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, ..CUmemLocation::default() };
    location.__bindgen_anon_1.id = ordinal as i32;
    location
}

/// Pointers to the places in a block of parameters where the values begin.
pub fn pointers(block: &mut [u8], offsets: &[usize]) -> Vec<*mut c_void> {
    offsets
        .iter()
        .map(|offset| block.get_mut(*offset).map_or(std::ptr::null_mut(), |byte| (byte as *mut u8).cast()))
        .collect()
}

/// A host function and its argument, as `cuLaunchHostFunc` takes them.
#[derive(Clone, Copy)]
pub struct HostFunction {
    function: unsafe extern "C" fn(*mut c_void),
    data: usize,
}

impl HostFunction {
    /// From the arguments of a call; a null function is `INVALID_VALUE`.
    pub fn new(function: cuirass_sys::cuda::CUhostFn, data: Untyped) -> Answer<Self> {
        let function = function.ok_or(INVALID_VALUE)?;
        Ok(Self { function, data: data.address() })
    }

    /// As the parameters of a graph's host node.
    pub fn params(&self) -> CUDA_HOST_NODE_PARAMS {
        CUDA_HOST_NODE_PARAMS { fn_: Some(self.function), userData: self.data as *mut c_void }
    }

    /// Runs it.
    pub fn call(&self) {
        // SAFETY: [c-caller] who gave the function promised that it may be called with this argument, once for
        // each time its work runs.
        unsafe { (self.function)(self.data as *mut c_void) }
    }
}

/// A stream callback and its argument, as `cuStreamAddCallback` takes them.
#[derive(Clone, Copy)]
pub struct StreamCallback {
    function: unsafe extern "C" fn(CUstream, Status, *mut c_void),
    stream: usize,
    data: usize,
}

impl StreamCallback {
    /// From the arguments of a call; a null function is `INVALID_VALUE`.
    pub fn new(stream: CUstream, function: cuirass_sys::cuda::CUstreamCallback, data: Untyped) -> Answer<Self> {
        let function = function.ok_or(INVALID_VALUE)?;
        Ok(Self { function, stream: stream as usize, data: data.address() })
    }

    /// Runs it.
    pub fn call(&self, status: Status) {
        // SAFETY: [c-caller] as for a host function.
        unsafe { (self.function)(self.stream as CUstream, status, self.data as *mut c_void) }
    }
}

/// The multiprocessors of a device resource of that type.
pub fn sm_resource(resource: &CUdevResource) -> CUdevSmResource {
    // SAFETY: [c-union] every member is plain numbers, and the union was filled as a whole.
    unsafe { resource.__bindgen_anon_1.sm }
}

/// What the generic calls say of a node.
pub enum NodeParams {
    /// A kernel.
    Kernel(CUDA_KERNEL_NODE_PARAMS_v3),
    /// A copy, and its context.
    Copy(CUDA_MEMCPY3D, CUcontext),
    /// A fill, and its context.
    Fill(CUDA_MEMSET_NODE_PARAMS, CUcontext),
    /// A host function.
    Host(HostFunction),
    /// A child graph.
    Graph(CUgraph),
    /// Nothing.
    Empty,
    /// Waiting for an event.
    Wait(CUevent),
    /// Recording an event.
    Record(CUevent),
    /// Freeing memory.
    Free(CUdeviceptr),
    /// A condition and what is run as it says.
    Conditional(CUDA_CONDITIONAL_NODE_PARAMS),
    /// A kind that is not simulated.
    Other,
}

impl NodeParams {
    /// Reads the member that the type names.
    ///
    /// # Errors
    /// `INVALID_VALUE` for a host node without a function.
    pub fn read(params: &CUgraphNodeParams) -> Answer<Self> {
        use CUgraphNodeType as Type;
        let parts = &params.__bindgen_anon_1;
        // SAFETY: [c-union] the caller filled the member that the type names; every member is plain numbers and
        // pointers, and the whole union was initialised.
        unsafe {
            Ok(match params.type_ {
                Type::CU_GRAPH_NODE_TYPE_KERNEL => Self::Kernel(parts.kernel),
                Type::CU_GRAPH_NODE_TYPE_MEMCPY => Self::Copy(parts.memcpy.copyParams, parts.memcpy.copyCtx),
                Type::CU_GRAPH_NODE_TYPE_MEMSET => {
                    let CUDA_MEMSET_NODE_PARAMS_v2 { dst, pitch, value, elementSize, width, height, ctx } =
                        parts.memset;
                    Self::Fill(CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, elementSize, width, height }, ctx)
                }
                Type::CU_GRAPH_NODE_TYPE_HOST => {
                    Self::Host(HostFunction::new(parts.host.fn_, Untyped(parts.host.userData))?)
                }
                Type::CU_GRAPH_NODE_TYPE_GRAPH => Self::Graph(parts.graph.graph),
                Type::CU_GRAPH_NODE_TYPE_EMPTY => Self::Empty,
                Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT => Self::Wait(parts.eventWait.event),
                Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD => Self::Record(parts.eventRecord.event),
                Type::CU_GRAPH_NODE_TYPE_MEM_FREE => Self::Free(parts.free.dptr),
                Type::CU_GRAPH_NODE_TYPE_CONDITIONAL => Self::Conditional(parts.conditional),
                _ => Self::Other,
            })
        }
    }

    /// Says where the bodies of a conditional node are.
    pub fn set_bodies(params: &mut CUgraphNodeParams, list: *mut CUgraph) {
        if params.type_ == CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL {
            params.__bindgen_anon_1.conditional.phGraph_out = list;
        }
    }
}

/// The address of an exported function.
pub struct Address(pub *const c_void);

// SAFETY: [plain-address] a number that nobody dereferences here; functions may be called from any thread.
unsafe impl Sync for Address {}
