//! C's pointers as values that safe code can use.
//!
//! The exported functions turn each raw argument into one of these types ([`FromC`]); what `cuda.h` makes the
//! caller promise of a pointer (that it points to what its type says, to as many as the call's count says, for the
//! time of the call) is taken as given here and nowhere else.

#![allow(unsafe_code)]

use crate::status::{Answer, INVALID_VALUE, Status};
use cuirass_sys::cuda::{CUDA_HOST_NODE_PARAMS, CUstream};
use std::ffi::{CStr, c_char, c_void};

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

/// The address of an exported function.
pub struct Address(pub *const c_void);

// SAFETY: [plain-address] a number that nobody dereferences here; functions may be called from any thread.
unsafe impl Sync for Address {}
