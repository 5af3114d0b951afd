//! Plain device memory, copies, fills, and what a pointer is.

use super::Indices;
use crate::Result;
use crate::load;
use crate::status::driver_call;
use cuirass_sys::cuda::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, CUmemcpyAttributes, CUpointer_attribute, CUstream};
use std::ffi::c_void;

/// `cuMemAlloc_v2`, in the current context.
pub fn alloc(bytes: usize) -> Result<CUdeviceptr> {
    let mut address = 0;
    driver_call!(entry!(cuMemAlloc_v2), (&raw mut address, bytes), "{bytes} bytes")?;
    Ok(address)
}

/// `cuMemFree_v2`
pub fn free(address: CUdeviceptr) -> Result<()> {
    driver_call!(entry!(cuMemFree_v2), (address), "{address:#x}")
}

/// `cuMemGetInfo_v2`: free and total bytes of the current context's device.
pub fn get_info() -> Result<(usize, usize)> {
    let (mut free, mut total) = (0, 0);
    driver_call!(entry!(cuMemGetInfo_v2), (&raw mut free, &raw mut total), "")?;
    Ok((free, total))
}

/// `cuMemGetAddressRange_v2`: the allocation that holds an address: its start and its size in bytes.
pub fn get_address_range(address: CUdeviceptr) -> Result<(CUdeviceptr, usize)> {
    let (mut base, mut bytes) = (0, 0);
    driver_call!(entry!(cuMemGetAddressRange_v2), (&raw mut base, &raw mut bytes, address), "{address:#x}")?;
    Ok((base, bytes))
}

/// `cuPointerGetAttribute`; false for a pointer that the driver does not know.
///
/// # Safety
/// `value` has room for what the attribute is.
pub unsafe fn pointer_get_attribute(
    value: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Result<bool> {
    driver_call!(
        entry!(cuPointerGetAttribute),
        (value, attribute, address),
        answers INVALID_VALUE,
        "attribute {}, {address:#x}", attribute.0
    )
}

/// `cuPointerGetAttributes`: several at once; what a pointer does not have is left zero.
///
/// # Safety
/// Each of `values` has room for what its attribute is.
pub unsafe fn pointer_get_attributes(
    attributes: &mut [CUpointer_attribute],
    values: &mut [*mut c_void],
    address: CUdeviceptr,
) -> Result<()> {
    let count = u32::try_from(attributes.len().min(values.len())).unwrap_or(0);
    driver_call!(
        entry!(cuPointerGetAttributes),
        (count, attributes.as_mut_ptr(), values.as_mut_ptr(), address),
        "{address:#x}"
    )
}

/// `cuMemcpyAsync`: between any two addresses that the driver can tell apart.
///
/// # Safety
/// Both ranges are valid until the stream has passed the copy, and nothing else touches them meanwhile.
#[inline]
pub unsafe fn memcpy_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Result<()> {
    driver_call!(
        entry!(cuMemcpyAsync),
        (to, from, bytes, stream),
        "to {to:#x}, from {from:#x}, {bytes} bytes, stream {stream:p}"
    )
}

/// `cuMemcpyDtoDAsync_v2`
///
/// # Safety
/// As [`memcpy_async`].
#[inline]
pub unsafe fn memcpy_dtod_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Result<()> {
    driver_call!(
        entry!(cuMemcpyDtoDAsync_v2),
        (to, from, bytes, stream),
        "to {to:#x}, from {from:#x}, {bytes} bytes, stream {stream:p}"
    )
}

/// `cuMemcpyHtoDAsync_v2`
///
/// # Safety
/// `from` is readable for `bytes` until the stream has passed the copy; the rest as [`memcpy_async`].
#[inline]
pub unsafe fn memcpy_htod_async(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> Result<()> {
    driver_call!(
        entry!(cuMemcpyHtoDAsync_v2),
        (to, from, bytes, stream),
        "to {to:#x}, from host {from:p}, {bytes} bytes, stream {stream:p}"
    )
}

/// `cuMemcpyDtoHAsync_v2`
///
/// # Safety
/// `to` is writable for `bytes`, and nothing else touches it, until the stream has passed the copy.
#[inline]
pub unsafe fn memcpy_dtoh_async(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Result<()> {
    driver_call!(
        entry!(cuMemcpyDtoHAsync_v2),
        (to, from, bytes, stream),
        "to host {to:p}, from {from:#x}, {bytes} bytes, stream {stream:p}"
    )
}

/// `cuMemcpyHtoD_v2`: finishes before it returns.
///
/// # Safety
/// `from` is readable for `bytes`.
pub unsafe fn memcpy_htod(to: CUdeviceptr, from: *const c_void, bytes: usize) -> Result<()> {
    driver_call!(entry!(cuMemcpyHtoD_v2), (to, from, bytes), "to {to:#x}, from host {from:p}, {bytes} bytes")
}

/// `cuMemcpyDtoH_v2`: finishes before it returns.
///
/// # Safety
/// `to` is writable for `bytes`.
pub unsafe fn memcpy_dtoh(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> Result<()> {
    driver_call!(entry!(cuMemcpyDtoH_v2), (to, from, bytes), "to host {to:p}, from {from:#x}, {bytes} bytes")
}

/// `cuMemcpyDtoD_v2`
///
/// # Safety
/// Both ranges are valid, and nothing else touches them meanwhile.
pub unsafe fn memcpy_dtod(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result<()> {
    driver_call!(entry!(cuMemcpyDtoD_v2), (to, from, bytes), "to {to:#x}, from {from:#x}, {bytes} bytes")
}

/// `cuMemcpyBatchAsync_v2` (before CUDA 13.0 `cuMemcpyBatchAsync`): attributes that hold for all copies, or one each. In
/// no order among one another.
///
/// # Safety
/// As [`memcpy_async`], for each copy; `to`, `from` and `sizes` are of one length, and `attributes` has one entry or as
/// many.
pub unsafe fn memcpy_batch_async(
    to: &mut [CUdeviceptr],
    from: &mut [CUdeviceptr],
    sizes: &mut [usize],
    attributes: &mut [CUmemcpyAttributes],
    stream: CUstream,
) -> Result<()> {
    let mut indices = Indices::of(attributes.len())?;
    if load::driver_version().is_ok_and(|version| version < 13000) {
        let mut failed = usize::MAX;
        return driver_call!(
            entry!(cuMemcpyBatchAsync),
            (
                to.as_mut_ptr(),
                from.as_mut_ptr(),
                sizes.as_mut_ptr(),
                to.len(),
                attributes.as_mut_ptr(),
                indices.as_mut_ptr(),
                attributes.len(),
                &raw mut failed,
                stream
            ),
            "{} copies, stream {stream:p}{}",
            to.len(),
            if failed < to.len() { format!(", at copy {failed}") } else { String::new() }
        );
    }
    driver_call!(
        entry!(cuMemcpyBatchAsync_v2),
        (
            to.as_mut_ptr(),
            from.as_mut_ptr(),
            sizes.as_mut_ptr(),
            to.len(),
            attributes.as_mut_ptr(),
            indices.as_mut_ptr(),
            attributes.len(),
            stream
        ),
        "{} copies, stream {stream:p}",
        to.len()
    )
}

/// `cuMemcpy2DAsync_v2`
///
/// # Safety
/// The rectangles that `copy` names are valid until the stream has passed the copy, and nothing unordered touches them.
pub unsafe fn memcpy_2d_async(copy: &CUDA_MEMCPY2D, stream: CUstream) -> Result<()> {
    driver_call!(
        entry!(cuMemcpy2DAsync_v2),
        (copy, stream),
        "{} bytes by {}, stream {stream:p}",
        copy.WidthInBytes,
        copy.Height
    )
}

/// `cuMemcpy3DAsync_v2`
///
/// # Safety
/// As [`memcpy_2d_async`].
pub unsafe fn memcpy_3d_async(copy: &CUDA_MEMCPY3D, stream: CUstream) -> Result<()> {
    driver_call!(
        entry!(cuMemcpy3DAsync_v2),
        (copy, stream),
        "{} bytes by {} by {}, stream {stream:p}",
        copy.WidthInBytes,
        copy.Height,
        copy.Depth
    )
}

macro_rules! fills {
    ($($(#[$doc:meta])* $name:ident(entry!($call:ident), $value:ty $(, $stream:ident)?);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The range is valid until the fill is done, and nothing else touches it meanwhile.
        #[inline]
        pub unsafe fn $name(to: CUdeviceptr, value: $value, count: usize $(, $stream: CUstream)?) -> Result<()> {
            driver_call!(
                entry!($call),
                (to, value, count $(, $stream)?),
                "{to:#x}, value {value}, {count} elements{}",
                format_args!(concat!("" $(, ", ", stringify!($stream), " {:p}")?) $(, $stream)?)
            )
        }
    )*};
}

fills! {
    /// The call of its name, for bytes.
    memset_d8(entry!(cuMemsetD8_v2), u8);
    /// The call of its name, for pairs of bytes.
    memset_d16(entry!(cuMemsetD16_v2), u16);
    /// The call of its name, for groups of four bytes.
    memset_d32(entry!(cuMemsetD32_v2), u32);
    /// The call of its name, for bytes, in stream order.
    memset_d8_async(entry!(cuMemsetD8Async), u8, stream);
    /// The call of its name, for pairs of bytes, in stream order.
    memset_d16_async(entry!(cuMemsetD16Async), u16, stream);
    /// The call of its name, for groups of four bytes, in stream order.
    memset_d32_async(entry!(cuMemsetD32Async), u32, stream);
}
